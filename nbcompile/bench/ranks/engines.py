"""What ranks are: engines of an ipyparallel cluster on this machine, or plain processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, Protocol

from nbcompile.bench.ranks.task import RankTask, Reply
from nbcompile.bench.ranks.worker import alive
from nbcompile.errors import RanksError

_START_SECONDS = 60.0
_CODE = "nbcompile.bench.ranks.cell"


class Engines(Protocol):
    """``size`` processes, rank 0 first. One task at a time."""

    kind: str
    size: int

    def start(self, task: RankTask) -> None:
        """Give every rank the task."""
        ...

    def reply(self, rank: int) -> Reply | None:
        """What a rank answered; ``None`` while it works. RanksError if it is dead."""
        ...

    def stop(self) -> None:
        """End the processes, at once: a rank that waits in a collective hears no signal."""
        ...


def environment(rank: int, size: int, device: str, port: int) -> dict[str, str]:
    """What a rank finds in its environment before it imports torch."""
    found = {
        "RANK": str(rank),
        # Which of the GPUs that it sees is a rank's: torch's device mesh sets that one.
        "LOCAL_RANK": "0" if device == "cuda" else str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // size)),
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if sys.platform == "linux":  # all ranks are here, and a host name need not resolve
        found["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    if device == "cuda":
        seen = [part for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part]
        found["CUDA_VISIBLE_DEVICES"] = seen[rank] if seen else str(rank)
    return found


_ROOT = Path(__file__).resolve().parents[3]


class Processes:
    """Plain processes of this Python, which listen on a socket of this user's alone."""

    kind = "processes"

    def __init__(self, size: int, device: str, port: int) -> None:
        self.size = size
        self._folder = tempfile.TemporaryDirectory(prefix="nbcompile-ranks-")
        key = secrets.token_bytes(16)
        address = str(Path(self._folder.name) / "socket")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: dict[int, Connection] = {}
        with Listener(address, authkey=key) as listener:
            for rank in range(size):
                env = {
                    **os.environ,
                    **environment(rank, size, device, port),
                    "NBCOMPILE_RANKS_KEY": key.hex(),
                }
                with self._log(rank).open("wb") as log:
                    self._processes.append(
                        subprocess.Popen(
                            [sys.executable, "-m", "nbcompile.bench.ranks.worker", address],
                            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                        )
                    )  # fmt: skip
            _set_timeout(listener, _START_SECONDS)
            try:
                for _ in range(size):
                    connection = listener.accept()
                    self._connections[int(connection.recv_bytes())] = connection
            except OSError as error:
                said = " ".join(filter(None, (self._last_line(rank) for rank in range(size))))
                self.stop()
                raise RanksError(f"the processes of the ranks did not start. {said}") from error

    def start(self, task: RankTask) -> None:
        data = pickle.dumps(task)
        for rank, connection in self._connections.items():
            try:
                connection.send_bytes(data)
            except OSError as error:
                raise self._dead(rank) from error

    def reply(self, rank: int) -> Reply | None:
        connection = self._connections[rank]
        try:
            if not connection.poll():
                return None
            reply: Reply = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._dead(rank) from error
        return reply

    def stop(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._connections.clear()
        self._processes.clear()
        self._folder.cleanup()

    def _log(self, rank: int) -> Path:
        return Path(self._folder.name) / f"log{rank}"

    def _last_line(self, rank: int) -> str:
        with contextlib.suppress(OSError):
            lines = self._log(rank).read_text("utf-8", "replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""

    def _dead(self, rank: int) -> RanksError:
        code = self._processes[rank].poll()
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return RanksError(f"rank {rank} died ({how}). {self._last_line(rank)}".strip(), rank=rank)


class Cluster:
    """Engines of an ipyparallel cluster of its own, started for the purpose."""

    kind = "ipyparallel"

    def __init__(self, size: int, device: str, port: int) -> None:
        try:
            import ipyparallel
        except ImportError as error:
            raise RanksError(
                "ranks in a notebook are engines of ipyparallel, which is not installed.",
                advice="Run: pip install ipyparallel",
            ) from error
        self.size = size
        with _silent():
            self._cluster: Any = ipyparallel.Cluster(n=size, log_level=40, shutdown_atexit=False)
            self._cluster.start_cluster_sync()
            self._client: Any = self._cluster.connect_client_sync()
            self._client.wait_for_engines(size, timeout=_START_SECONDS, interactive=False)
        self._views = [self._client[id] for id in sorted(self._client.ids)[:size]]
        # A session that was killed leaves neither engines nor controller behind.
        pid = getattr(self._cluster.controller, "pid", None)
        controller = (pid,) if isinstance(pid, int) else ()
        for rank, view in enumerate(self._views):
            settings = environment(rank, size, device, port)
            code = (
                f"import os, sys; os.environ.update({settings!r}); sys.path.insert(0, {str(_ROOT)!r})\n"
                f"from nbcompile.bench.ranks.worker import end_with; end_with{(os.getpid(), *controller)}"
            )
            view.execute(code, block=True)
        # With torch, which must see that environment: importing it is no part of the first run.
        for pending in [view.execute(f"import {_CODE}", block=False) for view in self._views]:
            pending.get(_START_SECONDS)
        self._pids = [view.apply_sync(os.getpid) for view in self._views]
        self._pending: list[Any] = []

    def start(self, task: RankTask) -> None:
        from nbcompile.bench.ranks.worker import answer

        data = pickle.dumps(task)
        self._pending = [view.apply_async(answer, data) for view in self._views]

    def reply(self, rank: int) -> Reply | None:
        pending = self._pending[rank]
        if not pending.ready():
            if not alive(self._pids[rank]):
                raise RanksError(f"rank {rank} died.", rank=rank)
            return None
        try:
            reply: Reply = pickle.loads(pending.get())
        except Exception as error:  # ipyparallel's own: the engine is gone, or cannot import us
            raise RanksError(f"rank {rank} could not run the cell: {error}", rank=rank) from error
        return reply

    def stop(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with _silent(), contextlib.suppress(Exception):
            self._client.close()
            self._cluster.stop_cluster_sync()
        self._pids.clear()


def _set_timeout(listener: Listener, seconds: float) -> None:
    # A Listener has no public way to give up.
    found = getattr(getattr(listener, "_listener", None), "_socket", None)
    if found is not None:
        found.settimeout(seconds)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """ipyparallel tells of its engines on stderr."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        yield

"""On a rank: runs the tasks it is given. ``python -m nbcompile.bench.ranks.worker ADDRESS`` is a rank that is
a plain process; an ipyparallel engine calls :func:`answer`.

What decides which GPU this rank has is in its environment before torch is imported.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from nbcompile.bench.ranks.task import Failure, RankTask, Reply

_KEY = "NBCOMPILE_RANKS_KEY"


def alive(pid: int) -> bool:
    """Whether there is such a process, and not only what is left of it (a zombie)."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:  # no /proc here
        return True
    return state != "Z"


def end_with(session: int, *others: int) -> None:
    """End this process, and ``others``, soon after the process ``session`` has ended: however that came, and
    whatever this one waits for."""

    def watch() -> None:
        while alive(session):
            time.sleep(2.0)
        for pid in others:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="nbcompile-session").start()


def answer(data: bytes) -> bytes:
    """A pickled :class:`RankTask`, to a pickled :class:`Reply`. Never raises an Exception."""
    rank = int(os.environ["RANK"])
    try:
        task: RankTask = pickle.loads(data)
        sys.path.extend(path for path in task.path if path not in sys.path)
        from nbcompile.bench.ranks.cell import run

        reply = run(task, rank)
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        reply = Reply(rank, failure=Failure(type(error).__name__, str(error), None, text, time.time()))
    return pickle.dumps(reply)


def main(address: str) -> None:
    """Answer the session that listens at ``address`` until it is gone or done with us."""
    from multiprocessing.connection import Client

    import nbcompile.bench.ranks.cell  # noqa: F401  # takes seconds, which are no part of the first run

    end_with(os.getppid())
    key = bytes.fromhex(os.environ.pop(_KEY))
    with Client(address, authkey=key) as connection:
        connection.send_bytes(str(os.environ["RANK"]).encode())
        while True:
            try:
                data = connection.recv_bytes()
            except (EOFError, OSError):  # the session is gone, or done with us
                return
            connection.send_bytes(answer(data))


if __name__ == "__main__":
    main(sys.argv[1])

"""A sweep of 200 points on four Dask workers beside one: how much faster, with a worker killed, and resumed.

    python scripts/sweep_cluster.py             # 5 sizes × 2 types × 5 backends × 4 programs; minutes
    python scripts/sweep_cluster.py --quick     # 20 points of them
    python scripts/sweep_cluster.py --forward   # without the backward pass, for backends that do not train

One worker has all the cores (torch's threads); four have one each, or what there is. Both start with nothing
imported, and every compile is cold: caches are a point's own. What is asked for is a ratio of at least 1.7 on
two cores. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.bench.sweep.result import Sweep

WORKERS = 4
SIZES, DTYPES = (4, 16, 64, 256, 1024), ("float32", "bfloat16")
BACKENDS = ("eager", "aot_eager", "nbcompile", "inductor", "aot_eager_decomp_partition")
WIDTH = 64


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k, v = (x @ w).chunk(3, dim=-1)
    scores = torch.softmax(q @ k.transpose(-1, -2) * WIDTH**-0.5, dim=-1)
    return x + scores @ v


def swiglu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    gate, up, _ = (y @ w).chunk(3, dim=-1)
    return x + F.silu(gate) * up


def norms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for part in w.chunk(3, dim=-1):
        x = F.layer_norm(F.gelu(x @ part) + x, (WIDTH,))
    return x


def losses(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    logits = F.log_softmax(x @ w, dim=-1)
    entropy = -(logits.exp() * logits).sum(-1)
    return entropy.mean() + logits.amax(-1).var() + logits.sigmoid().std(0).sum()


PROGRAMS = {f.__name__: f for f in (attention, swiglu, norms, losses)}


def make(program: str, rows: int, dtype: torch.dtype) -> tuple[Any, tuple[torch.Tensor, ...]]:
    x, w = torch.randn(rows, WIDTH, dtype=dtype), torch.randn(WIDTH, 3 * WIDTH, dtype=dtype)
    return PROGRAMS[program], (x.requires_grad_(), (w * WIDTH**-0.5).requires_grad_())


def used() -> float:
    """CPU seconds of this process and of the compilers it has run."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(times.ru_utime + times.ru_stime for times in map(resource.getrusage, kinds))


class Cluster:
    """Dask workers in processes of their own."""

    def __init__(self, workers: int, train: bool) -> None:
        self.train = train
        import dask
        from distributed import Client, LocalCluster

        # What a worker does beside: on one core for two workers it would be timed with them.
        dask.config.set({"distributed.worker.profile.enabled": False})
        self.cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        self.client = Client(self.cluster)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.cluster.close()

    def sweep(self, grid: dict[str, Any], **settings: Any) -> tuple[float, Sweep]:
        begun = time.perf_counter()
        executor = self.client.get_executor()
        found = nbcompile.compare(None, make, grid, executor=executor, train=self.train, **settings)
        return time.perf_counter() - begun, found


def told(found: Sweep) -> str:
    counts = Counter(outcome.status for outcome in found.outcomes.values())
    said = [", ".join(f"{count} {status}" for status, count in counts.items())]
    for point, outcome in found.outcomes.items():
        if outcome.status not in ("ok", "not run"):
            said.append(f"        {point}: {outcome.reason}")
    return "\n".join(said)


def timed(workers: int, grid: dict[str, Any], train: bool) -> float:
    with Cluster(workers, train) as cluster:
        seconds, found = cluster.sweep(grid)
        spent = sum(cluster.client.run(used).values())
    busy = sum(outcome.seconds for outcome in found.outcomes.values())
    threads = {row["threads"] for row in found.rows() if row["threads"]}
    print(f"{workers} worker(s), torch's threads {threads}: {seconds:.1f} s for {len(found)} points")
    print(f"    {told(found)}")
    for backend in dict.fromkeys(point.backend for point in found.points):
        own = [o.seconds for point, o in found.outcomes.items() if point.backend == backend]
        print(f"    {backend}: {sum(own) / len(own):.2f} s a point")
    print(f"    in points {busy / workers:.1f} s a worker, {seconds - busy / workers:.1f} s outside of them")
    print(f"    {spent:.1f} s of CPU time in the workers, compilers included", flush=True)
    return seconds


def interrupted_and_killed(grid: dict[str, Any], store: Path) -> None:
    """Kill a worker at a quarter, interrupt at half, go on from the store."""
    with Cluster(WORKERS, train=False) as cluster:
        pids = list(cluster.client.run(os.getpid).values())
        said = 0

        def progress(text: str) -> None:
            nonlocal said
            done, total = int(text.split()[0]), int(text.split()[2])
            if said == 0 and done >= total // 4:
                said = 1
                os.kill(pids[0], signal.SIGKILL)
            elif said == 1 and done >= total // 2:
                said = 2
                raise KeyboardInterrupt

        _, first = cluster.sweep(grid, store=store, progress=progress)
        print(f"a worker killed, then interrupted: {told(first)}")
        _, second = cluster.sweep(grid, store=store)
        print(f"resumed: {told(second)}")
    keys = [json.loads(line)["key"] for line in store.read_text().splitlines()]
    print(f"{len(keys)} points were finished, {len(keys) - len(set(keys))} of them twice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 points")
    parser.add_argument("--forward", action="store_true", help="no backward pass")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="comma-separated")
    parser.add_argument("--only", choices=("ratio", "resume"), help="one of the two parts")
    asked = parser.parse_args()
    grid = {
        "backend": asked.backends.split(","),
        "dtype": DTYPES[: 1 if asked.quick else 2],
        "rows": SIZES[: 2 if asked.quick else 5],
        "program": tuple(PROGRAMS)[: 2 if asked.quick else 4],
    }
    if asked.only != "resume":
        # Four first, so that they are the ones that build Inductor's header.
        four = timed(WORKERS, grid, not asked.forward)
        one = timed(1, grid, not asked.forward)
        print(f"{WORKERS} workers are {one / four:.2f} times as fast as one")
    if asked.only != "ratio":
        small = {**grid, "backend": ("eager", "aot_eager", "nbcompile"), "rows": SIZES[:2]}
        with tempfile.TemporaryDirectory() as folder:
            interrupted_and_killed(small, Path(folder) / "sweep.jsonl")


if __name__ == "__main__":
    main()

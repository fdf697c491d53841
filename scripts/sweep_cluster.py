"""A sweep of 200 points on four Dask workers beside one: how much faster, with a worker killed, and resumed.

    python scripts/sweep_cluster.py             # 5 sizes × 2 types × 5 backends × 4 programs; minutes
    python scripts/sweep_cluster.py --quick     # 20 points of them

One worker has all the cores (torch's threads); four have one each, or what there is. Both start with nothing
imported, and every compile is cold: caches are a point's own. What is asked for is a ratio of at least 1.7 on
two cores. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.sweep.result import Sweep

WORKERS = 4
SIZES, DTYPES = (4, 16, 64, 256, 1024), ("float32", "bfloat16")
BACKENDS = ("eager", "aot_eager", "nbcompile", "inductor", "aot_eager_decomp_partition")


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 0.125, dim=-1)


def gelu_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x), x.shape[-1:])


def swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def distances(x: torch.Tensor) -> torch.Tensor:
    return ((x[:, None, :16] - x[None, :8, :16]) ** 2).sum(-1).sqrt()


PROGRAMS = {f.__name__: f for f in (softmax, gelu_norm, swiglu, distances)}


def make(program: str, rows: int, dtype: torch.dtype) -> tuple[Any, tuple[torch.Tensor, ...]]:
    return PROGRAMS[program], (torch.randn(rows, 64, dtype=dtype),)


class Cluster:
    """Dask workers in processes of their own."""

    def __init__(self, workers: int) -> None:
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        self.client = Client(self.cluster)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.cluster.close()

    def sweep(self, grid: dict[str, Any], **settings: Any) -> tuple[float, Sweep]:
        begun = time.perf_counter()
        found = nbcompile.compare(
            None, make, grid, executor=self.client.get_executor(), budget=0.1, **settings
        )
        return time.perf_counter() - begun, found


def told(found: Sweep) -> str:
    counts = Counter(outcome.status for outcome in found.outcomes.values())
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def timed(workers: int, grid: dict[str, Any]) -> float:
    with Cluster(workers) as cluster:
        seconds, found = cluster.sweep(grid)
    busy = sum(outcome.seconds for outcome in found.outcomes.values())
    threads = {row["threads"] for row in found.rows() if row["threads"]}
    print(f"{workers} worker(s), torch's threads {threads}: {seconds:.1f} s for {len(found)} points")
    print(f"    {told(found)}")
    for backend in dict.fromkeys(point.backend for point in found.points):
        own = [o.seconds for point, o in found.outcomes.items() if point.backend == backend]
        print(f"    {backend}: {sum(own) / len(own):.2f} s a point")
    print(f"    in points {busy / workers:.1f} s a worker, the rest is imports and hand-over", flush=True)
    return seconds


def interrupted_and_killed(grid: dict[str, Any], store: Path) -> None:
    """Kill a worker at a quarter, interrupt at half, go on from the store."""
    with Cluster(WORKERS) as cluster:
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
        four = timed(WORKERS, grid)  # first, so that it is the one that builds Inductor's header
        one = timed(1, grid)
        print(f"{WORKERS} workers are {one / four:.2f} times as fast as one")
    if asked.only != "ratio":
        small = {**grid, "backend": ("eager", "aot_eager", "nbcompile"), "rows": SIZES[:2]}
        with tempfile.TemporaryDirectory() as folder:
            interrupted_and_killed(small, Path(folder) / "sweep.jsonl")


if __name__ == "__main__":
    main()

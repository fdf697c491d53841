"""Programs that are compiled with TORCH_TRACE set, and traces written by hand."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

CAPTURES = """
import torch

def compiled(**options):
    return torch.compile(backend=BACKEND, **options)

@compiled()
def broken(x):
    y = torch.relu(x) * 2
    print("a break")
    return torch.softmax(y, -1)

@compiled()
def again(x, flag):
    return x.sin() if flag else x.cos()

@compiled(fullgraph=True)
def fails(x):
    torch._dynamo.graph_break()
    return x + 1

@compiled()
def empty(n):
    return n + 1

@compiled(dynamic=True)
def specialized(x):
    return x * x.shape[0] if x.shape[0] == 6 else x

def everything():
    broken(torch.randn(4, 8))
    again(torch.randn(4), True)
    again(torch.randn(5), True)
    again(torch.randn(5), False)
    try:
        fails(torch.randn(3))
    except Exception as error:
        print(type(error).__name__)
    empty(3)
    specialized(torch.randn(6))

everything()
"""
"""Breaks, recompiles, a failure, nothing to compile, a size that becomes a number."""

TRAINING = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.inner(x))
        return self.outer(hidden).softmax(-1)

torch.manual_seed(0)
model = Block()
for _ in range(2):
    step = torch.compile(model, backend=BACKEND)
    step(torch.randn(2, 8)).square().mean().backward()
    torch._dynamo.reset()
"""
"""A forward and a backward, and the same again after a reset: found in Inductor's cache."""


def traced(program: str, folder: Path, backend: str, **environment: str) -> Path:
    """Run a program in a process of its own with TORCH_TRACE set; the one file that it wrote."""
    script = folder / "job.py"
    script.write_text(f"BACKEND = {backend!r}\n{program}")
    traces = folder / "traces"
    run = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "TORCH_TRACE": str(traces),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            **environment,
        },
    )
    assert run.returncode == 0, run.stderr
    (file,) = traces.glob("*.log")
    return file


def record(header: Mapping[str, Any], payload: str | None = None, **place: int) -> str:
    """One record as torch writes it. ``place``: ``frame_id`` and the like."""
    told = {**header, **place}
    if payload is None:
        return f"V1125 21:11:41.537000 9061 torch/_dynamo/utils.py:2350] {json.dumps(told)}\n"
    told["has_payload"] = hashlib.md5(payload.encode()).hexdigest()
    body = "".join(f"\n\t{line}" for line in payload.split("\n"))
    return f"V1125 21:11:41.537000 9061 torch/_dynamo/utils.py:2350] {json.dumps(told)}{body}\n"


def artifact(name: str, payload: str, frame: int = 0, compile: int = 0, attempt: int = 0) -> str:
    return record(
        {"artifact": {"name": name, "encoding": "string"}},
        payload,
        frame_id=frame,
        frame_compile_id=compile,
        attempt=attempt,
    )


def compilation(
    frame: int = 0,
    graph: str = "class GraphModule: ...",
    guards: str = "",
    metrics: Mapping[str, Any] | None = None,
) -> str:
    """All of a small compilation."""
    place = {"frame_id": frame, "frame_compile_id": 0, "attempt": 0}
    found = record({"dynamo_start": {"stack": [{"line": 4, "name": "f", "filename": 0}]}}, None, **place)
    found += record({"dynamo_output_graph": {"sizes": {}}}, graph, **place)
    found += record({"dynamo_cpp_guards_str": {}}, guards or "TREE_GUARD_MANAGER:", **place)
    told = {"co_name": "f", "graph_op_count": 1, "entire_frame_compile_time_s": 0.5, **(metrics or {})}
    return found + record({"compilation_metrics": told}, None, **place)


def written(path: Path, records: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(records), encoding="utf-8")
    return path

"""What Inductor takes from its own caches shows what it showed when compiled, in other processes too."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nbcompile.record.compilation import Compilation, Graph, Node

_PROGRAM = """
import sys
import torch
from nbcompile import compile
from torch._functorch import config
{moved}
def f(x):
    return (x.exp() * 3).sum(0)

def g(x):
    return x @ x

def record(name):
    run = compile(f, backend="inductor")
    run(torch.ones(6, 5, requires_grad=True)).sum().backward()
    assert run.ran_compiled
    open(sys.argv[2] + name, "w").write(run.compilation.to_json())

if sys.argv[1] == "cold":
    record("cold")
    # What a plain torch.compile left in the cache is taken from it: the hooks change no key.
    torch.compile(g)(torch.ones(4, 4))
    run = compile(g, backend="inductor")
    run(torch.ones(4, 4))
    open(sys.argv[2] + "unseen", "w").write(run.compilation.to_json())
else:
    record("autograd-hit")
    with config.patch(enable_autograd_cache=False):
        record("graph-hit")
"""


def _run(folder: Path, which: str, moved: str) -> None:
    program = folder / "program.py"
    program.write_text(_PROGRAM.format(moved=moved))
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "NBCOMPILE_CACHE_DIR": str(folder / "nbcompile"),
        "OMP_NUM_THREADS": "1",
        # Neither asks the compiler what it can do nor prepares for many kernels: there are two.
        "TORCHINDUCTOR_VEC_ISA_OK": "0",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    done = subprocess.run(
        [sys.executable, str(program), which, f"{folder}/"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compilation]:
    """A cold compile, then warm ones in another process, where the function stands two lines lower."""
    folder = tmp_path_factory.mktemp("inductor-cache")
    _run(folder, "cold", "")
    _run(folder, "warm", "# moved\n# down\n")
    names = ("cold", "unseen", "autograd-hit", "graph-hit")
    return {name: Compilation.from_json((folder / name).read_text()) for name in names}


def _lower(graph: Graph, lines: int) -> Graph:
    def moved(node: Node) -> Node:
        spans = tuple(
            replace(s, line=s.line + lines, end_line=s.end_line and s.end_line + lines) for s in node.spans
        )
        return replace(node, spans=spans)

    return replace(graph, nodes=tuple(map(moved, graph.nodes)))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("warm", ["autograd-hit", "graph-hit"])
def test_a_warm_compile_in_another_process_shows_what_the_cold_one_did(
    records: dict[str, Compilation], warm: str
) -> None:
    cold, got = records["cold"], records[warm]
    assert not cold.from_cache and got.from_cache and not got.notes
    wanted = (
        "g0.fx",
        "g0.joint",
        "g0.fw",
        "g0.fw.loops",
        "g0.fw.fused",
        "g0.bw",
        "g0.bw.loops",
        "g0.bw.fused",
    )
    assert tuple(graph.id for graph in cold.graphs) == wanted
    assert got.graphs == tuple(_lower(graph, 2) for graph in cold.graphs)  # on the lines where it stands now
    assert cold.kernels and got.kernels == cold.kernels
    assert got.decisions == cold.decisions and got.autotune == cold.autotune


@pytest.mark.nightly
@pytest.mark.slow
def test_what_nobody_saw_is_said(records: dict[str, Compilation]) -> None:
    record = records["unseen"]
    assert [graph.id for graph in record.graphs] == ["g0.fx"] and not record.kernels
    (note,) = record.notes
    assert note.startswith("Inductor had g0.fw in its own cache from a compile that nbcompile did not see")

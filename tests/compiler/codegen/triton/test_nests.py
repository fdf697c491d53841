"""Random fused programs, and backward passes of small modules, as Triton kernels in the interpreter, each
address checked: with the schedules' own thresholds, and with low ones, so that small tensors are looped over,
split and shared as large ones are."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
import torch

from nbcompile.compiler.stages import AtenGraph
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.random_nests import random_nest
from tests.compiler.codegen.triton_running import (
    CHIPS,
    compiled,
    generated,
    run_interpreted,
    small_chip,
    titles,
)
from tests.compiler.lower.harness import as_list
from tests.nightly import few, one_in

SEEDS = [*range(50), 116, 318, 343, 734, 1198, 1229, 1381, 1717, 1904, 2279, 91064]
"""The last eleven have found a bug each."""


def low_thresholds(seed: int) -> dict[str, int]:
    """Where schedules change, and indices become 64 bits wide, for tensors of some thousand elements."""
    draw = random.Random(seed)
    return {
        "multiprocessors": draw.choice([1, 2, 8]),
        "SMALL_DATA": 1,
        "LONGEST_ROW": draw.choice([1, 8, 64]),
        "MOST_LIVE": draw.choice([64, 65_536]),
        "PART": draw.choice([16, 64, 256]),
        "LONGEST_SUM": draw.choice([8, 16_384]),
        "LONGEST_COLUMN": draw.choice([4, 512]),
        "WALK_BLOCK": draw.choice([4, 16, 64, 4096]),
        "COLUMNS": draw.choice([4, 16, 64]),
        "serial_points": draw.choice([64, 1 << 18]),
        "longest_column": draw.choice([4, 512]),
        "shared_row": draw.choice([256, 1 << 18]),
        "TOTAL_BLOCK": draw.choice([16, 2048]),
        "INT32_LIMIT": draw.choice([2, 1 << 31]),
    }


@few(3)
@pytest.mark.parametrize(("seed", "thresholds"), one_in(2, SEEDS, ["own", "low"]))
def test_random_programs(seed: int, thresholds: str) -> None:
    function, exact, inputs = random_nest(seed)
    graph = aten_of(function, *inputs)
    with small_chip(**low_thresholds(seed)) if thresholds == "low" else contextlib.nullcontext():
        _, source = generated(graph)
    got = run_interpreted(source, graph, inputs, candidate=seed if thresholds == "low" else 0)
    near(got, as_list(function(*inputs)), as_list(exact(*inputs)), coarsest(graph), titles(source))
    outputs = list(graph.module.graph.nodes)[-1].args[0]
    symbols = {item.symbol for item in source.entry_points}
    assert compiled(source, CHIPS[seed % 3], assemble=False).keys() == symbols
    assert [strides(item) for item in got] == [strides(node.meta["val"]) for node in outputs]


def coarsest(graph: AtenGraph) -> float:
    """The largest unit of rounding among the types of a graph."""
    values = [node.meta.get("val") for node in graph.module.graph.nodes]
    floats = {item.dtype for item in values if isinstance(item, torch.Tensor) and item.is_floating_point()}
    return max((torch.finfo(dtype).eps for dtype in floats), default=0.0)


def strides(tensor: torch.Tensor) -> list[int]:
    """Those that matter."""
    if not tensor.numel():
        return []
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def near(got: list[Any], eager: list[Any], exact: list[Any], unit: float, told: object) -> None:
    """Shapes, types and numbers as eager has them, or no further from the exact ones than twice as far."""
    assert len(got) == len(eager)
    for n, (mine, theirs, true) in enumerate(zip(got, eager, exact, strict=True)):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), n
        if not theirs.is_floating_point():
            assert torch.equal(mine, theirs), (n, told)
            continue
        theirs, mine, true = theirs.double(), mine.double(), true.double()
        assert torch.equal(theirs.isnan(), mine.isnan()), (n, told)
        finite = true.isfinite() & theirs.isfinite()
        assert torch.equal(mine[~finite].nan_to_num(), theirs[~finite].nan_to_num()), (n, told)
        if not finite.any():
            continue
        scale = float(true[finite].abs().max())
        allowed = 2 * float((theirs - true)[finite].abs().max()) + 8 * unit * (scale + 1)
        wrong = float((mine - true)[finite].abs().max())
        assert wrong <= allowed, (n, wrong, allowed, told)

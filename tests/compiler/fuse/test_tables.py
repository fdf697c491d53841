"""Tables that a GPU's threads would each compute again are kernels of their own where that takes less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.options import Options
from tests.compiler.codegen.running import NO_CACHE, aten_of
from tests.compiler.codegen.triton.test_lines import checked
from tests.compiler.codegen.triton_running import H100, aten_of_fake, generated, small_chip

WORDS, WIDTH = 2048, 128


def turned(x: torch.Tensor, pace: torch.Tensor) -> torch.Tensor:
    """Rotary embeddings of (batch, heads, words, width), which lie in this order."""
    words = torch.arange(x.shape[-2], device=x.device)
    angles = (words[:, None] * pace).repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def dropped(x: torch.Tensor, pace: torch.Tensor) -> torch.Tensor:
    """One number a sample, which kernels of rows compute once a program."""
    return x * x[:, :1, :1, :1].sin().cos().sin().cos()


def fused(fn: Callable[..., object], *shape: int, options: Options = H100) -> FusedProgram:
    graph = aten_of_fake(fn, lambda: (torch.empty(shape, dtype=torch.bfloat16), torch.empty(shape[-1] // 2)))
    return loops_to_groups(aten_to_loops(graph, options), options)


def test_sines_are_computed_once_for_all_heads_and_the_pair_says_why() -> None:
    program = fused(turned, 4, 16, WORDS, WIDTH)
    first, second = program.groups
    assert {"sin", "cos"} <= {loop.name for loop in first.loops} and len(second.stored) == 1
    apart = [item for item in program.decisions if item.code == "recompute"]
    assert apart and all(not item.accepted and item.forceable for item in apart)
    assert all(
        "computed 64 times over, which takes longer than a kernel more" in item.reason for item in apart
    )


@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (turned, (1, 2, WORDS, WIDTH)),  # twice over is less than a launch
        (dropped, (64, 8, 64, 64)),
    ],
    ids=["few heads", "a number a sample"],
)
def test_what_costs_little_stays(fn: Callable[..., object], shape: tuple[int, ...]) -> None:
    assert len(fused(fn, *shape).groups) == 1


def test_a_pair_that_is_wanted_stays_together() -> None:
    program = fused(turned, 4, 16, WORDS, WIDTH)
    names = {item.id: item.name for item in program.program.statements}
    apart = [item for item in program.decisions if item.code == "recompute"]
    pairs = tuple((names[item.producer], names[item.consumer]) for item in apart)
    wanted = replace(H100, force_fuse=pairs)
    assert len(fused(turned, 4, 16, WORDS, WIDTH, options=wanted).groups) == 1


def test_a_cpu_has_its_own_rule() -> None:
    graph = aten_of(turned, torch.randn(2, 2, 8, 8), torch.randn(4))
    program = loops_to_groups(aten_to_loops(graph, NO_CACHE), NO_CACHE)
    assert all("than a kernel more" not in item.reason for item in program.decisions)


def test_the_numbers_of_a_kernel_and_its_tables_are_eager_s() -> None:
    inputs = torch.randn(2, 8, 24, 16), torch.randn(8)
    with small_chip(launch_bytes=0.0):
        program, _ = generated(aten_of(turned, *inputs))
        assert len(program.groups) == 2
    checked(turned, *inputs, launch_bytes=0.0)

"""Loops that leave those that they were joined to for a reader that saves far more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from tests.compiler.codegen.running import NO_CACHE, aten_of, compile_aten
from tests.compiler.codegen.triton_running import H100, generated, run_interpreted
from tests.compiler.fuse.test_random_programs import in_order


def masked_mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mask's floats are made once, for what it masks and for its own sum."""
    kept = mask[..., None].to(x.dtype)
    return (x * kept).sum(1) / kept.sum(1).clamp(min=1)


def distances(x: torch.Tensor, slopes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask is a result, of fewer points than the scores that it masks."""
    i = torch.arange(x.shape[-1])
    away = i[None, :] - i[:, None]
    late = away > 0
    return torch.softmax((x + slopes * away).masked_fill(late, -torch.inf), -1), late


PROGRAMS: dict[str, tuple[Callable[..., object], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "masked mean": (masked_mean, lambda: (torch.randn(3, 40, 24), torch.arange(120).view(3, 40) % 3 > 0)),
    "distances": (distances, lambda: (torch.randn(40, 3, 24, 24), torch.randn(3, 1, 1))),
}
LEFT = {"masked mean": ["mul joined sum_1"], "distances": ["where joined max"]}


def names(fused: FusedProgram) -> list[set[str]]:
    return [{loop.name for loop in group.loops} for group in fused.groups]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("chip", ["cpu", "gpu"])
def test_what_saves_most_is_joined(name: str, chip: str) -> None:
    function, make = PROGRAMS[name]
    inputs = make()
    aten = aten_of(function, *inputs)
    fused = loops_to_groups(aten_to_loops(aten, NO_CACHE), H100 if chip == "gpu" else NO_CACHE)
    in_order(fused)
    heavy = {"mul", "sum_1", "div"} if name == "masked mean" else {"where", "max", "_softmax"}
    assert any(heavy <= found for found in names(fused)), names(fused)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pair_that_came_apart_says_so(name: str) -> None:
    function, make = PROGRAMS[name]
    fused = loops_to_groups(aten_to_loops(aten_of(function, *make()), H100), H100)
    left = [item for item in fused.decisions if item.code == "left"]
    groups = names(fused)
    made = {loop.id: loop.name for group in fused.groups for loop in group.loops}
    assert left and not any(item.accepted for item in left)
    for item in left:
        assert item.reason.endswith("instead, which saves more")
        assert not any({made[item.producer], made[item.consumer]} <= group for group in groups)


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str) -> None:
    pytest.importorskip("triton")
    function, make = PROGRAMS[name]
    inputs = make()
    expected = function(*inputs)
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    aten = aten_of(function, *inputs)
    _, source = generated(aten)
    for got in (compile_aten(aten)(inputs), run_interpreted(source, aten, inputs)):
        for one, two in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, two)


def test_what_each_needs_of_the_other_stays_together() -> None:
    """The mean of the rows is read by what the softmax reads, and of its result: no kernel can be before the
    other one and after it."""

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp() + x.mean(0)
        return torch.softmax(y, -1), (y * 2).sum(0)

    inputs = (torch.randn(40, 24),)
    aten = aten_of(both, *inputs)
    in_order(loops_to_groups(aten_to_loops(aten, H100), H100))
    for one, two in zip(compile_aten(aten)(inputs), both(*inputs), strict=True):
        torch.testing.assert_close(one, two)


def test_a_number_that_two_kernels_read_is_made_in_each() -> None:
    def of_both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zero = torch.scalar_tensor(0.0)
        rows = torch.where(x > 0, x, zero).sum(1)
        return rows, torch.where(y > 1, zero, y).sum(0), torch.where(y[0] > 0, y[0], zero)

    inputs = torch.randn(40, 24), torch.randn(30, 50)
    aten = aten_of(of_both, *inputs)
    program = aten_to_loops(aten, NO_CACHE)
    numbers = [item.name for item in program.statements if item.name.startswith("scalar_tensor")]
    assert numbers == ["scalar_tensor", "scalar_tensor_2", "scalar_tensor_3"]
    fused = loops_to_groups(program, H100)
    assert not any(name in group.stored for group in fused.groups for name in numbers)
    for one, two in zip(compile_aten(aten)(inputs), of_both(*inputs), strict=True):
        torch.testing.assert_close(one, two)


def test_a_number_that_is_a_result_is_one() -> None:
    def of_both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        zero = torch.scalar_tensor(0.0)
        return torch.where(x > 0, x, zero).sum(1), torch.where(x > 0, x, zero).sum(0), zero

    inputs = (torch.randn(40, 24),)
    aten = aten_of(of_both, *inputs)
    assert "scalar_tensor_2" not in aten_to_loops(aten, NO_CACHE).buffers()
    for one, two in zip(compile_aten(aten)(inputs), of_both(*inputs), strict=True):
        torch.testing.assert_close(one, two)


def test_a_pair_that_the_user_wants_is_not_parted() -> None:
    function, make = PROGRAMS["masked mean"]
    program = aten_to_loops(aten_of(function, *make()), H100)
    fused = loops_to_groups(program, H100)
    (left,) = [item for item in fused.decisions if item.code == "left"]
    made = {loop.id: loop.name for group in fused.groups for loop in group.loops}
    pair = made[left.producer], made[left.consumer]
    forced = loops_to_groups(program, replace(H100, force_fuse=(pair,)))
    assert any(set(pair) <= group for group in names(forced))

"""Schedules of programs that are traced with fake tensors: sizes are those of a GPU, and nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from nbcompile import targets
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.schedule import choose
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.targets import Target
from tests.compiler.codegen.c.by_hand import buffers
from tests.compiler.codegen.triton_running import H100, aten_of_fake

CHIP = targets.CHIPS["cuda:90"]
F32, BF16 = torch.float32, torch.bfloat16


def empty(*shape: int, dtype: torch.dtype = F32) -> Callable[[], torch.Tensor]:
    """What makes a tensor of this shape, once fake tensors are made."""
    return lambda: torch.empty(shape, dtype=dtype)


ADD = lambda x, i, v: x.index_add(0, i, v)


def added(
    rows: int, length: int, points: int, dtype: torch.dtype = F32
) -> tuple[Callable[[], torch.Tensor], ...]:
    """What :data:`ADD` takes: ``points`` rows added into a table."""
    table, values = empty(rows, length, dtype=dtype), empty(points, length, dtype=dtype)
    return table, empty(points, dtype=torch.int64), values


def cut_all(
    fn: Callable[..., Any], *inputs: Callable[[], torch.Tensor], chip: Target = CHIP
) -> list[tuple[Work, Schedule]]:
    """What each kernel of a function computes, and how it is cut up for ``chip``."""
    graph = aten_of_fake(fn, lambda: tuple(make() for make in inputs))
    program = loops_to_groups(aten_to_loops(graph, H100), H100)
    buffers = program.program.buffers()
    return [choose(group, buffers, chip) for group in program.groups]


def cut(fn: Callable[..., Any], *inputs: Callable[[], torch.Tensor], chip: Target = CHIP) -> Schedule:
    """How the one kernel of a function is cut up."""
    ((_, schedule),) = cut_all(fn, *inputs, chip=chip)
    return schedule


def work_of(fn: Callable[..., Any], *inputs: Callable[[], torch.Tensor]) -> Work:
    """What the one kernel of a function computes."""
    ((work, _),) = cut_all(fn, *inputs)
    return work


def work_by_hand(made: Group, *inputs: Buffer, chip: Target = CHIP) -> Work:
    """What a group made by hand computes."""
    return Work.of(made, buffers(made, *inputs), chip)


def axes(found: tuple[Any, ...]) -> list[int | None]:
    """The extents of axes."""
    return [axis.extent.constant for axis in found]


def small(**changed: Any) -> Target:
    """A chip with other figures."""
    return replace(CHIP, **changed)

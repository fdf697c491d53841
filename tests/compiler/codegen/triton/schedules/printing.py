"""Kernels as the printers of schedules write them, of programs traced with fake tensors or of groups made by
hand: what the tests of this folder read. Nothing is compiled or run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules import PRINTERS
from nbcompile.compiler.schedule import choose
from nbcompile.compiler.schedule.rows import RowSchedule
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target
from tests.compiler.schedule.cut import CHIP, cut_all, work_of


def nest(work: Work, schedule: Schedule) -> Any:
    """The printer of a schedule, with nothing printed yet."""
    return PRINTERS[type(schedule)](work, schedule, TritonWriter())


def printed(work: Work, schedule: Schedule) -> PrintedKernel:
    """What is printed for a schedule that is given."""
    return nest(work, schedule).print(["a comment"])


def chosen(work: Work) -> PrintedKernel:
    """What is printed for a group made by hand."""
    return printed(*choose(work.group, work.buffers, work.target))


def kernel(fn: Callable[..., Any], *inputs: Callable[[], torch.Tensor], chip: Target = CHIP) -> PrintedKernel:
    """What is printed for the one kernel of a function."""
    ((work, schedule),) = cut_all(fn, *inputs, chip=chip)
    return printed(work, schedule)


def rows_by_hand(
    kind: type[RowSchedule], fn: Callable[..., Any], *inputs: Any, x: int = 1, r: int = 256, groups: int = 0,
    **more: Any,
) -> tuple[Work, RowSchedule]:  # fmt: skip
    """What a function computes, cut into blocks of ``x`` rows by ``r`` points (0: whole rows), perhaps for
    ``groups`` of programs that share a row."""
    work = work_of(fn, *inputs)
    rows, within = work.values.nest.rows, work.values.nest.inner_axes
    constants = {"XBLOCK": x, "RBLOCK": r, "GROUPS": groups}
    config = Config({name: each for name, each in constants.items() if each}, 4)
    return work, kind(x=rows, r=within, one_row=x == 1, configs=(config,), **more)


def functions(made: PrintedKernel) -> list[list[str]]:
    """The lines of each of its functions after the header, without what indents them."""
    bodies = [text.split("):\n", 1)[1] for text in made.text.split("@triton.jit\n")[1:]]
    return [[line.strip() for line in body.splitlines() if line.strip()] for body in bodies]


def lines(made: PrintedKernel, start: str = "") -> list[str]:
    """Its lines that start so, without what indents them."""
    return [line.strip() for line in made.text.splitlines() if line.strip().startswith(start)]

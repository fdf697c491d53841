"""A few kernels line by line: what each printer makes of a schedule that is given by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.schedules import PRINTERS
from nbcompile.compiler.schedule.rows import HeldRows
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.walked_rows import SplitRows, WalkedRows
from nbcompile.compiler.stages import Config
from tests.compiler.schedule.cut import cut, empty, work_of


def printed(work: Work, schedule: Schedule) -> PrintedKernel:
    return PRINTERS[type(schedule)](work, schedule, TritonWriter()).print(["a comment"])


def lines(kernel: PrintedKernel, start: str) -> list[str]:
    return [line.strip() for line in kernel.text.splitlines() if line.strip().startswith(start)]


def test_a_run_of_points() -> None:
    program: tuple[Callable[..., Any], Any] = (lambda x: x * 2, empty(1000))
    kernel = printed(work_of(*program), cut(*program))
    assert kernel.text.splitlines() == [
        "# a comment",
        "@triton.jit",
        "def k0_mul(x_ptr, mul_ptr, XBLOCK: tl.constexpr):",
        "    start = tl.program_id(0) * XBLOCK",
        "    i = start + tl.arange(0, XBLOCK)",
        "    i_in = i < 1000",
        "    x = tl.load(x_ptr + i, mask=i_in)",
        "    tl.store(mul_ptr + i, x * 2.0, mask=i_in)",
    ]
    (launch,) = kernel.launches
    assert launch.grid == ("cdiv(1000, XBLOCK)",) and kernel.writes == ("mul",)


SUM = work_of(lambda x: x.sum(-1), empty(8, 1024))
ROWS, WITHIN = SUM.values.nest.rows, SUM.values.nest.inner_axes


def test_a_row_held_whole_is_read_once_and_needs_no_loop() -> None:
    schedule = HeldRows(x=ROWS, r=WITHIN, one_row=True, configs=(Config({"XBLOCK": 1}, 4),))
    kernel = printed(SUM, schedule)
    assert not lines(kernel, "for") and len(lines(kernel, "sum_")) == 1
    (launch,) = kernel.launches
    assert launch.grid == ("8",) and launch.configs == (Config({"RBLOCK": 1024}, 4),)


def test_a_row_walked_is_summed_lane_by_lane_and_combined_at_the_end() -> None:
    config = Config({"XBLOCK": 1, "RBLOCK": 256, "STAGES": 3}, 4)
    kernel = printed(SUM, WalkedRows(x=ROWS, r=WITHIN, one_row=True, configs=(config,)))
    assert lines(kernel, "for") == ["for start in tl.range(0, 1024, RBLOCK, num_stages=STAGES):"]
    assert not kernel.workspaces


def test_slabs_leave_parts_that_a_second_function_combines() -> None:
    config = Config({"XBLOCK": 1, "RBLOCK": 128}, 4)
    kernel = printed(SUM, SplitRows(x=ROWS, r=WITHIN, one_row=True, slabs=4, configs=(config,)))
    first, second = kernel.launches
    assert first.grid == ("8", "4") and second.function.endswith("_finish")
    (parts,) = kernel.workspaces
    assert parts.shape == (8 * 4,) and parts.dtype == torch.float32


def test_a_block_that_does_not_divide_the_row_is_masked() -> None:
    config = Config({"XBLOCK": 1, "RBLOCK": 256}, 4)
    whole = WalkedRows(x=ROWS, r=WITHIN, one_row=True, configs=(config,))
    cut_short = replace(whole, configs=(replace(config, constants={"XBLOCK": 1, "RBLOCK": 384}),))
    assert "mask=" not in printed(SUM, whole).text and "mask=" in printed(SUM, cut_short).text

"""Rows held by several programs: which part each has, and how often they meet to find the row's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.schedule.shared_rows import SharedRows
from tests.compiler.codegen.triton.schedules.printing import functions, lines, printed, rows_by_hand
from tests.compiler.schedule.cut import BF16, empty

SOFTMAX = lambda x: torch.softmax(x, -1)
NORMED = lambda x: F.layer_norm(x, x.shape[-1:])


def held(fn: Callable[..., Any], *inputs: Any) -> PrintedKernel:
    """Of parts of 256 points."""
    return printed(*rows_by_hand(SharedRows, fn, *inputs, groups=8, parts=4))


def test_groups_of_programs_take_one_row_after_the_other_each_its_own_part() -> None:
    made = held(SOFTMAX, empty(64, 1024))
    assert functions(made)[0][:5] == [
        "part = tl.program_id(0) % 4",
        "j = part * 256 + tl.arange(0, RBLOCK)",
        "for start in range(tl.program_id(0) // 4, 64, GROUPS):",
        "i = start",
        "x = tl.load(x_ptr + i*1024 + j)",
    ]
    (launch,) = made.launches
    assert launch.grid == ("4 * GROUPS",) and launch.together  # they wait for one another


def test_the_last_part_of_a_row_may_be_shorter() -> None:
    made = held(NORMED, empty(64, 1000))
    assert "count = tl.where(part == 3, 232.0, 256.0)" in lines(made)
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*1000 + j, mask=j_in)"]
    assert lines(made, "native_layer_norm_mean =")[0].endswith("axis=0) / count")
    whole = held(NORMED, empty(64, 1024))
    assert "j_in" not in whole.text and "count =" not in whole.text


@pytest.mark.parametrize(
    ("fn", "meetings"),
    [
        (SOFTMAX, 1),  # each sums below its own maximum and scales that
        (NORMED, 1),
        (lambda x: (x - x.amax(-1, keepdim=True)).square().sum(-1), 2),
        (lambda x: (x.amax(-1), x.amin(-1), x.sum(-1)), 1),
    ],
    ids=["softmax", "layer norm", "below the largest", "three results"],
)
def test_programs_meet_only_for_what_they_need_to_go_on(fn: Any, meetings: int) -> None:
    assert len(lines(held(fn, empty(64, 1024)), "wait_for_all(")) == meetings


def test_exponentials_below_the_own_maximum_are_scaled_instead_of_made_again() -> None:
    made = held(SOFTMAX, empty(64, 1000))
    assert lines(made, "below =") == ["below = tl.where(j_in, libdevice.exp((x - pivot)), 0.0)"]
    (scale,) = lines(made, "scale =")
    assert scale.endswith("0.0, libdevice.exp((pivot - max__2)))")
    assert lines(made, "tl.store(softmax") == [
        "tl.store(softmax_ptr + i*1000 + j, (below * scale) / sum__2, mask=j_in)"
    ]
    assert not lines(held(lambda x: torch.logsumexp(x, -1), empty(64, 1000)), "scale =")  # nobody stores them


def test_a_part_of_minus_infinity_alone_has_exponentials_of_zero() -> None:
    made = held(SOFTMAX, empty(64, 1024))
    assert 'pivot = tl.where(max_ == float("-inf"), 0.0, max_)' in lines(made)
    (scale,) = lines(made, "scale =")
    assert (
        'tl.where((max_ == float("-inf")) & (max__2 != float("-inf")), 0.0,' in scale
    )  # else NaN, as in eager


def test_one_value_a_row_is_stored_by_the_program_of_the_first_part() -> None:
    body = functions(held(lambda x: (torch.logsumexp(x, -1).exp(), x * 2), empty(64, 1024)))[0]
    assert body[-2:] == ["if part == 0:", "tl.store(exp_1_ptr + i, libdevice.exp(logsumexp))"]
    assert "tl.store(mul_ptr + i*1024 + j, x * 2.0)" in body


def test_halves_are_held_and_handed_over_as_float32() -> None:
    made = held(SOFTMAX, empty(64, 1024, dtype=BF16))
    assert lines(made, "x =") == ["x = tl.load(x_ptr + i*1024 + j).to(tl.float32)"]
    assert {item.dtype for item in made.workspaces} == {torch.float32, torch.int32}


def test_a_single_row_is_shared_too() -> None:
    made = held(lambda x: x - x.sum(-1, keepdim=True), empty(1024))
    assert "for start in range(tl.program_id(0) // 4, 1, GROUPS):" in lines(made)
    assert made.workspaces[0].shape == (4,)

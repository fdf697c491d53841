"""Meetings of programs that share a row: what each leaves, how they wait, and what becomes of the parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.compiler.codegen.triton.accumulators import at_infinity, find_online
from nbcompile.compiler.codegen.triton.schedules.meetings import WAIT, Meetings
from nbcompile.compiler.schedule.shared_rows import SharedRows
from tests.compiler.codegen.triton.schedules.printing import nest, rows_by_hand
from tests.compiler.schedule.cut import empty

SOFTMAX = lambda x: torch.softmax(x, -1)


def begun(fn: Any, length: int, parts: int) -> tuple[Any, Meetings, list[Any]]:
    """A printer whose programs have found their parts' results, its meetings, and the reductions."""
    work, schedule = rows_by_hand(SharedRows, fn, empty(64, length), groups=8, parts=parts)
    printer = nest(work, schedule)
    for item in work.values.reductions:
        printer.p.reduced_text[item.output] = f"own_{item.output}"
    return printer, printer.meetings, list(work.values.reductions)


def printed_by(printer: Any) -> list[str]:
    return [line.strip() for line in printer.p.out.text]


def test_each_program_leaves_its_result_beside_those_of_the_rows_other_parts() -> None:
    printer, meetings, items = begun(lambda x: x.sum(-1), 1024, 4)
    meetings.publish(items)
    assert printed_by(printer) == ["tl.store(sum_1_parts_ptr + i * 4 + part, own_sum_1)"]
    (parts,) = printer.workspaces
    assert parts.shape == (64 * 4,) and not printer.zeroed


def test_every_meeting_has_a_counter_a_row_of_its_own_that_starts_at_zero() -> None:
    printer, meetings, items = begun(lambda x: (x.sum(-1), x.amax(-1)), 1024, 4)
    for item in items:
        meetings.publish([item])
        meetings.wait([item])
    waits = [line for line in printed_by(printer) if line.startswith("wait")]
    assert waits == ["wait_for_all(sum_1_arrived_ptr + i, 4)", "wait_for_all(sum_1_arrived_1_ptr + i, 4)"]
    assert printer.zeroed == {"sum_1_arrived", "sum_1_arrived_1"}
    assert [item.shape for item in printer.workspaces if item.name in printer.zeroed] == [(64,), (64,)]
    assert printer.writer.helpers["wait_for_all"] is WAIT


@pytest.mark.parametrize(
    ("fn", "other"),
    [
        (lambda x: x.sum(-1), "0.0"),
        (lambda x: x.amax(-1), 'float("-inf")'),
        (lambda x: x.amin(-1), 'float("inf")'),
        (lambda x: x.prod(-1), "1.0"),
    ],
    ids=["sum", "max", "min", "prod"],
)
def test_parts_are_read_past_the_cache_and_what_a_power_of_two_has_more_counts_for_nothing(
    fn: Any, other: str
) -> None:
    printer, meetings, items = begun(fn, 700, 3)
    meetings.publish(items)
    meetings.wait(items)
    (loaded,) = [line for line in printed_by(printer) if "tl.load" in line]
    assert loaded.endswith(f"tl.arange(0, 4), mask=(tl.arange(0, 4) < 3), other={other}, volatile=True)")
    printer, meetings, items = begun(fn, 1024, 4)
    meetings.publish(items)
    meetings.wait(items)
    assert not any("mask" in line for line in printed_by(printer))


def test_a_bool_comes_back_from_memory_as_one() -> None:
    printer, meetings, items = begun(lambda x: (x > 0).any(-1), 1024, 4)
    meetings.publish(items)
    meetings.wait(items)
    assert printed_by(printer)[-1].endswith("volatile=True).to(tl.int1)")


def test_sums_of_exponentials_are_scaled_to_the_rows_maximum_before_they_are_added() -> None:
    printer, meetings, items = begun(SOFTMAX, 1024, 4)
    (pair,) = find_online(printer.values)
    meetings.publish(items)
    meetings.wait(items)
    meetings.combine(pair.top, pair)
    top, pivot, pivots, total, nothing = printed_by(printer)[-5:]
    assert top == "max_ = max_nan(max_parts, 0)"
    assert pivot == 'pivot = tl.where(max_ == float("-inf"), 0.0, max_)'
    assert pivots == 'pivots = tl.where(max_parts == float("-inf"), 0.0, max_parts)'
    scaled = "sum_parts * libdevice.exp((pivots - pivot))"
    assert total == f'sum_ = tl.sum(tl.where(max_parts == float("-inf"), 0.0, {scaled}), axis=0)'
    assert nothing == 'sum_ = tl.where(max_ == float("-inf"), float("nan"), sum_)'
    assert {printer.p.reduced_text[item.output] for item in items} == {"max_", "sum_"}


def test_logsumexp_takes_either_infinity_for_no_maximum_but_softmax_plus_infinity_for_one() -> None:
    pairs = {}
    for name, fn in {"softmax": SOFTMAX, "logsumexp": lambda x: torch.logsumexp(x, -1)}.items():
        (pairs[name],) = find_online(begun(fn, 1024, 4)[0].values)
    assert at_infinity("m", pairs["softmax"]) == 'm == float("-inf")'
    assert at_infinity("m", pairs["logsumexp"]) == 'tl.abs(m) == float("inf")'


@pytest.mark.parametrize(
    ("length", "parts", "counts"),
    [
        (1024, 4, "256.0"),
        (1000, 4, "tl.minimum(tl.maximum(1000 - tl.arange(0, 4) * 256, 0), 256).to(tl.float32)"),
        (768, 3, "tl.minimum(tl.maximum(768 - tl.arange(0, 4) * 256, 0), 256).to(tl.float32)"),
    ],
)
def test_a_mean_weighs_each_part_by_its_points(length: int, parts: int, counts: str) -> None:
    printer, meetings, items = begun(lambda x: torch.var_mean(x, -1), length, parts)
    meetings.publish(items)
    meetings.wait(items)
    meetings.combine(items[0])
    (whole,) = [line for line in printed_by(printer) if "_whole = " in line]
    assert whole == f"var_mean_mean_whole = tl.sum(var_mean_mean_parts * {counts}, axis=0) / {length}.0"


def test_the_first_parts_program_stores_one_value_a_row_if_there_is_any() -> None:
    printer, meetings, _ = begun(lambda x: x.sum(-1), 1024, 4)
    meetings.store_short([], {})
    assert printed_by(printer) == ["if part == 0:", "tl.store(sum_1_ptr + i, own_sum_1)"]
    printer, meetings, _ = begun(SOFTMAX, 1024, 4)
    meetings.store_short([], {})
    assert printed_by(printer) == []

"""Adding rows into a large table: the functions that list, add up what is named often, and write each row."""

from __future__ import annotations

from dataclasses import replace

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from tests.compiler.codegen.triton.schedules.printing import functions, kernel, lines, printed
from tests.compiler.schedule.cut import ADD, BF16, added, cut_all, empty

HALVES = added(50_000, 1024, 8192, BF16)
PADDED = lambda grad, at: torch.ops.aten.embedding_dense_backward(grad, at, 50_000, 3, False)


def few_points() -> PrintedKernel:
    """No row can be named more often than its list is long."""
    return kernel(ADD, *added(50_000, 1024, 8, BF16))


def test_rows_are_counted_listed_added_up_where_often_named_and_written() -> None:
    made = kernel(ADD, *HALVES)
    ends = [item.function.removeprefix("k0_index_add") for item in made.launches]
    assert ends == ["_clear", "_list", "_often", ""]
    assert {item.name.removeprefix("index_add_"): item.shape for item in made.workspaces} == {
        "counts": (50_001,),  # the last counts the slots
        "listed": (50_000 * 8,),
        "slots": (50_000,),
        "sums": (910 * 1024,),
    }
    assert lines(made, "tl.store(index_add_counts") == [
        "tl.store(index_add_counts_ptr + place, 0, mask=place < 50001)"
    ]


def test_a_point_takes_the_next_place_on_its_rows_list_and_the_ninth_a_slot() -> None:
    body = functions(kernel(ADD, *HALVES))[1]
    assert "inside = (i_2 >= 0) & (i_2 < 50000)" in body
    one = "tl.full([PBLOCK], 1, tl.int32)"
    assert f'number = tl.atomic_add(index_add_counts_ptr + row, {one}, mask=inside, sem="relaxed")' in body
    assert "tl.store(index_add_listed_ptr + row*8 + number, i, mask=inside & (number < 8))" in body
    assert "first = inside & (number == 8)" in body
    assert body[-1] == "tl.store(index_add_slots_ptr + row, slot, mask=first)"


def test_points_of_rows_named_more_often_are_added_in_float32_by_atomics() -> None:
    body = functions(kernel(ADD, *HALVES))[2]
    assert "often = tl.load(index_add_counts_ptr + row, mask=inside, other=0) > 8" in body
    assert "v = tl.load(v_ptr + i*1024 + j, mask=often).to(tl.float32)" in body
    assert body[-1].startswith("tl.atomic_add(index_add_sums_ptr + slot*1024 + j")
    assert body[-1].endswith('mask=often & (slot < 910), sem="relaxed")')


def test_a_row_is_written_once_with_its_lists_points_or_its_slots_sum() -> None:
    made = kernel(ADD, *HALVES)
    body = functions(made)[3]
    assert made.launches[3].grid == ("cdiv(50000, RBLOCK)", "cdiv(1024, XBLOCK)")
    assert "few = tl.where(count > 8, 0, count)" in body
    assert "for number in range(0, tl.max(tl.max(few, axis=1), axis=0)):" in body
    assert "total += tl.where(named, v, 0.0)" in body
    assert "total += tl.load(index_add_sums_ptr + slot*1024 + j, mask=often, other=0.0)" in body
    assert body[-2:] == [
        "x = tl.load(x_ptr + j + table_row*1024).to(tl.float32)",
        "tl.store(index_add_ptr + j + table_row*1024, x + total)",  # rounded once
    ]


def test_where_no_list_can_overflow_nothing_is_atomic_but_the_counts() -> None:
    made = few_points()
    assert [item.function.removeprefix("k0_index_add") for item in made.launches] == ["_clear", "_list", ""]
    assert "sums" not in " ".join(functions(made)[0]) and made.text.count("tl.atomic_add") == 1


def test_padding_is_on_no_list() -> None:
    made = kernel(PADDED, empty(8192, 1024, dtype=BF16), empty(8192, dtype=torch.int64))
    tests = ["inside = (at >= 0) & (at < 50000) & ~(t)"]
    assert lines(made, "t =") == ["t = at == 3"] * 2 and lines(made, "inside =") == tests * 2
    assert functions(made)[3][-1].endswith("0.0 + total)")  # there is nothing to add to


def test_a_block_that_does_not_divide_the_table_is_masked() -> None:
    ((work, schedule),) = cut_all(ADD, *added(50_001, 1000, 8192, BF16))
    made = printed(work, replace(schedule, configs=schedule.configs[:1]))
    body = functions(made)[-1]
    assert "count = tl.load(index_add_counts_ptr + table_row, mask=table_row_in, other=0)" in body
    assert body[-1].endswith("x + total, mask=table_row_in & j_in)")

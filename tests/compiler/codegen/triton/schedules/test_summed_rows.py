"""Sums over the rows: what a program adds up of those it owns, the parts it leaves, and who finishes them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import nbcompile
from nbcompile.compiler.codegen.triton.schedules.summed_rows import LONGEST_HOISTED
from nbcompile.compiler.loop_ir.index import ONE
from nbcompile.compiler.schedule.summed_rows import OwnedRows, WalkedSums
from tests.compiler.codegen.triton.schedules.printing import functions, lines, nest, printed, rows_by_hand
from tests.compiler.codegen.triton.test_lines import checked
from tests.compiler.schedule.cut import BF16, empty
from tests.compiler.schedule.test_choose import norm_gradients, word_losses

SUMS = empty(100, 1000), empty(100, 1000), empty(100, 1), empty(100, 1)
TOTALS = lambda x: (x.logsumexp(-1).sum(), x.sum(0), x.sum())


def test_a_program_takes_its_share_of_the_rows_and_stores_each_sum_once() -> None:
    made = printed(*rows_by_hand(OwnedRows, norm_gradients, *SUMS, x=8, r=0, slabs=4))
    first, second = made.launches
    assert first.grid == ("4",) and second.grid == ("cdiv(1000, XBLOCK)",)
    body = functions(made)[0]
    assert "for start in range(tl.program_id(0) * XBLOCK, 100, 4 * XBLOCK):" in body
    assert "tl.store(sum_3_ptr + i, sum_3, mask=i_in)" in body  # a row's own result
    assert body[-2:] == [
        "sum_2 = tl.sum(sum_2, axis=0)[None, :]",
        "tl.store(sum_2_parts_ptr + tl.program_id(0) * 1000 + j, sum_2, mask=j_in)",
    ]
    assert {item.name: item.shape for item in made.workspaces} == {
        "sum_1_parts": (4000,),
        "sum_2_parts": (4000,),
    }


def test_rows_after_the_last_one_add_nothing() -> None:
    many = printed(*rows_by_hand(OwnedRows, norm_gradients, *SUMS, x=8, r=0, slabs=4))
    assert lines(many, "sum_2 = sum_2 + tl.where") == ["sum_2 = sum_2 + tl.where(i_in, g, 0.0)"]
    one = printed(*rows_by_hand(OwnedRows, norm_gradients, *SUMS, x=1, r=0, slabs=4))
    assert "for start in range(tl.program_id(0), 100, 4):" in lines(one) and "i_in" not in one.text
    assert "sum_2 = sum_2 + g" in lines(one) and "axis=0)[None, :]" not in one.text  # nothing to combine


def test_what_is_the_same_for_all_rows_is_made_before_them_if_it_is_short() -> None:
    fn = lambda g, x, w: ((g * w).sum(1), (g * x).sum(0))

    def steps(length: int) -> list[str]:
        inputs = empty(100, length), empty(100, length), empty(length)
        made = printed(*rows_by_hand(OwnedRows, fn, *inputs, x=2, r=0, slabs=4))
        return [line.split(" ")[0] for line in functions(made)[0] if line.startswith(("w =", "for", "g ="))]

    assert steps(LONGEST_HOISTED) == ["w", "for", "g"]
    assert steps(LONGEST_HOISTED + 1) == ["for", "g", "w"]


def test_a_sum_of_one_value_a_row_is_kept_as_a_column() -> None:
    work, schedule = rows_by_hand(OwnedRows, TOTALS, empty(100, 1000), x=8, r=0, slabs=4)
    found = nest(work, schedule)
    sums = {item.output: item for item in work.values.reductions if item.split}
    assert {name: found.is_row_sum(item) for name, item in sums.items()} == {
        "sum_1": True, "sum_2": False, "sum_3": False,
    }  # fmt: skip
    made = printed(work, schedule)
    assert "sum_1 = tl.full([XBLOCK, 1], 0.0, tl.float32)" in lines(made)
    assert "sum_1 = sum_1 + tl.where(i_in, logsumexp, 0.0)" in lines(made)


def test_a_sum_of_everything_leaves_one_number_a_program() -> None:
    work, schedule = rows_by_hand(OwnedRows, TOTALS, empty(100, 1000), x=8, r=0, slabs=4)
    made = printed(work, schedule)
    place = "sum_3_parts_ptr + tl.program_id(0) + tl.zeros([1, 1], tl.int32)"
    assert f"tl.store({place}, tl.sum(sum_3, axis=1)[:, None])" in lines(made)
    assert "sum_3 = tl.where(j_in, sum_3, 0.0)" in lines(made)  # lanes beyond the row have added something
    kept = {item.output: nest(work, schedule).kept_of(item) for item in work.values.reductions if item.split}
    assert kept == {"sum_1": ONE, "sum_2": 1000, "sum_3": ONE}


def test_long_sums_and_single_numbers_are_finished_by_functions_of_their_own() -> None:
    made = printed(*rows_by_hand(OwnedRows, TOTALS, empty(100, 1000), x=8, r=0, slabs=4))
    _, long, single = made.launches
    assert long.function.endswith("_finish") and long.grid == ("cdiv(1000, XBLOCK)",)
    assert single.function.endswith("_finish_total") and single.configs[0].constants == {
        "XBLOCK": 1,
        "SBLOCK": 4,
    }
    assert functions(made)[2][-2:] == [
        "tl.store(sum_1_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_1, axis=1)[:, None])",
        "tl.store(sum_3_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_3, axis=1)[:, None])",
    ]


def test_parts_are_as_many_as_programs_and_those_beyond_them_are_not_read() -> None:
    work, owned = rows_by_hand(OwnedRows, norm_gradients, *SUMS, x=8, r=0, slabs=5)
    assert nest(work, owned).parts_of_sums == 5
    (loaded,) = lines(printed(work, owned), "sum_1 = sum_1 + tl.load")
    assert loaded.endswith("slab * 1000 + j, mask=(slab < 5), other=0.0)")  # of the eight that a block has
    work, walked = rows_by_hand(WalkedSums, norm_gradients, *SUMS, x=8, slabs=13)
    assert (
        nest(work, walked).parts_of_sums == 13
        and nest(work, replace(walked, one_row=True)).parts_of_sums == 100
    )


def test_halves_are_counted_and_added_in_wider_types() -> None:
    fn = lambda x: ((x > 0).sum(0), x.sum(0), x.amax(-1))
    made = printed(*rows_by_hand(OwnedRows, fn, empty(100, 1000, dtype=BF16), x=8, r=0, slabs=4))
    assert [item.dtype for item in made.workspaces] == [torch.int64, torch.float32]


@pytest.mark.parametrize("columns", [5, 20_000])
@pytest.mark.parametrize("kind", [torch.sum, torch.amax, torch.prod])
def test_a_sum_of_what_no_row_changes_is_no_wider_than_its_column(kind, columns: int) -> None:
    """In a loop over rows, and in one that walks each: a constant, or one number, for each row."""

    def program(x: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        never, found = torch.full((7,), False), x.log_softmax(1)
        chosen = [torch.where(never, found[:, 0], value) for value in (1.5, number.cos())]
        return found, x.sum(0), *(kind(each, dim=0) for each in chosen)

    torch._dynamo.reset()
    run = nbcompile.compile(program, options={"cache": False, "interpret": True})
    given = torch.randn(7, columns), torch.tensor(0.3)
    torch.testing.assert_close(run(*given), program(*given), rtol=1e-4, atol=1e-4)
    assert run.ran_compiled, run.eager_reason


def test_pieces_of_rows_are_added_up_each_by_programs_of_its_own() -> None:
    torch.manual_seed(0)
    x, at = torch.randn(37, 300), torch.randint(300, (37, 1))
    kept, g = torch.arange(37)[:, None] % 3 > 0, torch.tensor(0.25)
    told, text = checked(word_losses, x, at, kept, g, LONGEST_SUM=64, PIECE=128)
    assert told[0] == "pieces of rows, partial sums over rows"
    assert (
        "tl.program_id(1) * RBLOCK + tl.arange(0, RBLOCK)" in text
        and "axis=1" not in text.split("@triton.jit")[1]
    )

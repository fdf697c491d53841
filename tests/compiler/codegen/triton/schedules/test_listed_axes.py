"""Adding by short indices: lists of what goes to each place, sums along them, and the few hot places."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from tests.compiler.codegen.triton.schedules.printing import functions, kernel, lines
from tests.compiler.schedule.cut import F32, empty

I64 = torch.int64
F64 = torch.float64


def added(places: int, length: int, width: int, dtype: torch.dtype = F32) -> PrintedKernel:
    """``length`` lines of ``width`` added to ``places`` of 64 planes."""
    table, values = empty(64, places, width, dtype=dtype), empty(64, length, width, dtype=dtype)
    return kernel(lambda x, i, v: x.index_add(1, i, v), table, empty(length, dtype=I64), values)


def two_indices() -> PrintedKernel:
    """The gradient of taking rows and columns of images whose channels lie side by side."""
    fn = lambda x, r, c, v: torch.ops.aten._unsafe_index_put(x, [None, r[:, None], c, None], v, True)
    index = empty(32, dtype=I64)
    return kernel(fn, empty(4, 16, 16, 64), index, index, empty(4, 32, 32, 64))


def along_what_is_named() -> PrintedKernel:
    """What is added lies along another axis than the result."""
    values: Callable[[], torch.Tensor] = lambda: torch.empty(64, 50, 255).transpose(1, 2)
    return kernel(lambda x, i, v: x.index_add(2, i, v), empty(64, 255, 30), empty(50, dtype=I64), values)


def test_each_place_lists_the_indices_that_name_it_and_counts_them() -> None:
    made = added(32, 50, 256)
    assert functions(made)[0] == [
        "place = tl.program_id(0)",
        "if (tl.program_id(1) == 0) & (place < 32):",
        "j = tl.arange(0, BLOCK0)",
        "j_in = j < 50",
        "i_2 = tl.load(i_ptr + j, mask=j_in)",
        "hit = (j_in & (i_2 == place)).to(tl.int32)",  # what is read beyond the last index names nothing
        "number = tl.cumsum(hit, axis=0)",
        "tl.store(index_add_list0_ptr + place*50 + number - 1, j, mask=hit > 0)",
        "tl.store(index_add_count0_ptr + place, tl.sum(hit, axis=0))",
    ]
    assert made.launches[0].grid == ("32", "1")
    assert [item.shape for item in made.workspaces] == [(32,), (32 * 50,)]


def test_a_line_of_the_result_is_written_once_with_the_sum_over_its_list() -> None:
    made = added(32, 64, 257)
    body = functions(made)[1]
    assert made.launches[1].grid == ("32", "cdiv(16448, XBLOCK)") and "c1 = tl.program_id(0)" in body
    assert "count = tl.load(index_add_count0_ptr + c1)" in body
    assert body[-2:] == [
        "x = tl.load(x_ptr + i*8224 + k + c1*257, mask=point_in)",
        "tl.store(index_add_ptr + i*8224 + k + c1*257, x + total, mask=point_in)",
    ]
    assert "atomic" not in " ".join(body)


@pytest.mark.parametrize(("length", "together"), [(64, 2), (65, 4)])
def test_more_lines_are_under_way_where_lists_are_longer(length: int, together: int) -> None:
    body = functions(added(32, length, 256))[1]
    assert f"for number in range(0, count, {together}):" in body
    loads = [place for place, line in enumerate(body) if line.startswith("v")]
    sums = [place for place, line in enumerate(body) if line.startswith("total +=")]
    assert len(loads) == len(sums) == together and max(loads) < min(sums)
    assert body[sums[0]] == "total += tl.where(live, v, 0.0)"


def test_two_indices_have_lists_side_by_side_and_are_walked_one_in_the_other() -> None:
    made = two_indices()
    assert made.launches[0].grid == ("16", "2")
    assert [line for line in functions(made)[0] if line.startswith("if")] == [
        "if (tl.program_id(1) == 0) & (place < 16):",
        "if (tl.program_id(1) == 1) & (place < 16):",
    ]
    body = functions(made)[1]
    assert made.launches[1].grid[0] == "256" and "c1 = fixed // 16" in body and "c2 = fixed % 16" in body
    assert [line for line in body if line.startswith("for")] == [
        "for number in range(0, count):",
        "for number_2 in range(0, count_2, 2):",
    ]


def test_where_over_256_points_meet_they_are_left_to_atomics_if_there_is_such_a_place() -> None:
    one = added(32, 64, 256)
    assert "count = tl.where(count <= 256, count, 0)" in functions(one)[1]
    often = functions(one)[2]
    assert often[1] == "if most > 256:" and "hot = count > 256" in often
    assert "(i_2 >= 0) & (i_2 < 32) & hot" in often[-1] and often[-1].startswith("tl.atomic_add(")
    two = two_indices()
    assert "count_2 = tl.where(count*count_2 <= 256, count_2, 0)" in functions(two)[1]
    assert "if most*most_2 > 256:" in functions(two)[2]


def test_a_tile_with_several_places_walks_as_far_as_its_longest_list() -> None:
    made = along_what_is_named()
    body = functions(made)[1]
    assert made.launches[1].grid == ("64", "cdiv(30, XBLOCK)", "cdiv(255, YBLOCK)")
    assert made.launches[1].configs[0].constants == {"YBLOCK": 32, "XBLOCK": 32}
    assert "for number in range(0, tl.max(tl.max(count, axis=1), axis=0), 2):" in body
    assert "live = (number < count) & c2_in & j_in" in body
    assert "v = tl.load(v_ptr + i*12750 + j + k_2*255, mask=j_in & live)" in body


def test_sums_have_the_type_of_the_result() -> None:
    assert "total = tl.full([XBLOCK], 0.0, tl.float64)" in lines(added(32, 64, 256, F64))
    assert "total = tl.full([XBLOCK], 0.0, tl.float32)" in lines(added(32, 64, 256, F32))

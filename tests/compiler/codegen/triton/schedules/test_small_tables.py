"""Adding into a table of few rows: what the lanes of a program are, and what becomes of its sums."""

from __future__ import annotations

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from tests.compiler.codegen.triton.schedules.printing import functions, kernel, lines
from tests.compiler.schedule.cut import ADD, BF16, F32, added, empty


def table(rows: int, length: int, points: int = 100_000, dtype: torch.dtype = F32) -> PrintedKernel:
    return kernel(ADD, *added(rows, length, points, dtype))


def test_of_short_rows_lanes_are_points_and_each_is_compared_with_every_row() -> None:
    made = table(16, 8)
    body = functions(made)[0]
    slabs, across = (int(each) for each in made.launches[0].grid)
    assert across == 2  # of four elements each
    assert f"for start in range(tl.program_id(0) * XBLOCK, 100000, {slabs} * XBLOCK):" in body
    assert "named = tl.where(i_in & (i_2 >= 0) & (i_2 < 16), i_2, -1).to(tl.int32)" in body
    assert "hit = named == table_row" in body
    assert [line for line in body if line.startswith("total") and "+=" in line] == [
        f"total{number} += tl.where(hit, v{number}, 0.0)" for number in ("", "_2", "_3", "_4")
    ]
    assert body[-2:] == [
        "total_4 = tl.sum(total_4, axis=1)[:, None]",
        "tl.store(index_add_parts_ptr + tl.program_id(0) * 128 + j_5 + table_row*8, total_4)",
    ]


def test_an_element_beyond_the_row_is_its_last_one_and_is_not_kept() -> None:
    made = table(16, 6)
    assert lines(made, "within = ") == ["within = tl.minimum(element, 5)"]
    stores = lines(made, "tl.store(index_add_parts")
    assert len(stores) == 4 and stores[3].endswith("total_4, mask=(element_4 < 6))")
    assert "mask=(element" not in table(16, 8).text


def test_an_element_of_several_axes_is_counted_as_one_and_taken_apart() -> None:
    inputs = empty(4, 13, 5), empty(10_001, dtype=torch.int64), empty(4, 10_001, 5)
    made = kernel(lambda x, i, v: x.index_add(1, i, v), *inputs)
    assert lines(made, "i_2 =") == ["i_2 = element // 5"] and lines(made, "k_2 =") == ["k_2 = element % 5"]
    assert lines(made, "tl.store(index_add_parts")[0].endswith(
        "i_2*65 + k_2 + table_row*5, total, mask=table_row_in)"  # in the order of the result
    )


def test_along_long_rows_points_come_a_few_at_a_time_and_the_last_ones_twice_for_nothing() -> None:
    made = table(13, 256, 100_001)
    body = functions(made)[0]
    assert [line for line in body if line.startswith("point")] == [
        "point = start",
        "point_2 = tl.minimum(start + 1, 100000)",
        "point_3 = tl.minimum(start + 2, 100000)",
        "point_4 = tl.minimum(start + 3, 100000)",
    ]
    assert "named_4 = tl.where((start < 99998) & (i_5 >= 0) & (i_5 < 13), i_5, -1).to(tl.int32)" in body
    loads = [place for place, line in enumerate(body) if line.startswith("v")]
    sums = [place for place, line in enumerate(body) if line.startswith("total +=")]
    assert max(loads) < min(sums) and body[sums[0]] == "total += tl.where(named == table_row, v, 0.0)"
    assert "tl.minimum" not in table(13, 256, 100_000).text


def test_halves_are_summed_by_products_with_zeros_and_ones() -> None:
    made = table(13, 60, 100_001, BF16)
    body = functions(made)[0]
    assert "hit = (tl.arange(0, ROWS)[:, None] == tl.trans(named)).to(tl.bfloat16)" in body
    assert "value = tl.where(i_in & j_in, v, tl.full([PBLOCK, XBLOCK], 0.0, tl.float32))" in body
    assert "total = tl.dot(hit, tl.where(finite, value, 0.0).to(tl.bfloat16), total)" in body
    assert body[-1].endswith("table_row*60, total, mask=(table_row < 13) & j_in)")
    assert "(table_row <" not in table(16, 64, 100_000, BF16).text


def test_what_is_not_finite_is_counted_beside_the_product_and_only_if_there_is_any() -> None:
    body = functions(table(16, 64, 100_000, BF16))[0]
    asked = body.index("if tl.max(tl.max(strange, axis=1), axis=0) > 0:")
    assert "strange = strange | (~finite).to(tl.int32)" in body[:asked]
    # NaN is neither below nor above zero, so it counts as both infinities, whose sum is NaN
    (up,), (down,) = (
        [line for line in body if line.startswith(f"{way} = tl.dot")] for way in ("upward", "downward")
    )
    assert "tl.where(finite_2 | (value_2 < 0.0), 0.0, 1.0)" in up
    assert "tl.where(finite_2 | (value_2 > 0.0), 0.0, 1.0)" in down
    assert 'total = tl.where(upward > 0.0, float("inf"), total)' in body
    assert 'total += tl.where(downward > 0.0, float("-inf"), 0.0)' in body


def test_a_second_function_adds_what_all_programs_have_to_the_table() -> None:
    made = table(16, 8)
    slabs = int(made.launches[0].grid[0])
    (parts,) = made.workspaces
    assert parts.shape == (slabs * 16 * 8,) and made.launches[1].grid == ("cdiv(128, XBLOCK)",)
    body = functions(made)[1]
    assert f"for first in range(0, {slabs}, SBLOCK):" in body
    assert any(line.endswith(f"slab*128 + point, mask=(slab < {slabs}), other=0.0)") for line in body)
    assert body[-1] == "tl.store(index_add_ptr + point, x + tl.sum(total, axis=1)[:, None])"


def test_parts_of_halves_are_float32_and_those_of_doubles_are_doubles() -> None:
    kept = {dtype: table(16, 3, 100_000, dtype).workspaces[0].dtype for dtype in (BF16, F32, torch.float64)}
    assert kept == {BF16: F32, F32: F32, torch.float64: torch.float64}

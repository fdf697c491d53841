"""Adding along the axis that memory lies along: lines are added up, then handed out by a product."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.schedules.listed_lanes import UPPER
from tests.compiler.codegen.triton.schedules.printing import functions, kernel, lines
from tests.compiler.schedule.cut import BF16, F32, empty

I64 = torch.int64


def along(places: int, length: int, dtype: torch.dtype = F32) -> PrintedKernel:
    """Lines of ``length`` numbers, each added to one of ``places``."""
    fn = lambda x, i, v: x.index_add(2, i, v.float())
    values = empty(64, 256, length, dtype=dtype)
    return kernel(fn, empty(64, 256, places), empty(length, dtype=I64), values)


def rows_and_lanes(rows: int = 32) -> PrintedKernel:
    """The gradient of an upsampling of planes."""
    fn = lambda x, r, c, v: torch.ops.aten._unsafe_index_put(x, [None, None, r[:, None], c], v, True)
    indices = empty(rows, dtype=I64), empty(32, dtype=I64)
    return kernel(fn, empty(4, 64, 16, 16), *indices, empty(4, 64, rows, 32))


def test_a_line_is_handed_out_by_a_product_with_what_its_lanes_name() -> None:
    made = along(32, 64)
    (body,) = functions(made)  # no lists: nothing but the lanes is named
    assert "named = tl.where((i_2 >= 0) & (i_2 < 32), i_2, -1).to(tl.int32)" in body
    assert "hit = (tl.trans(named) == tl.arange(0, XBLOCK)[None, :]).to(tl.bfloat16)" in body
    assert body[-3:] == [
        "c2 = tl.arange(0, XBLOCK)[None, :]",
        "x = tl.load(x_ptr + beside*32 + c2)",
        "tl.store(index_add_ptr + beside*32 + c2, x + total)",
    ]
    assert made.launches[0].grid == ("cdiv(16384, YBLOCK)", "1") and not made.workspaces


def test_a_float32_goes_into_the_product_in_three_parts_of_eight_bits() -> None:
    made = along(32, 64)
    assert lines(made, "total = tl.dot") == ["total = tl.dot(part.to(tl.bfloat16), hit, total)"] * 3
    assert lines(made, "rest -=") == ["rest -= part"] * 2
    upper = f"(rest.to(tl.int32, bitcast=True) & {UPPER}).to(tl.float32, bitcast=True)"
    assert lines(made, "part =") == [f"part = {upper}"] * 3
    x = torch.randn(1000, dtype=F32)
    rest, whole = x, torch.zeros(1000)
    for _ in range(3):
        part = (rest.view(torch.int32) & UPPER).view(F32)
        assert torch.equal(part.to(BF16).float(), part)
        rest, whole = rest - part, whole + part
    assert torch.equal(whole, x)


def test_what_is_not_finite_is_kept_out_of_the_product_and_added_place_by_place() -> None:
    body = functions(along(32, 64))[0]
    assert 'finite = tl.abs(line) < float("inf")' in body
    assert "rest = tl.where(finite, line, 0.0)" in body
    asked = body.index("if tl.max(tl.max((~finite).to(tl.int32), axis=1), axis=0) > 0:")
    assert body[asked + 1] == "for place in range(0, 32):"
    assert "tl.sum(tl.where(named == place, line, 0.0), axis=1)[:, None]" in body[asked + 2]


def test_lanes_and_places_beyond_the_last_are_masked() -> None:
    made = along(30, 50)
    assert "line += tl.where(k_in, v, 0.0)" in lines(made)
    assert "named = tl.where(k_in & (i_2 >= 0) & (i_2 < 30), i_2, -1).to(tl.int32)" in lines(made)
    assert lines(made, "tl.store") == ["tl.store(index_add_ptr + beside*30 + c2, x + total, mask=c2_in)"]


def test_halves_are_added_up_as_float32() -> None:
    (loaded,) = lines(along(32, 64, BF16), "to_copy =")
    assert loaded == "to_copy = tl.load(v_ptr + beside*64 + k).to(tl.float32)"


@pytest.mark.parametrize(("rows", "together"), [(32, 2), (33, 4)])
def test_of_a_second_index_the_lines_on_a_places_list_are_added_up_first(rows: int, together: int) -> None:
    made = rows_and_lanes(rows)
    first, body = functions(made)
    assert (
        made.launches[0].grid == ("16", "1") and f"tl.store(index_put_list0_ptr + place*{rows}" in first[-2]
    )
    assert made.launches[1].grid == ("cdiv(256, YBLOCK)", "16") and body[0] == "c2 = tl.program_id(1)"
    walk = body.index(f"for number in range(0, count, {together}):")
    added = [place for place, line in enumerate(body) if line.startswith("line +=")]
    assert (
        len(added) == together
        and walk < min(added)
        and max(added) < body.index("total = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)")
    )
    assert body[added[0]] == "line += tl.where(live, v, 0.0)" and "atomic" not in made.text

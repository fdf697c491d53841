"""The words for schedules: every name that code generation gives has its meaning."""

from __future__ import annotations

import pytest

from nbcompile.compiler.loop_ir.index import Axis
from nbcompile.compiler.schedule.tiling import Tiling
from nbcompile.view.facts.schedules import explained
from tests.golden.test_golden_triton import SCHEDULES

AXIS = Axis("i", 4)
TILINGS = [
    *(Tiling(name, (AXIS,)) for name in ("points", "lines", "bands", "square", "scatter")),
    *(
        Tiling("rows", (AXIS,), persistent=persistent, parts=parts, slabs=slabs, sums=sums, lanes=lanes)
        for persistent in (False, True)
        for parts, slabs, lanes in ((1, 1, ()), (4, 1, ()), (1, 4, ()), (1, 4, (AXIS,)))
        for sums in (False, True)
    ),
]


@pytest.mark.parametrize(
    "title",
    sorted(
        {plan.title for plan in TILINGS}
        | {title.replace("several", "16") for title in SCHEDULES}
        | {"matrix product", "matrix product, persistent", "rows", "columns", "split", "rows and split sums"}
    ),
)
def test_every_part_of_a_schedule_is_explained(title: str) -> None:
    assert [part for part, _ in explained(title)] == title.split(", ")


def test_what_is_not_known_is_left_out() -> None:
    assert explained("spiral, split rows") == explained("split rows") and not explained("")

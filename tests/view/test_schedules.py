"""The words for schedules: every name that code generation gives has its meaning."""

from __future__ import annotations

import pytest

from nbcompile.compiler.schedule import KINDS
from nbcompile.view.facts.schedules import explained
from tests.golden.test_golden_triton import SCHEDULES

EVERY_KIND = [kind for kinds in KINDS.values() for kind in kinds]


@pytest.mark.parametrize(
    "title",
    sorted(
        {kind.name.replace("N programs", "4 programs") for kind in EVERY_KIND}
        | {title.replace("several", "16") for title in SCHEDULES}
        | {"matrix product", "matrix product, persistent", "rows", "columns", "split", "rows and split sums"}
    ),
)
def test_every_part_of_a_schedule_is_explained(title: str) -> None:
    assert [part for part, _ in explained(title)] == title.split(", ")


def test_what_is_not_known_is_left_out() -> None:
    assert explained("spiral, split rows") == explained("split rows") and not explained("")

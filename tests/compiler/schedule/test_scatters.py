"""The schedule that does any scatter: one atomic operation a point, in a type that has it."""

from __future__ import annotations

from nbcompile.compiler.schedule.scatters import Scatter
from tests.compiler.schedule.cut import ADD, BF16, F32, added, cut


def test_few_points_are_done_by_atomics() -> None:
    schedule = cut(ADD, *added(1000, 4, 100))
    assert isinstance(schedule, Scatter) and schedule.wide is None
    assert schedule.configs[0].constants == {"XBLOCK": 128}  # small, for many programs


def test_what_has_no_atomics_is_added_up_in_a_wider_type() -> None:
    schedule = cut(ADD, *added(1000, 4, 100, BF16))
    assert isinstance(schedule, Scatter) and schedule.wide == F32

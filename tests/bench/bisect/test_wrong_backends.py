"""Backends of which one operator is wrong: the check names it within half a minute, and its cell shows it."""

from __future__ import annotations

import pytest

from tests.bench.bisect.wrong_backends import WRONG, Wrong, checked

# One of each kind: a wrong value, gradient, view, tuple, special value; found in FX; wrong in backward only.
SOON = {
    "aten.embedding.default",
    "aten.transpose.int",
    "aten.gelu_backward.default",
    "silu",
    "aten.mul.Tensor-backward",
    "aten.relu.default",
}
CASES = [
    pytest.param(each, id=each.id, marks=() if each.id in SOON else pytest.mark.nightly) for each in WRONG
]


@pytest.mark.nightly
@pytest.mark.parametrize("wrong", CASES)
def test_the_operator_is_named(wrong: Wrong) -> None:
    report, seconds = checked(wrong)
    assert report.operator == wrong.expected, str(report)
    assert report.stage == "backend" and report.went == "differs"
    assert [stage.went for stage in report.stages] == ["agrees", "agrees", "differs"]
    assert report.cell is not None and report.cell.shows, str(report)
    assert seconds < 30


def test_all_that_were_promised_are_there() -> None:
    assert len(WRONG) >= 20
    assert {each.id for each in WRONG} >= SOON
    assert sum(each.backward for each in WRONG) >= 2

"""Found by scripts/fuzz.py: broken code, a kernel of graph: max was in a kernel that could not be."""

from __future__ import annotations

from tests.fuzz.check import agrees
from tests.fuzz.program import Input, Program, Step

PROGRAM = Program(
    seed=29001738,
    inputs=(
        Input("v0", "()", "float32"),
        Input("v1", "(C,)", "float32"),
        Input("v2", "()", "int64"),
    ),
    steps=(
        Step("cross_entropy", "F.cross_entropy(v1, v2)", ("v3",)),
        Step("sub_", "v2.sub_(v2)", (), writes="v2"),
    ),
    results=("v3",),
    sizes=({"C": 3},),
)


def test_broken_code_a_kernel() -> None:
    agrees(PROGRAM)

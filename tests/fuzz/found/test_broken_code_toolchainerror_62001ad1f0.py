"""Found by scripts/fuzz.py: error: 'bad' undeclared, in a kernel whose gather stands in a guard."""

from __future__ import annotations

from tests.fuzz.check import agrees
from tests.fuzz.program import Input, Program, Step

PROGRAM = Program(
    seed=59,
    inputs=(Input("v0", "(1, 2)", "float32"),),
    steps=(
        Step("gather", "v0.gather(-1, (v0 * 0).long().clamp(max=0))", ("v1",), exact=True),
        Step("cat", "torch.cat([v1, v1], 0)", ("v2",), exact=True),
    ),
    results=("v2",),
    sizes=({},),
)


def test_broken_code_toolchainerror() -> None:
    agrees(PROGRAM)

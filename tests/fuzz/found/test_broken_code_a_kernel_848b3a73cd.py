"""Found by scripts/fuzz.py: broken code, a kernel of graph: neg was in a kernel that could not be."""

from __future__ import annotations

from tests.fuzz.check import agrees
from tests.fuzz.program import Input, Program, Step

PROGRAM = Program(
    seed=29501810,
    inputs=(
        Input("v0", "(A, A * 3, A, 1)", "float32", view="b[:, 1::3]"),
        Input("v1", "(1, 2)", "int64"),
        Input("v2", "(1,)", "int64"),
    ),
    steps=(
        Step("unary_", "v0.neg_()", (), writes="v0"),
        Step("take", "torch.take(v0, v1)", ("v3",), exact=True),
        Step("cat", "torch.cat([v1, v3, v1], 0)", ("v4",), exact=True),
        Step("index_put", "torch.index_put(v4, (v2,), torch.full_like(v4[:1], 0))", ("v5",), exact=True),
        Step("variance", "torch.var_mean(v5, (1, 0), correction=0, keepdim=True)", ("v6", "v7")),
        Step("roll", "torch.roll(v7, (0, 0), (0, 0))", ("v8",), exact=True),
    ),
    results=("v8",),
    sizes=({"A": 4},),
)


def test_broken_code_a_kernel() -> None:
    agrees(PROGRAM)

"""Special functions in double precision, against torch's at their edges, and what each of them calls."""

from __future__ import annotations

import functools
import math
import re

import pytest
import torch

from nbcompile.compiler.codegen.c.expressions import LIBM, CWriter
from nbcompile.compiler.codegen.c.special_functions import SPECIAL
from nbcompile.compiler.codegen.expression import name as variable
from nbcompile.compiler.loop_ir.expr import SCALAR_OPS
from nbcompile.compiler.loop_ir.interpret import REFERENCE
from tests.compiler.codegen.c.exported import Exported

F64 = torch.float64
NAN, INF = math.nan, math.inf
OPERATIONS = [name for name in SPECIAL if name in SCALAR_OPS]
POINTS = {
    "erfinv": [-0.999999, -0.8, -0.3, 1e-300, 0.5, 0.79, 0.81, 1 - 1e-15],
    "ndtri": [1e-300, 1e-5, 0.1, 0.3, 0.5, 0.75, 0.9, 0.999],
    "digamma": [-20.5, -1.25, -1e-9, 1e-9, 0.5, 1.4, 9.9, 10.0, 1e10],
    "erfcx": [-5.0, -0.5, -1e-9, 0.3, 3.75, 26.0, 1e7, 2e8, 1e300],
    "log_ndtr": [-1e5, -40.0, -1.01, -1.0, 0.0, 3.0, 9.0],
}
AROUND_EIGHT = [-700.0, -8.1, -8.0, -1e-8, 0.25, 5.0, 7.99, 8.0, 8.01, 50.0, 700.0]


@functools.cache
def functions() -> Exported:
    writer = CWriter()
    for name in OPERATIONS:
        writer.op(name, [variable("x", F64)], F64)
    return Exported(writer)


def call(name: str, x: float) -> float:
    return functions().call(f"{name}_f64", F64, x)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_is_torch_s_within_some_units_in_the_last_place(name: str) -> None:
    """On both sides of every place where the formula changes."""
    points = torch.tensor(POINTS.get(name, AROUND_EIGHT), dtype=F64)
    found = torch.tensor([call(name, float(x)) for x in points], dtype=F64)
    torch.testing.assert_close(found, REFERENCE[name](points), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_made_of_nan(name: str) -> None:
    assert math.isnan(call(name, NAN))


def test_far_out_they_have_their_limits() -> None:
    """But those whose factors overflow are NaN, as torch's are."""
    assert math.isnan(call("i0", INF)) and math.isnan(call("i1", -INF))
    assert call("i0e", -INF) == 0 and math.copysign(1, call("i1e", -INF)) == -1
    assert call("erfcx", INF) == 0 and call("erfcx", -INF) == INF
    assert call("log_ndtr", INF) == 0 and call("log_ndtr", -INF) == -INF
    assert call("digamma", INF) == INF


def test_a_quantile_exists_between_its_ends_only() -> None:
    assert [call("erfinv", x) for x in (1.0, -1.0)] == [INF, -INF] and math.isnan(call("erfinv", 1.5))
    assert [call("ndtri", p) for p in (0.0, 1.0)] == [-INF, INF]
    assert math.isnan(call("ndtri", -0.1)) and math.isnan(call("ndtri", 1.1))


def test_at_its_poles_digamma_is_nan_but_at_zero_it_has_a_side() -> None:
    assert math.isnan(call("digamma", -3.0)) and math.isnan(call("digamma", -INF))
    assert (call("digamma", 0.0), call("digamma", -0.0)) == (-INF, INF)


@pytest.mark.parametrize("name", ["i1", "i1e", "erfinv"])
def test_odd_functions_turn_their_sign(name: str) -> None:
    assert call(name, 0.0) == 0 and call(name, -0.7) == -call(name, 0.7) < 0
    sign = math.copysign(1, call(name, -0.0))
    assert sign == (-1 if name == "erfinv" else 1)  # a series has no sign at zero; neither has torch's


def test_a_tail_does_not_underflow() -> None:
    """The mass below -40 is 1e-350, which no double holds."""
    assert call("log_ndtr", -40.0) == pytest.approx(-804.608442, abs=1e-6)
    assert call("ndtri", 1e-300) == pytest.approx(-37.0471, abs=1e-4)


def test_each_comes_after_all_that_it_calls() -> None:
    for entry in SPECIAL.values():
        for n, needed in enumerate(entry.needs):
            assert set(SPECIAL[needed].needs) <= set(entry.needs[:n]), entry.needs


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_names_all_functions_of_the_library_that_it_leads_to(name: str) -> None:
    entry = SPECIAL[name]
    text = "".join(each.text for each in (entry, *(SPECIAL[needed] for needed in entry.needs)))
    text = re.sub(r"//.*", "", text)
    assert set(entry.functions) == {word for word in re.findall(r"\b([a-z]\w*)\(", text) if word in LIBM}

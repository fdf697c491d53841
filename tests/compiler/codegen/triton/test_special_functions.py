"""Special functions in the precision of their tile, against torch's in double and at their edges."""

from __future__ import annotations

import math

import pytest
import torch

from nbcompile.compiler.loop_ir.interpret import REFERENCE
from tests.compiler.codegen.triton.calling import call, evaluated

F32, F64 = torch.float32, torch.float64
NAN, INF = math.nan, math.inf
AROUND_EIGHT = [-80.0, -8.9, -8.0, -1e-8, 0.25, 5.0, 7.9, 8.0, 8.1, 11.0, 80.0]
POINTS = {
    "i0": AROUND_EIGHT, "i0e": AROUND_EIGHT, "i1": AROUND_EIGHT, "i1e": AROUND_EIGHT,
    "ndtri": [1e-30, 1e-5, 0.1, 0.3, 0.5, 0.75, 0.9, 0.999],
    "digamma": [-20.5, -1.25, 1e-9, 0.5, 1.4, 9.9, 10.0, 1e10],
    "log_ndtr": [-1e5, -40.0, -1.01, -1.0, 0.0, 3.0],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", POINTS)
def test_each_is_as_exact_as_the_tile_that_it_is_given(name: str, dtype: torch.dtype) -> None:
    """On both sides of every place where the formula changes."""
    points = torch.tensor(POINTS[name], dtype=dtype)
    found = torch.tensor(call(name, points, dtype=dtype), dtype=F64)
    exact = REFERENCE[name](points.double())
    torch.testing.assert_close(found, exact, rtol=1e-5 if dtype == F32 else 1e-13, atol=1e-7 * (dtype == F32))


@pytest.mark.parametrize("name", [*POINTS, "erf", "log1p_unit"])
def test_nothing_is_made_of_nan(name: str) -> None:
    assert math.isnan(call(name, [NAN])[0])


def test_far_out_they_have_their_limits() -> None:
    assert call("i0e", [INF, -INF]) == [0, 0] and str(call("i1e", [INF, -INF])) == "[0.0, -0.0]"
    assert call("log_ndtr", [INF, -INF]) == [0, -INF] and call("digamma", [INF]) == [INF]
    assert call("ndtri", [0, 1, 0.5]) == [-INF, INF, 0] and str(call("ndtri", [-0.1, 1.1])) == "[nan, nan]"


def test_at_its_poles_digamma_is_nan_but_at_zero_it_has_a_side() -> None:
    assert str(call("digamma", [-3.0, -INF])) == "[nan, nan]"
    assert call("digamma", [0.0, -0.0]) == [-INF, INF]


def test_a_tail_does_not_underflow() -> None:
    """The mass below -20 is 3e-89, which no float32 holds."""
    assert call("log_ndtr", [-20.0])[0] == pytest.approx(-203.917155)


def test_the_short_error_function_is_off_by_3e_7_at_most_and_odd() -> None:
    x = torch.linspace(-6, 6, 8192)
    found = torch.tensor(call("erf", x))
    assert float((found.double() - x.double().erf()).abs().max()) < 3e-7
    assert float(found.abs().max()) == 1.0  # never more: what is left of 1 has a logarithm and a root
    assert torch.equal(found, -found.flip(0))
    assert str(call("erf", [0.0, -0.0, 4, -4, INF, -INF])) == "[0.0, -0.0, 1.0, -1.0, 1.0, -1.0]"


def test_the_short_logarithm_is_off_by_some_units_in_the_last_place() -> None:
    """Where 1 + x is rounded to 1 as well: there it is x."""
    x = torch.cat([torch.linspace(0, 1, 500), torch.tensor([1e-38, 1e-10, 1e-8, 6e-8, 1.0])])
    found, exact = torch.tensor(call("log1p_unit", x)), x.double().log1p()
    unit = torch.nextafter(exact.float(), torch.tensor(INF)).double() - exact.float()
    assert float(((found - exact) / unit).abs().max()) < 1.3 and found[0] == 0


def test_a_series_is_the_sum_of_chebyshev_s_polynomials() -> None:
    t = torch.tensor([-1.0, 0.25, 0.5, 1.0], dtype=F64)
    found = evaluated("chebyshev(t, (3.0, 5.0, 7.0), 3)", F64, 4, t=t)
    assert torch.equal(found, 3 + 5 * t + 7 * (2 * t * t - 1))

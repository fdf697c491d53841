"""What both languages' special functions are made of: series, and how they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from nbcompile.compiler.codegen.helpers import I0, I1, Helper, Series, table
from nbcompile.compiler.loop_ir.interpret import REFERENCE

F64 = torch.float64


def test_a_helper_needs_nothing_unless_it_says_so() -> None:
    assert Helper("int one(void) { return 1; }") == Helper("int one(void) { return 1; }", (), ())


def chebyshev(coefficients: tuple[float, ...], x: torch.Tensor) -> torch.Tensor:
    """The series by its definition: ``T_n(cos t) = cos(n t)``."""
    angle = torch.acos(x)
    return sum(
        (number * torch.cos(order * angle) for order, number in enumerate(coefficients)), torch.zeros_like(x)
    )


@pytest.mark.parametrize(
    ("series", "eager", "odd"), [(I0, "i0e", False), (I1, "i1e", True)], ids=["I0", "I1"]
)
def test_the_series_are_scaled_bessel_functions(series: Series, eager: str, odd: bool) -> None:
    near, far = torch.linspace(0, 8, 1001, dtype=F64), torch.logspace(0.91, 8, 1001, dtype=F64)
    factor = near if odd else 1
    check = lambda got, x: torch.testing.assert_close(got, exact(x), rtol=1e-14, atol=1e-16)
    exact: Callable[[torch.Tensor], torch.Tensor] = REFERENCE[eager]
    check(factor * chebyshev(series.near, near / 4 - 1), near)
    check(chebyshev(series.far, 16 / far - 1) / far.sqrt(), far)


@pytest.mark.parametrize("numbers", [I0.near, I0.far, I1.near, I1.far])
def test_a_series_is_cut_where_it_falls_under_what_a_double_holds(numbers: tuple[float, ...]) -> None:
    sizes = [abs(number) for number in numbers]
    assert 2e-17 < sizes[-1] < 1e-16 and len(numbers) < 30


def test_a_table_is_written_in_full_in_lines_of_a_width() -> None:
    for width in range(28, 111):  # no number of them is longer
        written = table(I0.far, width, "  ")
        assert [float(number) for number in written.split(",")] == list(I0.far)
        assert all(line.startswith("  ") and len(line) <= width for line in written.splitlines())
    assert len(table(I0.far, 110, "  ").splitlines()) == 6 and table((), 110, "  ") == ""


def test_exponents_are_not_broken_at_their_sign() -> None:
    """Numbers are no words with hyphens."""
    assert table((-1e-17, 2.0), 9, "") == "-1e-17,\n2.0"

"""What scans are made of: how what came before and what comes now are one, and what a block ends with."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from nbcompile.compiler.codegen.triton.scan_helpers import SCANS
from tests.compiler.codegen.triton.calling import call, evaluated

F32, F64, I32, I64 = torch.float32, torch.float64, torch.int32, torch.int64
NAN, INF = math.nan, math.inf


def along(text: str, x: torch.Tensor, out: torch.dtype) -> torch.Tensor:
    """``text`` of a row ``x`` and of the places ``i`` in it."""
    return evaluated(text, out, 0, x=x, i=torch.arange(x.numel(), dtype=I32))[0]


def test_a_sum_of_exponentials_overflows_nowhere() -> None:
    (large,) = call("log_add_exp", [1000.0], [1000.0])
    assert large == pytest.approx(1000 + math.log(2))
    assert call("log_add_exp", [-2000.0, 3.0], [0.0, -300.0]) == [0.0, 3.0]
    row = torch.tensor([700.0, -700.0, 710.0, 709.0], dtype=F64)
    torch.testing.assert_close(along("log_sum_exp(x, 0)", row, F64), row.logsumexp(0))


def test_infinities_of_one_sign_are_added_up_without_their_difference() -> None:
    found = call("log_add_exp", [INF, -INF, INF, -INF, -INF, 2.0], [INF, -INF, -INF, INF, 2.0, -INF])
    assert found == [INF, -INF, INF, INF, 2.0, 2.0]
    assert all(math.isnan(each) for each in call("log_add_exp", [NAN, INF, NAN, NAN], [INF, NAN, -INF, 1.0]))


@pytest.mark.parametrize(
    ("numbers", "largest", "least"),
    [((1, 7, 7, 1), 2, 3), ((NAN, 9, NAN, 1), 2, 2), ((INF, INF, -INF, -INF), 1, 3), ((0, -0.0) * 2, 3, 3)],
)  # fmt: skip
def test_the_last_of_equals_is_the_extreme_and_the_last_nan_above_all(
    numbers: tuple[float, ...], largest: int, least: int
) -> None:
    """As torch's cummax has it, where argmax takes the first."""
    row = torch.tensor(numbers, dtype=F32)
    for name, place in (("last_max", largest), ("last_min", least)):
        assert along(f"{name}(x, i, 0)[1]", row, I32) == place
        found = along(f"{name}(x, i, 0)[0]", row, F32)
        torch.testing.assert_close(found, row[place], equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["later_max", "later_min"])
def test_either_half_of_a_row_may_come_first(name: str) -> None:
    numbers = [NAN, INF, 2.0, 2.0, -INF, NAN]
    pairs = list(itertools.product(enumerate(numbers), repeat=2))
    a, b = (torch.tensor([pair[n][1] for pair in pairs] + [0.0] * 28) for n in (0, 1))
    i, j = (torch.tensor([pair[n][0] for pair in pairs] + [0] * 28, dtype=I32) for n in (0, 1))
    forth = evaluated(f"{name}(a, i, b, j)[1]", I32, 64, a=a, b=b, i=i, j=j)
    back = evaluated(f"{name}(a, i, b, j)[1]", I32, 64, a=b, b=a, i=j, j=i)
    assert torch.equal(forth, back)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_what_a_block_ends_with_is_taken_over_bit_by_bit(dtype: torch.dtype) -> None:
    """A sum with zeros would make 0.0 of -0.0, and NaN of what stands beside infinity."""
    bits = I32 if dtype == F32 else I64
    for number in (-0.0, NAN, -INF, 1e-40):
        row = torch.tensor([INF, number, NAN, 7.0], dtype=dtype)
        assert along("at_end(x, i == 1, 0)", row, dtype).view(bits) == row[1].view(bits)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, I64])
def test_integers_keep_their_type_at_the_end_of_a_block(dtype: torch.dtype) -> None:
    row = torch.tensor([1, torch.iinfo(dtype).min, torch.iinfo(dtype).max, 3], dtype=dtype)
    assert [along(f"at_end(x, i == {n}, 0)", row, dtype) for n in range(4)] == row.tolist()


def test_a_running_sum_is_one_of_whatever_is_added() -> None:
    assert call("plus", [1.0, INF], [2.0, 1.0]) == [3.0, INF]
    assert call("plus", [2**40], [1], dtype=I64) == [2**40 + 1] and not SCANS["plus"].needs

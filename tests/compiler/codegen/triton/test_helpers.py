"""Small functions of generated Triton files, each called with the numbers where torch and Triton disagree."""

from __future__ import annotations

import math

import pytest
import torch

from tests.compiler.codegen.triton.calling import call, evaluated

F32, F64, I64, I32, I8, U8 = (
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8,
)  # fmt: skip
NAN, INF = math.nan, math.inf
WORDS = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
"""What the authors of Philox publish for the counter 0 under the key 0."""
BOUND = 0xC0000000


def along(text: str, *numbers: float, dtype: torch.dtype = F32, out: torch.dtype | None = None) -> float:
    """``text`` of a row ``x`` of four numbers and of their places ``i``."""
    x = torch.tensor(numbers, dtype=dtype)
    return float(evaluated(text, out or dtype, 0, x=x, i=torch.arange(4, dtype=I32)))


def same(found: list[float], expected: list[float]) -> None:
    assert str(found) == str(expected)  # NaN is equal to itself, 0.0 and -0.0 are not


def test_nan_wins_a_maximum_of_two_and_of_a_row() -> None:
    for name in ("maximum_nan", "minimum_nan"):
        same(call(name, [NAN, 1, NAN, -INF], [1, NAN, NAN, NAN]), [NAN] * 4)
    assert math.isnan(along("max_nan(x, 0)", 1, NAN, 2, INF)) and math.isnan(
        along("min_nan(x, 0)", 1, 2, 3, NAN)
    )
    assert along("max_nan(x, 0)", -INF, -3, -2, -5) == -2 and along("min_nan(x, 0)", INF, 3, 2, 5) == 2


def test_the_first_of_equals_is_the_extreme_and_the_first_nan_before_all() -> None:
    for numbers, largest, least in (
        ((1, 7, 7, 1), 1, 0), ((1, NAN, 9, NAN), 1, 1), ((-INF,) * 4, 0, 0), ((2, 1, 1, INF), 3, 1),
    ):  # fmt: skip
        assert along("arg_max(x, i, 0)[1]", *numbers, out=I32) == largest
        assert along("arg_min(x, i, 0)[1]", *numbers, out=I32) == least


def test_truths_and_products_of_a_row() -> None:
    assert along("prod(x, 0)", 2, 3, 4, -5) == -120
    assert along("any_true(x > 3, 0)", 1, 2, 3, 4, out=I32) and not along(
        "any_true(x > 4, 0)", 1, 2, 3, 4, out=I32
    )
    assert along("all_true(x > 0, 0)", 1, 2, 3, 4, out=I32) and not along(
        "all_true(x > 1, 0)", 1, 2, 3, 4, out=I32
    )


@pytest.mark.parametrize("dtype", [F32, F64])
def test_a_sigmoid_has_its_limits_and_a_sign_is_no_nan(dtype: torch.dtype) -> None:
    same(call("sigmoid", [INF, -INF, 0, NAN], dtype=dtype), [1.0, 0.0, 0.5, NAN])
    same(call("sign", [INF, -2, -0.0, NAN], dtype=dtype), [1.0, -1.0, 0.0, 0.0])


def test_floats_are_divided_as_python_does() -> None:
    a, b = [7.5, -7.5, 7.5, 1.0, -0.0, -1e-300], [2.0, 2.0, -2.0, 0.1, 2.0, 3.0]
    same(call("floor_divide_float", a, b, dtype=F64), [x // y for x, y in zip(a, b, strict=True)])
    same(call("remainder_float", a[:4], b[:4], dtype=F64), [x % y for x, y in zip(a[:4], b, strict=False)])
    same(call("floor_divide_float", [1, -1, 0, NAN], [0, 0, 0, 1]), [INF, -INF, NAN, NAN])


@pytest.mark.parametrize("dtype", [I64, I32, I8])
def test_no_integer_division_traps(dtype: torch.dtype) -> None:
    """By 0 they are 0; the least number divided by -1 has no room and stays what it is."""
    least = torch.iinfo(dtype).min
    for name in ("floor_divide", "truncate_divide"):
        assert call(name, [7, least, least, 7], [0, 0, -1, -1], dtype=dtype) == [0, 0, least, -7]
    for name in ("remainder", "truncate_remainder"):
        assert call(name, [least, 7], [-1, -1], dtype=dtype) == [0, 0]
    assert call("safe_divisor", [0, -1, 5, least], dtype=dtype) == [1, 1, 5, least]
    assert call("safe_divisor", [0, 255], dtype=U8) == [1, 255], "of unsigned numbers none is -1"


def test_two_divisions_round_down_and_two_toward_zero() -> None:
    a, b = [7, -7, 7, -7, 6, -6], [2, 2, -2, -2, -3, 3]
    pairs = list(zip(a, b, strict=True))
    assert call("floor_divide", a, b, dtype=I32) == [x // y for x, y in pairs]
    assert call("remainder", a, b, dtype=I32) == [x % y for x, y in pairs]
    assert call("truncate_divide", a, b, dtype=I32) == [int(x / y) for x, y in pairs]
    assert call("truncate_remainder", a, b, dtype=I32) == [math.fmod(x, y) for x, y in pairs]


def test_shifts_by_more_than_the_width_leave_nothing_but_the_sign() -> None:
    assert call("shift_left", [3, 3, 3, 3], [1, 7, 8, -1], dtype=I8) == [6, -128, 0, 0]
    assert call("shift_right", [-8, -8, -8, 8], [1, 64, -1, 64], dtype=I64) == [-4, -1, -1, 0]
    assert call("shift_right", [200, 200, 200, 200], [1, 7, 8, 9], dtype=U8) == [100, 1, 0, 0]


def test_of_a_negative_power_the_whole_part_is_left() -> None:
    base, power = [1, -1, -1, 2, 0, 3, 3, 7, 2], [-3, -3, -2, -3, -1, -1, 4, 0, 33]
    assert call("integer_power", base, power, dtype=I32) == [1, -1, 1, 0, 0, 0, 81, 1, 0]
    assert call("integer_power", [3, 2], [5, 255], dtype=U8) == [243, 0]


def test_random_numbers_are_the_words_of_philox_in_order() -> None:
    expected = [(word >> 8) / 2**24 for word in WORDS]
    seed = torch.zeros(1, dtype=I64)
    offsets, block = torch.arange(4), torch.zeros(1, dtype=I64)
    assert evaluated("philox_uniform(seed, at)", F32, 4, seed=seed, at=offsets).tolist() == expected
    assert evaluated("philox_uniform4(seed, block)", F32, 4, seed=seed, block=block).tolist() == expected
    below = evaluated(f"philox_below4(seed, block, {BOUND})", I32, 4, seed=seed, block=block)
    assert below.tolist() == [word < BOUND for word in WORDS]
    # one below the other, in two columns of the same block
    for text, wanted in (("uniform4_down(seed, two)", expected),
                         (f"below4_down(seed, two, {BOUND})", below.tolist())):  # fmt: skip
        text = f"tl.reshape(philox_{text.replace('two', 'tl.reshape(two, [1, 2])')}, [8])"
        found = evaluated(text, F32, 8, seed=seed, two=torch.zeros(2, dtype=I64))
        assert found.tolist() == [number for number in wanted for _ in range(2)]

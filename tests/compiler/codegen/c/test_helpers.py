"""Small functions that C lacks, each called with the numbers where torch and C disagree."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

import nbcompile
from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.codegen.c.helpers import HELPERS
from tests.compiler.codegen.c.exported import Exported
from tests.nightly import few

F32, F64, I64, I32, I8, U8 = (
    torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8,
)  # fmt: skip
NAN, INF = math.nan, math.inf
LEAST = {I64: -(2**63), I32: -(2**31), I8: -128}


@functools.cache
def helpers() -> Exported:
    """All of them, in float and in five kinds of integers."""
    writer = CWriter()
    for name, entry in HELPERS.items():
        floats = "float" in name or name in ("maximum", "minimum", "fmax", "fmin")
        types = {"exp": (F32,), "erf_plus_one": (F32,), "across": (F32, I32), "across_wide": (F64, I64)}
        for dtype in types.get(name, (F32, F64) if floats else (I64, I32, I8, U8)):
            writer.helper(name, dtype if "TYPE" in entry.text else None)
    return Exported(writer)


def bf16(value: float) -> int:
    return int(helpers().call("float_to_bf16", F32, value, out=torch.uint16))


def bits_to_float(bits: int) -> float:
    return float(torch.tensor(bits, dtype=torch.int32).view(F32))


@pytest.mark.parametrize("pair", [(NAN, -2.0), (-2.0, NAN), (NAN, NAN), (-INF, NAN)])
def test_nan_wins_a_maximum_and_loses_an_fmax(pair: tuple[float, float]) -> None:
    for name in ("maximum", "minimum"):
        assert math.isnan(helpers().call(f"{name}_f32", F32, *pair))
    number = next((each for each in pair if not math.isnan(each)), NAN)
    for name in ("fmax", "fmin"):
        assert str(helpers().call(f"{name}_f64", F64, *pair)) == str(number)


@pytest.mark.parametrize("contiguous", [True, False])
def test_an_exponential_is_within_a_unit_in_the_last_place(contiguous: bool) -> None:
    """Of all sizes a float has, those below the least normal one included; in vectors and out of them."""
    x = torch.linspace(-104.5, 89.5, 400_001)
    x = x if contiguous else x.repeat_interleave(2)[::2]
    got = nbcompile.compile(torch.exp, options={"cache": False})(x).double()
    wanted = x.double().exp()
    unit = torch.from_numpy(np.spacing(wanted.float().numpy())).double()
    finite = wanted <= torch.finfo(F32).max
    assert ((got - wanted).abs() / unit)[finite].max() < 1.1
    assert (got[~finite] == INF).all() and (~finite).any()


@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (INF, INF),
        (-INF, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (88.7229, INF),
        (-104.0, 0.0),
        (1e30, INF),
        (-1e30, 0.0),
    ],
)
def test_an_exponential_at_its_ends(x: float, wanted: float) -> None:
    assert helpers().call("exp_f32", F32, x) == wanted
    assert math.isnan(helpers().call("exp_f32", F32, NAN))
    assert helpers().call("exp_f32", F32, 88.72283) < INF
    assert helpers().call("exp_f32", F32, -103.9) == 2.0**-149


def test_a_bfloat16_is_the_nearest_one_and_of_two_the_even() -> None:
    assert [bf16(1 + n * 2**-8) for n in (1, 3)] == [0x3F80, 0x3F82]  # each is halfway between two
    assert bf16(1 + 2**-8 + 2**-20) == 0x3F81
    assert bf16(3.4e38) == 0x7F80 and bf16(-INF) == 0xFF80
    assert bf16(-0.0) == 0x8000 and bf16(1e-45) == 0


def test_no_nan_is_rounded_to_a_number() -> None:
    """This one has all bits set but the sign, and the next number up would be minus zero."""
    assert bf16(bits_to_float(0x7FFFFFFF)) == 0x7FC0
    assert helpers().call("bf16_to_float", torch.uint16, 0x3F81, out=F32) == 1 + 2**-7


def test_an_index_outside_of_a_buffer_becomes_its_first() -> None:
    places = [-(2**63), -1, 0, 4, 5, 2**63 - 1]
    assert [helpers().call("in_range", I64, place, 5) for place in places] == [0, 0, 0, 4, 0, 0]
    assert helpers().call("in_range", I64, 3, 0) == 0


@pytest.mark.parametrize(("dtype", "short"), [(I64, "i64"), (I32, "i32"), (I8, "i8")])
def test_no_integer_division_traps(dtype: torch.dtype, short: str) -> None:
    """By 0 they are 0; the least number divided by -1 has no room and stays what it is."""
    for name in ("floordiv", "truncdiv", "remainder", "fmod"):
        assert helpers().call(f"{name}_{short}", dtype, 7, 0) == 0
        least = helpers().call(f"{name}_{short}", dtype, LEAST[dtype], -1)
        assert least == (LEAST[dtype] if "div" in name else 0)
        assert helpers().call(f"{name}_u8", U8, 7, 255) == (0 if "div" in name else 7)  # no -1


@pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, -3), (-6, 3)])
def test_two_divisions_round_down_and_two_toward_zero(a: int, b: int) -> None:
    found = [helpers().call(f"{name}_i32", I32, a, b) for name in ("floordiv", "remainder")]
    assert found == [a // b, a % b]
    found = [helpers().call(f"{name}_i32", I32, a, b) for name in ("truncdiv", "fmod")]
    assert found == [int(a / b), int(math.fmod(a, b))]


def test_floats_are_divided_as_python_does() -> None:
    floordiv, remainder = (functools.partial(helpers().call, f"{name}_f64", F64)
                           for name in ("floordiv", "remainder"))  # fmt: skip
    for a, b in ((7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (1.0, 0.1), (-1e-300, 3.0)):
        assert (floordiv(a, b), remainder(a, b)) == (a // b, a % b)
    assert math.copysign(1, floordiv(-0.0, 2.0)) == -1
    assert floordiv(1.0, 0.0) == INF and math.isnan(remainder(1.0, 0.0))


def test_shifts_by_more_than_the_width_leave_nothing_but_the_sign() -> None:
    assert [helpers().call("shl_i8", I8, 3, by) for by in (1, 7, 8, -1)] == [6, -128, 0, 0]
    assert [helpers().call("shr_i64", I64, -8, by) for by in (1, 63, 64, -1)] == [-4, -1, -1, -1]
    assert helpers().call("shr_i64", I64, 8, 64) == 0


def test_of_a_negative_power_the_whole_part_is_left() -> None:
    power = functools.partial(helpers().call, "pow_i32", I32)
    assert [power(base, -3) for base in (1, -1, 2, 0, 3)] == [1, -1, 0, 0, 0] and power(-1, -2) == 1
    assert (power(3, 4), power(7, 0), power(2, 33)) == (81, 1, 0)


def test_random_numbers_are_the_words_of_philox() -> None:
    """Those that its authors publish for the counter 0 under the key 0."""
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    drawn = [helpers().call("philox_uniform", I64, 0, offset, out=F32) for offset in range(4)]
    assert drawn == [(word >> 8) / 2**24 for word in words]


def test_one_and_erf_is_near_and_never_over_two() -> None:
    for x in (-INF, -4.0, -1.5, -0.25, -1e-30, 0.0, 1e-3, 0.7, 2.5, 3.69, 3.71, INF):
        got = helpers().call("erf_plus_one_f32", F32, x)
        assert abs(got - (1 + math.erf(x))) < 4e-7 and 0 <= got <= 2
    assert math.isnan(helpers().call("erf_plus_one_f32", F32, NAN))


def test_gelu_is_as_near_as_eagers() -> None:
    x = torch.linspace(-6, 6, 100_001)
    exact = torch.nn.functional.gelu(x.double())
    mine, theirs = (
        (f(x).double() - exact).abs().max()
        for f in (nbcompile.compile(torch.nn.functional.gelu), torch.nn.functional.gelu)
    )
    assert mine <= max(theirs, 8e-7)


def test_every_half_is_the_float_that_it_is() -> None:
    halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    widen = nbcompile.compile(lambda x: x.float(), options={"cache": False})
    torch.testing.assert_close(widen(halves), halves.float(), rtol=0, atol=0, equal_nan=True)
    assert widen.ran_compiled, widen.eager_reason


def test_floats_are_rounded_to_halves_as_the_processor_does() -> None:
    """Every half, what lies half-way to the next, and the floats beside that; and others from all of them."""
    bits = torch.arange(0, 1 << 31, 1 << 12, dtype=torch.int64)
    bits = torch.cat([bits + near for near in (-1, 0, 1, 1234)]).clamp(0, 0x7FFFFFFF).to(torch.int32)
    floats = torch.cat([bits.view(torch.float32), -bits.view(torch.float32)])
    narrow = nbcompile.compile(lambda x: x.half(), options={"cache": False})
    found, wanted = narrow(floats), floats.half()
    kept = ~wanted.isnan()
    assert torch.equal(found[kept].view(torch.int16), wanted[kept].view(torch.int16))
    assert found[~kept].isnan().all()
    rounded = nbcompile.compile(lambda x: x.half().float() * 2, options={"cache": False})
    torch.testing.assert_close(rounded(floats), floats.half().float() * 2, rtol=0, atol=0, equal_nan=True)


@few(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rest_of_a_division_is_exact(dtype: torch.dtype) -> None:
    """By a quotient where that is short, and by the library where it is not: bit for bit what eager gives,
    at multiples and beside them too. (Where ``a / b`` overflows eager gives NaN, and C the rest.)"""
    generator = torch.Generator().manual_seed(0)

    def random(low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, (20_000,), generator=generator)

    b = torch.randn(20_000, generator=generator, dtype=dtype)
    multiples = [(b * random(-high, high)).to(dtype) for high in (3, 40, 5_000, 5_000_000)]
    beside = [torch.nextafter(each, torch.tensor(end, dtype=dtype)) for each in multiples for end in (0, 1e9)]
    special = torch.tensor([0.0, -0.0, 1, -1, 6, 0.1, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    pairs = torch.cartesian_prod(special, special)
    cases = [(a, b) for a in (*multiples, *beside, b * 1e4)] + [(pairs[:, 0].clone(), pairs[:, 1].clone())]

    def function(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [torch.remainder(a, b), torch.fmod(a, b), torch.floor_divide(a, b)]

    call = nbcompile.compile(function, options={"cache": False}, dynamic=True)
    for a, divisor in cases:
        for found, expected in zip(call(a, divisor), function(a, divisor), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found.signbit() | found.isnan(), expected.signbit() | expected.isnan())


def _rests(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.remainder(a, b),
        torch.fmod(a, b).double() * 2,
        torch.fmod(a[::3], b[::3]),
        torch.remainder(a, 6.0).sum(),
        torch.where(b > 1, torch.fmod(a, b), torch.floor_divide(a, b)),
        torch.fmod(a, b).long(),
    ]


@pytest.mark.nightly
def test_a_rest_is_the_same_in_vectors_of_any_width_and_beside_them() -> None:
    """Also where one number of a vector has a quotient so large that the library is asked."""
    run = nbcompile.compile(_rests, options={"cache": False}, dynamic=True)
    generator = torch.Generator().manual_seed(0)
    for count in (2, 3, 7, 8, 15, 16, 17, 31, 40, 63, 1000):
        a = torch.randn(count, generator=generator) * 100
        b = torch.rand(count, generator=generator) + 0.5
        a[count // 2], b[0] = 1e30, 1e-20
        for found, expected in zip(run(a, b), _rests(a, b), strict=True):
            torch.testing.assert_close(found, expected, rtol=0 if found.dim() else 1e-6, atol=0)
    assert any("fmod_f32(" in kernel.sources["c"] for kernel in run.compilation.kernels)

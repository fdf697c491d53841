"""Random numbers: torch's own, or, with ``random="philox"``, drawn inside the loops.

By default each operator is called as itself, so that a program draws the numbers it draws in eager
mode. The Philox way draws other numbers of the same distribution: element ``n`` of a tensor has words
``first + n`` of the stream of the graph's seed, which torch's own generator gives once a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, compute_dtype, constant, index_value, op, where
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, index, product
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import NATIVE_DTYPES, Builder, Operand
from nbcompile.compiler.lower.registry import Function, Sample, library, lowering, overload
from nbcompile.compiler.lower.samples import call, calls
from nbcompile.compiler.lower.strides import contiguous_strides
from nbcompile.errors import LoweringError

aten = torch.ops.aten
Where = tuple[IndexExpr, ...]
WORD = 2.0**-24  # a Philox uniform is a multiple of this
EAGER = "draws the numbers that eager draws"

library(
    EAGER,
    *filter(None, map(overload, (
        "randperm multinomial poisson binomial _standard_gamma _sample_dirichlet _dirichlet_grad "
        "rrelu_with_noise rrelu_with_noise_functional random random.from random.to"
    ).split())),
)  # fmt: skip


def drawing(*names: str, samples: list[Sample]) -> Callable[[Function], Function]:
    """Register how ``names`` are drawn by Philox; in eager mode each is a call of itself."""

    def register(function: Function) -> Function:
        for target in filter(None, map(overload, names)):

            def lower(b: Builder, *args: Any, target: Any = target, **kwargs: Any) -> Any:
                if b.options.eager_random:
                    return b.call(target, args, kwargs, reason=EAGER)
                results = b.result if isinstance(b.result, tuple | list) else [b.result]
                if any(item.dtype not in NATIVE_DTYPES for item in results):
                    raise LoweringError("no native loops for this dtype")
                return function(b, *args, **kwargs)

            lowering(target, samples=samples)(lower)
        return function

    return register


# -- the raw stream ---------------------------------------------------------------------------


def _uniforms(b: Builder, count: int, shape: Where) -> Callable[[Where], list[Expr]]:
    """``count`` float32 numbers in [0, 1) for each element of a tensor of ``shape``."""
    seed, first = b.random_words(product(shape) * count)
    strides = contiguous_strides(shape)

    def at(where: Where) -> list[Expr]:
        place = first
        for i, stride in zip(where, strides, strict=True):
            place = place + index(i) * stride * count
        return [
            op("philox_uniform", seed.load((ZERO,)), index_value(place + n), dtype=torch.float32)
            for n in range(count)
        ]

    return at


def _units(b: Builder, count: int, dtype: torch.dtype, shape: Where) -> Callable[[Where], list[Expr]]:
    """Like :func:`_uniforms`, in the type ``dtype`` is computed in: float64 has 48 random bits."""
    if dtype != torch.float64:
        return _uniforms(b, count, shape)
    words = _uniforms(b, 2 * count, shape)

    def at(where: Where) -> list[Expr]:
        halves = [word.cast(torch.float64) for word in words(where)]
        return [halves[2 * n] + halves[2 * n + 1] * WORD for n in range(count)]

    return at


def _generate(b: Builder, count: int, body: Callable[..., Expr], *operands: Operand) -> View:
    """Elements that are ``body`` of ``count`` uniforms and of the operands' elements."""
    dtype = b.result_dtype()
    if not dtype.is_floating_point:
        raise LoweringError("real random numbers of an integer dtype")
    compute = compute_dtype(dtype)
    shape = b.result_shape()
    units = _units(b, count, dtype, shape)
    return b.generate(
        shape, dtype, lambda *at: body(*units(at), *(b.element(item, at, compute) for item in operands))
    )


def _require(holds: bool, what: str) -> None:
    """LoweringError for what a distribution is not made for: eager raises."""
    if not holds:
        raise LoweringError(f"a distribution with {what} raises")


# -- distributions ----------------------------------------------------------------------------

_SIZED = calls(
    plain=lambda draw: call([3, 5]),
    double=lambda draw: call([7], dtype=torch.float64),
    half=lambda draw: call([7], dtype=torch.bfloat16),
    empty=lambda draw: call([0, 3]),
    scalar=lambda draw: call([]),
)
_LIKE = calls(
    plain=lambda draw: call(draw(3, 5)),
    transposed=lambda draw: call(draw(3, 5).t()),
    half=lambda draw: call(draw(7, dtype=torch.float16)),
)


def _rounded_down(u: Expr, dtype: torch.dtype) -> Expr:
    """A uniform number that a half type can hold: rounding to nearest would give 1."""
    bits = {torch.bfloat16: 8, torch.float16: 11}.get(dtype)
    return u if bits is None else op("floor", u * 2.0**bits) * 2.0**-bits


def _unit(b: Builder) -> View:
    dtype = b.result_dtype()
    return _generate(b, 1, lambda u: _rounded_down(u, dtype))


@drawing("rand", samples=_SIZED)
def rand(b: Builder, size: Any, **options: Any) -> View:
    """Uniform numbers in [0, 1) of 24 random bits (48 for float64); a half type rounds down, never to 1."""
    return _unit(b)


@drawing("rand_like", samples=_LIKE)
def rand_like(b: Builder, x: View, **options: Any) -> View:
    """Uniform numbers as :func:`rand` has them; ``x`` is not read."""
    return _unit(b)


@drawing("uniform", samples=_LIKE + calls(given=lambda draw: call(draw(9), -2.0, 3.0)))
def uniform(b: Builder, x: View, low: float = 0.0, high: float = 1.0, generator: Any = None) -> View:
    """``low + u * (high - low)``, ``u`` as of :func:`rand`: rounded, maybe ``high``. ``x`` is not read.
    LoweringError where ``low > high``."""
    _require(low <= high, "its ends reversed")
    dtype = b.result_dtype()
    return _generate(b, 1, lambda u: _rounded_down(u, dtype) * (high - low) + low)


def _gauss(u: Expr, v: Expr) -> Expr:
    """A standard normal number from two uniforms, by Box and Muller; 1 - u is never 0."""
    return op("sqrt", op("log", 1 - u) * -2) * op("cos", v * (2 * math.pi))


@drawing("randn", samples=_SIZED)
def randn(b: Builder, size: Any, **options: Any) -> View:
    """Standard normal numbers, each of two uniform ones, by Box and Muller (1958): none is beyond 5.8 in
    magnitude, in float64 8.2."""
    return _generate(b, 2, _gauss)


@drawing("randn_like", samples=_LIKE)
def randn_like(b: Builder, x: View, **options: Any) -> View:
    """Standard normal numbers as :func:`randn` has them; ``x`` is not read."""
    return _generate(b, 2, _gauss)


def _normal(b: Builder, mean: Operand, std: Operand) -> View:
    _require(isinstance(std, int | float) and std >= 0, "a negative deviation")
    return _generate(b, 2, lambda u, v, mean, std: _gauss(u, v) * std + mean, mean, std)


@drawing("normal.float_float", samples=calls(plain=lambda draw: call(0.5, 2.0, [3, 5])))
def normal_of_size(b: Builder, mean: float, std: float, size: Any, **options: Any) -> View:
    """Normal numbers of one mean and deviation. LoweringError for a negative or symbolic deviation."""
    return _normal(b, mean, std)


@drawing("normal.Tensor_float", samples=calls(plain=lambda draw: call(draw(3, 5), 2.0)))
@drawing("normal.float_Tensor", samples=calls(plain=lambda draw: call(1.0, draw(3, 5, low=0))))
@drawing("normal.Tensor_Tensor", samples=calls(plain=lambda draw: call(draw(3, 5), draw(5, low=0))))
def normal(b: Builder, mean: Operand = 0.0, std: Operand = 1.0, generator: Any = None) -> View:
    """Normal numbers, each of a mean of its own. LoweringError for a tensor of deviations: eager raises if
    any is negative."""
    if isinstance(std, View):
        raise LoweringError("a normal distribution raises if a deviation is negative")
    return _normal(b, mean, std)


@drawing("normal_functional", samples=_LIKE + calls(given=lambda draw: call(draw(9), -2.0, 3.0)))
def normal_functional(b: Builder, x: View, mean: float = 0, std: float = 1, generator: Any = None) -> View:
    """Normal numbers as :func:`normal_of_size` has them; ``x`` is not read. LoweringError as there."""
    return _normal(b, mean, std)


@drawing("log_normal", samples=_LIKE)
def log_normal(b: Builder, x: View, mean: float = 1, std: float = 2, generator: Any = None) -> View:
    """``exp`` of normal numbers of this mean and deviation. LoweringError unless that is positive."""
    _require(std > 0, "no positive deviation")
    return _generate(b, 2, lambda u, v: op("exp", _gauss(u, v) * std + mean))


@drawing("exponential", samples=_LIKE + calls(given=lambda draw: call(draw(9), 2.0)))
def exponential(b: Builder, x: View, rate: float = 1, generator: Any = None) -> View:
    """``-log1p(-u) / rate``, but at least ``2**-25 / rate`` before it is rounded to a half type.
    LoweringError unless the rate is positive."""
    _require(rate > 0, "no positive rate")
    # never 0, as in ATen: people divide by these
    return _generate(b, 1, lambda u: op("maximum", -op("log1p", -u), WORD / 2) / rate)


@drawing("cauchy", samples=_LIKE)
def cauchy(b: Builder, x: View, median: float = 0, sigma: float = 1, generator: Any = None) -> View:
    """``median + sigma * tan(pi * (u - 0.5))``. LoweringError unless ``sigma`` is positive."""
    _require(sigma > 0, "no positive sigma")
    return _generate(b, 1, lambda u: op("tan", (u - 0.5) * math.pi) * sigma + median)


@drawing("geometric", samples=calls(plain=lambda draw: call(draw(3, 5), 0.3)))
def geometric(b: Builder, x: View, p: float, generator: Any = None) -> View:
    """The number of trials up to the first success, ``ceil(log1p(-u) / log1p(-p))`` and at least 1.
    LoweringError for an integer dtype, and unless ``0 < p < 1``."""
    _require(0 < p < 1, "p outside of (0, 1)")
    rate = 1 / math.log1p(-p)
    return _generate(b, 1, lambda u: op("maximum", op("ceil", op("log1p", -u) * rate), 1))


# -- true or false ----------------------------------------------------------------------------


def _coins(b: Builder, chance: Operand, output: int = 0) -> View:
    """1 with probability ``chance``, else 0, in the dtype and shape of the result."""
    dtype, shape = b.result_dtype(output), b.result_shape(output)
    compute = compute_dtype(chance.dtype) if isinstance(chance, View) else torch.float32
    units = _uniforms(b, 1, shape)

    def body(*at: IndexExpr) -> Expr:
        [u] = units(at)
        return (u.cast(compute) < b.element(chance, at, compute)).cast(dtype)

    return b.generate(shape, dtype, body, output=output)


_CHANCES = calls(
    plain=lambda draw: call(draw(3, 5, low=0, high=1), 0.3),
    bool=lambda draw: call(draw(3, 5) > 0, 0.9),
    empty=lambda draw: call(draw(0, 5) > 0, 0.9),
)


def _same_numbers(b: Builder, x: View, p: float, generator: Any = None) -> View:
    """``bernoulli(x, p)`` reads only the shape and dtype of ``x``: a tensor nobody has to fill serves."""
    strided = x.strided()
    if strided is None or contiguous_strides(x.shape) != strided[0]:
        drawn: View = b.call(aten.bernoulli.p, (x, p), {"generator": generator}, reason=EAGER)
        return drawn
    one = b.call(
        aten.empty.memory_format, ([1],), {"dtype": x.dtype, **b.on_device()},
        result=torch.empty(1, dtype=x.dtype), reason="only its dtype is read",
    )  # fmt: skip
    like = b.view(one, x.shape, lambda *at: (ZERO,))
    drawn = b.call(aten.bernoulli.p, (like, p), {"generator": generator}, reason=EAGER)
    return drawn


@lowering(aten.bernoulli.p, samples=_CHANCES + calls(
    transposed=lambda draw: call(draw(3, 5).t(), 0.3),
    large=lambda draw: call(draw(40, 40), 0.3),
))  # fmt: skip
def bernoulli_number(b: Builder, x: View, p: float, generator: Any = None) -> View:
    """1 with probability ``p``, else 0; the elements of ``x`` are not read. For eager's numbers ATen is
    given, if ``x`` is contiguous, one element expanded to its shape: nobody has to fill ``x``. LoweringError
    unless ``0 <= p <= 1``."""
    _require(0 <= p <= 1, "p outside of [0, 1]")
    return _same_numbers(b, x, p, generator) if b.options.eager_random else _coins(b, p)


@drawing("bernoulli", samples=calls(plain=lambda draw: call(draw(3, 5, low=0, high=1))))
def bernoulli(b: Builder, chance: View, generator: Any = None) -> View:
    """1 with the probability that the element of ``chance`` says, else 0."""
    return _coins(b, chance)


@drawing("bernoulli.Tensor", samples=calls(plain=lambda draw: call(draw(3, 5), draw(5, low=0, high=1))))
def bernoulli_tensor(b: Builder, x: View, chance: View, generator: Any = None) -> View:
    """As :func:`bernoulli`, in the shape and dtype of ``x``, whose elements are not read."""
    return _coins(b, chance)


_DROPOUTS = calls(
    plain=lambda draw: call(draw(7, 34), 0.3, True),
    half=lambda draw: call(draw(7, 34, dtype=torch.bfloat16), 0.3, True),
    off=lambda draw: call(draw(7, 34), 0.3, False),
    all=lambda draw: call(draw(7, 34), 1.0, True),
    none=lambda draw: call(draw(7, 34), 0.0, True),
)


@drawing("native_dropout", samples=_DROPOUTS)
def native_dropout(b: Builder, x: View, p: float, train: bool | None = True) -> tuple[View, View]:
    """``x / (1 - p)`` with probability ``1 - p``, else ``x * 0`` (NaN of NaN and of infinities), and which
    were kept. A copy, and all of it kept, if ``train`` is False (None is True) or ``p`` is 0."""
    compute = compute_dtype(x.dtype)
    if train is False or p == 0:
        kept = b.generate(x.shape, torch.bool, lambda *at: constant(True, torch.bool), output=1)
        return b.copy(x), kept
    kept = _coins(b, 1 - p, output=1)
    scale = 0.0 if p == 1 else 1 / (1 - p)

    def body(*at: IndexExpr) -> Expr:  # x * 0 where it is dropped: NaN stays NaN
        factor = where(b.element(kept, at), constant(scale, compute), constant(0.0, compute))
        return b.element(x, at, compute) * factor

    return b.generate(x.shape, x.dtype, body), kept


# -- integers ---------------------------------------------------------------------------------


def _integers(b: Builder, low: Any, high: Any) -> View:
    if not isinstance(low, int) or not isinstance(high, int) or not 0 < high - low <= 1 << 32:
        raise LoweringError("random integers of this range")
    dtype, shape = b.result_dtype(), b.result_shape()
    units = _units(b, 1, torch.float64, shape)

    def body(*at: IndexExpr) -> Expr:
        [u] = units(at)
        return (op("floor", u * float(high - low)) + float(low)).cast(dtype)

    return b.generate(shape, dtype, body)


@drawing("randint", samples=calls(
    plain=lambda draw: call(9, [3, 5]),
    real=lambda draw: call(9, [3], dtype=torch.float32),
))  # fmt: skip
def randint(b: Builder, high: Any, size: Any, **options: Any) -> View:
    """Integers from 0 to before ``high``, of 48 random bits each. LoweringError for a range that is symbolic,
    empty, or of more than ``2**32`` numbers."""
    return _integers(b, 0, high)


@drawing("randint.low", samples=calls(plain=lambda draw: call(-3, 9, [3, 5])))
def randint_low(b: Builder, low: Any, high: Any, size: Any, **options: Any) -> View:
    """Integers from ``low`` to before ``high``, otherwise as :func:`randint`."""
    return _integers(b, low, high)


@drawing("randint_like", samples=calls(plain=lambda draw: call(draw(3, 5), 9)))
def randint_like(b: Builder, x: View, high: Any, **options: Any) -> View:
    """Integers as :func:`randint` has them; ``x`` is not read."""
    return _integers(b, 0, high)


@drawing("randint_like.low_dtype", samples=calls(plain=lambda draw: call(draw(3, 5), -2, 9)))
def randint_like_low(b: Builder, x: View, low: Any, high: Any, **options: Any) -> View:
    """Integers as :func:`randint_low` has them; ``x`` is not read."""
    return _integers(b, low, high)

"""Tensors made from nothing, copies, and conversions of dtype and memory format."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import (
    Constant,
    Expr,
    Number,
    as_held,
    compute_dtype,
    constant,
    index_value,
    op,
    scalar,
    where,
)
from nbcompile.compiler.loop_ir.index import Index, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, Operand
from nbcompile.compiler.lower.fitting import require_number
from nbcompile.compiler.lower.registry import Sample, lowering
from nbcompile.compiler.lower.samples import Call, Draw, call, calls, unary
from nbcompile.errors import LoweringError

aten = torch.ops.aten

# -- conversions ------------------------------------------------------------------------------

_FROM = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
_TO = (*_FROM, torch.int8, torch.int16)


def _conversions(**keywords: Any) -> list[Sample]:
    def conversion(source: torch.dtype, target: torch.dtype) -> Callable[[Draw], Call]:
        if keywords:
            return lambda draw: call(draw(7, 34, dtype=source), target)
        return lambda draw: call(draw(7, 34, dtype=source), dtype=target)

    return calls(**{f"{source}_{target}": conversion(source, target) for source in _FROM for target in _TO})


def _same_device(one: torch.device, other: torch.device) -> bool:
    """Whether two names may be of one device: without a number it is the current one."""
    return one.type == other.type and (one.index == other.index or None in (one.index, other.index))


@lowering(aten._to_copy.default, samples=_conversions() + calls(
    special=lambda draw: call(draw(3, 9, special=True), dtype=torch.bfloat16),
    truth=lambda draw: call(draw(3, 9, special=True), dtype=torch.bool),
    same=lambda draw: call(draw(3, 9, special=True)),
    transposed=lambda draw: call(draw(3, 9).t(), dtype=torch.float64),
    packed=lambda draw: call(draw(3, 9).t(), dtype=torch.float64, memory_format=torch.contiguous_format),
    channels_last=lambda draw: call(draw(2, 3, 4, 5), memory_format=torch.channels_last),
    expanded=lambda draw: call(draw(1, 9).expand(4, 9), dtype=torch.float64),
    empty=lambda draw: call(draw(0, 9), dtype=torch.int64),
    scalar=lambda draw: call(draw(), dtype=torch.int64),
))  # fmt: skip
def to_copy(b: Builder, x: View, *, device: Any = None, layout: Any = None, **options: Any) -> View:
    """``x`` in the dtype and layout of the result. LoweringError for another device, or a layout that is not
    strided."""
    if device is not None and not _same_device(torch.device(device), b.result.device):
        raise LoweringError("a copy to another device")
    if layout not in (None, torch.strided):
        raise LoweringError("a copy to another layout")
    return _converted(b, x)


def _converted(b: Builder, x: View) -> View:
    """``x`` rounded to the result's dtype: an expression that later loops read rounded too. Which integer it
    becomes is decided by ``x`` as its own type has it."""
    dtype = b.result_dtype()
    b.check_native(x)
    through = x.dtype if dtype.is_floating_point else compute_dtype(x.dtype)

    def body(*at: IndexExpr) -> Expr:
        return b.element(x, at, through).cast(x.dtype).cast(through).cast(dtype)

    return b.generate(b.result_shape(), dtype, body)


_convert_element_type = getattr(torch.ops.prims, "convert_element_type", None)


@lowering(_convert_element_type and _convert_element_type.default, samples=_conversions(positional=True))
def convert_element_type(b: Builder, x: View, dtype: torch.dtype) -> View:
    """``x`` as ``Tensor.to`` converts it: to integers the fraction is dropped, to bool NaN is True."""
    return _converted(b, x)


_FORMATS = [torch.preserve_format, torch.contiguous_format]


@lowering(aten.clone.default, samples=unary(memory_format=_FORMATS) + calls(
    channels_last=lambda draw: call(draw(2, 3, 4, 5), memory_format=torch.channels_last),
    truth=lambda draw: call(draw(7, dtype=torch.bool)),
))  # fmt: skip
def clone(b: Builder, x: View, memory_format: Any = None) -> View:
    """A copy; what ``memory_format`` asks for is read from the strides of the traced result."""
    return _converted(b, x)


# -- one value everywhere ---------------------------------------------------------------------


def filled(b: Builder, shape: Sequence[IndexExpr], value: Number, dtype: torch.dtype) -> View:
    """A tensor of one value."""
    return b.generate(shape, dtype, lambda *_: constant(constant(value, dtype).value, compute_dtype(dtype)))


def _filled(b: Builder, value: Operand) -> View:
    dtype = b.result_dtype()
    require_number(value, dtype)
    compute = compute_dtype(dtype)
    return b.generate(b.result_shape(), dtype, lambda *at: as_held(b.element(value, at, compute), dtype))


_SIZES = calls(
    plain=lambda draw: call([3, 5]),
    scalar=lambda draw: call([]),
    empty=lambda draw: call([0, 5]),
    whole=lambda draw: call([3], dtype=torch.int64),
    half=lambda draw: call([3], dtype=torch.bfloat16),
    truth=lambda draw: call([3], dtype=torch.bool),
)
_LIKE = calls(
    plain=lambda draw: call(draw(3, 5)),
    transposed=lambda draw: call(draw(3, 5).t()),
    whole=lambda draw: call(draw(3, 5), dtype=torch.int32),
    truth=lambda draw: call(draw(3, dtype=torch.bool)),
    empty=lambda draw: call(draw(0, 5)),
    scalar=lambda draw: call(draw()),
)


def _with(samples: list[Sample], *values: Any) -> list[Sample]:
    """Each sample with more positional arguments, once per value."""

    def more(sample: Sample, value: Any) -> Sample:
        def make(generator: torch.Generator) -> Call:
            args, kwargs = sample.make(generator)
            return (*args, value), kwargs

        return Sample(f"{sample.name}-{value}", make)

    return [more(sample, value) for sample in samples for value in values]


@lowering(aten.full.default, samples=_with(_SIZES, 2, -0.7) + calls(
    infinite=lambda draw: call([3], float("-inf")),
    truth=lambda draw: call([3], True),
    odd=lambda draw: call([3], 7, dtype=torch.uint8),
))  # fmt: skip
def full(b: Builder, size: Any, fill_value: Any, **options: Any) -> View:
    """``fill_value``, converted to the dtype of the result, everywhere."""
    return _filled(b, fill_value)


@lowering(aten.full_like.default, samples=_with(_LIKE, 2, -0.7))
def full_like(b: Builder, x: View, fill_value: Operand, **options: Any) -> View:
    """``fill_value``, a number or a 0-d tensor, in the shape and layout of the result; ``x`` is not read."""
    return _filled(b, fill_value)


@lowering(aten.scalar_tensor.default, samples=calls(
    plain=lambda draw: call(-0.7),
    whole=lambda draw: call(3, dtype=torch.int64),
    half=lambda draw: call(0.1, dtype=torch.bfloat16),
    truth=lambda draw: call(2, dtype=torch.bool),
))  # fmt: skip
@lowering(torch.ops.prims.scalar_tensor.default, samples=calls(
    plain=lambda draw: call(-0.7, dtype=torch.float32, device=torch.device("cpu")),
))  # fmt: skip
def scalar_tensor(b: Builder, value: Any, **options: Any) -> View:
    """A 0-d tensor of ``value``, converted to its dtype."""
    return _filled(b, value)


@lowering(aten._efficientzerotensor.default, samples=_SIZES)  # of gradients: it has no memory
def zeros(b: Builder, *given: Any, **options: Any) -> View:
    """Zeros."""
    return _filled(b, 0)


# what an empty tensor holds is undefined: only those without elements can be compared with eager
@lowering(aten.empty.memory_format, samples=calls(
    plain=lambda draw: call([0, 5]),
    whole=lambda draw: call([3, 0], dtype=torch.int64),
))  # fmt: skip
@lowering(aten.empty_strided.default, samples=calls(plain=lambda draw: call([0, 5], [1, 7])))
@lowering(aten.new_empty_strided.default, samples=calls(plain=lambda draw: call(draw(3), [0, 5], [1, 7])))
@lowering(aten.empty_permuted.default, samples=calls(plain=lambda draw: call([0, 5], [1, 0])))
def empty(b: Builder, *given: Any, **options: Any) -> View:
    """A tensor whose contents are undefined, as zeros: these can be fused away, memory cannot. Where torch is
    told to be deterministic, what it fills such tensors with."""
    deterministic: Any = torch.utils.deterministic
    dtype = b.result_dtype()
    if not (torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory):
        return _filled(b, 0)
    if dtype.is_floating_point:
        return _filled(b, math.nan)
    return _filled(b, True if dtype == torch.bool else torch.iinfo(dtype).max)


# -- sequences --------------------------------------------------------------------------------


def _sequence(b: Builder, start: Any, step: Any) -> View:
    """``start + i * step``: exact for integers, in double precision for the others (as in ATen)."""
    dtype = b.result_dtype()
    if not all(isinstance(value, int | float | IndexExpr) for value in (start, step)):
        raise LoweringError("a sequence of numbers that depend on data")
    whole = not any(isinstance(value, float) for value in (start, step))

    def body(i: Index) -> Expr:
        if whole:
            place = index(start) + index(i) * step
            return index_value(place).cast(dtype)
        value: Expr = index_value(i, torch.float64) * step + start
        return value.cast(dtype)

    return b.generate(b.result_shape(), dtype, body)


def _ranges(*bounds: tuple[Any, ...]) -> list[Sample]:
    named: dict[str, Callable[[Draw], Call]] = {
        str(bound): partial(_ignoring_draw, bound) for bound in bounds
    }
    return calls(**named, half=lambda draw: call(*bounds[0], dtype=torch.bfloat16))


def _ignoring_draw(args: tuple[Any, ...], draw: Draw) -> Call:
    return call(*args)


_STEPS = ((2, 17, 3), (9, 2, -2), (0, 1, 0.1), (3.0, -1.0, -0.75))


@lowering(aten.arange.start_step, samples=_ranges(*_STEPS) + calls(
    truncated=lambda draw: call(0.5, 6.5, 2, dtype=torch.int64),
    single=lambda draw: call(0, 6, 2, dtype=torch.float32),
))  # fmt: skip
def arange(b: Builder, start: Any, end: Any, step: Any = 1, **options: Any) -> View:
    """``start + i * step``, in float64 if either is a float; for an integer dtype both are truncated first.
    LoweringError for a float that is computed of symbolic sizes."""
    if not b.result_dtype().is_floating_point:
        start, step = (int(value) if isinstance(value, float) else value for value in (start, step))
    return _sequence(b, start, step)


_iota = getattr(torch.ops.prims, "iota", None)


@lowering(_iota and _iota.default, samples=calls(
    plain=lambda draw: _iota_call(5, 0, 1),
    step=lambda draw: _iota_call(5, 3, -2),
))  # fmt: skip
def iota(b: Builder, length: Any, *, start: Any, step: Any, **options: Any) -> View:
    """``length`` integers ``start + i * step``."""
    return _sequence(b, start, step)


def _iota_call(length: int, start: int, step: int) -> Call:
    device = torch.device("cpu")
    return call(length, start=start, step=step, dtype=torch.int64, device=device, requires_grad=False)


# torch's rewrite compares ranges of the narrowest type that holds the size, which no kernel of eager's makes:
# a graph that has to run in ATen could not
@lowering(aten.eye.default, samples=calls(
    plain=lambda draw: call(300),
    truth=lambda draw: call(5, dtype=torch.bool),
    half=lambda draw: call(5, dtype=torch.bfloat16),
    empty=lambda draw: call(0),
))  # fmt: skip
@lowering(aten.eye.m, samples=calls(
    wide=lambda draw: call(3, 5),
    tall=lambda draw: call(300, 2, dtype=torch.int64),
))  # fmt: skip
def eye(b: Builder, *sizes: Any, **options: Any) -> View:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    dtype = b.result_dtype()

    def body(row: Index, column: Index) -> Expr:
        return where(index_value(row).eq(index_value(column)), constant(1, dtype), constant(0, dtype))

    return b.generate(b.result_shape(), dtype, body)


def _spaced(b: Builder, start: Operand, end: Operand, steps: Any) -> Callable[[Index], Expr]:
    """Evenly spaced numbers, counted from the nearer end, in the type the result is computed in. The
    ends are numbers or 0-d tensors."""
    dtype = b.result_dtype()
    if not dtype.is_floating_point:
        raise LoweringError("ATen rounds each step of integers so spaced in float32")
    if not isinstance(steps, int):
        raise LoweringError("the number of steps is not a plain number")
    compute = compute_dtype(dtype)

    def body(i: Index) -> Expr:
        first, last = b.element(start, (), compute), b.element(end, (), compute)
        if steps == 1:
            return first
        if isinstance(first, Constant) and isinstance(last, Constant):
            step: Expr = constant((last.value - first.value) / (steps - 1), compute)
        else:
            step = (last - first) / (steps - 1)
        place = index_value(i)
        down = last - (steps - 1 - place).cast(compute) * step
        return where(place < steps // 2, place.cast(compute) * step + first, down)

    return body


_SPANS = calls(
    plain=lambda draw: call(-1.0, 2.5, 11),
    single=lambda draw: call(2.0, 3.0, 1),
    none=lambda draw: call(2.0, 3.0, 0),
    falling=lambda draw: call(3, -3, 4),
    double=lambda draw: call(0.1, 3, 7, dtype=torch.float64),
    half=lambda draw: call(0.1, 3, 7, dtype=torch.bfloat16),
)
_TENSOR_SPANS = calls(
    plain=lambda draw: call(draw(), draw(), 11),
    double=lambda draw: call(draw(), draw(dtype=torch.float64), 4, dtype=torch.float64),
)


@lowering(aten.linspace.default, samples=_SPANS)
@lowering(aten.linspace.Tensor_Tensor, samples=_TENSOR_SPANS)
def linspace(b: Builder, start: Any, end: Any, steps: Any, **options: Any) -> View:
    """``steps`` numbers at even distances, counted from the nearer end, so that both ends are met exactly; a
    single one is ``start``. LoweringError for an integer dtype, and for a symbolic number of steps."""
    return b.generate(b.result_shape(), b.result_dtype(), _spaced(b, start, end, steps))


@lowering(aten.logspace.default, samples=_SPANS)
@lowering(aten.logspace.Tensor_Tensor, samples=_TENSOR_SPANS)
def logspace(b: Builder, start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> View:
    """``base`` to the powers that :func:`linspace` would give, but not rounded to a half type. LoweringError
    as there."""
    exponent = _spaced(b, start, end, steps)

    def body(i: Index) -> Expr:
        power = exponent(i)
        return op("pow", scalar(base, power.dtype), power)

    return b.generate(b.result_shape(), b.result_dtype(), body)

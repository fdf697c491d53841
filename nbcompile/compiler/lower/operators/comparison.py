"""Comparisons, logic, bits, and choosing between two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.compiler.loop_ir.expr import Expr, as_held, compute_dtype, op, where
from nbcompile.compiler.loop_ir.nodes import View
from nbcompile.compiler.lower.builder import Builder, Operand
from nbcompile.compiler.lower.operators.arithmetic import chosen
from nbcompile.compiler.lower.registry import Sample, lowering, overload
from nbcompile.compiler.lower.samples import FLOATS, INTS, binary, call, calls, unary, with_numbers

aten = torch.ops.aten

_WITH_SPECIAL = calls(
    nan=lambda draw: call(draw(3, 9, special=True), draw(9, special=True)),
    mixed=lambda draw: call(draw(9, dtype=torch.int64), draw(3, 9)),
    half_and_scalar=lambda draw: call(draw(99, dtype=torch.bfloat16, low=0, high=1), draw()),
)


def _comparison(name: str) -> None:
    @lowering(overload(f"{name}.Tensor"), samples=binary((*FLOATS, *INTS, torch.bool)) + _WITH_SPECIAL)
    @lowering(overload(f"{name}.Scalar"), samples=with_numbers(1, 0.5, -1) + _against_rounded())
    def compare(b: Builder, x: View, y: Operand) -> View:
        dtype = b.promote(x, y)

        def body(x: Expr, y: Expr) -> Expr:
            # both sides are rounded to the common type: 0.1 equals bfloat16(0.1)
            return op(name, as_held(x, dtype), as_held(y, dtype))

        return b.pointwise(body, x, y, compute=compute_dtype(dtype))


def _against_rounded() -> list[Sample]:
    """A number that the tensor's type cannot hold, beside that number rounded."""
    return calls(
        rounded=lambda draw: call(torch.tensor([0.1, 0.2, 0.3], dtype=torch.bfloat16), 0.1),
        single=lambda draw: call(torch.tensor([0.1, 0.2, 0.3]), 0.1),
        bool=lambda draw: call(draw(9, dtype=torch.bool), 1),
    )


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name)


# -- logic ------------------------------------------------------------------------------------


def _logical(name: str, function: Callable[..., Expr]) -> None:
    samples = binary((torch.bool, torch.float32, torch.int64), low=-1, high=2) + _WITH_SPECIAL

    @lowering(overload(f"logical_{name}"), samples=samples)
    def logical(b: Builder, x: View, y: View) -> View:
        return b.pointwise(function, x, y, compute=torch.bool)


_logical("and", lambda x, y: op("and", x, y))
_logical("or", lambda x, y: op("or", x, y))
_logical("xor", lambda x, y: op("ne", x, y))


@lowering(aten.logical_not.default, samples=unary((torch.bool, torch.float32, torch.int64)))
def logical_not(b: Builder, x: View) -> View:
    """Whether ``x`` is 0: False for NaN."""
    return b.pointwise(lambda x: op("not", x), x, compute=torch.bool)


# -- bits -------------------------------------------------------------------------------------

_BITS = (torch.bool, *INTS, torch.int8)


def _bitwise(name: str, on_bool: str) -> None:
    targets = {
        f"bitwise_{name}.Tensor": binary(_BITS),
        f"bitwise_{name}.Scalar": with_numbers(5, 1, dtypes=_BITS),
        f"bitwise_{name}.Scalar_Tensor": with_numbers(5, 1, dtypes=_BITS, swap=True),
    }

    def bitwise(b: Builder, x: Operand, y: Operand) -> View:
        return b.pointwise(lambda x, y: op(on_bool if x.dtype == torch.bool else f"bit{name}", x, y), x, y)

    for target, samples in targets.items():
        lowering(overload(target), samples=samples)(bitwise)


_bitwise("and", "and")
_bitwise("or", "or")
_bitwise("xor", "ne")


@lowering(aten.bitwise_not.default, samples=unary(_BITS))
def bitwise_not(b: Builder, x: View) -> View:
    """Every bit turned; of bools the logical not."""
    return b.pointwise(lambda x: op("not" if x.dtype == torch.bool else "bitnot", x), x)


def _shift(direction: str, name: str) -> None:
    pairs = binary((*INTS, torch.int8), low=0, high=9)
    widths = torch.tensor([31, 32, 40] * 3, dtype=torch.int32)
    far = calls(far=lambda draw: call(draw(9, dtype=torch.int32), widths))
    numbers = with_numbers(3, 40, dtypes=(torch.int64, torch.int32))
    targets = {
        f"bitwise_{direction}_shift.Tensor": pairs + far,
        f"bitwise_{direction}_shift.Tensor_Scalar": numbers,
        f"bitwise_{direction}_shift.Scalar_Tensor": with_numbers(
            3, dtypes=(torch.int64, torch.int32), low=0, high=9, swap=True
        ),
        f"__{direction[0]}shift__.Tensor": pairs,
        f"__{direction[0]}shift__.Scalar": numbers,
    }

    def shift(b: Builder, x: Operand, y: Operand) -> View:
        return b.pointwise(lambda x, y: op(name, x, y), x, y)

    for target, samples in targets.items():
        lowering(overload(target), samples=samples)(shift)


_shift("left", "shl")
_shift("right", "shr")


# -- choosing ---------------------------------------------------------------------------------


@lowering(aten.where.self, samples=calls(
    plain=lambda draw: call(draw(7, 34, dtype=torch.bool), draw(7, 34, special=True), draw(7, 34)),
    broadcast=lambda draw: call(draw(7, 1, dtype=torch.bool), draw(34), draw()),
    mixed=lambda draw: call(draw(9) > 0, draw(9, dtype=torch.int64), draw(9, dtype=torch.float16)),
    bool=lambda draw: call(*(draw(9, dtype=torch.bool) for _ in range(3))),
    whole=lambda draw: call(draw(9) > 0, draw(9, dtype=torch.int32), draw(3, 1, dtype=torch.int64)),
    transposed=lambda draw: call(draw(9, 5, dtype=torch.bool).t(), draw(9, 5).t(), draw(5, 9)),
    empty=lambda draw: call(draw(0, 5, dtype=torch.bool), draw(5), draw(5)),
    scalar=lambda draw: call(draw(dtype=torch.bool), draw(), draw()),
))  # fmt: skip
def where_self(b: Builder, condition: View, yes: View, no: View) -> View:
    """``yes`` or ``no``, each in the type of the result, as the condition says."""
    dtype = b.result_dtype()

    def body(*at: Any) -> Expr:
        test = b.element(condition, at, torch.bool)
        return where(test, chosen(b, yes, at, dtype), chosen(b, no, at, dtype))

    return b.generate(b.result_shape(), dtype, body)

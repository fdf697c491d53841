"""What the interpreter's operations do: Triton's numpy builder, mended, and with every access checked.

Mended: bfloat16 arithmetic (Triton's interpreter adds the bit patterns) and rounding (it truncates),
``tl.maximum`` and ``tl.clamp`` drop NaN as the hardware does, and a reduction or scan with a combine
function of its own takes log n steps on whole arrays rather than one on each element.

Checked: see :mod:`memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from nbcompile.compiler.runtime.interpreter.memory import HostMemory

Array = np.ndarray[Any, Any]
ARGUMENT = "argument"
"""Key of a handle's attributes: the position of the argument that a pointer was made from."""


class CheckedOperations:
    """What is put before Triton's InterpreterBuilder. ``memory``, if set, checks each access; ``pause``, if
    set, is called at each operation by which programs may wait for each other, and ``went_on`` at all
    other accesses."""

    interpreter: Any  # the module
    language: Any
    grid_idx: tuple[int, ...] | None

    def enter(self, number: int, place: tuple[int, ...]) -> None:
        """From now on program ``number`` runs, which is at ``place`` of the grid."""
        self.grid_idx = place
        if self.memory is not None:
            self.memory.enter(number, place)

    def __init__(self) -> None:
        super().__init__()
        self.options = self.interpreter.InterpreterOptions(sanitize_overflow=False)
        self.memory: HostMemory | None = None
        self.pause: Callable[[], None] | None = None
        self.went_on: Callable[[], None] | None = None

    # -- numbers --

    def decoded(self, value: Any) -> Array:
        """The numbers of a handle; the interpreter keeps bfloat16 as its bits."""
        data: Array = value.data
        if value.dtype.scalar == self.language.bfloat16:
            return (data.astype(np.uint32) << 16).view(np.float32)
        return data

    def encoded(self, data: Array, dtype: Any) -> Any:
        """A handle of these numbers, rounded to ``dtype``."""
        if dtype.scalar == self.language.bfloat16:
            return self.interpreter.TensorHandle(_to_bfloat16(data), dtype.scalar)
        kind = self.interpreter._get_np_dtype(dtype)
        return self.interpreter.TensorHandle(data.astype(kind, copy=False), dtype.scalar)

    def get_bf16(self, value: Any) -> Any:
        return self.encoded(np.array([value], np.float32), self.language.bfloat16)

    def cast_impl(self, source: Any, target: Any) -> Any:
        return self.encoded(self.decoded(source), target)

    def create_fp_to_fp(self, source: Any, target: Any, rounding: Any) -> Any:
        if self.language.bfloat16 in (source.dtype.scalar, target.scalar):
            return self.cast_impl(source, target)
        return super().create_fp_to_fp(source, target, rounding)  # type: ignore[misc]

    def binary_op(self, left: Any, right: Any, operation: Callable[..., Array]) -> Any:
        if left.dtype.scalar == self.language.bfloat16:
            result = operation(self.decoded(left), self.decoded(right))
            made = None if result.dtype == np.bool_ else self.encoded(result, left.dtype)
        else:
            made = super().binary_op(left, right, operation)  # type: ignore[misc]
            result = made.data
        # a comparison's handle would keep the type of its operands, and spreading it would make numbers of it
        return self.interpreter.TensorHandle(result, self.language.int1) if result.dtype == np.bool_ else made

    def unary_op(self, value: Any, operation: Callable[..., Array]) -> Any:
        return self.encoded(operation(self.decoded(value)), value.dtype)

    def create_erf(self, value: Any) -> Any:
        numbers = torch.from_numpy(np.array(self.decoded(value)))
        return self.encoded(torch.erf(numbers).numpy(), value.dtype)

    def create_rsqrt(self, value: Any) -> Any:
        return self.encoded(1 / np.sqrt(self.decoded(value)), value.dtype)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        first = self.decoded(x)
        if z.dtype.scalar.is_floating():
            first = first.astype(np.float64)  # one rounding, at the end
        return self.encoded(first * self.decoded(y) + self.decoded(z), z.dtype)

    def create_maxnumf(self, left: Any, right: Any) -> Any:
        return self.binary_op(left, right, np.fmax)

    def create_minnumf(self, left: Any, right: Any) -> Any:
        return self.binary_op(left, right, np.fmin)

    def create_clampf(self, value: Any, low: Any, high: Any, propagate: Any) -> Any:
        keeps_nan = "ALL" in str(propagate).upper()
        above, below = (np.maximum, np.minimum) if keeps_nan else (np.fmax, np.fmin)
        clamped = below(above(self.decoded(value), self.decoded(low)), self.decoded(high))
        return self.encoded(clamped, value.dtype)

    def create_dot(self, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        a, b = (
            self.interpreter.TensorHandle(self.decoded(item), self.language.float32)
            if item.dtype.scalar == self.language.bfloat16
            else item
            for item in (a, b)
        )
        return super().create_dot(a, b, d, precision, imprecise)  # type: ignore[misc]

    # -- memory --

    # Triton 3.9 has one argument for how to cache where 3.8 has two: they are handed on as they come.

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        if self.memory is not None:
            self.memory.load(*_accessed(ptrs, mask))
        self._meet(bool(named["is_volatile"] if "is_volatile" in named else rest[-1]))
        return super().create_masked_load(ptrs, mask, other, *rest, **named)  # type: ignore[misc]

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        if self.memory is not None:
            values = np.broadcast_to(value.data, ptrs.data.shape)
            self.memory.store(*_accessed(ptrs, mask), _kept(values, mask))
        self._meet(False)
        return super().create_masked_store(ptrs, value, mask, *rest, **named)  # type: ignore[misc]

    def create_atomic_rmw(self, kind: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if self.memory is not None:
            self.memory.update(*_accessed(pointers, mask))
        self._meet(True)
        return super().create_atomic_rmw(kind, pointers, value, mask, sem, scope)  # type: ignore[misc]

    def create_atomic_cas(self, pointers: Any, expected: Any, value: Any, sem: Any, scope: Any) -> Any:
        if self.memory is not None:
            self.memory.update(*_accessed(pointers, None))
        self._meet(True)
        return super().create_atomic_cas(pointers, expected, value, sem, scope)  # type: ignore[misc]

    def _meet(self, waits: bool) -> None:
        action = self.pause if waits else self.went_on
        if action is not None:
            action()


def _accessed(pointers: Any, mask: Any) -> tuple[Array, int, int]:
    """Addresses not masked out, bytes of an element, and the argument that the pointers were made from."""
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    return _kept(pointers.data, mask), size, pointers.attr.get(ARGUMENT, -1)


def _kept(data: Array, mask: Any) -> Array:
    kept = getattr(mask, "data", mask)  # a block pointer's mask is a plain array
    if kept is None or np.all(kept):
        return data
    chosen: Array = data[np.broadcast_to(kept, data.shape)]
    return chosen


def _owned(name: str, source: int) -> Callable[..., Any]:
    """The operation ``name``, whose result points where its operand ``source`` does."""

    def call(self: Any, *args: Any) -> Any:
        result = getattr(super(CheckedOperations, self), name)(*args)
        owner = getattr(args[source], "attr", {}).get(ARGUMENT)
        if owner is not None:
            result.attr[ARGUMENT] = owner
        return result

    return call


for _name in ("addptr", "bitcast", "reshape", "trans", "expand_dims", "broadcast"):
    setattr(CheckedOperations, f"create_{_name}", _owned(f"create_{_name}", 0))
CheckedOperations.create_splat = _owned("create_splat", 1)  # type: ignore[attr-defined]


def make_builder(interpreter: Any, language: Any) -> Any:
    """An instance of Triton's InterpreterBuilder with the operations above."""
    made = type(
        "Builder",
        (CheckedOperations, interpreter.InterpreterBuilder),
        {"interpreter": interpreter, "language": language},
    )
    return made()


def _to_bfloat16(data: Array) -> Array:
    """float → bfloat16 bits, rounded to nearest even; NaN stays NaN."""
    single = np.ascontiguousarray(data, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _wrapping_sum(self: Any, given: Any) -> Any:
    """In place of ``ReduceOps.sum``, which counts in 64 bits and refuses one number that 32 do not hold."""
    data = given.handle.data
    kind = data.dtype if data.dtype.kind in "iu" else None
    return self.to_tensor(np.sum(data, axis=self.axis, keepdims=self.keep_dims, dtype=kind), given.dtype)


class Reductions:
    """Replacements of ``tl.reduce`` and ``tl.associative_scan`` in the interpreter's language."""

    def __init__(self, interpreter: Any, language: Any) -> None:
        self.interpreter, self.language = interpreter, language
        known = (
            "_argmin_combine_tie_break_left", "_argmax_combine_tie_break_left", "_elementwise_max",
            "_elementwise_min", "_sum_combine",
        )  # fmt: skip
        self._whole = [getattr(language.standard, name, None) for name in known]
        interpreter.ReduceOps.sum = _wrapping_sum
        self._scanned = [getattr(language.standard, name, None) for name in ("_sum_combine", "_prod_combine")]

    def _tensors(self, arrays: Sequence[Array], dtypes: Sequence[Any]) -> list[Any]:
        return [
            self.language.core.tensor(
                self.interpreter.TensorHandle(data, dtype.scalar),
                self.language.block_type(dtype.scalar, list(data.shape)),
            )
            for data, dtype in zip(arrays, dtypes, strict=True)
        ]

    def _combine(
        self, function: Callable[..., Any], left: Sequence[Array], right: Sequence[Array],
        dtypes: Sequence[Any],
    ) -> list[Array]:  # fmt: skip
        result = function(*self._tensors(left, dtypes), *self._tensors(right, dtypes))
        parts = result if isinstance(result, tuple | list) else (result,)
        return [
            np.broadcast_to(part.handle.data.astype(before.dtype, copy=False), before.shape)
            for part, before in zip(parts, left, strict=True)
        ]

    def reduce(self, given: Any, axis: Any, function: Any, keep_dims: bool = False, **_: Any) -> Any:
        """``tl.reduce``: neighbours are combined, so the order of operands is kept."""
        axis = getattr(axis, "value", axis)
        keep_dims = bool(getattr(keep_dims, "value", keep_dims))
        if any(function is known for known in self._whole):
            return self.interpreter.ReduceOps(axis, function, keep_dims).apply(given)
        items = given if isinstance(given, tuple) else (given,)
        dtypes = [item.dtype for item in items]
        arrays = [item.handle.data for item in items]
        rank = arrays[0].ndim
        if axis is None:
            arrays, axis = [data.reshape(-1) for data in arrays], 0
            kept: tuple[int, ...] = (1,) * rank
        else:
            axis = int(axis) % rank
            kept = tuple(1 if n == axis else extent for n, extent in enumerate(arrays[0].shape))
        arrays = [np.moveaxis(data, axis, 0) for data in arrays]
        while (count := arrays[0].shape[0]) > 1:
            even, odd = ([data[first:count:2] for data in arrays] for first in (0, 1))
            arrays = self._combine(function, even, odd, dtypes)
        ends = [data.reshape(kept) if keep_dims else data[0] for data in arrays]
        made = tuple(
            _result(self.interpreter, self.language, data, dtype)
            for data, dtype in zip(ends, dtypes, strict=True)
        )
        return made if isinstance(given, tuple) else made[0]

    def scan(self, given: Any, axis: Any, function: Any, reverse: bool = False, **_: Any) -> Any:
        """``tl.associative_scan``, in steps that double (Hillis and Steele, 1986)."""
        axis, reverse = getattr(axis, "value", axis), bool(getattr(reverse, "value", reverse))
        if any(function is known for known in self._scanned):
            return self.interpreter.ScanOps(axis, function, reverse).apply(given)
        items = given if isinstance(given, tuple) else (given,)
        dtypes = [item.dtype for item in items]
        order = slice(None, None, -1 if reverse else 1)
        arrays = [np.moveaxis(item.handle.data, int(axis), 0)[order] for item in items]
        step = 1
        while step < arrays[0].shape[0]:
            before = [np.roll(data, step, 0) for data in arrays]  # whole: a block's extents are powers of 2
            later = self._combine(function, before, arrays, dtypes)
            arrays = [
                np.concatenate([data[:step], new[step:]]) for data, new in zip(arrays, later, strict=True)
            ]
            step *= 2
        ends = [np.ascontiguousarray(np.moveaxis(data[order], 0, int(axis))) for data in arrays]
        made = tuple(self._tensors(ends, dtypes))
        return made if isinstance(given, tuple) else made[0]


def _result(interpreter: Any, language: Any, data: Array, dtype: Any) -> Any:
    """A tensor of a reduction's result; the interpreter keeps a scalar as an array of one element."""
    scalar = dtype.scalar
    if data.ndim == 0:
        return language.core.tensor(interpreter.TensorHandle(data.reshape(1).copy(), scalar), scalar)
    block = language.block_type(scalar, list(data.shape))
    return language.core.tensor(interpreter.TensorHandle(np.ascontiguousarray(data), scalar), block)

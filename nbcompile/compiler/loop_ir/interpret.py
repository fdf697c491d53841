"""The reference: runs a loop program one loop at a time with plain torch operations on index grids.

Slow and meant to be obviously right: every loop is evaluated over its whole domain, in its own dtype,
and rounded when stored. Fused and generated code must agree with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.loop_ir.computed_sizes import ComputedSize, PythonNumber, told_by
from nbcompile.compiler.loop_ir.expr import (
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Op,
    SizeComparison,
)
from nbcompile.compiler.loop_ir.index import Atom, Axis, FloorDiv, IndexExpr, Mod, Size
from nbcompile.compiler.loop_ir.nodes import (
    Buffer,
    LibraryCall,
    Loop,
    LoopProgram,
    View,
    ViewCalls,
)
from nbcompile.errors import VerifyError

Grid = Mapping[Axis, torch.Tensor]


def interpret(program: LoopProgram, args: Sequence[Any]) -> tuple[Any, ...]:
    """Run ``program`` on ``args`` (tensors and ints in calling order; inputs it mutates are
    overwritten) and return its outputs."""
    return Interpreter(program, args).run()


class Interpreter:
    def __init__(self, program: LoopProgram, args: Sequence[Any]) -> None:
        self.program = program
        self.memory: dict[str, torch.Tensor] = dict(program.constants)
        self.sizes: dict[str, Any] = {}
        for item, arg in zip(program.inputs, args, strict=True):
            if isinstance(item, Buffer):
                self.memory[item.name] = arg
                for extent, size in zip(item.shape, arg.shape, strict=True):
                    self._bind(extent, int(size))
            elif isinstance(item, str) and item.isidentifier():
                self.sizes[item] = int(arg)

    def _bind(self, extent: IndexExpr, size: int) -> None:
        told = told_by(extent)
        if told is not None:
            self.sizes.setdefault(told.size.text, told.value(size))

    def run(self) -> tuple[Any, ...]:
        for statement in self.program.statements:
            if isinstance(statement, LibraryCall):
                self._call(statement)
            else:
                self._loop(statement)
        new = {name: self.memory[value] for name, value in self.program.updates.items()}
        outputs = tuple(self._value(output) for output in self.program.outputs)
        for name, value in new.items():
            self.memory[name].copy_(value)
        returned = len(outputs) - len(self.program.become)
        for name, value in zip(self.program.become, outputs[returned:], strict=True):
            self.memory[name].set_(value)
        return outputs[:returned]

    def number(self, expr: IndexExpr) -> int:
        return int(expr.evaluate(self._size))

    def _size(self, atom: Atom) -> int:
        if isinstance(atom, ComputedSize):
            return int(atom.number.value(self.sizes))
        return int(self.sizes[atom.text])

    def _value(self, value: Any) -> Any:
        if isinstance(value, ViewCalls):
            made = self.memory[value.buffer.name]
            for call in value.calls:
                kwargs = {key: self._value(item) for key, item in call.kwargs.items()}
                made = call.target(made, *self._value(list(call.args)), **kwargs)
            return made
        if isinstance(value, View):
            return self.tensor(value)
        if isinstance(value, IndexExpr):
            return self.number(value)
        if isinstance(value, SizeComparison):
            return value.holds(self.number)
        if isinstance(value, PythonNumber):
            return value.value(self.sizes)
        if isinstance(value, list | tuple):
            return type(value)(self._value(item) for item in value)
        return value

    def tensor(self, view: View) -> torch.Tensor:
        source = self.memory[view.buffer.name]
        if view.is_whole():
            return source
        strided = view.strided()
        if strided is None:
            raise VerifyError(f"view of {view.buffer.name} is not strided")
        strides, offset = strided
        return torch.as_strided(
            source,
            [self.number(extent) for extent in view.shape],
            [self.number(stride) for stride in strides],
            source.storage_offset() + self.number(offset),
        )

    def _call(self, call: LibraryCall) -> None:
        kwargs = {key: self._value(item) for key, item in call.kwargs.items()}
        result = call.target(*self._value(list(call.args)), **kwargs)
        if call.number:
            self.sizes[call.number] = result
        if not call.outputs:
            return
        results = tree_leaves(result) if call.paths else [result] if call.single else result
        for buffer, value in zip(call.outputs, results, strict=True):
            if buffer is not None:
                self.memory[buffer.name] = value
                for extent, size in zip(buffer.shape, value.shape, strict=True):
                    self._bind(extent, int(size))

    def empty(self, buffer: Buffer) -> torch.Tensor:
        shape = [self.number(extent) for extent in buffer.shape]
        strides = [self.number(stride) for stride in buffer.strides]
        return torch.empty_strided(shape, strides, dtype=buffer.dtype)

    def _loop(self, loop: Loop) -> None:
        extents = [self.number(axis.extent) for axis in loop.axes]
        grid: dict[Axis, torch.Tensor] = {}
        for place, (axis, extent) in enumerate(zip(loop.axes, extents, strict=True)):
            shape = [1] * len(extents)
            shape[place] = extent
            grid[axis] = torch.arange(extent).reshape(shape)
        if 0 in extents:  # no point at all: nothing is read
            value = torch.zeros(extents, dtype=loop.body.dtype)
        else:
            value = self.evaluate(loop.body, grid).expand(extents)
        if loop.target is not None:
            self._scatter(loop, value, grid, extents)
            return
        results = [value]
        if loop.reduction:
            dims = [place for place, axis in enumerate(loop.axes) if axis in loop.reduced]
            results = _reduce(loop.reduction, value, dims)
        if loop.scan and loop.scanned:
            results = _scan(loop.scan, value, loop.axes.index(loop.scanned))
        for buffer, result in zip(loop.outputs, results, strict=True):
            out = self.empty(buffer)
            out.copy_(result.reshape(out.shape))
            self.memory[buffer.name] = out

    def _scatter(self, loop: Loop, value: torch.Tensor, grid: Grid, extents: list[int]) -> None:
        out = self.empty(loop.outputs[0])
        out.copy_(self.memory[loop.base or ""])
        places = [self.index(place, grid).expand(extents).reshape(-1) for place in loop.target or ()]
        flat = value.to(out.dtype).reshape(-1)
        for n in range(flat.numel()):
            where = tuple(int(place[n]) for place in places)
            old = out[where]
            out[where] = {
                "set": lambda old, new: new,
                "add": torch.add if out.dtype != torch.bool else torch.logical_or,
                "mul": torch.mul,
                "max": torch.maximum,
                "min": torch.minimum,
            }[loop.mode or "set"](old, flat[n])
        self.memory[loop.outputs[0].name] = out

    def index(self, expr: IndexExpr, grid: Grid) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.int64)
        for mono, coeff in expr.terms:
            term = torch.tensor(coeff, dtype=torch.int64)
            for atom in mono:
                if isinstance(atom, Axis):
                    term = term * grid[atom]
                elif isinstance(atom, Size):
                    term = term * self._size(atom)
                elif isinstance(atom, FloorDiv):
                    top = self.index(atom.numerator, grid)
                    term = term * torch.div(top, self.index(atom.denominator, grid), rounding_mode="floor")
                elif isinstance(atom, Mod):
                    term = term * torch.remainder(
                        self.index(atom.numerator, grid), self.index(atom.denominator, grid)
                    )
                elif isinstance(atom, Indirect):
                    term = term * self.evaluate(atom.value, grid).to(torch.int64)
            total = total + term
        return total

    def evaluate(self, expr: Expr, grid: Grid) -> torch.Tensor:
        if isinstance(expr, Constant):
            return torch.tensor(expr.value, dtype=expr.dtype)
        if isinstance(expr, IndexValue):
            return self.index(expr.value, grid)
        if isinstance(expr, Load):
            return self._load(expr, grid)
        if isinstance(expr, Guarded):
            return self._guard(expr, grid)
        assert isinstance(expr, Op)
        args = [self.evaluate(arg, grid) for arg in expr.args]
        if expr.name == "cast":
            return args[0].to(expr.dtype)
        if expr.name == "bitcast":
            return args[0].view(expr.dtype)
        result = REFERENCE[expr.name](*args)
        return result.to(expr.dtype)

    def _load(self, load: Load, grid: Grid) -> torch.Tensor:
        source = self.memory[load.buffer]
        if not load.index:
            return source.reshape(())
        places = _broadcast(*(self.index(place, grid) for place in load.index))
        for place, extent in zip(places, source.shape, strict=True):
            if place.numel() and not (int(place.min()) >= 0 and int(place.max()) < extent):
                raise VerifyError(f"{load} reads outside of {load.buffer}{list(source.shape)}")
        return source[places]

    def _guard(self, guard: Guarded, grid: Grid) -> torch.Tensor:
        holds = torch.tensor(True)
        for value, low, high in guard.bounds:
            place = self.index(value, grid)
            holds = holds & (self.index(low, grid) <= place) & (place < self.index(high, grid))
        # each branch is evaluated where it is chosen; elsewhere its loads are kept inside their buffers
        outside = _Clamped(self, ~holds).evaluate(guard.outside, grid)
        if not bool(holds.any()):
            return outside
        return torch.where(holds, _Clamped(self, holds).evaluate(guard.inside, grid), outside)


class _Clamped(Interpreter):
    """Evaluates at the points where ``holds``; elsewhere every index is clamped into its buffer."""

    def __init__(self, outer: Interpreter, holds: torch.Tensor) -> None:
        self.program, self.memory, self.sizes = outer.program, outer.memory, outer.sizes
        self.holds: torch.Tensor = holds & outer.holds if isinstance(outer, _Clamped) else holds

    def _load(self, load: Load, grid: Grid) -> torch.Tensor:
        source = self.memory[load.buffer]
        if not load.index:
            return source.reshape(())
        raw = _broadcast(*(self.index(place, grid) for place in load.index), self.holds)
        places = []
        for place, extent in zip(raw[:-1], source.shape, strict=True):
            valid = (place >= 0) & (place < extent)
            if not bool((valid | ~raw[-1]).all()):
                raise VerifyError(f"{load} reads outside of {load.buffer}{list(source.shape)}")
            places.append(place.clamp(0, max(extent - 1, 0)))
        if source.numel() == 0:
            return torch.zeros((), dtype=source.dtype)
        return source[tuple(places)]


def _broadcast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]


def _reduce(kind: str, value: torch.Tensor, dims: list[int]) -> list[torch.Tensor]:
    if not dims:
        dims = []
    rank = value.dim()
    kept = [dim for dim in range(rank) if dim not in dims]
    count = math.prod(value.shape[dim] for dim in dims)
    moved = value.permute(kept + dims).reshape([value.shape[dim] for dim in kept] + [count])
    if kind == "sum":
        return [moved.sum(-1, dtype=value.dtype)]
    if kind == "prod":
        return [moved.prod(-1, dtype=value.dtype)]
    if kind == "max":
        return [moved.amax(-1)]
    if kind == "min":
        return [moved.amin(-1)]
    if kind == "argmax":
        return [moved.argmax(-1)]
    if kind == "argmin":
        return [moved.argmin(-1)]
    if kind == "any":
        return [moved.any(-1)]
    if kind == "all":
        return [moved.all(-1)]
    mean = moved.mean(-1)
    return [mean, (moved - mean.unsqueeze(-1)).square().sum(-1)]


def _scan(kind: str, value: torch.Tensor, dim: int) -> list[torch.Tensor]:
    if kind == "sum":
        return [value.cumsum(dim, dtype=value.dtype)]
    if kind == "prod":
        return [value.cumprod(dim, dtype=value.dtype)]
    if kind == "logsumexp":
        return [value.logcumsumexp(dim)]
    return list(value.cummax(dim) if kind == "max" else value.cummin(dim))


def _true_shift_right(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_right_shift(x, y)


def _philox(seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    from nbcompile.compiler.loop_ir.philox import uniform

    return uniform(seed, offset)


_SPECIAL = torch.special
REFERENCE: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, y: x | y if x.dtype == torch.bool else x + y,
    "sub": torch.sub, "mul": torch.mul, "div": torch.true_divide,
    "truncdiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "floordiv": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "fmod": torch.fmod, "remainder": torch.remainder, "pow": torch.pow, "atan2": torch.atan2,
    "hypot": torch.hypot, "copysign": torch.copysign, "nextafter": torch.nextafter,
    # torch's would have the extents of x, and warn
    "ldexp": lambda x, exponent: torch.ldexp(x * torch.ones_like(exponent), exponent.int()),
    "minimum": torch.minimum, "maximum": torch.maximum, "fmin": torch.fmin, "fmax": torch.fmax,
    "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "eq": torch.eq, "ne": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
    "bitand": torch.bitwise_and, "bitor": torch.bitwise_or, "bitxor": torch.bitwise_xor,
    "bitnot": torch.bitwise_not, "shl": torch.bitwise_left_shift, "shr": _true_shift_right,
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sgn, "exp": torch.exp, "exp2": torch.exp2,
    "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos,
    "atan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "erf": torch.erf,
    "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma, "digamma": torch.digamma,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round,
    "sigmoid": torch.sigmoid, "isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit,
    "where": torch.where, "fma": lambda x, y, z: x * y + z, "philox_uniform": _philox,
    "i0": torch.i0, "i0e": _SPECIAL.i0e, "i1": _SPECIAL.i1, "i1e": _SPECIAL.i1e,
    "ndtri": _SPECIAL.ndtri, "log_ndtr": _SPECIAL.log_ndtr, "erfcx": _SPECIAL.erfcx,
}  # fmt: skip

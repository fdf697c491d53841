"""The loop IR: a program of loops over buffers and calls into libraries.

A :class:`Loop` says what every element of its output is, never in which order or where it is kept:
that is decided by fusion and codegen. Programs are in single-assignment form: each buffer is defined
once, before its first use, and never changes. What a graph does to its inputs is said at its end: which
value each of them holds then (``LoopProgram.updates``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber, computed_in, told_by
from nbcompile.compiler.loop_ir.expr import Expr, Guarded, Load, constant, walk_index
from nbcompile.compiler.loop_ir.index import ONE, ZERO, Atom, Axis, Index, IndexExpr, Size, index, product
from nbcompile.compiler.loop_ir.substitution import substitute

ReductionKind = Literal["sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "welford"]
ScanKind = Literal["sum", "prod", "max", "min", "logsumexp"]
ScatterMode = Literal["set", "add", "mul", "max", "min"]


@dataclass(frozen=True)
class Buffer:
    """Memory for one tensor: shape and strides in elements (symbolic where the graph is)."""

    name: str
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...]
    dtype: torch.dtype
    role: Literal["input", "constant", "temporary"] = "temporary"

    def numel(self) -> IndexExpr:
        return product(self.shape)

    def bytes_hint(self) -> int:
        """Size in bytes at the hints of symbolic sizes."""
        return max(hint_product(self.shape), 0) * self.dtype.itemsize

    def span_most(self) -> int:
        """Elements from the first to the last, at the hints of symbolic sizes (a guard keeps those of 32 bits
        so), and as many as there may be of what depends on data."""
        pairs = zip(self.shape, self.strides, strict=True)
        return 1 + sum((at_most(extent) - 1) * abs(at_most(stride)) for extent, stride in pairs)

    def meets_itself(self) -> bool:
        """Whether two elements may lie at one place: unless each dimension, from the innermost, steps over
        all that is within it (at the hints)."""
        within = 1
        places = zip(self.strides, self.shape, strict=True)
        steps = sorted((abs(stride.hint()), extent.hint()) for stride, extent in places if extent.hint() > 1)
        for step, extent in steps:
            if step < within:
                return True
            within = step * extent
        return False

    def offset(self, indices: tuple[IndexExpr, ...]) -> IndexExpr:
        """Elements from the buffer's start to the element at ``indices``."""
        total = ZERO
        for place, stride in zip(indices, self.strides, strict=True):
            total = total + place * stride
        return total

    def describe(self) -> str:
        return f"{type_name(self.dtype)}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class View:
    """A tensor that shows (part of) a buffer: element ``axes`` of it is element ``index`` of the
    buffer. Covers permute, expand, slice, select, diagonal, reshape and unfold."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    index: tuple[IndexExpr, ...]
    traced: tuple[IndexExpr | None, ...] = field(default=(), compare=False, kw_only=True)
    """A result's strides as they were traced, those that are known: an extent of 1 has no others."""

    @classmethod
    def whole(cls, buffer: Buffer) -> View:
        axes = tuple(Axis(f"v{i}", extent) for i, extent in enumerate(buffer.shape))
        return cls(buffer, axes, tuple(map(index, axes)))

    @property
    def shape(self) -> tuple[IndexExpr, ...]:
        return tuple(axis.extent for axis in self.axes)

    @property
    def dtype(self) -> torch.dtype:
        return self.buffer.dtype

    def at(self, indices: tuple[Index, ...]) -> tuple[IndexExpr, ...]:
        """The buffer's indices for element ``indices`` of this view."""
        mapping = {axis: index(place) for axis, place in zip(self.axes, indices, strict=True)}
        return tuple(substitute(place, mapping) for place in self.index)

    def load(self, indices: tuple[Index, ...]) -> Load:
        """Element ``indices`` as an expression of the buffer's dtype."""
        return Load(self.buffer.name, self.at(indices), self.buffer.dtype)

    def strided(self) -> tuple[tuple[IndexExpr, ...], IndexExpr] | None:
        """(strides, offset) in elements if this view is affine in memory, else None."""
        place = self.buffer.offset(self.index)
        strides = []
        rest = place
        for axis in self.axes:
            stride = place.coefficient(axis)
            if stride is None:
                return None
            strides.append(stride)
            rest = rest - stride * axis
        if any(isinstance(atom, Axis) for atom in rest.atoms()) or rest.axes():
            return None
        step = ONE
        nowhere = ZERO in self.shape and all(stride == ZERO for stride in strides)
        for n, extent in reversed(list(enumerate(self.shape))):
            if nowhere or extent == ONE:  # any would do: these are what torch gives them
                known = self.traced[n] if self.traced else None
                strides[n] = step if known is None else known
            step = strides[n] * (ONE if extent == ZERO and nowhere else extent)
        return tuple(strides), rest

    def is_whole(self) -> bool:
        return (
            len(self.index) == len(self.axes)
            and all(place.axis == axis for place, axis in zip(self.index, self.axes, strict=True))
            and self.shape == self.buffer.shape
        )


@dataclass(frozen=True)
class ViewCall:
    """A view operator of ATen, or ``getitem`` of what one returns, with its arguments after the first: plain
    values and sizes."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class ViewCalls(View):
    """What ``calls``, one after another, show of a whole buffer: a result that has to lie just where eager's
    does. As a view it is that buffer."""

    calls: tuple[ViewCall, ...] = ()

    def sizes(self) -> list[IndexExpr | PythonNumber]:
        """Every size that the calls are given."""
        given = tree_leaves([(call.args, dict(call.kwargs)) for call in self.calls])
        return [item for item in given if isinstance(item, IndexExpr | PythonNumber)]


@dataclass(frozen=True)
class Loop:
    """``outputs[kept axes] = body`` or ``= reduction(body over reduced axes)``; or a scan or a scatter.

    axes:      the whole domain in tensor order; ``reduced`` is a subset of it. The output's
               dimensions are the other axes, in order.
    body:      value of one point; may be wider than the output's dtype: it is rounded when stored.
    reduction: None for a pointwise loop. ``welford`` has two outputs, mean and sum of squared
               deviations; ``argmax``/``argmin`` give the position, counted in row-major order over
               the reduced axes (first one wins; NaN wins over all).
    scan:      each element combines the body's values along ``scanned`` up to and with its own: outputs
               have the whole domain. ``max``/``min`` have two, the value and its position (int64) along
               the axis (last one wins; NaN wins over all).
    scatter:   with ``target`` indices: ``output = copy of base; output[target] (mode)= body`` for
               every point of the domain in row-major order.
    origins:   ids of the ATen nodes it was lowered from.
    """

    id: str
    outputs: tuple[Buffer, ...]
    axes: tuple[Axis, ...]
    body: Expr
    reduced: tuple[Axis, ...] = ()
    reduction: ReductionKind | None = None
    scan: ScanKind | None = None
    scanned: Axis | None = None
    target: tuple[IndexExpr, ...] | None = None
    base: str | None = None
    mode: ScatterMode | None = None
    op: str = ""  # the ATen op, for people: "softmax", "add"
    origins: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.outputs[0].name

    @cached_property
    def kept(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis not in self.reduced)

    @cached_property
    def kind(self) -> Literal["pointwise", "reduction", "scan", "scatter"]:
        if self.target is not None:
            return "scatter"
        if self.scan is not None:
            return "scan"
        return "reduction" if self.reduction else "pointwise"

    def reads(self) -> tuple[Load, ...]:
        """Every load of the loop, the scatter's target included; the base of a scatter is not one."""
        return self._reads

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """All that its body computes: fusion asks for each pair of groups it tries."""
        return tuple(self.body.walk())

    @cached_property
    def _reads(self) -> tuple[Load, ...]:
        found = [node for node in self.nodes if isinstance(node, Load)]
        for place in self.target or ():
            found += [node for node in walk_index(place) if isinstance(node, Load)]
        return tuple(dict.fromkeys(found))

    @cached_property
    def is_guarded(self) -> bool:
        """Whether its body chooses by bounds what it evaluates."""
        return any(isinstance(node, Guarded) for node in self.nodes)

    def without_reads(self) -> Loop:
        """The same loop where the domain has no points, so that no body is ever evaluated. What does not
        vary along an inner axis is loaded outside of it, even if that axis is empty; and there may be
        no memory to load it from."""
        target = self.target and (ZERO,) * len(self.target)
        return replace(self, body=constant(0, self.body.dtype), target=target)

    def points(self) -> int:
        """Number of points of the domain, at the hints."""
        return self._points

    @cached_property
    def _points(self) -> int:  # asked for by each pair that may be one kernel
        return max(hint_product(axis.extent for axis in self.axes), 0)


@dataclass(frozen=True)
class Body:
    """A graph within the graph, by its name there: what a ``cond`` or a ``scan`` calls."""

    name: str


@dataclass(frozen=True)
class LibraryCall:
    """A call of an ATen operator as itself, or of a higher-order one.

    ``args``/``kwargs`` hold plain Python values, :class:`View`, :class:`IndexExpr`, :class:`Body`,
    :class:`SizeComparison`, and lists and dictionaries of these. ``outputs`` has one entry per returned
    value, ``None`` where it is no tensor; ``paths`` how each is found in what is returned (``[1][0]``), where
    that is no plain tuple. ``fallback`` says that we have no lowering for it (``reason``),
    rather than that calling the library is the right thing to do. ``number``: the size that it returns, if
    that is what it does. ``elsewhere``: some of its tensors are not on the device that kernels work on.
    """

    id: str
    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Buffer | None, ...]
    fallback: bool = False
    reason: str = ""
    single: bool = True  # returns one tensor rather than a tuple
    paths: tuple[str, ...] = ()
    number: str = ""
    elsewhere: bool = False
    origins: tuple[str, ...] = ()

    def views(self) -> tuple[View, ...]:
        """Every tensor argument."""
        return tuple(item for item in tree_leaves([self.args, dict(self.kwargs)]) if isinstance(item, View))

    def tells(self) -> set[str]:
        """Sizes that are known when it has run, at the latest: extents of what it returns."""
        extents = [extent for out in self.outputs if out is not None for extent in out.shape]
        found = {told.size.text for told in map(told_by, extents) if told is not None}
        return found | ({self.number} if self.number else set())

    def bodies(self) -> tuple[Body, ...]:
        """Every graph that it is given to call."""
        return tuple(item for item in tree_leaves([self.args, dict(self.kwargs)]) if isinstance(item, Body))


Statement = Loop | LibraryCall


SAVED_DRAW, REPEATED_DRAW = "run_and_save_rng_state", "run_with_rng_state"
"""torch's operators for a draw that backward repeats (``torch/_prims/rng_prims.py``): the first gives the
generator's state beside it, the second draws from that state and leaves the generator as it was."""


def has_effect(statement: Statement) -> bool:
    """Whether a statement does more than make its outputs: random numbers move torch's generator, so the call
    must happen even if nothing reads it, and after those before it."""
    if isinstance(statement, Loop):
        return False
    tags = getattr(statement.target, "tags", ())
    draws = torch.Tag.nondeterministic_seeded in tags or statement.name == SAVED_DRAW
    return draws or not any(statement.outputs)


Output = View | IndexExpr | PythonNumber | int | float | bool | None
"""What a graph returns: a tensor, a symbolic or plain number, or nothing."""


@dataclass(frozen=True)
class LoopProgram:
    """One graph as loops.

    inputs:   in calling order: a Buffer for a tensor, a size's name for a symbolic int, or None for
              an argument nothing reads.
    constants: tensors that the graph holds (``get_attr``), by buffer name.
    updates:  name of an input that the graph overwrites → name of the buffer with what it holds afterwards,
              laid out as the input is. Whoever reads the input's name means its old value, wherever it
              stands; which memory the new value is made in is settled after fusion (``fuse/storage.py``).
    facts:    expressions of sizes that the guards of the graph keep from being negative.
    apart:    places of outputs that are tensors of their own, though another output is the same memory.
    become:   inputs that are given the memory of the last outputs, one each; these are not returned.
    """

    graph: str  # id of the AtenGraph
    inputs: tuple[Buffer | str | None, ...]
    statements: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    constants: Mapping[str, torch.Tensor]
    spans: Mapping[str, tuple[int, ...]]  # statement id → cell lines, for comments
    updates: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[IndexExpr, ...] = ()
    apart: frozenset[int] = frozenset()
    become: tuple[str, ...] = ()

    @property
    def results(self) -> frozenset[str]:
        """The buffers that are there when the program has run: what it returns, and its inputs' new
        values."""
        returned = {item.buffer.name for item in self.outputs if isinstance(item, View)}
        return frozenset(returned.union(self.updates.values()))

    @property
    def is_symbolic(self) -> bool:
        """Whether it is for more than one size."""
        return any(
            extent.constant is None for buffer in self.buffers().values() for extent in buffer.shape
        ) or any(isinstance(item, str) for item in self.inputs)

    def buffers(self) -> Mapping[str, Buffer]:
        """Every buffer by name."""
        return MappingProxyType(self._buffers)

    @cached_property
    def _buffers(self) -> dict[str, Buffer]:  # asked for once a kernel
        found = {item.name: item for item in self.inputs if isinstance(item, Buffer)}
        for statement in self.statements:
            found |= {buffer.name: buffer for buffer in statement.outputs if buffer is not None}
            for view in statement.views() if isinstance(statement, LibraryCall) else ():
                found.setdefault(view.buffer.name, view.buffer)
        for output in self.outputs:
            if isinstance(output, View):
                found.setdefault(output.buffer.name, output.buffer)
        for name, tensor in self.constants.items():
            found.setdefault(name, buffer_like(name, tensor, "constant"))
        return found

    def as_text(self) -> str:
        """The program as a person can read it aloud: inputs, one line a statement (columns aligned),
        outputs."""
        lines = []
        for item in self.inputs:
            if item is not None and not isinstance(item, str):
                lines.append((f"{item.name}", "= input", item.describe(), ""))
        for name, buffer in self.buffers().items():
            if name in self.constants:
                lines.append((name, "= constant", buffer.describe(), ""))
        for statement in self.statements:
            left, right = statement_text(statement)
            outputs = [buffer for buffer in statement.outputs if buffer is not None]
            types = ", ".join(dict.fromkeys(buffer.describe() for buffer in outputs))
            cells = self.spans.get(statement.id, ())
            lines.append((left, right, types, f"cell {', '.join(map(str, cells))}" if cells else ""))
        wide = min(max((len(line[0]) for line in lines), default=0), 28)
        long = min(max((len(line[1]) for line in lines), default=0), 72)
        text = [
            f"{left:<{wide}} {right:<{long}}  {types:<16}  {cells}".rstrip()
            for left, right, types, cells in lines
        ]
        extents = computed_in(extent for buffer in self.buffers().values() for extent in buffer.shape)
        text = [*(f"{name} = {size.number}" for name, size in extents.items()), *text]
        text += [f"{name} becomes {new}" for name, new in self.updates.items()]
        results = list(map(_output_text, self.outputs))
        returned = len(results) - len(self.become)
        text += [f"{name} shows {new}" for name, new in zip(self.become, results[returned:], strict=True)]
        text.append("return " + ", ".join(results[:returned]))
        return "\n".join(text)


def buffer_like(name: str, tensor: torch.Tensor, role: Any = "temporary") -> Buffer:
    """A buffer with the (plain) shape, strides and dtype of a tensor."""
    return Buffer(
        name,
        tuple(index(int(size)) for size in tensor.shape),
        tuple(index(int(stride)) for stride in tensor.stride()),
        tensor.dtype,
        role,
    )


_SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8",
    torch.bool: "bool",
}  # fmt: skip


def hint_product(values: Iterable[IndexExpr]) -> int:
    """Product of the hints: how many points a space of these extents has."""
    return prod(value.hint() for value in values)


def at_most(value: IndexExpr) -> int:
    """The value at the hints of sizes, and with those that depend on data as large as they may be."""

    def number(atom: Atom) -> int:
        if not isinstance(atom, Size):
            return 0
        return atom.hint if atom.most is None else atom.most

    known = value.constant
    return int(value.evaluate(number)) if known is None else known


def type_name(dtype: torch.dtype) -> str:
    """Short name of a dtype: f32, i64 ..."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


# -- as text ------------------------------------------------------------------------------------------


def statement_text(statement: Statement) -> tuple[str, str]:
    """(left side, right side) of one statement, e.g. ("m[i]", "= max y[i, j]  over j<16")."""
    if isinstance(statement, LibraryCall):
        names = ", ".join(buffer.name if buffer else "_" for buffer in statement.outputs)
        arguments = [_argument_text(item) for item in statement.args]
        arguments += [f"{key}={_argument_text(item)}" for key, item in statement.kwargs.items()]
        word = "fallback" if statement.fallback else "library"
        return names, f"= {word} {statement.name}({', '.join(arguments)})"
    return loop_text(statement)


def loop_text(loop: Loop) -> tuple[str, str]:
    """The same of a loop."""
    names = ", ".join(buffer.name for buffer in loop.outputs)
    kept = ", ".join(axis.name for axis in loop.kept)
    if loop.target is not None:
        places = ", ".join(map(str, loop.target))
        sign = {"set": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}[loop.mode or "set"]
        return f"{names}[{places}]", f"{sign} {loop.body}  over {_over(loop.axes)}, from {loop.base}"
    left = f"{names}[{kept}]" if kept else names
    if loop.reduction:
        return left, f"= {loop.reduction} {loop.body}  over {_over(loop.reduced)}"
    if loop.scan and loop.scanned:
        return left, f"= running {loop.scan} {loop.body}  along {_over((loop.scanned,))}"
    return left, f"= {loop.body}"


def _over(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.name}<{axis.extent}" for axis in axes)


def _argument_text(value: Any) -> str:
    if isinstance(value, View):
        if value.is_whole():
            return value.buffer.name
        shape = ",".join(map(str, value.shape))
        return f"{value.buffer.name}.view[{shape}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_argument_text(item) for item in value)}]"
    return str(value)


def _output_text(output: Any) -> str:
    if isinstance(output, ViewCalls):
        return ".".join([output.buffer.name, *(str(call.target) for call in output.calls)])
    if isinstance(output, View | IndexExpr):
        return _argument_text(output)
    return repr(output)

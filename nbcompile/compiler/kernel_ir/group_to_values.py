"""From a group to the values that its kernel computes.

The bodies of a group's loops, placed in its nest, become hash-consed :class:`Value` nodes: equal
subexpressions are one node, an inlined producer is its nodes at the reader's index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from nbcompile.compiler.kernel_ir.computed_index import place_of
from nbcompile.compiler.kernel_ir.guard_ranges import decide
from nbcompile.compiler.kernel_ir.integer_ranges import NARROWED, Ranges, fits, offsets_fit
from nbcompile.compiler.kernel_ir.values import (
    Gathered,
    KernelValues,
    Reduction,
    Store,
    Value,
    walk_values,
)
from nbcompile.compiler.loop_ir.expr import (
    HALF,
    Constant,
    Expr,
    Guarded,
    IndexValue,
    Indirect,
    Load,
    Op,
    compute_dtype,
)
from nbcompile.compiler.loop_ir.fused import Binding, Group, Nest
from nbcompile.compiler.loop_ir.index import (
    ONE,
    ZERO,
    Axis,
    FloorDiv,
    IndexExpr,
    Mod,
    at_least,
    index,
)
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop
from nbcompile.compiler.loop_ir.pins import Pins, by_pins, pins_of
from nbcompile.compiler.loop_ir.proofs import quotients
from nbcompile.compiler.loop_ir.substitution import joined, substitute

_ROUND = {torch.float16: "round_f16", torch.bfloat16: "round_bf16"}


def kernel_values(group: Group, buffers: Mapping[str, Buffer], *, narrow: bool = False) -> KernelValues:
    """Resolve a group; adjacent axes that every access walks as one become one. ``narrow``: integers are
    computed in 32 bits where their ranges allow it."""
    first = Resolver(group, group.bindings, group.nest, buffers, narrow=narrow).resolve()
    if any(loop.target is not None for loop in group.loops):
        return first
    nest, mapping = _collapse(first)
    if not mapping:
        return first
    bindings = {
        name: {axis: substitute(place, mapping) for axis, place in binding.items()}
        for name, binding in group.bindings.items()
    }
    merged = Resolver(group, bindings, nest, buffers, narrow=narrow).resolve()
    # with symbolic extents the quotients may stay: then the axes are better as they were
    return merged if _quotients(merged) <= _quotients(first) else first


def _quotients(values: KernelValues) -> int:
    return sum(1 for place in _places(values) for atom in place.atoms() if isinstance(atom, FloorDiv | Mod))


def resolver_of(group: Group, nest: Nest, buffers: Mapping[str, Buffer], *, narrow: bool = True) -> Resolver:
    """What turns expressions of the group's loops into values, numbered anew; for a GPU with ``narrow``."""
    return Resolver(group, group.bindings, nest, buffers, narrow=narrow)


class Resolver:
    def __init__(
        self, group: Group, bindings: Mapping[str, Binding], nest: Nest, buffers: Mapping[str, Buffer],
        *, narrow: bool = False,
    ) -> None:  # fmt: skip
        self.group, self.bindings, self.nest, self.buffers = group, bindings, nest, buffers
        self.narrow = narrow and offsets_fit(group, buffers)
        self.ranges = Ranges()
        self.makers = {out.name: loop for loop in group.loops for out in loop.outputs}
        self.table: dict[object, Value] = {}
        self.memo: dict[tuple[str, tuple[IndexExpr, ...], Pins], Value] = {}
        self.overwritten = dict(self._overwritten())
        self.pins: Pins = ()  # what the guards around make equal
        self.names: dict[int, str] = {}
        self.results: dict[str, Value] = {}  # of reductions that need no walk
        self.reduced: dict[tuple[str, int, torch.dtype], str] = {}  # outputs of others, by kind and value
        self.ways: dict[int, dict[tuple[IndexExpr, ...], None]] = {}  # one value if they lead to one place
        self.found: list[Store] = []
        self.origin = ""

    def resolve(self) -> KernelValues:
        reductions: list[Reduction] = []
        stores: list[Store] = []
        for loop in self.group.loops:
            binding = self.bindings.get(loop.id)
            if binding is None or loop.target is not None:
                continue
            if loop.reduction and not _trivial(loop):
                reductions += self._reduction(loop, binding)
                continue
            kept = tuple(binding[axis] for axis in loop.kept)
            for number, out in enumerate(loop.outputs):
                if out.name in self.group.stored:
                    memory = self.group.memory.get(out.name, out.name)
                    place, made = self.buffers[memory].offset(kept), self._made(loop, kept, number)
                    stores.append(Store(loop, memory, place, made, memory != out.name, kept))
        every = (*stores, *self.found)
        return KernelValues(self.group, self.nest, tuple(reductions), every, self.names, self.ways)

    def _overwritten(self) -> Iterator[tuple[str, tuple[IndexExpr, ...]]]:
        """Inputs whose new values are made in their own memory, and where in it each point is written."""
        for loop in self.group.loops:
            for out in loop.outputs if loop.id in self.bindings else ():
                if out.name in self.group.in_place:
                    written = tuple(self.bindings[loop.id][axis] for axis in loop.kept)
                    yield self.group.in_place[out.name], written

    def _reduction(self, loop: Loop, binding: Binding) -> list[Reduction]:
        self.origin = loop.id
        value = self.value(loop.body, binding)
        split = loop.id in self.group.split
        if loop.reduction == "sum" and not split and len(loop.reduced) == 1:
            picked = self._one_hot(value, binding[loop.reduced[0]].axis)
            if picked is not None:
                self._found(loop, self._cast(picked, loop.outputs[0].dtype))
                return []
        kept = tuple(binding[axis] for axis in loop.kept)
        kind = loop.reduction or ""
        place = loop.outputs[0].offset(kept)
        output = loop.outputs[0].name
        if kind not in ("welford", "argmax", "argmin") and not split:
            same = self.reduced.setdefault((kind, value.number, loop.outputs[0].dtype), output)
            if same != output:  # it is known already, under another name
                self._found(loop, self._result(loop, same))
                return []
        if kind == "welford":
            # mean first, then the squares about it: the row is still in cache for the second pass
            total = Reduction(loop, value, "mean", output, split, place, kept)
            mean = self._reduced(output, value.dtype)
            deviation = self._op("sub", (value, mean), value.dtype)
            square = self._op("mul", (deviation, deviation), value.dtype)
            second = loop.outputs[1]
            place = second.offset(kept)
            squares = Reduction(loop, square, "sum", second.name, split, place, kept, mean=output)
            return [total, squares]
        position = None
        if kind in ("argmax", "argmin"):
            counted = ZERO
            for axis in loop.reduced:
                counted = counted * axis.extent + binding[axis]
            position = self._new("index", torch.int64, place=self._place(counted))
        return [Reduction(loop, value, kind, output, split, place, kept, position)]

    def _one_hot(self, value: Value, axis: Axis | None) -> Value | None:
        """The sum over ``axis`` of a value that is 0 but where the axis equals some number of the row (the
        gradient of a gather): that one value. None if it is not of this form."""
        if axis is None or value.kind != "op" or axis not in value.axes:
            return None
        if value.op == "where":
            condition, chosen, rest = value.args
            met = self._one_place(condition, axis)
            if met is None or axis in chosen.axes or rest.kind != "const" or float(rest.literal) != 0:
                return None
            one = self._op("where", (met, chosen, rest), value.dtype)
            if not value.dtype.is_floating_point:
                return one
            zero = self._new("const", value.dtype, literal=0.0)
            return self._op("add", (one, zero), value.dtype)  # from 0 on: no -0
        if value.op == "mul":
            for first, second in (value.args, value.args[::-1]):
                picked = None if axis in second.axes else self._one_hot(first, axis)
                if picked is not None:
                    return self._beside_zeros(self._op("mul", (picked, second), value.dtype), second, axis)
        if value.op in ("neg", *_ROUND.values()):
            picked = self._one_hot(value.args[0], axis)
            return None if picked is None else self._op(value.op, (picked,), value.dtype)
        return None

    def _one_place(self, condition: Value, axis: Axis) -> Value | None:
        """Whether a condition is met anywhere along ``axis``, if it can be at one place alone: where the axis
        equals some number of the row, perhaps beside what is the same all along it. None if it is not of
        this form."""
        if condition.kind != "op" or axis not in condition.axes:
            return None
        if condition.op == "eq":
            place, number = sorted(condition.args, key=lambda arg: arg.kind != "index")
            if place.kind != "index" or place.place != index(axis) or axis in number.axes:
                return None
            end = self._new("index", number.dtype, place=axis.extent)
            zero = self._new("const", number.dtype, literal=0)
            bounds = self._op("ge", (number, zero), torch.bool), self._op("lt", (number, end), torch.bool)
            return self._op("and", bounds, torch.bool)
        if condition.op == "where":
            inner, yes, no = condition.args
            plain = (yes.kind, no.kind) == ("const", "const") and (yes.literal, no.literal) == (True, False)
            return self._one_place(inner, axis) if plain and condition.dtype == torch.bool else None
        if condition.op in ("and", "bitand") and condition.dtype == torch.bool:
            for first, second in (condition.args, condition.args[::-1]):
                met = None if axis in second.axes else self._one_place(first, axis)
                if met is not None:
                    return self._op("and", (met, second), torch.bool)
        return None

    def _beside_zeros(self, picked: Value, factor: Value, axis: Axis) -> Value:
        """``picked`` and the products of ``factor`` with the zeros beside it: NaN if it is not finite."""
        finite = factor.kind == "const" and math.isfinite(factor.literal)
        if finite or axis.extent == ONE or not factor.dtype.is_floating_point:
            return picked
        zero = self._new("const", factor.dtype, literal=0.0)
        return self._op("add", (picked, self._op("mul", (factor, zero), factor.dtype)), picked.dtype)

    def _found(self, loop: Loop, value: Value) -> None:
        """The result of a reduction is ``value``: it need not be walked for."""
        name = loop.outputs[0].name
        self.results[name] = value
        self.names.setdefault(value.number, name)
        if name in self.group.stored:
            kept = tuple(self.bindings[loop.id][axis] for axis in loop.kept)
            self.found.append(Store(loop, name, self.buffers[name].offset(kept), value, index=kept))

    def _made(self, loop: Loop, kept: tuple[IndexExpr, ...], output: int = 0) -> Value:
        """The value of a pointwise loop (or a reduction of one element) at output index ``kept``, as
        held in a register."""
        name = loop.outputs[output].name
        key = (name, kept, self.pins)
        if key not in self.memo:
            outer, self.origin = self.origin, loop.id
            mapping = dict(zip(loop.kept, kept, strict=True)) | dict.fromkeys(loop.reduced, ZERO)
            value = self.value(loop.body, mapping)
            if loop.scan:
                dtype = torch.int64 if output else value.dtype
                value = self._new("scan", dtype, args=(value,), op=loop.scan, literal=output)
                self.names.setdefault(value.number, name)
            elif loop.reduction in ("argmax", "argmin"):
                value = self._new("const", torch.int64, literal=0)
            elif loop.reduction == "sum" and value.dtype.is_floating_point:  # from 0 on: no -0
                value = self._op("add", (value, self._new("const", value.dtype, literal=0.0)), value.dtype)
            elif output == 1:  # squares about the mean of one element: 0, or NaN
                rest = self._op("sub", (value, value), value.dtype)
                value = self._op("mul", (rest, rest), value.dtype)
            dtype = loop.outputs[output].dtype
            if compute_dtype(dtype) != value.dtype:
                value = self._cast(value, dtype)
            self.memo[key] = value
            self.names.setdefault(value.number, name)
            self.origin = outer
        return self.memo[key]

    def value(self, expr: Expr, binding: Binding) -> Value:
        if isinstance(expr, Constant):
            return self._new("const", compute_dtype(expr.dtype), literal=expr.value)
        if isinstance(expr, IndexValue):
            return self._new("index", expr.dtype, place=self._place(substitute(expr.value, binding)))
        if isinstance(expr, Load):
            return self._load(expr, binding)
        if isinstance(expr, Guarded):
            bounds: Any = tuple(tuple(self.resolved(item, binding) for item in each) for each in expr.bounds)
            if (holds := decide(bounds, {})) is not None:
                return self.value(expr.inside if holds else expr.outside, binding)
            around, more = self.pins, pins_of(bounds) if self.overwritten else ()
            self.pins = more or around
            inside, self.pins = self.value(expr.inside, binding), around
            outside = self.value(expr.outside, binding)
            if inside.number == outside.number:  # what is overwritten by itself
                return inside
            part = inside.kind == "guard" and inside.args[1].number == outside.number
            if part and _anywhere(place for bound in inside.bounds for place in bound):
                # a part of a part is written: told apart, what was there before doubles with each write
                bounds, inside = (*bounds, *inside.bounds), inside.args[0]
            return self._new("guard", inside.dtype, args=(inside, outside), bounds=bounds)
        assert isinstance(expr, Op)
        args = tuple(self.value(arg, binding) for arg in expr.args)
        if expr.name == "cast":
            return self._cast(args[0], expr.dtype)
        return self._op(expr.name, args, compute_dtype(expr.dtype))

    def resolved(self, place: IndexExpr, binding: Binding) -> IndexExpr:
        """An index of a loop in the nest's axes, its gathers' values resolved."""
        return self._place(substitute(place, binding))

    def _place(self, place: IndexExpr) -> IndexExpr:
        """An index with its gathers' values resolved. The binding has been applied already."""
        if not any(isinstance(atom, Indirect) for atom in place.atoms()):
            return place
        total = ZERO
        for mono, coeff in place.terms:
            term = index(coeff)
            for atom in mono:
                if isinstance(atom, Indirect):
                    term = term * self._gathered(self.value(atom.value, {}), atom.size)
                elif isinstance(atom, FloorDiv):
                    term = term * (self._place(atom.numerator) // self._place(atom.denominator))
                elif isinstance(atom, Mod):
                    term = term * (self._place(atom.numerator) % self._place(atom.denominator))
                else:
                    term = term * IndexExpr({(atom,): 1})
            total = total + term
        return total

    def _gathered(self, value: Value, size: IndexExpr) -> IndexExpr:
        if value.kind == "const" and 0 <= value.literal < (size.constant or 0):
            return index(int(value.literal))
        if (place := place_of(value, size)) is not None:
            return place
        sure = self.narrow and fits(self.ranges.of(value), (0, (size.constant or 0) - 1))
        return IndexExpr({(Gathered((self.narrow and self._narrow(value)) or value, size, sure),): 1})

    def _load(self, load: Load, binding: Binding) -> Value:
        places = tuple(substitute(place, binding) for place in load.index)
        maker = self.makers.get(load.buffer)
        if maker is not None and maker.reduction and not _trivial(maker):
            known = self.results.get(load.buffer)
            return self._result(maker, load.buffer) if known is None else known
        if maker is not None and maker.kind != "scatter":
            number = [out.name for out in maker.outputs].index(load.buffer)
            return self._made_as_written(maker, places, number)
        buffer = self.buffers[load.buffer]
        if self.pins and load.buffer in self.overwritten:
            places = by_pins(places, self.overwritten[load.buffer], self.pins)
        offset, each = self._place(buffer.offset(places)), tuple(map(self._place, places))
        found = self._new("load", compute_dtype(load.dtype), buffer=load.buffer, place=offset, index=each)
        self.ways.setdefault(found.number, {})[each] = None
        return found

    def _made_as_written(self, maker: Loop, places: tuple[IndexExpr, ...], output: int) -> Value:
        """The value of a pointwise loop, where a guard makes its place one that is overwritten, seen so: with
        each of the guards above in turn, a chain of parts would be made in as many ways as it has subsets."""
        around = self.pins
        for written in self.overwritten.values() if around else ():
            if by_pins(places, written, around) == written:
                places, self.pins = written, ()
                break
        made = self._made(maker, places, output)
        self.pins = around
        return made

    def _result(self, loop: Loop, output: str) -> Value:
        """What a reduction like that of ``loop`` finds: ``any`` of uint8 is a truth until it is stored."""
        dtype = loop.outputs[0].dtype
        if loop.reduction in ("any", "all"):
            return self._cast(self._reduced(output, torch.bool), dtype)
        return self._reduced(output, dtype)

    def _reduced(self, output: str, dtype: torch.dtype) -> Value:
        return self._new("reduced", compute_dtype(dtype), buffer=output)

    def _cast(self, value: Value, dtype: torch.dtype) -> Value:
        target = compute_dtype(dtype)
        if value.dtype == torch.int64 and target != torch.bool and self.narrow:
            value = self._narrow(value) or value
        if value.dtype != target:
            if value.op == "cast" and value.args[0].dtype == torch.bool:
                value = value.args[0]  # 0 and 1 are the same by way of any type
            value = self._op("cast", (value,), target) if value.dtype != target else value
        if dtype in HALF and value.op not in (_ROUND[dtype],):
            if value.kind == "load" and self.buffers[value.buffer].dtype == dtype:
                return value
            value = self._op(_ROUND[dtype], (value,), target)
        return value

    def _op(self, name: str, args: tuple[Value, ...], dtype: torch.dtype) -> Value:
        if self.narrow and name == "where" and args[0].kind == "const":
            return args[1 if args[0].literal else 2]
        if self.narrow and name in NARROWED and args[-1].dtype == torch.int64:
            found = self._narrowed(name, args, dtype)
            if found is not None:
                return found
        return self._new("op", dtype, args=args, op=name)

    def _narrowed(self, name: str, args: tuple[Value, ...], dtype: torch.dtype) -> Value | None:
        """The same of int64 operands in int32; None where that could differ."""
        always = self.ranges.decided(name, args)
        if always is not None:
            return self._new("const", torch.bool, literal=always)
        whole = [self._narrow(arg) if arg.dtype == torch.int64 else arg for arg in args]
        small = tuple(arg for arg in whole if arg is not None)
        if len(small) < len(args) or (dtype == torch.int64 and not fits(self.ranges.result(name, args))):
            return None
        if dtype != torch.int64:
            return self._new("op", dtype, args=small, op=name)
        return self._new("op", dtype, args=(self._new("op", torch.int32, args=small, op=name),), op="cast")

    def _narrow(self, value: Value) -> Value | None:
        """An int64 value as an int32 if it surely is one and nothing need be computed for that."""
        if value.op == "cast" and value.args[0].dtype == torch.int32:
            return value.args[0]
        if value.kind not in ("const", "index") or not fits(self.ranges.of(value)):
            return None
        return self._new(value.kind, torch.int32, literal=value.literal, place=value.place)

    def _new(self, kind: str, dtype: torch.dtype, **fields: object) -> Value:
        literal = fields.get("literal", 0)
        key = (
            kind, dtype, tuple(arg.number for arg in fields.get("args", ())),  # type: ignore[attr-defined]
            fields.get("op"), repr(literal), fields.get("buffer"), fields.get("place"), fields.get("bounds"),
        )  # fmt: skip
        if key not in self.table:
            probe = Value(len(self.table), kind, dtype, origin=self.origin, **fields)  # type: ignore[arg-type]
            axes: set[Axis] = set()
            reductions: set[str] = {probe.buffer} if kind == "reduced" else set()
            for place in (probe.place, *(item for bound in probe.bounds for item in bound)):
                axes |= {atom for atom in place.atoms() if isinstance(atom, Axis)}
            for arg in probe.inputs():
                axes |= arg.axes
                reductions |= arg.reductions
            if kind == "reduced":
                axes |= set(self.nest.rows)
            elif kind == "scan":
                axes |= set(self.nest.axes)
            self.table[key] = Value(
                probe.number, kind, dtype, origin=self.origin, axes=frozenset(axes),
                reductions=frozenset(reductions), **fields,  # type: ignore[arg-type]
            )  # fmt: skip
        return self.table[key]


def _trivial(loop: Loop) -> bool:
    """A reduction over axes of extent 1 only: its one element is its result."""
    return all(axis.extent == 1 for axis in loop.reduced)


def _collapse(values: KernelValues) -> tuple[Nest, dict[Axis, IndexExpr]]:
    """Runs of adjacent axes (both of the rows, or both inner) that every index walks as one."""
    places = _places(values)
    nest = values.nest
    runs: list[list[Axis]] = []
    for axes in (nest.rows, nest.inner_axes):
        run: list[Axis] = []
        for axis in axes:
            if run and _adjacent(nest, run[-1], axis) and all(_one_walk(p, run[-1], axis) for p in places):
                run.append(axis)
            else:
                runs.append(run := [axis])
    if all(len(run) == 1 for run in runs):
        return nest, {}
    order = {axis: place for place, axis in enumerate(nest.axes)}
    mapping: dict[Axis, IndexExpr] = {}
    merged: list[tuple[int, Axis, bool]] = []
    for run in runs:
        axis = run[0]
        if len(run) > 1:
            axis = joined(run)
            step = axis.extent
            for item in run:
                inner = step // item.extent
                place = index(axis) // inner
                mapping[item] = place if item is run[0] else place % item.extent
                step = inner
        merged.append((order[run[0]], axis, run[0] in nest.inner))
    merged.sort(key=lambda item: item[0])
    new = Nest(tuple(axis for _, axis, _ in merged), frozenset(axis for _, axis, inner in merged if inner))
    return new, mapping


def _places(values: KernelValues) -> list[IndexExpr]:
    """Every index that a kernel computes."""
    roots = [*values.roots, *(item.position for item in values.reductions if item.position is not None)]
    places = [item.place for item in values.reductions] + [item.place for item in values.stores]
    for value in walk_values(roots):
        places += [value.place, *(item for bound in value.bounds for item in bound)]
    return list(dict.fromkeys(places))


def _adjacent(nest: Nest, left: Axis, right: Axis) -> bool:
    axes = nest.rows if left not in nest.inner else nest.inner_axes
    return axes.index(right) == axes.index(left) + 1


def _one_walk(place: IndexExpr, left: Axis, right: Axis) -> bool:
    outer, inner = place.coefficient(left), place.coefficient(right)
    return outer is not None and inner is not None and outer == inner * right.extent


def _anywhere(places: Iterable[IndexExpr]) -> bool:
    """Whether places are what they say wherever they are computed: they read no tensor, and what they divide
    is never negative."""
    return all(
        not any(isinstance(atom, Gathered) for atom in place.atoms())
        and all(at_least(goal, ZERO) for goal in quotients(place))
        for place in places
    )

"""What the nests of C have in common: passes over a row, sums across rows, and the loop that becomes SIMD.

Four shapes of nest, by which axis is contiguous in memory and what is reduced:

- *points*: nothing is reduced; every point once, SIMD along the last axis.
- *rows*: each row is walked once per pass (a pass ends where a whole-row result is needed); what is
  costly to compute again is kept in a row buffer.
- *columns*: the reduced axis is not the contiguous one; a tile of neighbouring columns is walked
  together, with one accumulator per column.
- *scatter*: see ``scatter``.

A split reduction (over the rows themselves) accumulates per thread and is combined at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nbcompile.compiler.codegen.c.accumulators import (
    LANES,
    LONG_ROW,
    NAN_REDUCTIONS,
    Accumulator,
    accumulator,
)
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES, CWriter
from nbcompile.compiler.codegen.c.kernel import (
    EVERY_BIT,
    KernelPrinter,
    Scope,
    calls_library,
    contiguous,
    in_vectors,
    memory_type,
)
from nbcompile.compiler.codegen.expression import Expression, name
from nbcompile.compiler.codegen.printed import FunctionCall, Lines, Parameter, PrintedKernel
from nbcompile.compiler.kernel_ir.guard_ranges import Range, decide
from nbcompile.compiler.kernel_ir.values import KernelValues, Reduction, Store, Value, walk_values
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.versions import Part

VECTOR = 16
"""Points of the longest vector, of floats."""
LONG = 256
"""Points that pay for adding the lanes of a wide vector up at their end (of floats, with 256 bits in place of
512: a third of the time for 40 points, the same for 256)."""

MOST_REGIONS = 32
"""Of a nest, each with code of its own."""
SHORT_CODE = 120
"""Values of all regions together, at which they cost the C compiler little."""


@dataclass(frozen=True)
class PointWork:
    """What is done at each point of a loop: values stored, and values folded into accumulators. ``kept`` are
    the row buffers that values are also written to, by value number."""

    stores: Sequence[Store]
    accumulators: Sequence[Accumulator] = ()
    kept: Mapping[int, str] = field(default_factory=dict)

    @property
    def values(self) -> list[Value]:
        """What is stored and folded."""
        return [item.value for item in self.stores] + [acc.item.value for acc in self.accumulators]

    @property
    def roots(self) -> list[Value]:
        """All that it needs: the positions of extremes too."""
        positions = (acc.item.position for acc in self.accumulators)
        return [*self.values, *(item for item in positions if item is not None)]


class Lanes:
    """The innermost loop, over ``axis``, whose points the compiler takes several at a time."""

    def __init__(self, nests: Nests, axis: Axis, pragma: str = "") -> None:
        self.nests, self.axis, self.pragma = nests, axis, pragma
        self.most = axis.extent.constant  # points that one loop goes over; None: nobody knows
        self.unrolled = False  # then the loop around it is the one of vectors

    def open(self, piece: tuple[int, int] | None = None, part: Part | None = None) -> None:
        """Open the loop, over a piece of the axis where one is given."""
        self.nests.for_(self.axis, piece, part)

    @property
    def element(self) -> str:
        """Which element of an array with one for each lane is this lane's."""
        return self.nests.axis_names[self.axis.text]

    def target(self, acc: Accumulator, scope: Scope) -> str:
        """What a lane adds to."""
        return self.nests.split_target(acc, scope) if acc.item.split else acc.name

    def has_own(self, acc: Accumulator) -> bool:
        """Whether every lane has an accumulator to itself, so that none has to be combined."""
        return False


class Nests(KernelPrinter):
    """The printer of one kernel; what prints a shape of nest is handed it."""

    def __init__(self, values: KernelValues, buffers: Mapping[str, Buffer], writer: CWriter) -> None:
        super().__init__(values, buffers, writer)
        self.nest = values.nest
        self.levels: dict[str, int] = {}
        for item in values.reductions:
            self.levels.setdefault(item.output, self.level(item.value))
        split = [item for item in values.reductions if item.split]
        self.split_kept = {item.output: self.buffers[item.output].numel() for item in split}
        self.split = {item.output: self._split_accumulator(item) for item in split}

    @cached_property
    def inner_axes(self) -> tuple[Axis, ...]:
        """The axes of a row, that which memory lies along the last: channels, where they come last in memory.
        As they are, where a position tells their order, or that axis makes no vector."""
        axes = self.nest.inner_axes
        if len(axes) < 2 or any(item.position is not None for item in self.values.reductions):
            return axes
        wide = [axis for axis in axes if (axis.extent.constant or VECTOR) >= VECTOR]
        scores = {axis: contiguous(self.values, self.buffers, axis) for axis in wide}
        last = max(wide, key=lambda axis: (scores[axis], axes.index(axis)), default=axes[-1])
        return (*(axis for axis in axes if axis is not last), last)

    # -- the function ------------------------------------------------------------------------------

    def function(self, comment: Sequence[str], suffix: str = "") -> PrintedKernel:
        """The C function around the nest that has been printed; ``comment`` lines are put above it."""
        group = self.values.group
        head, tail = self._declared_split(), self._finished_split()
        symbol = f"{group.id.rsplit('.', 1)[-1]}_{group.name}{suffix}"
        parameters = self._parameters()
        signature = ", ".join(
            f"{item.type} {'' if item.kind == 'size' else '*'}{item.name}" for item in parameters
        )
        whole = Lines()
        for line in comment:
            whole.add(f"// {line}")
        whole.add(f"void {symbol}({signature}) {{")
        if self.hides_bits:
            whole.add(
                f'  long {EVERY_BIT} = -1; __asm__("" : "+r"({EVERY_BIT})); // no comparison is an index'
            )
        if self.checks_bounds or self.looks_ahead:
            whole.add("  int bad = 0; // set if an index is out of range")
        if self.checks_bounds:
            tail.add("if (bad) *status = 1;")
        for part in (self.stops, head, self.out, tail):
            whole.extend(part)
        whole.add("}")
        return PrintedKernel(
            "\n".join(whole.text),
            tuple((n, link) for n, link in enumerate(whole.origins, start=1) if link),
            (FunctionCall(symbol, tuple(parameters)),),
            tuple(self.writes),
            walk=self.out.walk,
        )

    def _parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        for buffer in dict.fromkeys([*self.reads, *self.writes]):
            kind = memory_type(self.buffers[buffer])
            const = "" if buffer in self.writes else "const "
            found.append(Parameter(self.buffer_names[buffer], "buffer", f"{const}{kind}", buffer))
        found += [Parameter(size, "size", "long") for size in self.sizes]
        if self.checks_bounds or self.looks_ahead:
            found.append(Parameter("status", "status", "int"))
        return found

    # -- split reductions --------------------------------------------------------------------------

    def _split_accumulator(self, item: Reduction) -> Accumulator:
        acc = self.accumulator(item, None)
        return self.in_row(acc) if self.split_kept[item.output] == ONE else acc

    def in_row(self, acc: Accumulator) -> Accumulator:
        """An accumulator of one result, with its NaN noted apart where it can be."""
        return acc.flagged(self.fresh(f"{acc.name}_nan")) if acc.can_be_flagged else acc

    def _declared_split(self) -> Lines:
        lines = Lines(depth=1)
        for output, acc in self.split.items():
            kept, origin = self.split_kept[output], [acc.item.loop.id]
            if kept == ONE:
                lines.add(f"{acc.type} {acc.name} = {acc.start};", origin)
                if acc.flag:
                    lines.add(f"int {acc.flag} = 0;", origin)
            else:
                size = self.place(kept, {})
                lines.add(f"{acc.type} {acc.name}[{size}];", origin)
                lines.add(f"for (long c = 0; c < {size}; c++) {acc.name}[c] = {acc.start};", origin)
        return lines

    def _finished_split(self) -> Lines:
        lines = Lines(depth=1)
        for output, acc in self.split.items():
            kept, memory = self.split_kept[output], self.memory(output, write=True)
            one = kept == ONE
            place, result = ("0", acc.result) if one else ("c", f"{acc.name}[c]")
            around = "" if one else f"for (long c = 0; c < {self.place(kept, {})}; c++) "
            text = self.stored(self._final(acc, result), self.buffers[output].dtype).text
            if acc.flag:
                lines.add(acc.nan, [acc.item.loop.id])
            lines.add(f"{around}{memory}[{place}] = {text};", [acc.item.loop.id])
        return lines

    def _final(self, acc: Accumulator, text: str) -> Expression:
        """An accumulator's value in the register type of its output."""
        dtype = self.buffers[acc.item.output].dtype
        target = REGISTER_TYPES[dtype]
        return Expression(text if acc.type == target else f"({target}){text}", dtype)

    def accumulator(self, item: Reduction, count: int | None, lanes: int = 1) -> Accumulator:
        """The accumulator of a reduction of ``count`` values (None: not known here), its C name taken."""
        return accumulator(item, self.fresh(item.output), count, self.buffers[item.output].dtype, lanes)

    def is_array(self, acc: Accumulator) -> bool:
        """Whether a split reduction has several results."""
        return acc.item.split and self.split_kept[acc.item.output] != ONE

    def split_target(self, acc: Accumulator, scope: Scope) -> str:
        """What a split reduction adds to at the present point."""
        return f"{acc.name}[{self.place(acc.item.place, scope)}]" if self.is_array(acc) else acc.name

    def clauses(self, accumulators: Iterable[Accumulator], arrays: bool) -> str:
        """OpenMP reduction clauses, one per operator."""
        by_operator: dict[str, list[str]] = {}
        for acc in accumulators:
            local = acc.name
            if self.is_array(acc):
                if not arrays:
                    continue
                local = f"{acc.name}[:{self.place(self.split_kept[acc.item.output], {})}]"
            by_operator.setdefault(acc.clause, []).append(local)
            if acc.flag:
                by_operator.setdefault("|", []).append(acc.flag)
            else:
                self._declare_operator(acc)
        if self._gathers:
            self.checks_bounds = True  # so that it is declared, though no guard with a gather be open
            by_operator.setdefault("|", []).append("bad")
        return "".join(f" reduction({sign}:{', '.join(names)})" for sign, names in by_operator.items())

    def _declare_operator(self, acc: Accumulator) -> None:
        declared = NAN_REDUCTIONS.get((acc.item.kind, acc.item.value.dtype))
        if declared is not None:
            self.writer.helpers[acc.clause] = declared

    @cached_property
    def _gathers(self) -> bool:
        return any(
            self.unlooked(place)
            for value in walk_values(self.values.roots)
            for place in (value.place, *(item for bound in value.bounds for item in bound))
        )

    # -- levels: which pass over the row a value belongs to ---------------------------------------

    def level(self, value: Value) -> int:
        """Number of passes that must be complete before ``value`` can be computed."""
        return max((self.levels[item] + 1 for item in value.reductions if item in self.levels), default=0)

    @cached_property
    def top_level(self) -> int:
        """The number of the last pass."""
        return max(map(self.level, self.values.roots), default=0)

    def is_full(self, item: Store) -> bool:
        """Whether a store is done at every inner point, rather than once a row."""
        place = {atom for atom in item.place.atoms() if isinstance(atom, Axis)}
        return bool((item.value.axes | place) & self.nest.inner)

    def _is_split_full(self, acc: Accumulator) -> bool:
        binding = self.values.group.bindings[acc.item.loop.id]
        touched = {axis for place in binding.values() for axis in place.axes()}
        return bool(touched & self.values.group.nest.inner)

    def pass_work(self, level: int) -> tuple[list[Store], list[Reduction], list[Accumulator]]:
        """What the pass ``level`` does at every inner point: stores, reductions of the row, split ones."""
        stores = [
            item for item in self.values.stores
            if self.is_full(item) and (self.top_level if item.last else self.level(item.value)) == level
        ]  # fmt: skip
        reductions = [
            item for item in self.values.reductions if not item.split and self.levels[item.output] == level
        ]
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and self._is_split_full(acc)
        ]  # fmt: skip
        return stores, reductions, split

    def pass_roots(self, level: int) -> list[Value]:
        """What that needs."""
        stores, reductions, split = self.pass_work(level)
        roots = [item.value for item in stores] + [item.value for item in reductions]
        roots += [acc.item.value for acc in split]
        return roots + [item.position for item in reductions if item.position is not None]

    def once_of(self, level: int) -> PointWork:
        """What is done once a row after ``level`` passes: stores and split reductions."""
        stores = [
            item for item in self.values.stores
            if not self.is_full(item) and self.level(item.value) == level
        ]  # fmt: skip
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and not self._is_split_full(acc)
        ]  # fmt: skip
        return PointWork(stores, split)

    # -- regions -----------------------------------------------------------------------------------

    def regions(
        self, axes: Sequence[Axis], roots: Sequence[Value], write: Callable[[Range], None],
        around: Range | None = None, most: int = MOST_REGIONS,
    ) -> None:  # fmt: skip
        """``write`` what is done at a point of ``axes``, whose loops are open, once for each region of them
        in which guards on them are decided: the parts of a concatenation, the edges of a padded image."""
        around = around or {}
        for number, axis in enumerate(axes):
            pieces = self.segments(axis, roots, around, most)
            if len(pieces) < 2 or not self._pays(axis, pieces, roots, around):
                continue
            division, local = len(self.out.text), self.axis_names[axis.text]
            for place, piece in enumerate(pieces):
                assert piece is not None
                test = f"if ({local} < {piece[1]})" if piece is not pieces[-1] else ""
                line = f"{'else ' if place and test else 'else' if place else ''}{test}"
                self.out.open(line, axes=(), part=Part(axis, place, division))
                rest = axes[number + 1 :]
                self.regions(rest, roots, write, {**around, axis: piece}, most // len(pieces))
                self.out.close()
            return
        write(around)

    def _pays(
        self, axis: Axis, pieces: Sequence[tuple[int, int] | None], roots: Sequence[Value], around: Range
    ) -> bool:
        """Whether the code of all pieces is about as long as that of the whole, or short: of a concatenation
        each has one part, of a wide window nearly all of its elements, and the C compiler takes its time."""
        each = [{**around, axis: piece} for piece in pieces if piece is not None]
        written = sum(len(self.needed(roots, ranges, {})[0]) for ranges in each)
        return written <= max(SHORT_CODE, 3 * len(self.needed(roots, around, {})[0]) // 2)

    # -- innermost loops ---------------------------------------------------------------------------

    def hoist(
        self, roots: Sequence[Value], inside: frozenset[Axis], scope: Scope, ranges: Range | None = None
    ) -> Scope:
        """Locals for what ``roots`` need that does not depend on the axes ``inside``."""
        ranges = ranges or {}
        order, certain = self.needed(roots, ranges, scope)
        frontier: dict[int, Value] = {}
        wanted = {item.number for item in roots}
        for value in order:
            if value.axes & inside or value.number in wanted:
                for child in (*value.inputs(), value):
                    plain = not (child.axes & inside) and child.number in certain
                    decided = child.kind == "guard" and decide(child.bounds, ranges) is not None
                    if plain and child.kind in ("op", "load", "guard") and not decided:
                        frontier.setdefault(child.number, child)
        for value in frontier.values():
            if value.number not in scope:
                # what a guard chooses between stays in its expression: only the chosen may be read
                behind = value.args if value.kind == "guard" else ()
                scope = self.define([item for item in value.inputs() if item not in behind], ranges, scope)
                scope = self.declared(value, scope, gathers=True)
        return scope

    def inside(
        self, roots: Sequence[Value], ranges: Range, scope: Scope, before: Scope | None = None
    ) -> Scope:
        """The scope with locals for ``roots``, what is surely gathered for them (beyond ``before``, by
        default the scope itself) reported."""
        local = self.define(roots, ranges, scope)
        self.report_needed(roots, ranges, scope if before is None else before, local)
        return local

    def innermost(self, lanes: Lanes, work: PointWork, scope: Scope, around: Range | None = None) -> None:
        """The SIMD loop over the axis of ``lanes``: locals, accumulations, stores. It is cut where a guard on
        the axis changes its mind; those on other axes are decided by their ranges ``around``."""
        around = around or {}
        self.calls_library = calls_library(self.needed(work.roots, around, scope)[0])
        partial = self._partial_sums(lanes, work)
        pragma = self._simd_pragma(lanes, work, partial)
        kept = [value for value in self.needed(work.roots, around, scope)[0] if value.number in work.kept]
        division = len(self.out.text)
        for number, piece in enumerate(self.segments(lanes.axis, work.roots, around)):
            if pragma:
                self.out.add(pragma)
            lanes.open(piece, Part(lanes.axis, number, division))
            ranges = around if piece is None else {**around, lanes.axis: piece}
            inner = self.inside(work.roots, ranges, scope)
            for value in kept:
                inner = self._keep(value, f"{work.kept[value.number]}[{lanes.element}]", inner)
            for acc in work.accumulators:
                self._accumulate(acc, partial.get(acc.name) or lanes.target(acc, inner), inner)
            self.store_all(work.stores, inner)
            self.out.close()
        for acc in work.accumulators:
            if acc.name in partial:
                for line in acc.update(self.split_target(acc, scope), partial[acc.name]):
                    self.out.add(line, [acc.item.loop.id])

    def _simd_pragma(self, lanes: Lanes, work: PointWork, partial: Mapping[str, str]) -> str:
        """What is said before the loop; empty where it cannot be taken several points at a time."""
        if lanes.unrolled:
            return f"#pragma GCC unroll {lanes.most}"
        alone = [acc for acc in work.accumulators if acc.name not in partial and not lanes.has_own(acc)]
        clauses = self.clauses(alone, arrays=False)
        for acc in work.accumulators:
            if acc.name in partial:
                self._declare_operator(acc)
                clauses += f" reduction({acc.clause}:{partial[acc.name]})"
        vectors = all(acc.clause or lanes.has_own(acc) for acc in work.accumulators)
        simd = "#pragma omp simd" if vectors else ""
        pragma = lanes.pragma or simd
        if work.accumulators and clauses and not lanes.pragma and self._is_short(lanes.axis, work):
            clauses += " simdlen(8)"
        return f"{pragma}{clauses}" if pragma else ""

    def _is_short(self, axis: Axis, work: PointWork) -> bool:
        """Whether a narrower vector adds up so few points sooner. Of elements smaller than a float it would
        hold less than a register: GCC then takes one at a time."""
        read = {value.buffer for value in walk_values(work.roots) if value.kind == "load"}
        sizes = [self.buffers[buffer].dtype.itemsize for buffer in (*read, *(s.buffer for s in work.stores))]
        return (axis.extent.hint() or LONG) < LONG and min(sizes, default=4) >= 4

    def _partial_sums(self, lanes: Lanes, work: PointWork) -> dict[str, str]:
        """Scalars for array elements that every lane would update at once, and for what is added up
        over many loops, each of which is short enough to be added up by itself."""
        partial: dict[str, str] = {}
        short = lanes.most is not None and lanes.most <= self.piece(work)
        for acc in work.accumulators:
            at_once = self.is_array(acc) and lanes.axis not in acc.item.place.atoms()
            alone = not self.is_array(acc) and not lanes.has_own(acc)
            if at_once or (alone and short and acc.in_pieces):
                kind = acc.piece_type if acc.in_pieces and short else acc.type
                partial[acc.name] = self.fresh(f"{acc.name}_part")
                self.out.add(f"{kind} {partial[acc.name]} = {acc.start};", [acc.item.loop.id])
        return partial

    @staticmethod
    def piece(work: PointWork) -> int:
        """How many points along a row are added up by themselves, before what adds up pieces takes over."""
        return LONG_ROW * LANES if in_vectors(work.roots) else 0

    def _keep(self, value: Value, element: str, scope: Scope) -> Scope:
        """Write ``value`` to its row buffer; it has a name from here on."""
        if value.number not in scope:
            scope = self.declared(value, scope)
        self.out.add(f"{element} = {scope[value.number].text};", [value.origin])
        return scope

    def _accumulate(self, acc: Accumulator, where: str, scope: Scope) -> None:
        """Fold the value at this point into ``where``."""
        loop, value = acc.item.loop.id, self.code(acc.item.value, scope)
        if acc.compares and not value.is_name:  # it is read several times
            local = self.fresh("t")
            self.constant(local, acc.item.value.dtype, value.text, loop)
            value = name(local, value.dtype)
        position = self.code(acc.item.position, scope).text if acc.item.position is not None else ""
        for line in acc.update(where, value.text, position):
            self.out.add(line, [loop])

    def fold_once(self, split: Sequence[Accumulator], scope: Scope) -> None:
        """Fold what is made once a row into split reductions."""
        for acc in split:
            target = self.split_target(acc, scope)
            for line in acc.update(target, self.code(acc.item.value, scope).operand):
                self.out.add(line, [acc.item.loop.id])

    # -- results -----------------------------------------------------------------------------------

    def finished(self, acc: Accumulator, text: str, count: IndexExpr) -> tuple[str, bool]:
        """The text of a row's result, given that of its accumulator, and whether that is another value or of
        another type, so that it wants a name: a mean is divided by the ``count`` of its values."""
        mean = acc.item.kind == "mean"
        converts = mean or acc.type != REGISTER_TYPES[self.buffers[acc.item.output].dtype]
        return f"{text} / ({self.place(count, {})})" if mean else text, converts

    def store_result(self, acc: Accumulator, result: Expression, scope: Scope) -> None:
        """Write a finished result to memory, if it is needed there."""
        item = acc.item
        if item.output in self.values.group.stored:
            memory = self.memory(item.output, write=True)
            value = self.stored(result, self.buffers[item.output].dtype).text
            self.out.touch(item.output, item.place, write=True)
            self.out.add(f"{memory}[{self.place(item.place, scope)}] = {value};", [item.loop.id])

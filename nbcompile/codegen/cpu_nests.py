"""The nests of a CPU kernel: points, rows, columns and scatter (see ``cpu_kernel``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nbcompile.codegen.accumulators import NAN_REDUCTIONS, Accumulator
from nbcompile.codegen.c_expressions import REGISTER_TYPES, CWriter
from nbcompile.codegen.cpu_kernel import (
    CACHE_BYTES,
    PARALLEL_WORK,
    TILE,
    KernelPrinter,
    Parameter,
    PrintedKernel,
    Scope,
    make_accumulator,
    memory_type,
    strip,
)
from nbcompile.codegen.ranges import Range
from nbcompile.codegen.row_buffers import plan_row_buffers
from nbcompile.codegen.scatter import scatter_nest
from nbcompile.codegen.values import KernelValues, Reduction, Store, Value, kernel_values
from nbcompile.fuse.program import Group
from nbcompile.loop_ir.index import ONE, Axis, IndexExpr, product
from nbcompile.loop_ir.nodes import Buffer

FEW_OUTER = 8


def print_kernel(
    group: Group, buffers: Mapping[str, Buffer], writer: CWriter, comment: Sequence[str]
) -> PrintedKernel:
    """The C function of a group; ``comment`` lines are put above it."""
    return _Nests(kernel_values(group, buffers), buffers, writer).print(comment)


class _Nests(KernelPrinter):
    def __init__(self, values: KernelValues, buffers: Mapping[str, Buffer], writer: CWriter) -> None:
        super().__init__(values, buffers, writer)
        self.nest = values.nest
        self.split: dict[str, Accumulator] = {}
        self.split_kept: dict[str, IndexExpr] = {}
        self.levels: dict[str, int] = {}
        for item in values.reductions:
            self.levels.setdefault(item.output, self.level(item.value))

    # -- the function ------------------------------------------------------------------------------

    def print(self, comment: Sequence[str]) -> PrintedKernel:
        group = self.values.group
        for item in self.values.reductions:
            if item.split:
                self.split[item.output] = make_accumulator(self, item, 1 << 30)
                self.split_kept[item.output] = self.buffers[item.output].numel()
        if any(loop.kind == "scatter" for loop in group.loops):
            scatter_nest(self)
        elif not self.nest.inner:
            self.points()
        elif self._columns():
            self.columns()
        else:
            self.rows()
        body, origins = self.out.text, self.out.origins
        head, head_origins = self._declare_split()
        tail, tail_origins = self._finish_split()
        symbol = f"{group.id.rsplit('.', 1)[-1]}_{group.name}"
        parameters = self._parameters()
        signature = ", ".join(
            f"{item.type}{'' if item.kind == 'size' else '*'} {item.name}".replace("* ", " *") for item in parameters
        )
        if self.checks_bounds:
            head = ["  int bad = 0; // set if an index is out of range", *head]
            head_origins = [(), *head_origins]
            tail += ["  if (bad) *status = 1;"]
            tail_origins += [()]
        lines = [*(f"// {line}" for line in comment), f"void {symbol}({signature}) {{"]
        start = len(lines)
        text = [*lines, *head, *body, *tail, "}"]
        links = [*([()] * start), *head_origins, *origins, *tail_origins, ()]
        return PrintedKernel(
            symbol,
            "\n".join(text),
            tuple((n, link) for n, link in enumerate(links, start=1) if link),
            tuple(parameters),
            tuple(self.reads),
            tuple(self.writes),
        )

    def _parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        for name in dict.fromkeys([*self.reads, *self.writes]):
            kind = memory_type(self.buffers[name])
            const = "" if name in self.writes else "const "
            found.append(Parameter(self.buffer_names[name], "buffer", f"{const}{kind} "))
        found += [Parameter(name, "size", "long ") for name in self.sizes]
        if self.checks_bounds:
            found.append(Parameter("status", "status", "int "))
        return [Parameter(item.name, item.kind, item.type.rstrip()) for item in found]

    # -- split reductions --------------------------------------------------------------------------

    def _declare_split(self) -> tuple[list[str], list[tuple[str, ...]]]:
        text: list[str] = []
        origins: list[tuple[str, ...]] = []
        for output, acc in self.split.items():
            kept = self.split_kept[output]
            if kept == ONE:
                text.append(f"  {acc.type} {acc.name} = {acc.start};")
            else:
                size = self.place(kept, {})
                text.append(f"  {acc.type} {acc.name}[{size}];")
                origins.append((acc.item.loop.id,))
                text.append(f"  for (long c = 0; c < {size}; c++) {acc.name}[c] = {acc.start};")
            origins.append((acc.item.loop.id,))
        return text, origins

    def _finish_split(self) -> tuple[list[str], list[tuple[str, ...]]]:
        text: list[str] = []
        origins: list[tuple[str, ...]] = []
        for output, acc in self.split.items():
            kept = self.split_kept[output]
            name = self.memory(output, write=True)
            dtype = self.buffers[output].dtype
            if kept == ONE:
                text.append(f"  {name}[0] = {self.stored(self._final(acc, acc.result), dtype)};")
            else:
                size = self.place(kept, {})
                final = self.stored(self._final(acc, f"{acc.name}[c]"), dtype)
                text.append(f"  for (long c = 0; c < {size}; c++) {name}[c] = {final};")
            origins.append((acc.item.loop.id,))
        return text, origins

    def _final(self, acc: Accumulator, text: str) -> str:
        """An accumulator's value in the register type of its output."""
        target = REGISTER_TYPES[self.buffers[acc.item.output].dtype]
        return text if acc.type == target else f"({target}){text}"

    def _split_target(self, acc: Accumulator, scope: Scope) -> str:
        if self.split_kept[acc.item.output] == ONE:
            return acc.name
        return f"{acc.name}[{self.place(acc.item.place, scope)}]"

    def _clauses(self, accumulators: Iterable[Accumulator], arrays: bool) -> str:
        """OpenMP reduction clauses, one per operator."""
        by_operator: dict[str, list[str]] = {}
        for acc in accumulators:
            name = acc.name
            if acc.item.split and self.split_kept[acc.item.output] != ONE:
                if not arrays:
                    continue
                name = f"{acc.name}[:{self.place(self.split_kept[acc.item.output], {})}]"
            by_operator.setdefault(acc.clause, []).append(name)
            self._declare_operator(acc)
        if self._gathers():
            by_operator.setdefault("|", []).append("bad")
        return "".join(f" reduction({sign}:{', '.join(names)})" for sign, names in by_operator.items())

    def _declare_operator(self, acc: Accumulator) -> None:
        if acc.clause.startswith("nan"):
            text = NAN_REDUCTIONS[(acc.item.kind, acc.item.value.dtype)]
            self.writer.helpers[acc.clause] = text

    def _gathers(self) -> bool:
        from nbcompile.codegen.values import gathered, walk_values

        if self._gathers_memo is None:
            roots = [item.value for item in (*self.values.reductions, *self.values.stores)]
            self._gathers_memo = any(
                gathered(place)
                for value in walk_values(roots)
                for place in (value.place, *(item for bound in value.bounds for item in bound))
            )
        return self._gathers_memo

    _gathers_memo: bool | None = None

    # -- levels: which pass over the row a value belongs to ---------------------------------------

    def level(self, value: Value) -> int:
        """Number of passes that must be complete before ``value`` can be computed."""
        return max((self.levels[name] + 1 for name in value.reductions if name in self.levels), default=0)

    def full(self, axes: frozenset[Axis], place: IndexExpr) -> bool:
        """Whether something at ``place`` with these axes is made once per inner point."""
        return bool((axes | frozenset(a for a in place.atoms() if isinstance(a, Axis))) & self.nest.inner)

    # -- innermost loops ---------------------------------------------------------------------------

    def hoist(
        self, roots: Sequence[Value], inside: frozenset[Axis], scope: Scope,
        assign: Callable[[Value, str, str], str] | None = None,
    ) -> Scope:  # fmt: skip
        """Locals for what ``roots`` need that does not depend on the axes ``inside``."""
        order, certain = self.needed(roots, {}, scope)
        frontier: dict[int, Value] = {}
        wanted = set(item.number for item in roots)
        for value in order:
            if value.axes & inside or value.number in wanted:
                for child in (*value.inputs(), value):
                    plain = not (child.axes & inside) and child.number in certain
                    if plain and child.kind in ("op", "load", "guard"):
                        frontier.setdefault(child.number, child)
        for value in frontier.values():
            if value.number in scope:
                continue
            scope = self.define(value.inputs(), {}, scope, assign)
            if assign is None:
                hint = self.values.names.get(value.number) or (value.buffer + "_" if value.buffer else "t")
                name = self.fresh(hint)
                text = strip(self.text(value, scope))
                self.report_gathers([value], scope)
                self.out.add(f"const {REGISTER_TYPES[value.dtype]} {name} = {text};", [value.origin])
                scope = {**scope, value.number: name}
            else:
                name = self.fresh(self.values.names.get(value.number) or "t")
                scope = {**scope, value.number: assign(value, name, strip(self.text(value, scope)))}
        return scope

    def innermost(
        self, axis: Axis, stores: Sequence[Store], accumulators: Sequence[Accumulator], scope: Scope,
        *, pragma: str = "", kept: Mapping[int, str] | None = None, header: Callable[[int, int], None] | None = None,
        target: Callable[[Accumulator, Scope], str] | None = None, outside: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """The SIMD loop over ``axis``: locals, accumulations, stores. ``kept`` maps values to the row
        buffers they are also written to."""
        kept = kept or {}
        roots = [item.value for item in stores] + [acc.item.value for acc in accumulators]
        roots += [acc.item.position for acc in accumulators if acc.item.position is not None]
        kept_values = [value for value in self.needed(roots, {}, scope)[0] if value.number in kept]
        partial: dict[str, str] = {}
        for acc in accumulators:
            # an array element that every lane would update at once gets a scalar of its own
            array = acc.item.split and self.split_kept[acc.item.output] != ONE
            if array and axis not in acc.item.place.atoms():
                name = self.fresh(f"{acc.name}_part")
                self.out.add(f"{acc.type} {name} = {acc.start};", [acc.item.loop.id])
                partial[acc.name] = name
        simd = all(acc.clause for acc in accumulators)
        scalars = [acc for acc in accumulators if acc.name not in partial and acc.name not in set(outside)]
        clauses = self._clauses(scalars, arrays=False)
        for acc in accumulators:
            if acc.name in partial:
                self._declare_operator(acc)
                clauses += f" reduction({acc.clause}:{partial[acc.name]})"
        for piece in self.segments(axis, roots, {}):
            ranges: Range = {} if piece is None else {axis: piece}
            if pragma:
                self.out.add(f"{pragma}{clauses}")
            elif simd:
                self.out.add(f"#pragma omp simd{clauses}")
            low, high = ("0", "") if piece is None else (str(piece[0]), str(piece[1]))
            if header is not None:
                header(0, 0)
            else:
                self.for_(axis, low, high)
            inner = self.define(roots, ranges, scope)
            order, certain = self.needed(roots, ranges, scope)
            self.report_gathers([value for value in order if value.number in certain], inner)
            for value in kept_values:
                self.out.add(
                    f"{kept[value.number]}[{self.axis_names[axis.text]}] = {strip(self.text(value, inner))};",
                    [value.origin],
                )
            for acc in accumulators:
                where = partial.get(acc.name) or (target(acc, inner) if target else self._target(acc, inner))
                value_text = self.text(acc.item.value, inner)
                if acc.clause.startswith("nan") or not acc.clause or acc.clause in ("max", "min"):
                    if not value_text.isidentifier():
                        name = self.fresh("t")
                        kind = REGISTER_TYPES[acc.item.value.dtype]
                        self.out.add(f"const {kind} {name} = {strip(value_text)};", [acc.item.loop.id])
                        value_text = name
                position = self.text(acc.item.position, inner) if acc.item.position is not None else ""
                for line in acc.update(where, strip(value_text), strip(position)):
                    self.out.add(line, [acc.item.loop.id])
            for item in sorted(stores, key=lambda item: item.last):
                self.store(item, inner)
            self.out.close()
        for acc in accumulators:
            if acc.name in partial:
                for line in acc.update(self._split_target(acc, scope), partial[acc.name]):
                    self.out.add(line, [acc.item.loop.id])

    def _target(self, acc: Accumulator, scope: Scope) -> str:
        return self._split_target(acc, scope) if acc.item.split else acc.name

    # -- points ------------------------------------------------------------------------------------

    def points(self) -> None:
        stores, split = self.values.stores, list(self.split.values())
        rows = self.nest.rows
        roots = [item.value for item in stores] + [acc.item.value for acc in split]
        if not rows:
            scope = self.define(roots, {}, {})
            order, certain = self.needed(roots, {}, {})
            self.report_gathers([value for value in order if value.number in certain], scope)
            for item in stores:
                self.store(item, scope)
            return
        rows = self._contiguous_last(rows)
        outer, last = rows[:-1], rows[-1]
        parallel = self.work() >= PARALLEL_WORK
        outer_first = parallel and outer and product(a.extent for a in outer).hint() >= FEW_OUTER
        if outer_first:
            self.out.add(self.parallel_pragma(self._clauses(split, arrays=True), len(outer)))
        for axis in outer:
            self.for_(axis)
        scope: Scope = self.hoist(roots, frozenset((last,)), {}) if outer else {}
        pragma = "#pragma omp parallel for simd" if parallel and not outer_first else ""
        if not outer and not parallel:
            scope = self.hoist(roots, frozenset((last,)), {})
        self.innermost(last, stores, split, scope, pragma=pragma)
        for _ in outer:
            self.out.close()

    def _contiguous_last(self, rows: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The rows with the axis that most accesses walk contiguously put last."""
        scores = {axis: self._contiguous(axis) for axis in rows}
        best = max(rows, key=lambda axis: (scores[axis], rows.index(axis)))
        return (*(axis for axis in rows if axis is not best), best)

    def _contiguous(self, axis: Axis) -> int:
        """Bytes walked with stride one along ``axis``, less those walked with a larger stride."""
        from nbcompile.codegen.values import walk_values

        roots = [item.value for item in (*self.values.reductions, *self.values.stores)]
        places = [(value.place, value.buffer) for value in walk_values(roots) if value.kind == "load"]
        places += [(item.place, item.buffer) for item in self.values.stores] * 2
        score = 0
        for place, buffer in places:
            step = place.coefficient(axis)
            weight = self.buffers[buffer].dtype.itemsize
            if step is None or not (step == 0 or step == ONE):
                score -= weight
            elif step == ONE:
                score += weight
        return score

    # -- rows --------------------------------------------------------------------------------------

    def rows(self) -> None:
        rows, inner = self.nest.rows, self.nest.inner_axes
        last = inner[-1]
        count = product(axis.extent for axis in inner)
        top = self._top_level()
        split = list(self.split.values())
        if rows:
            pragma = self.parallel_pragma(self._clauses(split, arrays=True), len(rows))
            if pragma:
                self.out.add(pragma)
        for axis in rows:
            self.for_(axis)
        buffers = plan_row_buffers(self, [self._pass_roots(level) for level in range(top + 1)], inner)
        for name, kind, size, origin in buffers.declarations:
            self.out.add(f"{kind} {name}[{size}]; // one row, kept for the next pass", [origin])
        scope: Scope = {}
        for level in range(top + 1):
            scope = self._row_level(level, scope)
            stores, reductions, split_here = self._pass(level)
            if not (stores or reductions or split_here):
                continue
            roots = self._pass_roots(level)
            kept_here = {number: buffers.names[number] for number in buffers.written.get(level, ())}
            reuse = {
                number: f"{buffers.names[number]}[{self.axis_names[last.text]}]"
                for number in buffers.read.get(level, ())
            }
            scope = self.hoist(roots, frozenset(inner), {**scope, **reuse})
            accumulators = [make_accumulator(self, item, count.hint()) for item in reductions]
            for acc in accumulators:
                self.out.add(f"{acc.type} {acc.name} = {acc.start};", [acc.item.loop.id])
                if acc.result != acc.name:
                    self.out.add(f"long {acc.result} = 0;", [acc.item.loop.id])
            for axis in inner[:-1]:
                self.for_(axis)
            self.innermost(last, stores, accumulators + split_here, {**scope, **reuse}, kept=kept_here)
            for _ in inner[:-1]:
                self.out.close()
            for number in reuse:
                scope.pop(number, None)
            for acc in accumulators:
                self._row_result(acc, count, scope)
        for _ in rows:
            self.out.close()

    def _top_level(self) -> int:
        values = [item.value for item in self.values.stores] + [item.value for item in self.values.reductions]
        return max((self.level(value) for value in values), default=0)

    def _pass(self, level: int) -> tuple[list[Store], list[Reduction], list[Accumulator]]:
        last = self._top_level()
        stores = [
            item for item in self.values.stores
            if self.full(item.value.axes, item.place) and (last if item.last else self.level(item.value)) == level
        ]  # fmt: skip
        reductions = [
            item for item in self.values.reductions if not item.split and self.levels[item.output] == level
        ]
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and self._split_full(acc)
        ]  # fmt: skip
        return stores, reductions, split

    def _split_full(self, acc: Accumulator) -> bool:
        binding = self.values.group.bindings[acc.item.loop.id]
        touched = {axis for place in binding.values() for axis in place.axes()}
        original = self.values.group.nest.inner
        return bool(touched & original)

    def _pass_roots(self, level: int) -> list[Value]:
        stores, reductions, split = self._pass(level)
        roots = [item.value for item in stores] + [item.value for item in reductions]
        roots += [acc.item.value for acc in split]
        return roots + [item.position for item in reductions if item.position is not None]

    def _row_level(self, level: int, scope: Scope) -> Scope:
        """What is made once per row and needs ``level`` passes: stores and split reductions."""
        stores = [
            item for item in self.values.stores
            if not self.full(item.value.axes, item.place) and self.level(item.value) == level
        ]  # fmt: skip
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and not self._split_full(acc)
        ]  # fmt: skip
        if not (stores or split):
            return scope
        roots = [item.value for item in stores] + [acc.item.value for acc in split]
        scope = self.define(roots, {}, scope)
        order, certain = self.needed(roots, {}, {})
        self.report_gathers([value for value in order if value.number in certain], scope)
        for item in stores:
            self.store(item, scope)
        for acc in split:
            for line in acc.update(self._split_target(acc, scope), self.text(acc.item.value, scope)):
                self.out.add(line, [acc.item.loop.id])
        return scope

    def _row_result(self, acc: Accumulator, count: IndexExpr, scope: Scope) -> None:
        """Give the finished result a name and store it if it is needed in memory."""
        item = acc.item
        text = acc.result
        kind = REGISTER_TYPES[self.buffers[item.output].dtype]
        if item.kind == "mean":
            text = f"{acc.name} / ({self.place(count, {})})"
        if item.kind == "mean" or acc.type != kind:
            name = self.fresh(f"{item.output}_row")
            if acc.result == acc.name:
                self.out.add(f"const {kind} {name} = ({kind})({text});", [item.loop.id])
                text = name
        self.reduced_text[item.output] = text
        if item.output in self.values.group.stored:
            name = self.memory(item.output, write=True)
            value = self.stored(text, self.buffers[item.output].dtype)
            self.out.add(f"{name}[{self.place(item.place, scope)}] = {value};", [item.loop.id])

    # -- columns -----------------------------------------------------------------------------------

    def _columns(self) -> bool:
        rows, inner = self.nest.rows, self.nest.inner_axes
        if not rows or any(acc.item.position is not None for acc in self.split.values()):
            return False
        if any(item.position is not None for item in self.values.reductions):
            return False
        return self._contiguous(rows[-1]) > self._contiguous(inner[-1])

    def columns(self) -> None:
        rows, inner = self.nest.rows, self.nest.inner_axes
        outer, last = rows[:-1], rows[-1]
        count = product(axis.extent for axis in inner)
        tile = self._tile(outer, last, count)
        split = list(self.split.values())
        lane, first, width = self.fresh("lane"), self.fresh("first"), self.fresh("width")
        pragma = self.parallel_pragma(self._clauses(split, arrays=True), len(outer) + 1)
        if pragma:
            self.out.add(pragma)
        for axis in outer:
            self.for_(axis)
        extent = self.extent(last)
        self.out.open(f"for (long {first} = 0; {first} < {extent}; {first} += {tile})")
        self.out.add(f"const long {width} = {extent} - {first} < {tile} ? {extent} - {first} : {tile};")
        column = self.axis_names[last.text]

        def open_lanes(low: int = 0, high: int = 0) -> None:
            self.out.open(f"for (long {lane} = 0; {lane} < {width}; {lane}++)")
            self.out.add(f"const long {column} = {first} + {lane};")

        def per_column(roots: Sequence[Value], scope: Scope) -> Scope:
            """Arrays of what depends on the column but not on the reduced axes."""
            order, certain = self.needed(roots, {}, scope)
            wanted = [
                value for value in order
                if value.number in certain and value.kind == "op" and not value.axes & self.nest.inner
                and any(not (item.axes & self.nest.inner) and item is value for user in (*order, *roots)
                        for item in (*user.inputs(), user) if user.axes & self.nest.inner)
            ]  # fmt: skip
            if not wanted:
                return scope
            names = {}
            for value in wanted:
                name = self.fresh(self.values.names.get(value.number) or "t")
                names[value.number] = name
                self.out.add(f"{REGISTER_TYPES[value.dtype]} {name}[{tile}];", [value.origin])
            self.out.add("#pragma omp simd")
            open_lanes()
            local = self.define(wanted, {}, scope)
            for value in wanted:
                self.out.add(f"{names[value.number]}[{lane}] = {strip(self.text(value, local))};", [value.origin])
            self.out.close()
            return {**scope, **{number: f"{name}[{lane}]" for number, name in names.items()}}

        scope: Scope = {}
        for level in range(self._top_level() + 1):
            self._column_level(level, scope, open_lanes)
            stores, reductions, split_here = self._pass(level)
            if not (stores or reductions or split_here):
                continue
            scope = per_column(self._pass_roots(level), scope)
            accumulators = [make_accumulator(self, item, count.hint()) for item in reductions]
            for acc in accumulators:
                self.out.add(f"{acc.type} {acc.name}[{tile}];", [acc.item.loop.id])
                self.out.add(
                    f"for (long {lane} = 0; {lane} < {width}; {lane}++) {acc.name}[{lane}] = {acc.start};",
                    [acc.item.loop.id],
                )
            for axis in inner:
                self.for_(axis)
            self.innermost(
                last, stores, accumulators + split_here, scope, header=open_lanes,
                target=lambda acc, inner_scope: f"{acc.name}[{lane}]"
                if not acc.item.split else self._split_target(acc, inner_scope),
                outside=[acc.name for acc in accumulators],
            )  # fmt: skip
            for _ in inner:
                self.out.close()
            for acc in accumulators:
                self._column_result(acc, count, tile, lane, open_lanes)
        self.out.close()
        for _ in outer:
            self.out.close()

    def _column_level(self, level: int, scope: Scope, open_lanes: Callable[[], None]) -> None:
        stores = [
            item for item in self.values.stores
            if not self.full(item.value.axes, item.place) and self.level(item.value) == level
        ]  # fmt: skip
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and not self._split_full(acc)
        ]  # fmt: skip
        if not (stores or split):
            return
        roots = [item.value for item in stores] + [acc.item.value for acc in split]
        self.out.add(f"#pragma omp simd{self._clauses(split, arrays=False)}")
        open_lanes()
        local = self.define(roots, {}, scope)
        for item in stores:
            self.store(item, local)
        for acc in split:
            for line in acc.update(self._split_target(acc, local), self.text(acc.item.value, local)):
                self.out.add(line, [acc.item.loop.id])
        self.out.close()

    def _column_result(
        self, acc: Accumulator, count: IndexExpr, tile: int, lane: str, open_lanes: Callable[[], None]
    ) -> None:
        item = acc.item
        kind = REGISTER_TYPES[self.buffers[item.output].dtype]
        text = f"{acc.name}[{lane}]"
        stored = item.output in self.values.group.stored
        convert = item.kind == "mean" or acc.type != kind
        if convert:
            divided = f"{text} / ({self.place(count, {})})" if item.kind == "mean" else text
            name = self.fresh(f"{item.output}_col")
            self.out.add(f"{kind} {name}[{tile}];", [item.loop.id])
        if convert or stored:
            self.out.add("#pragma omp simd")
            open_lanes()
            if convert:
                self.out.add(f"{name}[{lane}] = ({kind})({divided});", [item.loop.id])
                text = f"{name}[{lane}]"
            if stored:
                memory = self.memory(item.output, write=True)
                value = self.stored(text, self.buffers[item.output].dtype)
                self.out.add(f"{memory}[{self.place(item.place, {})}] = {value};", [item.loop.id])
            self.out.close()
        self.reduced_text[item.output] = text

    def _tile(self, outer: Sequence[Axis], last: Axis, count: IndexExpr) -> int:
        """Columns walked together: few enough that all their rows stay in cache between passes, many
        enough to fill the lanes and the threads."""
        tile = TILE * 4
        rows = max(count.hint(), 1)
        while tile > 16 and tile * rows * 4 > CACHE_BYTES:
            tile //= 2
        while tile > 16 and product(axis.extent for axis in outer).hint() * last.extent.hint() < 4 * tile:
            tile //= 2
        return tile



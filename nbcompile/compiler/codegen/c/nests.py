"""The nests of a CPU kernel: points, rows, columns and scatter (see ``kernel``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from nbcompile.compiler.codegen.c.accumulators import NAN_REDUCTIONS, Accumulator
from nbcompile.compiler.codegen.c.columns import columns_nest, is_columns
from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES, CWriter
from nbcompile.compiler.codegen.c.kernel import (
    EVERY_BIT,
    PARALLEL_WORK,
    KernelPrinter,
    Scope,
    make_accumulator,
    memory_type,
    strip,
)
from nbcompile.compiler.codegen.c.row_buffers import plan_row_buffers
from nbcompile.compiler.codegen.c.scatter import scatter_nest
from nbcompile.compiler.codegen.printed import Call, Parameter, PrintedKernel
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.guard_ranges import Range
from nbcompile.compiler.kernel_ir.values import KernelValues, Reduction, Store, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, product
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product
from nbcompile.compiler.loop_ir.versions import Part

FEW_OUTER = 8


def print_kernel(
    group: Group, buffers: Mapping[str, Buffer], writer: CWriter, comment: Sequence[str]
) -> PrintedKernel:
    """The C function of a group; ``comment`` lines are put above it."""
    return Nests(kernel_values(group, buffers), buffers, writer).print(comment)


class Nests(KernelPrinter):
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
        elif is_columns(self):
            columns_nest(self)
        else:
            self.rows()
        body, origins = self.out.text, self.out.origins
        head, head_origins = self._declare_split()
        tail, tail_origins = self._finish_split()
        symbol = f"{group.id.rsplit('.', 1)[-1]}_{group.name}"
        parameters = self._parameters()
        signature = ", ".join(
            f"{item.type}{'' if item.kind == 'size' else '*'} {item.name}".replace("* ", " *")
            for item in parameters
        )
        if self.checks_bounds:
            head = ["  int bad = 0; // set if an index is out of range", *head]
            head_origins = [(), *head_origins]
            tail += ["  if (bad) *status = 1;"]
            tail_origins += [()]
        if self.hides_bits:
            declared = (
                f'  long {EVERY_BIT} = -1; __asm__("" : "+r"({EVERY_BIT})); // no comparison is an index'
            )
            head, head_origins = [declared, *head], [(), *head_origins]
        lines = [*(f"// {line}" for line in comment), *self.attributes(), f"void {symbol}({signature}) {{"]
        start = len(lines)
        text = [*lines, *head, *body, *tail, "}"]
        links = [*([()] * start), *head_origins, *origins, *tail_origins, ()]
        return PrintedKernel(
            "\n".join(text),
            tuple((n, link) for n, link in enumerate(links, start=1) if link),
            (Call(symbol, tuple(parameters)),),
            tuple(self.writes),
            walk=self.out.walk,
        )

    def _parameters(self) -> list[Parameter]:
        found: list[Parameter] = []
        for name in dict.fromkeys([*self.reads, *self.writes]):
            kind = memory_type(self.buffers[name])
            const = "" if name in self.writes else "const "
            found.append(Parameter(self.buffer_names[name], "buffer", f"{const}{kind}", name))
        found += [Parameter(name, "size", "long") for name in self.sizes]
        if self.checks_bounds:
            found.append(Parameter("status", "status", "int"))
        return found

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
                text.append(f"  {name}[0] = {self.stored(self.final(acc, acc.result), dtype)};")
            else:
                size = self.place(kept, {})
                final = self.stored(self.final(acc, f"{acc.name}[c]"), dtype)
                text.append(f"  for (long c = 0; c < {size}; c++) {name}[c] = {final};")
            origins.append((acc.item.loop.id,))
        return text, origins

    def final(self, acc: Accumulator, text: str) -> str:
        """An accumulator's value in the register type of its output."""
        target = REGISTER_TYPES[self.buffers[acc.item.output].dtype]
        return text if acc.type == target else f"({target}){text}"

    def split_target(self, acc: Accumulator, scope: Scope) -> str:
        if self.split_kept[acc.item.output] == ONE:
            return acc.name
        return f"{acc.name}[{self.place(acc.item.place, scope)}]"

    def clauses(self, accumulators: Iterable[Accumulator], arrays: bool) -> str:
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
            self.checks_bounds = True  # so that it is declared, though no guard with a gather be open
            by_operator.setdefault("|", []).append("bad")
        return "".join(f" reduction({sign}:{', '.join(names)})" for sign, names in by_operator.items())

    def _declare_operator(self, acc: Accumulator) -> None:
        if acc.clause.startswith("nan"):
            text = NAN_REDUCTIONS[(acc.item.kind, acc.item.value.dtype)]
            self.writer.helpers[acc.clause] = text

    def _gathers(self) -> bool:
        if self._gathers_memo is None:
            roots = self.values.roots
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

    def is_full(self, item: Store) -> bool:
        return self.full(item.value.axes, item.place)

    # -- innermost loops ---------------------------------------------------------------------------

    def hoist(
        self, roots: Sequence[Value], inside: frozenset[Axis], scope: Scope,
        assign: Callable[[Value, str, str], str] | None = None,
    ) -> Scope:  # fmt: skip
        """Locals for what ``roots`` need that does not depend on the axes ``inside``."""
        order, certain = self.needed(roots, {}, scope)
        frontier: dict[int, Value] = {}
        wanted = {item.number for item in roots}
        for value in order:
            if value.axes & inside or value.number in wanted:
                for child in (*value.inputs(), value):
                    plain = not (child.axes & inside) and child.number in certain
                    if plain and child.kind in ("op", "load", "guard"):
                        frontier.setdefault(child.number, child)
        for value in frontier.values():
            if value.number in scope:
                continue
            # what a guard chooses between stays in its expression: only the chosen may be read
            behind = value.args if value.kind == "guard" else ()
            scope = self.define([item for item in value.inputs() if item not in behind], {}, scope, assign)
            if assign is None:
                hint = self.names.get(value.number) or (value.buffer + "_" if value.buffer else "t")
                name = self.fresh(hint)
                text = strip(self.text(value, scope))
                self.report_gathers([value], scope)
                self.out.add(f"const {REGISTER_TYPES[value.dtype]} {name} = {text};", [value.origin])
                scope = {**scope, value.number: name}
            else:
                name = self.fresh(self.names.get(value.number) or "t")
                scope = {**scope, value.number: assign(value, name, strip(self.text(value, scope)))}
        return scope

    def innermost(
        self, axis: Axis, stores: Sequence[Store], accumulators: Sequence[Accumulator], scope: Scope,
        *, pragma: str = "", kept: Mapping[int, str] | None = None,
        header: Callable[[tuple[int, int] | None, Part], None] | None = None,
        target: Callable[[Accumulator, Scope], str] | None = None, outside: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """The SIMD loop over ``axis``: locals, accumulations, stores. ``kept`` maps values to the row
        buffers they are also written to."""
        kept = kept or {}
        roots = [item.value for item in stores] + [acc.item.value for acc in accumulators]
        roots += [acc.item.position for acc in accumulators if acc.item.position is not None]
        kept_values = [value for value in self.needed(roots, {}, scope)[0] if value.number in kept]
        partial = self._partial_sums(axis, accumulators)
        scalars = [acc for acc in accumulators if acc.name not in partial and acc.name not in set(outside)]
        clauses = self.clauses(scalars, arrays=False)
        for acc in accumulators:
            if acc.name in partial:
                self._declare_operator(acc)
                clauses += f" reduction({acc.clause}:{partial[acc.name]})"
        simd = "#pragma omp simd" if all(acc.clause for acc in accumulators) else ""
        division = len(self.out.text)
        for number, piece in enumerate(self.segments(axis, roots, {})):
            ranges: Range = {} if piece is None else {axis: piece}
            if pragma or simd:
                self.out.add(f"{pragma or simd}{clauses}")
            if header is not None:
                header(piece, Part(axis, number, division))
            else:
                low, high = ("0", "") if piece is None else map(str, piece)
                self.for_(axis, low, high, part=Part(axis, number, division))
            inner = self.define(roots, ranges, scope)
            self.report_needed(roots, ranges, scope, inner)
            for value in kept_values:
                inner = self._keep(value, f"{kept[value.number]}[{self.axis_names[axis.text]}]", inner)
            for acc in accumulators:
                where = partial.get(acc.name) or (target(acc, inner) if target else self._target(acc, inner))
                self._accumulate(acc, where, inner)
            for item in sorted(stores, key=lambda item: item.last):
                self.store(item, inner)
            self.out.close()
        for acc in accumulators:
            if acc.name in partial:
                for line in acc.update(self.split_target(acc, scope), partial[acc.name]):
                    self.out.add(line, [acc.item.loop.id])

    def _partial_sums(self, axis: Axis, accumulators: Sequence[Accumulator]) -> dict[str, str]:
        """Scalars for array elements that every lane of ``axis`` would update at once."""
        partial: dict[str, str] = {}
        for acc in accumulators:
            array = acc.item.split and self.split_kept[acc.item.output] != ONE
            if array and axis not in acc.item.place.atoms():
                name = self.fresh(f"{acc.name}_part")
                self.out.add(f"{acc.type} {name} = {acc.start};", [acc.item.loop.id])
                partial[acc.name] = name
        return partial

    def _keep(self, value: Value, element: str, scope: Scope) -> Scope:
        """Write ``value`` to its row buffer; it has a name from here on."""
        if value.number not in scope:
            name = self.fresh(self.names.get(value.number) or "t")
            text = strip(self.text(value, scope))
            self.out.add(f"const {REGISTER_TYPES[value.dtype]} {name} = {text};", [value.origin])
            scope = {**scope, value.number: name}
        self.out.add(f"{element} = {scope[value.number]};", [value.origin])
        return scope

    def _accumulate(self, acc: Accumulator, where: str, scope: Scope) -> None:
        """Fold the value at this point into ``where``."""
        loop = acc.item.loop.id
        text = self.text(acc.item.value, scope)
        compares = acc.clause.startswith("nan") or acc.clause in ("", "max", "min")
        if compares and not text.isidentifier():  # it is read several times
            name = self.fresh("t")
            self.out.add(f"const {REGISTER_TYPES[acc.item.value.dtype]} {name} = {strip(text)};", [loop])
            text = name
        position = self.text(acc.item.position, scope) if acc.item.position is not None else ""
        # what stands behind an operator keeps its parentheses: a && (b || c)
        value = text if acc.clause in ("&&", "||") else strip(text)
        for line in acc.update(where, value, strip(position)):
            self.out.add(line, [loop])

    def _target(self, acc: Accumulator, scope: Scope) -> str:
        return self.split_target(acc, scope) if acc.item.split else acc.name

    # -- points ------------------------------------------------------------------------------------

    def points(self) -> None:
        stores, split = self.values.stores, list(self.split.values())
        rows = self.nest.rows
        roots = [item.value for item in stores] + [acc.item.value for acc in split]
        if not rows:
            only = self.define(roots, {}, {})
            self.report_needed(roots, {}, {}, only)
            for item in stores:
                self.store(item, only)
            return
        rows = self._contiguous_last(rows)
        outer, last = rows[:-1], rows[-1]
        parallel = self.work() >= PARALLEL_WORK
        outer_first = parallel and outer and product(a.extent for a in outer).hint() >= FEW_OUTER
        if outer_first:
            self.out.add(self.parallel_pragma(self.clauses(split, arrays=True), len(outer)))
        for axis in outer:
            self.for_(axis)
        scope = self.hoist(roots, frozenset((last,)), {}) if outer or not parallel else {}
        pragma = "#pragma omp parallel for simd" if parallel and not outer_first else ""
        self.innermost(last, stores, split, scope, pragma=pragma)
        for _ in outer:
            self.out.close()

    def _contiguous_last(self, rows: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """The rows with the axis that most accesses walk contiguously put last."""
        scores = {axis: self.contiguous(axis) for axis in rows}
        best = max(rows, key=lambda axis: (scores[axis], rows.index(axis)))
        return (*(axis for axis in rows if axis is not best), best)

    def contiguous(self, axis: Axis) -> int:
        """Bytes walked with stride one along ``axis``, less those walked with a larger stride."""
        roots = self.values.roots
        places = [(value.place, value.buffer) for value in walk_values(roots) if value.kind == "load"]
        places += [(item.place, item.buffer) for item in self.values.stores] * 2
        score = 0
        for place, buffer in places:
            step = place.coefficient(axis)
            # a vector read along one axis counts for little beside the tensors of the whole nest
            points = hint_product(a.extent for a in place.atoms() if isinstance(a, Axis))
            weight = self.buffers[buffer].dtype.itemsize * points
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
        top = self.top_level()
        split = list(self.split.values())
        if rows:
            pragma = self.parallel_pragma(self.clauses(split, arrays=True), len(rows))
            if pragma:
                self.out.add(pragma)
        for axis in rows:
            self.for_(axis)
        buffers = plan_row_buffers(self, [self.pass_roots(level) for level in range(top + 1)], inner)
        for name, kind, size, origin in buffers.declarations:
            self.out.add(f"{kind} {name}[{size}]; // one row, kept for the next pass", [origin])
        scope: Scope = {}
        for level in range(top + 1):
            scope = self._row_level(level, scope)
            stores, reductions, split_here = self.pass_work(level)
            if not (stores or reductions or split_here):
                continue
            roots = self.pass_roots(level)
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
                self.row_result(acc, count, scope)
        for item in [item for item in self.values.stores if item.last and not self.is_full(item)]:
            self.store(item, scope)
        for _ in rows:
            self.out.close()

    def top_level(self) -> int:
        values = [item.value for item in self.values.stores] + [item.value for item in self.values.reductions]
        return max((self.level(value) for value in values), default=0)

    def pass_work(self, level: int) -> tuple[list[Store], list[Reduction], list[Accumulator]]:
        last = self.top_level()
        stores = [
            item for item in self.values.stores
            if self.is_full(item) and (last if item.last else self.level(item.value)) == level
        ]  # fmt: skip
        reductions = [
            item for item in self.values.reductions if not item.split and self.levels[item.output] == level
        ]
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and self.split_full(acc)
        ]  # fmt: skip
        return stores, reductions, split

    def split_full(self, acc: Accumulator) -> bool:
        binding = self.values.group.bindings[acc.item.loop.id]
        touched = {axis for place in binding.values() for axis in place.axes()}
        original = self.values.group.nest.inner
        return bool(touched & original)

    def pass_roots(self, level: int) -> list[Value]:
        stores, reductions, split = self.pass_work(level)
        roots = [item.value for item in stores] + [item.value for item in reductions]
        roots += [acc.item.value for acc in split]
        return roots + [item.position for item in reductions if item.position is not None]

    def _row_level(self, level: int, scope: Scope) -> Scope:
        """What is made once per row and needs ``level`` passes: stores and split reductions. What overwrites
        memory is made here, and stored after the last pass."""
        stores = [
            item for item in self.values.stores
            if not self.is_full(item) and self.level(item.value) == level
        ]  # fmt: skip
        split = [
            acc for acc in self.split.values()
            if self.level(acc.item.value) == level and not self.split_full(acc)
        ]  # fmt: skip
        if not (stores or split):
            return scope
        roots = [item.value for item in stores] + [acc.item.value for acc in split]
        scope = self.define(roots, {}, scope)
        self.report_needed(roots, {}, {}, scope)
        for item in stores:
            if not item.last:
                self.store(item, scope)
            elif item.value.number not in scope and item.value.kind in ("op", "load", "guard"):
                name = self.fresh(self.names.get(item.value.number) or "t")
                text = strip(self.text(item.value, scope))
                self.out.add(
                    f"const {REGISTER_TYPES[item.value.dtype]} {name} = {text};", [item.value.origin]
                )
                scope = {**scope, item.value.number: name}
        for acc in split:
            for line in acc.update(self.split_target(acc, scope), self.text(acc.item.value, scope)):
                self.out.add(line, [acc.item.loop.id])
        return scope

    def row_result(self, acc: Accumulator, count: IndexExpr, scope: Scope) -> None:
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
            self.out.touch(item.output, item.place, write=True)
            self.out.add(f"{name}[{self.place(item.place, scope)}] = {value};", [item.loop.id])

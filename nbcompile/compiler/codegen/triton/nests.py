"""Prints one group as Triton functions that follow its ``Tiling``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from nbcompile.compiler.codegen.printed import Call, Parameter, PrintedKernel
from nbcompile.compiler.codegen.triton.accumulators import Accumulating, accumulate_dtype
from nbcompile.compiler.codegen.triton.block_printers import RowsPrinter, staged
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.tile_printer import Dim, Scope, TilePrinter, bare
from nbcompile.compiler.kernel_ir.values import KernelValues, Reduction, Store, Value
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, hint_product
from nbcompile.compiler.loop_ir.versions import Walk
from nbcompile.compiler.schedule.rows import tiling
from nbcompile.compiler.schedule.tiling import Tiling, extent_of
from nbcompile.compiler.stages import Config, Launch
from nbcompile.targets import Target

FINISHERS = 128  # programs that add up parts, if there are so many results
TOTAL_BLOCK = 2048
LONGEST_HOISTED = 4096  # points of what is the same for all rows (a weight), kept while walking them


@dataclass
class Function:
    """One printed Triton function, its header to be written when all it uses is known."""

    name: str
    printer: TilePrinter
    grid: tuple[str, ...]
    configs: tuple[Config, ...]
    owned: frozenset[Axis]  # the axes whose points are shared out among the programs
    together: bool = False


def print_kernel(
    group: Group, buffers: Mapping[str, Buffer], writer: TritonWriter, comment: Sequence[str], target: Target
) -> tuple[PrintedKernel, str]:
    """The Triton functions of a group with ``comment`` lines above them, and the schedule's name."""
    if any(loop.kind == "scan" for loop in group.loops):
        from nbcompile.compiler.codegen.triton.schedules.scan import print_scan

        return print_scan(group, buffers, writer, comment, target)
    values, plan = tiling(group, dict(buffers), target)
    if plan.schedule == "scatter":
        from nbcompile.compiler.codegen.triton.schedules.scatter import ScatterNest

        nest = ScatterNest(group, values, plan, buffers, writer, target.multiprocessors)
        return nest.print(comment), nest.title
    return Nest(group, values, plan, buffers, writer).print(comment), plan.title


class Nest:
    """Builds the functions of one group."""

    def __init__(
        self, group: Group, values: KernelValues, plan: Tiling, buffers: Mapping[str, Buffer],
        writer: TritonWriter,
    ) -> None:  # fmt: skip
        self.group, self.values, self.plan, self.writer = group, values, plan, writer
        self.buffers = dict(buffers)
        self.symbol = f"{group.id.rsplit('.', 1)[-1]}_{group.name}"
        self.functions: list[Function] = []
        self.workspaces: list[Buffer] = []
        self.zeroed: set[str] = set()
        self.letters = {
            axis.text: "ijklmnopquvw"[n % 12] + ("" if n < 12 else str(n))
            for n, axis in enumerate(values.nest.axes)
        }
        self.inside = frozenset(plan.r)

    # -- assembling ------------------------------------------------------------------------------------

    def print(self, comment: Sequence[str]) -> PrintedKernel:
        if self.plan.schedule == "rows":
            self.rows()
        else:
            self.points()
        return self.assemble(comment)

    def assemble(self, comment: Sequence[str]) -> PrintedKernel:
        text: list[str] = [f"# {line}" for line in comment]
        lines: list[tuple[int, tuple[str, ...]]] = []
        calls: list[Call] = []
        launches: list[Launch] = []
        writes: dict[str, None] = {}
        scratch = {item.name for item in self.workspaces}
        for number, function in enumerate(self.functions):
            p = function.printer
            found = p.arguments(scratch)
            constants = list(function.configs[0].constants)
            names = [argument.name for _, argument in found]
            signature = ", ".join([*names, *(f"{name}: tl.constexpr" for name in constants)])
            if number:
                text += ["", ""]
            text += ["@triton.jit", f"def {function.name}({signature}):"]
            early = self.writer.early and not function.together
            if early:
                text.append(f"    {self.writer.wait()}")
            for line, origins in zip(p.out.text, p.out.origins, strict=True):
                text.append(line)
                if origins:
                    lines.append((len(text), origins))
            parameters = tuple(
                Parameter(item.name, "buffer" if item.type.startswith("*") else "size", item.type, name)
                for name, item in found
            )
            calls.append(Call(function.name, parameters))
            launches.append(
                Launch(
                    function.name, self.group.id, tuple(argument for _, argument in found), function.grid,
                    function.configs, function.together, early,
                )
            )  # fmt: skip
            writes |= dict.fromkeys(name for name in p.written if name not in scratch)
        return PrintedKernel(
            "\n".join(text),
            tuple(lines),
            tuple(calls),
            tuple(writes),
            tuple(self.workspaces),
            frozenset(self.zeroed),
            tuple(launches),
            Walk(frozenset(), [Walk(item.owned, item.printer.out.walk.body) for item in self.functions]),
        )

    def printer(self, dims: Sequence[Dim]) -> TilePrinter:
        return TilePrinter(self.values, self.buffers, self.writer, dims, self.letters)

    def variable(self, axes: Sequence[Axis], default: str) -> str:
        return self.letters[axes[0].text] if len(axes) == 1 else default

    def add(
        self, name: str, printer: TilePrinter, grid: Sequence[str], configs: Sequence[Config],
        owned: Iterable[Axis] | None = None,
    ) -> Function:  # fmt: skip
        """A function that is complete. ``owned``: the axes whose points its programs share out among them;
        all that its tiles go along unless it is said."""
        if owned is None:
            owned = (axis for dim in printer.dims for axis in dim.axes)
        function = Function(name, printer, tuple(grid), tuple(configs), frozenset(owned))
        self.functions.append(function)
        return function

    def divides(self, dim: Dim, configs: Sequence[Config]) -> bool:
        """Whether every candidate block divides the dimension: then no lane needs a mask."""
        extent = dim.extent.constant
        # an empty dimension still has lanes
        return bool(extent) and all(extent % item.constants[dim.block] == 0 for item in configs)  # type: ignore[operator]

    def declare(
        self, p: TilePrinter, dim: Dim, offset: str, configs: Sequence[Config], *, axes: bool = True
    ) -> None:
        """The dimension's variable, its mask, and its axes."""
        p.out.add(f"{dim.name} = {p.lanes(dim, offset=offset)}")
        if not self.divides(dim, configs):
            dim.mask = p.fresh(f"{dim.name}_in")
            dim.cut = len(dim.axes) == 1
            p.out.add(f"{dim.mask} = {dim.name} < {self.size(p, dim.extent)}")
        if axes:
            p.declare_axes(dim)

    def program(self, p: TilePrinter, axis: int) -> str:
        return f"tl.program_id({axis}).to(tl.int64)" if p.wide else f"tl.program_id({axis})"

    def points(self) -> None:
        """Nothing is reduced."""
        from nbcompile.compiler.codegen.triton.schedules.points import print_points

        print_points(self)

    def size(self, p: TilePrinter, extent: IndexExpr) -> str:
        return p.place(extent, {})

    def store_all(self, p: TilePrinter, stores: Sequence[Store], scope: Scope) -> None:
        """Values first: what is overwritten has been read by then."""
        scope = p.define([item.value for item in stores], scope)
        for item in sorted(stores, key=lambda item: item.last):
            if any(other.last for other in stores) and item.value.number not in scope:
                scope = p.define([item.value], scope, always=item.value.kind not in ("const", "index"))
        for item in sorted(stores, key=lambda item: item.last):
            p.store(item, scope, self.once(p, item))

    def once(self, p: TilePrinter, item: Store) -> list[str]:
        """Conditions so that one lane stores what other lanes hold too, and one program what others do: a
        place that does not vary along some axis. All of them would write to the same few lines of memory."""
        present = {atom for atom in item.place.atoms() if isinstance(atom, Axis)}
        present |= item.value.axes if item.value.kind != "reduced" else set()
        conditions = []
        for dim in p.tiled:
            if len(dim.axes) > 1 and not present.isdisjoint(dim.axes):
                for axis in dim.axes:
                    if axis not in present:
                        conditions.append(f"({p.letter(axis)} == 0)")
        return conditions + [dim.first for dim in p.dims if dim.first and present.isdisjoint(dim.axes)]

    # -- rows ------------------------------------------------------------------------------------------

    def rows(self) -> None:
        plan = self.plan
        x = Dim(plan.x, self.variable(plan.x, "row"), "XBLOCK", None if plan.one_row else 0)
        r = Dim(plan.r, self.variable(plan.r, "within"), "RBLOCK", 0 if plan.one_row else 1)
        dims = [x, r] if plan.x else [r]
        if not plan.x and not plan.one_row:
            dims = [x, r]
        configs = self.complete(plan.configs)
        p = RowsPrinter(self.values, self.buffers, self.writer, dims, self.letters)
        p.r = r
        if plan.parts > 1 and plan.persistent:
            from nbcompile.compiler.codegen.triton.schedules.shared_rows import SharedRows

            SharedRows(self, p, x, r, configs).print()
        elif plan.parts > 1:
            from nbcompile.compiler.codegen.triton.schedules.shared_walks import SharedWalks

            SharedWalks(self, p, x, r, configs).print()
        elif plan.sums and plan.persistent:
            self._owned_rows(p, x, r, configs)
        elif plan.persistent:
            self._whole_rows(p, x, r, configs)
        else:
            self._walked_rows(p, x, r, configs)

    def complete(self, configs: Sequence[Config]) -> tuple[Config, ...]:
        """The constants that this schedule's function has."""
        found = []
        for config in configs:
            constants = dict(config.constants)
            if self.plan.one_row:
                constants.pop("XBLOCK", None)
            if self.plan.persistent and self.plan.parts == 1:
                length = 1
                for axis in self.plan.r:
                    length *= axis.extent.hint()
                constants["RBLOCK"] = 1 << max(length - 1, 0).bit_length()
            config = replace(config, constants=constants)
            if config not in found:
                found.append(config)
        return tuple(found)

    def _declare_rows(self, p: TilePrinter, x: Dim, configs: Sequence[Config]) -> list[str]:
        """The row (or block of rows) of this program; returns the grid."""
        if self.plan.one_row:
            if not x.axes:
                return ["1"]
            p.out.add(f"{x.name} = {self.program(p, 0)}")
            p.declare_axes(x)
            return [self.size(p, x.extent)]
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        return [f"cdiv({self.size(p, x.extent)}, XBLOCK)"]

    def _row_stores(self) -> tuple[list[Store], list[Store]]:
        """(stores of the whole row, stores of one value a row)."""
        full: list[Store] = []
        short: list[Store] = []
        for item in self.values.stores:
            axes = item.value.axes | {atom for atom in item.place.atoms() if isinstance(atom, Axis)}
            (full if axes & self.inside else short).append(item)
        return full, short

    def _reduction_stores(self, *, split: bool) -> list[tuple[Reduction, IndexExpr]]:
        return [
            (item, item.place) for item in self.values.reductions
            if item.split == split and item.output in self.group.stored
        ]  # fmt: skip

    def store_results(self, p: TilePrinter, items: Sequence[tuple[Reduction, IndexExpr]]) -> None:
        for item, place in items:
            where, mask = p.element(item.output, place, {}, (), write=True)
            p.out.add(f"tl.store({where}, {p.reduced_text[item.output]}{mask})", [item.loop.id])

    def count(self, p: TilePrinter, r: Dim) -> str:
        text = self._factor(p, r.extent)
        return f"{text}.0" if text.isdigit() else text

    def _whole_rows(self, p: TilePrinter, x: Dim, r: Dim, configs: Sequence[Config]) -> None:
        grid = self._declare_rows(p, x, configs)
        self.declare(p, r, "", configs)
        scope = self._reduce_at_once(p, r, {})
        self.store_results(p, self._reduction_stores(split=False))
        self.store_all(p, self.values.stores, scope)
        self.add(self.symbol, p, grid, configs, x.axes)

    def _reduce_at_once(self, p: TilePrinter, r: Dim, scope: Scope) -> Scope:
        accumulating = Accumulating(p, r.place or 0)
        for item in self.values.reductions:
            if item.split:
                continue
            roots = [item.value, *([item.position] if item.position else [])]
            scope = p.define(self._shared(roots), scope, always=True)
            accumulating.at_once(item, scope, self.count(p, r))
        return scope

    def _shared(self, roots: Sequence[Value]) -> list[Value]:
        """What of ``roots`` is worth a name: all but numbers (it may be needed again after the sum)."""
        return [value for value in roots if value.kind not in ("const", "index", "reduced")]

    # -- rows with sums over the rows -------------------------------------------------------------------

    def _owned_rows(self, p: TilePrinter, x: Dim, r: Dim, configs: Sequence[Config]) -> None:
        """Each program walks its share of the rows, each a whole row, and adds up along them."""
        sums = [item for item in self.values.reductions if item.split]
        slabs = self.plan.slabs
        self.declare(p, r, "", configs)
        along = Accumulating(p, x.place if x.place is not None else 0)
        running: dict[str, str] = {}
        for item in sums:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            name = running[item.output] = p.fresh(item.output)
            shape = None if not self.is_row_sum(item) else [] if self.plan.one_row else ["XBLOCK", "1"]
            p.out.add(
                f"{name} = {p.full(self.writer.identity(item.kind, dtype), dtype, shape)}", [item.loop.id]
            )
        scope: Scope = {}
        if configs[0].constants["RBLOCK"] <= LONGEST_HOISTED:
            roots = [item.value for item in self.values.reductions]
            roots += [item.value for item in self.values.stores]
            scope = p.hoist(roots, frozenset(self.plan.x), scope)
        rows = self.size(p, x.extent)
        step = "" if self.plan.one_row else " * XBLOCK"
        bounds = f"{self.program(p, 0)}{step}, {rows}, {slabs}{step}"
        p.out.enter(f"for start in {staged(configs, bounds)}:", axes=x.axes)
        if self.plan.one_row:
            p.out.add(f"{x.name} = start")
            p.declare_axes(x)
        else:
            self.declare(p, x, "start", configs)
        scope = self._reduce_at_once(p, r, scope)
        full, short = self._row_stores()
        scope = p.define(self._shared([item.value for item in sums]), scope, always=True)
        for item in sums:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            text = along._operand(item, scope, [x.mask] if x.mask else [])
            name = running[item.output]
            p.out.add(f"{name} = {bare(self.writer.combine(item.kind, name, text, dtype))}", [item.loop.id])
        self.store_results(p, self._reduction_stores(split=False))
        self.store_all(p, [*full, *short], scope)
        p.out.leave()
        for item in sums:
            name, dtype = running[item.output], accumulate_dtype(item, self.buffers[item.output].dtype)
            if not self.plan.one_row:
                reduced = along.kept(self.writer.reduce(item.kind, name, 0, dtype))
                p.out.add(f"{name} = {reduced}", [item.loop.id])
            self._keep_sum(p, item, name, r)
        self.add(self.symbol, p, [str(slabs)], configs, x.axes)
        self._finish_sums(sums)

    def is_row_sum(self, item: Reduction) -> bool:
        """Whether a sum over the rows adds one value a row."""
        binding = self.group.bindings[item.loop.id]
        domain = {axis for place in binding.values() for axis in place.axes()}
        return domain.isdisjoint(self.group.nest.inner)

    def _keep_sum(self, p: TilePrinter, item: Reduction, name: str, r: Dim) -> None:
        """Store one program's partial sum: a value for each inner point, or one in all."""
        slab = self.program(p, 0)
        dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
        loop = [item.loop.id]
        workspace = self._workspace(item, "parts", dtype, self._kept_of(item) * self.parts_of_sums)
        pointer = p.pointer(workspace.name)
        if self._kept_of(item) == ONE:
            total = name
            if not self.is_row_sum(item):
                if r.mask:
                    literal = self.writer.identity(item.kind, dtype)
                    p.out.add(f"{name} = tl.where({r.mask}, {name}, {literal})", loop)
                total = self.writer.reduce(item.kind, name, r.place or 0, dtype)
                total = total if self.plan.one_row else f"{total}[:, None]"
            zero = "" if self.plan.one_row else " + tl.zeros([1, 1], tl.int32)"
            p.out.add(f"tl.store({pointer} + {slab}{zero}, {total})", loop)
            return
        mask = f", mask={r.mask}" if r.mask else ""
        place = f"{slab} * {self._factor(p, r.extent)} + {r.name}"
        p.out.add(f"tl.store({pointer} + {place}, {name}{mask})", loop)

    def _factor(self, p: TilePrinter, extent: IndexExpr) -> str:
        return p.parenthesised(extent, {}, ())

    @property
    def parts_of_sums(self) -> IndexExpr:
        """How many partial results a sum over the rows has: one a program."""
        if self.plan.persistent:
            return index(self.plan.slabs)  # programs that own many rows each
        each = 1 if self.plan.one_row else self.plan.configs[0].constants["XBLOCK"]
        rows = extent_of(self.plan.x)
        return (rows + (each - 1)) // each

    def _kept_of(self, item: Reduction) -> IndexExpr:
        """How many results a sum over the rows has: the inner points, or one."""
        kept = [axis for axis in self.plan.r if axis in item.place.axes()]
        total = ONE
        for axis in self.plan.r if kept else ():
            total = total * axis.extent
        return total

    def _workspace(self, item: Reduction, word: str, dtype: torch.dtype, size: IndexExpr) -> Buffer:
        name = f"{item.output}_{word}"
        found = next((buffer for buffer in self.workspaces if buffer.name == name), None)
        if found is None:
            found = Buffer(name, (size,), (ONE,), dtype)
            self.workspaces.append(found)
            self.buffers[name] = found
        return found

    def counter(self, name: str, size: IndexExpr) -> Buffer:
        """Counters that start at 0 (int32)."""
        buffer = Buffer(name, (size,), (ONE,), torch.int32)
        self.workspaces.append(buffer)
        self.buffers[name] = buffer
        self.zeroed.add(name)
        return buffer

    def _finish_sums(self, sums: Sequence[Reduction]) -> None:
        """One function that adds up the programs' parts of each sum."""
        wide = [item for item in sums if self._kept_of(item) != ONE]
        single = [item for item in sums if self._kept_of(item) == ONE]
        for members, suffix in ((wide, "finish"), (single, "finish_total")):
            if members:
                axes = self.plan.r if members is wide else ()
                self._finish_function(members, f"{self.symbol}_{suffix}", axes)

    def _finish_function(self, members: Sequence[Reduction], name: str, axes: tuple[Axis, ...]) -> None:
        count = self.parts_of_sums
        kept = hint_product(axis.extent for axis in axes)
        block = max(4, min(32, 1 << (kept // FINISHERS).bit_length())) if axes else 1
        slab_block = min(TOTAL_BLOCK // block, 1 << max(self.plan.slabs - 1, 0).bit_length())
        configs = (Config({"XBLOCK": block, "SBLOCK": slab_block}, max(1, block * slab_block // 512)),)
        x = Dim(axes, self.variable(axes, "point"), "XBLOCK", 0)
        s = Dim((Axis("slab", count),), "slab", "SBLOCK", 1)
        p = TilePrinter(self.values, self.buffers, self.writer, [x, s], self.letters | {"slab": "slab"})
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        running = {}
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            running[item.output] = p.fresh(item.output)
            zero = p.full(self.writer.identity(item.kind, dtype), dtype)
            p.out.add(f"{running[item.output]} = {zero}", [item.loop.id])
        p.out.enter(f"for start in range(0, {self.size(p, count)}, SBLOCK):")
        p.out.add(f"slab = {p.lanes(s, offset='start')}")
        masks = [x.mask] if x.mask else []
        if count.constant is None or count.constant % slab_block:
            masks.append(f"(slab < {self.size(p, count)})")
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            workspace = self._workspace(item, "parts", dtype, self._kept_of(item) * count)
            length = self._factor(p, self._kept_of(item))
            pointer = p.pointer(workspace.name)
            other = self.writer.identity(item.kind, dtype)
            joined = f", mask={' & '.join(masks)}, other={other}" if masks else ""
            part = f"tl.load({pointer} + slab * {length} + {x.name}{joined})"
            if dtype == torch.bool:
                part = f"{part}.to(tl.int1)"
            text = self.writer.combine(item.kind, running[item.output], part, dtype)
            p.out.add(f"{running[item.output]} = {bare(text)}", [item.loop.id])
        p.out.leave()
        for item in members:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            result = f"{self.writer.reduce(item.kind, running[item.output], 1, dtype)}[:, None]"
            where, mask = p.element(item.output, item.place, {}, (), write=True)
            p.out.add(f"tl.store({where}, {result}{mask})", [item.loop.id])
        self.add(name, p, [f"cdiv({self.size(p, x.extent)}, XBLOCK)"], configs, x.axes)

    # -- rows walked in blocks ----------------------------------------------------------------------------

    def _walked_rows(self, p: RowsPrinter, x: Dim, r: Dim, configs: Sequence[Config]) -> None:
        from nbcompile.compiler.codegen.triton.schedules.walked_rows import WalkedRows

        WalkedRows(self, p, x, r, configs).print()

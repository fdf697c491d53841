"""Prints rows shared out in slabs: each program walks a part of a row, and a second function combines the
parts and does what is left to do for each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nbcompile.compiler.codegen.printed import Lines
from nbcompile.compiler.codegen.triton.accumulators import ARGS, Accumulating, accumulate_dtype, best_of
from nbcompile.compiler.codegen.triton.block_printers import declare_slab
from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.schedules.walked_rows import WalkedRowsNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Reduction, Store
from nbcompile.compiler.loop_ir.index import Axis, index
from nbcompile.compiler.loop_ir.nodes import hint_product
from nbcompile.compiler.loop_ir.substitution import joined
from nbcompile.compiler.schedule.tiling import extent_of
from nbcompile.compiler.schedule.walked_rows import SplitRows
from nbcompile.compiler.stages import Config


class SplitRowsNest(WalkedRowsNest):
    """Rows of which each program has a slab."""

    plan: SplitRows
    split = True
    joined_line = ""
    """Names the lane and the axis beside it, if they are not all of the row's axes."""

    def write(self) -> None:
        p = self.p
        head, apart = p.out, bool(self.plan.lanes) and not self.plan.total
        grid = self._declare_lanes() if apart else self.declare_rows(p, self.x, self.configs)
        self.find_line()
        length = self.size(p, self.r.extent)
        bounds = declare_slab(p, self.program(p, 1), self.chunk_text(length), length)
        grid.append(str(self.plan.slabs))
        short, _ = self.walks(bounds)
        parts = [item for item in self.values.reductions if not item.split]
        self._keep_parts(parts)
        if apart:
            self._declare_read(head)
        self.add(self.symbol, p, grid, self.configs)
        self._finish(parts, short)

    # -- lanes -----------------------------------------------------------------------------------------

    def _declare_lanes(self) -> list[str]:
        """The rows of this program, lanes among them; their axes are declared when it is known which of them
        are read. The lane and the axis beside it are one number, for the compiler to see that neighbours in
        the tile are neighbours in memory: of ``k * 3 + l`` it would not know."""
        p, x = self.p, self.x
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", self.configs, axes=False)
        row, lane = x.axes[-2:]
        both = joined((row, lane))
        p.joined, p.letters[both.text] = (row, lane, both), x.name
        if len(x.axes) > 2:
            name = p.letters[both.text] = p.fresh("lane")
            self.joined_line = f"{name} = {x.name} % {p.place(both.extent)}"
        p.out = Lines(depth=p.out.depth, step=p.out.step)
        return [f"cdiv({self.size(p, x.extent)}, XBLOCK)"]

    def _declare_read(self, head: Lines) -> None:
        """Go on from ``head`` with the axes that the lines since then read, and these lines."""
        body, self.p.out = self.p.out, head
        self.p.declare_axes(self.x, self.p.read)
        if self.joined_line:
            head.add(self.joined_line)
        head.extend(body)

    # -- slabs -----------------------------------------------------------------------------------------

    def _keep_parts(self, parts: Sequence[Reduction]) -> None:
        p = self.p
        rows = self.factor(p, self.x.extent)
        for item in parts:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            if self.plan.total:
                self._keep_total_part(item, dtype)
                continue
            size = self.x.extent * index(self.plan.slabs)
            within = f" + {self.x.name}" if self.x.axes or self.x.place is not None else ""
            place = f"slab * {rows}{within}"
            mask = f", mask={self.x.mask}" if self.x.mask else ""
            for name, kind in self._kept_of_part(item, dtype):
                pointer = p.pointer(self.workspace(f"{name}_parts", kind, size).name)
                p.out.add(f"tl.store({pointer} + {place}, {p.reduced_text[name]}{mask})", [item.loop.id])

    def _kept_of_part(self, item: Reduction, dtype: torch.dtype) -> list[tuple[str, torch.dtype]]:
        """What is kept of a slab, and its type: a place beside the number found there."""
        if item.kind in ARGS:
            return [(best_of(item), dtype), (item.output, torch.int64)]
        return [(item.output, dtype)]

    def _keep_total_part(self, item: Reduction, dtype: torch.dtype) -> None:
        """One number a program, of all its lanes."""
        p, across = self.p, self._across
        loop, text = [item.loop.id], p.reduced_text[item.output]
        if self.x.mask:
            text = f"tl.where({self.x.mask}, {text}, {self.writer.identity(item.kind, dtype)})"
        workspace = self.workspace(f"{item.output}_parts", dtype, index(self.plan.slabs * across))
        place = f"slab * {across} + {self.program(p, 0)} + tl.zeros([1, 1], tl.int32)"
        total = f"{self.writer.reduce(item.kind, text, 0, dtype)}[None, :]"
        p.out.add(f"tl.store({p.pointer(workspace.name)} + {place}, {total})", loop)

    @property
    def _across(self) -> int:
        """Programs side by side along ``x``."""
        return -(-self.x.extent.hint() // self.configs[0].constants["XBLOCK"])

    def _finish(self, parts: Sequence[Reduction], short: Sequence[Store]) -> None:
        """The second function: combine the slabs of each row, then what is left to do for it."""
        slabs, lanes, each = self.plan.slabs, self.plan.lanes, self.factor(self.p, self.x.extent)
        rows = self.plan.x[: len(self.plan.x) - len(lanes)]
        if self.plan.total:
            slabs, lanes, each = slabs * self._across, (), "1"
        parts_of_row = slabs * hint_product(axis.extent for axis in lanes)
        whole = 1 << max(parts_of_row - 1, 0).bit_length()
        # of lanes there are many parts, and few rows
        block = 1 if extent_of(rows) == 1 else max(1, min(32, (1024 if lanes else 4096) // whole))
        configs = (Config({"XBLOCK": block, "SBLOCK": whole}, max(1, min(8, block * whole // 256))),)
        x = Dim(rows, self.variable(rows, "row"), "XBLOCK", 0)
        s = Dim((Axis("slab", slabs), *lanes), "part" if lanes else "slab", "SBLOCK", 1)
        p = TilePrinter(self.values, self.buffers, self.writer, [x, s], self.letters | {"slab": "slab"})
        self.declare(p, x, f"{self.program(p, 0)} * XBLOCK", configs)
        p.out.add(f"{s.name} = {p.lanes(s)}")
        p.declare_axes(s)
        masks = [x.mask] if x.mask else []
        if parts_of_row != whole:
            masks.append(f"({s.name} < {parts_of_row})")
        within = x.name
        for axis in lanes:
            within = f"{within} * {axis.extent.hint()} + {self.letters[axis.text]}"
        accumulating = Accumulating(p, 1)
        loaded: dict[str, str] = {}
        for item in parts:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            for kept, kind in self._kept_of_part(item, dtype):
                pointer = p.pointer(f"{kept}_parts")
                literal = self.writer.identity(item.kind if item.kind != "mean" else "sum", dtype)
                if item.kind in ARGS and kept == item.output:
                    literal = "9223372036854775807"  # behind all places
                mask = f", mask={' & '.join(masks)}, other={literal}" if masks else ""
                name = loaded[kept] = p.fresh(f"{kept}_parts")
                cast = ".to(tl.int1)" if kind == torch.bool else ""
                part = f"tl.load({pointer} + slab * {each} + {within}{mask}){cast}"
                p.out.add(f"{name} = {part}", [item.loop.id])
        counts = ""
        for item in parts:
            dtype = accumulate_dtype(item, self.buffers[item.output].dtype)
            if item.kind == "mean":
                if not counts:
                    counts = self._slab_counts(p, s)
                squares = loaded[item.loop.outputs[1].name]
                total = self.count(p, Dim((*self.plan.r, *lanes), "", "", None))
                accumulating.combine_moments(item, loaded[item.output], squares, counts, total)
            elif item.kind in ARGS:
                accumulating.combine_places(item, loaded[best_of(item)], loaded[item.output])
            elif not item.mean:
                name = p.fresh(item.output)
                reduced = self.writer.reduce(item.kind, loaded[item.output], 1, dtype)
                p.out.add(f"{name} = {accumulating.kept(reduced)}", [item.loop.id])
                p.reduced_text[item.output] = name
        self.store_results(p, self.reduction_stores(split=False))
        self.store_all(p, short, {})
        self.add(f"{self.symbol}_finish", p, [f"cdiv({self.size(p, x.extent)}, XBLOCK)"], configs, x.axes)

    def _slab_counts(self, p: TilePrinter, s: Dim) -> str:
        """How many values each slab holds: the first function's blocks, shared out."""
        length = self.size(p, self.r.extent)
        p.out.add(f"chunk = {self.chunk_text(length)}")
        name = p.fresh("counts")
        p.out.add(f"{name} = tl.minimum(tl.maximum({length} - slab * chunk, 0), chunk).to(tl.float32)")
        return name

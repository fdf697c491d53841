"""Prints a matrix product with what follows it as one Triton kernel.

The epilogue is printed by the printer of all other kernels: the accumulator has the place of the sum over
``k``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Reduction
from nbcompile.compiler.schedule.products import Operand, PersistentProduct, ProductTiles
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.compiler.stages import Config

TILE_OF = '''@triton.jit
def tile_of(number, rows, columns, GROUP_M: tl.constexpr):
    """Row and column of a tile: down GROUP_M rows, then the next column, so that programs at work at the
    same time share operands in the L2."""
    first = number // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    inside = number % (GROUP_M * columns)
    return first + inside % height, inside // height'''


class ProductPrinter(TilePrinter):
    def lane_start(self, dim: Dim) -> str:
        return "column" if dim.place == 1 else "row"


class ProductNest(TritonNest):
    """A product, one program a tile of its result."""

    plan: ProductTiles

    def __init__(self, work: Work, plan: ProductTiles, writer: TritonWriter) -> None:
        super().__init__(work, plan, writer)
        product = self.product = plan.product
        self.left, self.right, self.dtype = plan.left, plan.right, plan.dtype
        for axis in (product.m, product.n, product.k):
            self.letters[axis.text] = axis.text
        self.total: Reduction = self.values.reductions[0]

    def write(self) -> None:
        product = self.product
        self.m = Dim((product.m,), "m", "BLOCK_M", 0)
        self.n = Dim((product.n,), "n", "BLOCK_N", 1)
        dims = [self.m, self.n]
        if product.batch is not None:
            dims.append(Dim((product.batch,), self.letters[product.batch.text], "", None))
        p = ProductPrinter(self.values, self.buffers, self.writer, dims, self.letters)
        p.used_names |= {"tile", "tile_m", "tile_n", "row", "column", "start", "a", "b", "acc", "k", "rows"}
        p.used_names |= {"columns", "tile_of"}
        p.reduced_text[self.total.output] = "acc"
        self.writer.helpers.setdefault("tile_of", TILE_OF)
        self.tiles(p, self.plan.configs)

    def tiles(self, p: TilePrinter, configs: Sequence[Config]) -> None:
        rows, columns = self.counts(p)
        if self.product.batch is not None:
            number = "tl.program_id(1).to(tl.int64)" if p.wide else "tl.program_id(1)"
            p.out.add(f"{self.letters[self.product.batch.text]} = {number}")
        p.out.add(f"rows, columns = {rows}, {columns}")
        p.out.add("tile_m, tile_n = tile_of(tl.program_id(0), rows, columns, GROUP_M)")
        self.declare_tile(p, configs)
        p.out.add("acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)", [self.total.loop.id])
        p.out.enter(f"for start in range(0, {self.size(p, self.product.k.extent)}, BLOCK_K):")
        a = self.block(p, self.left, [self.m, self.depth(p, 1, configs)])
        p.out.add(f"a = {a}", [self.total.loop.id])
        b = self.block(p, self.right, [self.depth(p, 0, configs), self.n])
        p.out.add(f"b = {b}", [self.total.loop.id])
        self.multiply(p)
        p.out.leave()
        self.store_all(p, self.values.stores, {})
        grid = [f"{rows} * {columns}".replace("tl.", "")]
        if self.product.batch is not None:
            grid.append(self.size(p, self.product.batch.extent))
        self.add(self.symbol, p, grid, configs)

    def counts(self, p: TilePrinter) -> tuple[str, str]:
        """How many tiles there are down and across."""
        rows, columns = (self.size(p, axis.extent) for axis in (self.product.m, self.product.n))
        return f"tl.cdiv({rows}, BLOCK_M)", f"tl.cdiv({columns}, BLOCK_N)"

    def declare_tile(self, p: TilePrinter, configs: Sequence[Config]) -> None:
        p.out.add("row, column = tile_m * BLOCK_M, tile_n * BLOCK_N")
        self.declare_points(p, configs)

    def declare_points(self, p: TilePrinter, configs: Sequence[Config]) -> None:
        wide = ".to(tl.int64)" if p.wide else ""
        self.declare(p, self.m, f"row{wide}", configs)
        self.declare(p, self.n, f"column{wide}", configs)

    def depth(self, p: TilePrinter, place: int, configs: Sequence[Config]) -> Dim:
        """The present block of ``k``, along one dimension of an operand's tile."""
        name = "ka" if place else "kb"
        dim = Dim((self.product.k,), name, "BLOCK_K", place)
        start = "start.to(tl.int64)" if p.wide else "start"
        p.out.add(f"{name} = {start} + tl.arange(0, BLOCK_K){'[None, :]' if place else '[:, None]'}")
        if not self.divides(dim, configs):
            dim.mask = f"{name}_in"
            p.out.add(f"{dim.mask} = {name} < {self.size(p, self.product.k.extent)}")
        return dim

    def block(self, p: TilePrinter, operand: Operand, dims: list[Dim]) -> str:
        """The load of an operand's tile; what lies outside of it is zero."""
        part = copy.copy(p)
        part.dims = [*dims, *(dim for dim in p.dims if dim.place is None)]
        part.shape = [dim.block for dim in dims]
        part.letters = p.letters | {dim.axes[0].text: dim.name for dim in dims}
        where, mask = part.element(operand.value.buffer, operand.value.place, {}, (), write=False)
        part.out.touch(operand.value.buffer, operand.value.place)
        return f"tl.load({where}{mask}{', other=0.0' if mask else ''})"

    def multiply(self, p: TilePrinter) -> None:
        how = f', input_precision="{self.product.precision}"' if self.dtype == torch.float32 else ""
        p.out.add(f"acc = tl.dot(a, b, acc{how})", [self.total.loop.id])


class PersistentProductNest(ProductNest):
    """A product by programs that make tile after tile."""

    plan: PersistentProduct

    def print(self, comment: Sequence[str]) -> PrintedKernel:
        printed = super().print(comment)
        loaded = {self.left.value.buffer, self.right.value.buffer}
        (call,) = printed.calls
        parameters = tuple(
            replace(item, kind="aligned") if item.buffer in loaded else item for item in call.parameters
        )
        return replace(printed, calls=(replace(call, parameters=parameters),))

    def tiles(self, p: TilePrinter, configs: Sequence[Config]) -> None:
        """Each program makes every so-manieth tile; the loads of the next begin while one is finished."""
        rows, columns = self.counts(p)
        depth = self.size(p, self.product.k.extent)
        loop = [self.total.loop.id]
        a = self.descriptor(p, self.left, self.m)
        b = self.descriptor(p, self.right, self.n)
        p.out.add(f"rows, columns = {rows}, {columns}")
        p.out.enter(
            "for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=FLATTEN, "
            "warp_specialize=WARP_SPECIALIZE):"
        )
        p.out.add("tile_m, tile_n = tile_of(tile, rows, columns, GROUP_M)")
        p.out.add("row, column = tile_m * BLOCK_M, tile_n * BLOCK_N")
        p.out.add("acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)", loop)
        p.out.enter(f"for start in range(0, {depth}, BLOCK_K):")
        p.out.add(
            f"a = {a}.load([row, start])" if self.left.along_k else f"a = {a}.load([start, row]).T", loop
        )
        right = f"{b}.load([column, start]).T" if self.right.along_k else f"{b}.load([start, column])"
        p.out.add(f"b = {right}", loop)
        self.multiply(p)
        p.out.leave()
        self.declare_points(p, configs)
        self.store_all(p, self.values.stores, {})
        p.out.leave()
        count = f"{rows} * {columns}".replace("tl.", "")
        self.add(self.symbol, p, [f"min({count}, {self.plan.multiprocessors} * PROGRAMS)"], configs)

    def descriptor(self, p: TilePrinter, operand: Operand, dim: Dim) -> str:
        """Print the TMA descriptor of an operand; its name."""
        pointer = p.pointer(operand.value.buffer)
        name = p.fresh(f"{operand.value.buffer}_tiles")
        start = self.size(p, operand.start)
        extents = [self.size(p, dim.extent), self.size(p, self.product.k.extent)]
        blocks = [dim.block, "BLOCK_K"]
        step = operand.outer
        if not operand.along_k:
            extents, blocks, step = extents[::-1], blocks[::-1], operand.k
        base = pointer if start == "0" else f"{pointer} + {start}"
        p.out.add(
            f"{name} = tl.make_tensor_descriptor({base}, [{', '.join(extents)}], "
            f"[{self.size(p, step)}, 1], [{', '.join(blocks)}])",
            [self.total.loop.id],
        )
        return name

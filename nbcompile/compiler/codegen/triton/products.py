"""Prints a matrix product with what follows it as one Triton kernel.

Two templates. ``tiles``: one program a tile of the result, operands loaded through pointers; any strides,
any chip. ``persistent``: as many programs as the chip has multiprocessors, each makes tile after tile, the
operands come by TMA (Hopper and later). The epilogue is printed by the printer of all other kernels: the
accumulator has the place of the sum over ``k``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.codegen.triton.expressions import TritonWriter
from nbcompile.compiler.codegen.triton.nests import Nest
from nbcompile.compiler.codegen.triton.tile_printer import Dim, TilePrinter
from nbcompile.compiler.kernel_ir.group_to_values import resolver_of
from nbcompile.compiler.kernel_ir.values import Reduction, Value
from nbcompile.compiler.loop_ir.fused import Group, Product
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule import products
from nbcompile.compiler.schedule.tiling import Tiling
from nbcompile.compiler.stages import Config
from nbcompile.errors import CodegenError
from nbcompile.targets import Target

TILE_OF = '''@triton.jit
def tile_of(number, rows, columns, GROUP_M: tl.constexpr):
    """Row and column of a tile: down GROUP_M rows, then the next column, so that programs at work at the
    same time share operands in the L2."""
    first = number // (GROUP_M * columns) * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    inside = number % (GROUP_M * columns)
    return first + inside % height, inside // height'''

TMA_ALIGNMENT = 16  # bytes: of addresses and strides


@dataclass(frozen=True)
class Operand:
    """One factor: an affine view of a buffer. ``outer`` and ``k`` are its strides, in elements, along its
    row (or column) and along the sum; ``start`` is the rest of its place (the batch)."""

    value: Value
    outer: IndexExpr
    k: IndexExpr
    start: IndexExpr

    @property
    def along_k(self) -> bool:
        """Whether neighbours in memory are neighbours in the sum."""
        return self.k == 1


class ProductNest(Nest):
    """Builds the function of one product."""

    def __init__(
        self, group: Group, buffers: Mapping[str, Buffer], writer: TritonWriter, target: Target
    ) -> None:
        assert group.product is not None
        self.product: Product = group.product
        self.target = target
        values = resolver_of(group, group.nest, buffers).resolve()
        super().__init__(group, values, _plan(self.product), buffers, writer)
        for axis in (self.product.m, self.product.n, self.product.k):
            self.letters[axis.text] = axis.text
        self.total: Reduction = values.reductions[0]
        left, right = self.total.value.args
        self.left, self.right = self.operand(left, self.product.m), self.operand(right, self.product.n)
        self.dtype = self.buffers[left.buffer].dtype

    def operand(self, value: Value, axis: Axis) -> Operand:
        """A factor taken apart. CodegenError if it is more than an affine load."""
        if value.kind != "load":
            raise CodegenError(f"an operand of {self.group.name} is not a plain tensor")
        outer, along = value.place.coefficient(axis), value.place.coefficient(self.product.k)
        if outer is None or along is None:
            raise CodegenError(f"an operand of {self.group.name} has no strides")
        rest = value.place - outer * axis - along * self.product.k
        allowed = {self.product.batch} if self.product.batch is not None else set()
        if not rest.axes() <= allowed:
            raise CodegenError(f"an operand of {self.group.name} has no strides")
        return Operand(value, outer, along, rest)

    # -- the two templates -------------------------------------------------------------------------------

    def points(self) -> None:
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
        if product.template == "persistent":
            configs = product.configs or products.persistent_configs(self.sizes(), self.dtype, self.target)
            self.persistent(p, configs)
        else:
            configs = product.configs or products.configs_of(self.sizes(), self.dtype, self.target)
            self.tiles(p, configs)

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

    def persistent(self, p: TilePrinter, configs: Sequence[Config]) -> None:
        """Each program makes every so-manieth tile; the loads of the next begin while one is finished."""
        why = no_descriptors(self, p)
        if why:
            raise CodegenError(f"{self.group.name} cannot be loaded by TMA: {why}")
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
        self.add(self.symbol, p, [f"min({count}, {self.target.multiprocessors} * PROGRAMS)"], configs)

    # -- parts ---------------------------------------------------------------------------------------------

    def sizes(self) -> tuple[int, int, int, int]:
        """(batch, m, n, k) at the hints."""
        product = self.product
        batch = product.batch.extent.hint() if product.batch is not None else 1
        return (batch, product.m.extent.hint(), product.n.extent.hint(), product.k.extent.hint())

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
        p.out.add(f"{name} = start + tl.arange(0, BLOCK_K){'[None, :]' if place else '[:, None]'}")
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

    def multiply(self, p: TilePrinter) -> None:
        how = f', input_precision="{self.product.precision}"' if self.dtype == torch.float32 else ""
        p.out.add(f"acc = tl.dot(a, b, acc{how})", [self.total.loop.id])


class ProductPrinter(TilePrinter):
    def lane_start(self, dim: Dim) -> str:
        return "column" if dim.place == 1 else "row"


def no_descriptors(nest: ProductNest, p: TilePrinter) -> str:
    """Why the operands of a product cannot be loaded by TMA; empty if they can."""
    if nest.target.kind != "cuda" or int(nest.target.arch) < 90:
        return f"{nest.target.name} has no TMA"
    if nest.product.batch is not None:
        return "it is a batch of products"
    if p.wide:
        return "its indices take 64 bits"
    for operand in (nest.left, nest.right):
        step = operand.outer if operand.along_k else operand.k
        if not operand.along_k and operand.outer != 1:
            return "an operand has no contiguous dimension"
        if not operand.along_k and nest.dtype == torch.float32:
            return "float32 operands must lie along k"
        for number in (step.constant, operand.start.constant):
            if number is None:
                return "the rows of an operand are of symbolic size"
            if number * nest.dtype.itemsize % TMA_ALIGNMENT:
                return f"an operand's rows are not multiples of {TMA_ALIGNMENT} bytes"
    return ""


def templates(group: Group, buffers: Mapping[str, Buffer], target: Target) -> tuple[str, ...]:
    """The templates that can make this product on ``target``."""
    nest = ProductNest(group, buffers, TritonWriter(), target)
    p = TilePrinter(nest.values, nest.buffers, nest.writer, [], nest.letters)
    return ("tiles",) if no_descriptors(nest, p) else ("tiles", "persistent")


def _plan(product: Product) -> Tiling:
    axes = (product.m, product.n)
    return Tiling("tiles", axes if product.batch is None else (product.batch, *axes))


def print_product(
    group: Group, buffers: Mapping[str, Buffer], writer: TritonWriter, comment: Sequence[str], target: Target
) -> tuple[PrintedKernel, str]:
    """The Triton function of a matrix product with ``comment`` lines above it, and what people call this
    kind of kernel. CodegenError for operands or a template that it cannot be made of."""
    nest = ProductNest(group, buffers, writer, target)
    printed = nest.print(comment)
    if nest.product.template != "persistent":
        return printed, "matrix product"
    loaded = {nest.left.value.buffer, nest.right.value.buffer}
    (call,) = printed.calls
    parameters = tuple(
        replace(item, kind="aligned") if item.buffer in loaded else item for item in call.parameters
    )
    return replace(printed, calls=(replace(call, parameters=parameters),)), "matrix product, persistent"

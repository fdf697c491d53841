"""Schedules of matrix products, with sizes of tiles, those that should suit the product's shape first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch

from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.fused import Group, Product
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.stages import Config
from nbcompile.errors import CodegenError
from nbcompile.targets import Target

Sizes = tuple[int, int, int, int]
"""(batch, m, n, k)."""

GROUP_M = 8
TMA_ALIGNMENT = 16
"""Bytes: of addresses and strides."""
MOST = 10
"""Candidates of one template."""

_TILES = {
    "cuda": (
        (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 64, 4, 3),
        (128, 128, 128, 8, 3), (64, 256, 64, 4, 4), (256, 64, 64, 4, 4), (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (128, 128, 32, 8, 4), (64, 64, 64, 4, 5),
        (64, 64, 128, 4, 3), (64, 32, 128, 4, 4), (32, 64, 128, 4, 4), (16, 128, 128, 4, 4),
        (16, 64, 128, 4, 5), (32, 32, 128, 4, 4), (32, 32, 64, 4, 4), (16, 32, 256, 4, 3),
    ),
    "hip": (
        (256, 256, 64, 8, 2), (256, 128, 64, 8, 2), (128, 256, 64, 8, 2), (128, 128, 64, 8, 2),
        (128, 128, 64, 4, 2), (128, 128, 32, 4, 2), (128, 64, 64, 4, 2), (64, 128, 64, 4, 2),
        (64, 64, 64, 4, 2), (32, 64, 64, 4, 2), (64, 32, 64, 4, 2), (32, 32, 128, 4, 2),
    ),
}  # fmt: skip
"""(BLOCK_M, BLOCK_N, BLOCK_K, warps, stages) for operands of two bytes."""

_IEEE = (
    (64, 64, 32, 4, 3), (128, 64, 16, 8, 3), (64, 64, 16, 4, 3), (128, 128, 16, 8, 3), (32, 64, 32, 4, 3),
    (32, 32, 32, 4, 3),
)  # fmt: skip
"""For float32 multiplied in float32: no matrix units, so registers bound the tile."""

_PERSISTENT = (
    (128, 256, 64, 8, 3, 1, 1), (128, 256, 64, 8, 4, 1, 1), (256, 128, 64, 8, 3, 1, 1),
    (128, 128, 64, 8, 4, 1, 1), (128, 128, 64, 4, 3, 1, 2), (128, 128, 128, 8, 3, 1, 1),
    (128, 256, 64, 8, 3, 0, 1), (128, 128, 64, 8, 4, 0, 1), (64, 256, 64, 4, 4, 1, 1),
    (128, 64, 64, 4, 4, 1, 2), (64, 128, 64, 4, 4, 1, 2), (64, 64, 128, 4, 3, 1, 2),
)  # fmt: skip
"""(BLOCK_M, BLOCK_N, BLOCK_K, warps, stages, FLATTEN, PROGRAMS). FLATTEN: the loops over tiles and over ``k``
are one, so the next tile's operands are on their way while an epilogue runs. PROGRAMS: a multiprocessor's."""


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


@dataclass(frozen=True, kw_only=True)
class ProductTiles(Schedule):
    """One program a tile of the result, operands loaded through pointers: any strides, any chip."""

    product: Product
    left: Operand
    right: Operand
    dtype: torch.dtype

    name = "matrix product"
    meaning = "A program makes one tile of the result, multiplied block by block."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Raises CodegenError for operands that are more than an affine load."""
        product, left, right = _product_of(work)
        dtype = work.buffers[left.value.buffer].dtype
        configs = product.configs or configs_of(_sizes(product), dtype, work.target)
        return cls(product=product, left=left, right=right, dtype=dtype, configs=tuple(configs))


@dataclass(frozen=True, kw_only=True)
class PersistentProduct(ProductTiles):
    """As many programs as the chip has multiprocessors, each makes tile after tile, the operands come by TMA
    (Hopper and later)."""

    multiprocessors: int

    name = "matrix product, persistent"
    meaning = "A program makes one tile of the product after the other, the next one's operands on their way."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where it is asked for. Raises CodegenError where the operands cannot be loaded so."""
        product, left, right = _product_of(work)
        if product.template != "persistent":
            return None
        why = no_descriptors(work)
        if why:
            raise CodegenError(f"{work.group.name} cannot be loaded by TMA: {why}")
        dtype = work.buffers[left.value.buffer].dtype
        configs = product.configs or persistent_configs(_sizes(product), dtype, work.target)
        return cls(
            product=product, left=left, right=right, dtype=dtype, configs=tuple(configs),
            multiprocessors=work.target.multiprocessors,
        )  # fmt: skip


def templates(group: Group, buffers: Mapping[str, Buffer], target: Target) -> tuple[str, ...]:
    """The templates that can make this product on ``target``. Raises CodegenError for operands that are more
    than an affine load."""
    return ("tiles",) if no_descriptors(Work.of(group, buffers, target)) else ("tiles", "persistent")


def _product_of(work: Work) -> tuple[Product, Operand, Operand]:
    """The product of a group with its two factors."""
    product = work.group.product
    assert product is not None
    left, right = work.values.reductions[0].value.args
    return product, _operand(work.group, left, product.m), _operand(work.group, right, product.n)


def _operand(group: Group, value: Value, axis: Axis) -> Operand:
    """A factor taken apart."""
    product = group.product
    assert product is not None
    if value.kind != "load":
        raise CodegenError(f"an operand of {group.name} is not a plain tensor")
    outer, along = value.place.coefficient(axis), value.place.coefficient(product.k)
    if outer is None or along is None:
        raise CodegenError(f"an operand of {group.name} has no strides")
    rest = value.place - outer * axis - along * product.k
    allowed = {product.batch} if product.batch is not None else set()
    if not rest.axes() <= allowed:
        raise CodegenError(f"an operand of {group.name} has no strides")
    return Operand(value, outer, along, rest)


def _sizes(product: Product) -> Sizes:
    """At the hints."""
    batch = product.batch.extent.hint() if product.batch is not None else 1
    return (batch, product.m.extent.hint(), product.n.extent.hint(), product.k.extent.hint())


def no_descriptors(work: Work) -> str:
    """Why the operands of a product cannot be loaded by TMA; empty if they can."""
    product, *operands = _product_of(work)
    if work.target.kind != "cuda" or int(work.target.arch) < 90:
        return f"{work.target.name} has no TMA"
    if product.batch is not None:
        return "it is a batch of products"
    if work.wide:
        return "its indices take 64 bits"
    dtype = work.buffers[operands[0].value.buffer].dtype
    for operand in operands:
        step = operand.outer if operand.along_k else operand.k
        if not operand.along_k and operand.outer != 1:
            return "an operand has no contiguous dimension"
        if not operand.along_k and dtype == torch.float32:
            return "float32 operands must lie along k"
        for number in (step.constant, operand.start.constant):
            if number is None:
                return "the rows of an operand are of symbolic size"
            if number * dtype.itemsize % TMA_ALIGNMENT:
                return f"an operand's rows are not multiples of {TMA_ALIGNMENT} bytes"
    return ""


def configs_of(sizes: Sizes, dtype: torch.dtype, target: Target) -> tuple[Config, ...]:
    """Candidates for one program a tile."""
    rows = _TILES["hip" if target.kind == "hip" else "cuda"]
    if dtype == torch.float32:
        rows = tuple((m, n, max(k // 2, 16), warps, stages) for m, n, k, warps, stages in rows) + _IEEE
    found = [
        Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": GROUP_M}, warps, stages)
        for m, n, k, warps, stages in dict.fromkeys(rows)
        if _fits(m, n, k, stages, dtype, target)
    ]
    return _best(found, sizes, target)


def persistent_configs(sizes: Sizes, dtype: torch.dtype, target: Target) -> tuple[Config, ...]:
    """Candidates for programs that make tile after tile."""
    found = []
    for m, n, k, warps, stages, flatten, programs in _PERSISTENT:
        depth = k // 2 if dtype == torch.float32 else k
        # beside the operands of the next tile, a part of this one's result on its way to memory
        result = m * n * (4 if int(target.arch) >= 100 else dtype.itemsize // 2)
        if _fits(m, n, depth, stages, dtype, target, programs, result):
            constants = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": depth, "GROUP_M": GROUP_M}
            constants |= {"FLATTEN": flatten, "WARP_SPECIALIZE": 0, "PROGRAMS": programs}
            found.append(Config(constants, warps, stages))
    return _best(found, sizes, target)


def _fits(
    m: int,
    n: int,
    k: int,
    stages: int,
    dtype: torch.dtype,
    target: Target,
    programs: int = 1,
    result: int = 0,
) -> bool:
    """Whether the operands of all stages have room in shared memory, ``result`` bytes beside them."""
    buffered = stages if target.kind == "cuda" else stages - 1
    return programs * (buffered * (m + n) * k * dtype.itemsize + result) <= target.shared_bytes


def _best(found: list[Config], sizes: Sizes, target: Target) -> tuple[Config, ...]:
    ranked = sorted(found, key=lambda config: _cost(config, sizes, target))
    return tuple(ranked[:MOST])


def _cost(config: Config, sizes: Sizes, target: Target) -> float:
    """A guess of the time, in arbitrary units: rounds of tiles over the chip, each tile bounded by its
    multiplications or by the operands it reads."""
    batch, rows, columns, depth = sizes
    m, n, k = (config.constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    tiles = batch * -(-rows // m) * -(-columns // n)
    waves = -(-tiles // target.multiprocessors)
    small = min(1.0, float(m * n) / (128 * 256))  # small tiles keep the matrix units less busy
    multiplied = float(m * n) / math.sqrt(math.sqrt(small))
    read = float(m + n) * 96
    return waves * max(multiplied, read) * (-(-depth // k) * k)

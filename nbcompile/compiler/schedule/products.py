"""Sizes of tiles for matrix products, those that should suit the product's shape first."""

from __future__ import annotations

import math

import torch

from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

Sizes = tuple[int, int, int, int]
"""(batch, m, n, k)."""

GROUP_M = 8
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

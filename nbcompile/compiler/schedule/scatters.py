"""The schedule that does any scatter, point by point, by atomic operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from nbcompile.compiler.loop_ir.nodes import hint_product
from nbcompile.compiler.schedule.points import Points
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.stages import Config
from nbcompile.errors import CodegenError
from nbcompile.targets import Target

ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
BLOCK = 1024


@dataclass(frozen=True, kw_only=True)
class Scatter(Schedule):
    """One function writes the base, a second combines the values in by atomics. What has no atomic operation
    (half types, small integers) is added up in the type ``wide``, which a third function rounds; None: in
    the output itself."""

    scattered: Scattered
    wide: torch.dtype | None
    copied: Config
    """The block of the functions that write the base, and round."""

    name = "scatter"
    meaning = "The base is written first, then each element goes where its index says, by atomic operations."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self:
        """Raises CodegenError for what has no atomic operation."""
        scattered, out = work.scattered, work.scattered.out
        if not scattered.is_atomic:
            dtype, mode = scattered.loop.outputs[0].dtype, scattered.loop.mode
            raise CodegenError(f"a scatter of {dtype} by {mode} has no atomics")
        wide = None
        if scattered.loop.mode not in (None, "set") and out.dtype not in ATOMIC:
            wide = torch.float32 if out.dtype.is_floating_point else torch.int32
        first = block_of(hint_product(axis.extent for axis in work.values.nest.axes), work.target)
        others = Points.fit(work).on(work.target).configs
        copied = block_of(out.bytes_hint() // out.dtype.itemsize, work.target)
        configs = (first, *(item for item in others if item != first))
        return cls(scattered=scattered, wide=wide, copied=copied, configs=configs)


def block_of(points: int, target: Target) -> Config:
    """As many elements a program as leave enough programs to hide the memory's latency, which is all that
    such short functions wait for."""
    block = BLOCK
    while block > 128 and points < block * target.multiprocessors * 8:
        block //= 2
    return Config({"XBLOCK": block}, max(2, block // 256))

"""The roofline of a record: what each kernel must do, and the least time that takes on its chip.

Pure arithmetic on plain data: the views use it without torch. Measuring a chip's ceilings is
:mod:`nbcompile.bench.measure.roofline`'s; what a datasheet says of them is in :mod:`nbcompile.targets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nbcompile import targets
from nbcompile.errors import OptionError
from nbcompile.record.compilation import Ceilings, Compilation, Kernel
from nbcompile.targets import Target

LAUNCH_SECONDS = 2e-6
"""What one launch takes on a GPU however little it does. Null kernels follow each other at about 3 µs from
a host loop on recent hardware (forums.developer.nvidia.com/t/233645), and a little faster from a graph."""


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel under its roof.

    ``bytes`` and ``flops`` are what it must move and compute a call; ``bound`` names the ceiling that it
    meets first, ``limit_seconds`` its time at that ceiling, no launch counted. ``predicted`` adds the
    launches; ``seconds`` is measured. ``share`` = limit / measured, 0 to 1; above 1 where its data come
    from a cache. All of it is of one run; a call of what was compiled makes ``runs``.
    """

    kernel: str
    name: str
    bytes: int
    flops: int
    bound: Literal["memory", "compute"]
    limit_seconds: float
    predicted: float
    seconds: float | None = None
    matrix: bool = False
    runs: int = 1

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes if self.bytes else float("inf")

    @property
    def share(self) -> float | None:
        """Part of the limit that the measured time reaches; ``None`` if there is no measured time."""
        return self.limit_seconds / self.seconds if self.seconds else None


def published(target: Target) -> Ceilings | None:
    """The rates of a target's datasheet; ``None`` where the table has none (the CPU)."""
    if not target.bandwidth or not target.float32_rate:
        return None
    return Ceilings(
        target.name, target.bandwidth, target.float32_rate, target.matrix_rate, "published", target.part,
        target.l2_bytes,
    )  # fmt: skip


def limit_seconds(bytes: float, flops: float, ceilings: Ceilings, *, matrix: bool = False) -> float:
    """max(bytes / bandwidth, flops / rate), in seconds. ``matrix``: its operations are those of the
    matrix units."""
    rate = ceilings.matrix_rate if matrix and ceilings.matrix_rate else ceilings.float32_rate
    return max(bytes / ceilings.bandwidth, flops / rate if flops else 0.0)


def predicted_seconds(
    bytes: float, flops: float, target: Target, *, launches: int = 1, matrix: bool = False
) -> float | None:
    """The time of a kernel at the target's published rates: its limit and 2 µs a launch.

    ``None`` for a target whose rates are not known.
    """
    ceilings = published(target)
    if ceilings is None:
        return None
    return limit_seconds(bytes, flops, ceilings, matrix=matrix) + _launching(target.name, launches)


def uses_matrix_units(kernel: Kernel) -> bool:
    """Whether its Triton source multiplies matrices."""
    return "tl.dot" in kernel.sources.get("triton", "")


def ceilings_of(compilation: Compilation, target: str) -> Ceilings | None:
    """The ceilings to hold kernels for ``target`` against: measured ones first, else those published for the
    product that they were made on, else for the one that the table has for such a chip."""
    for found in compilation.ceilings:
        if found.target == target:
            return found
    try:
        chip = targets.parse(target)
    except OptionError:  # a chip that our table does not have
        return None
    here = compilation.environment
    made_here = here.device.startswith("cuda") and compilation.options.get("target", "auto") == "auto"
    return published(targets.of_part(chip, here.processor) if made_here else chip)


def point(kernel: Kernel, ceilings: Ceilings, runs: int = 1) -> RooflinePoint | None:
    """Where one kernel stands, of which a call makes ``runs``; ``None`` if it moves and computes nothing that
    is known."""
    moved, flops = max(0, kernel.bytes_read + kernel.bytes_written), max(0, kernel.flops)
    if not moved and not flops:
        return None
    matrix = uses_matrix_units(kernel)
    limit = limit_seconds(moved, flops, ceilings, matrix=matrix)
    return RooflinePoint(
        kernel=kernel.id,
        name=kernel.name,
        bytes=moved,
        flops=flops,
        bound="memory" if moved / ceilings.bandwidth >= limit else "compute",
        limit_seconds=limit,
        predicted=limit + _launching(ceilings.target, max(1, len(kernel.launches))),
        seconds=kernel.seconds if kernel.seconds and kernel.seconds > 0 else None,
        matrix=matrix,
        runs=runs,
    )


def points(compilation: Compilation, ceilings: Ceilings) -> tuple[RooflinePoint, ...]:
    """Every kernel made for that target which moves or computes something, in the order of the record."""
    own, runs = (
        (kernel for kernel in compilation.kernels if kernel.target == ceilings.target),
        compilation.runs,
    )
    found = (point(kernel, ceilings, runs.get(kernel.graph, 1)) for kernel in own)
    return tuple(each for each in found if each is not None)


def main_ceilings(compilation: Compilation) -> Ceilings | None:
    """The ceilings for the target that most kernels of this record are made for, if they are known."""
    names: Sequence[str] = [kernel.target for kernel in compilation.kernels]
    known = {name: found for name in names if (found := ceilings_of(compilation, name)) is not None}
    return known[max(known, key=names.count)] if known else None


def _launching(target: str, launches: int) -> float:
    """Seconds of the launches themselves: on the CPU a kernel is a call."""
    return 0.0 if target == "cpu" else LAUNCH_SECONDS * launches

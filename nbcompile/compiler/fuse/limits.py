"""What the kernels of a machine can do, for fusion to respect."""

from __future__ import annotations

from dataclasses import dataclass

from nbcompile.targets import Target

LAUNCH_SECONDS = 2e-6


@dataclass(frozen=True)
class Limits:
    """What a machine's kernels can do. A kernel of fewer than ``few_rows`` rows with more than
    ``serial_points`` points would leave processors idle; a sum of fewer than ``split_rows`` is shared out
    along the rows. ``split_alone``: kernels may consist of sums over the rows only (a GPU's kernel shares out
    any reduction by itself). A row of up to ``shared_row`` points can be held by several programs together.
    Rows that lie across memory go ``columns`` to a program; one holds them whole if they have at most
    ``longest_column`` points. A loop of more than ``cheap_loads`` loads is not computed again for each
    reader; ``operations_a_byte`` cost as much as a byte of memory traffic, and a launch as much as
    ``launch_bytes``. On a CPU more than ``few_across`` points of a row are not walked across memory to spare
    a read. Kernels of at most ``launch_points`` points that follow the same one are joined: a launch costs
    more than they do."""

    few_rows: int = 2
    split_rows: int = 8
    serial_points: int = 32_768
    split_alone: bool = True
    shared_row: int = 0
    columns: int = 1
    longest_column: int = 0
    cheap_loads: int = 1 << 30
    operations_a_byte: float = 3.0
    launch_bytes: float = 0.0
    few_across: int = 16
    launch_points: int = 0


CPU_LIMITS = Limits()


def limits_of(target: Target) -> Limits:
    """The limits for a chip."""
    if not target.is_gpu:
        # Apart, each kernel shares its rows among all threads, with about half as much work again. That one
        # row alone stays so with one thread too gains little, and holds on every machine.
        return Limits(few_rows=max(2, -(-2 * target.multiprocessors // 3)), launch_points=1 << 12)
    return Limits(
        few_rows=target.multiprocessors // 2,
        serial_points=1 << 18,
        split_alone=False,
        shared_row=target.multiprocessors * 8192,
        columns=64,
        longest_column=1024,
        cheap_loads=3,
        launch_points=1 << 16,
        # A multiply-add counts as two in a chip's rate. Of a chip without numbers, those of an H200.
        operations_a_byte=target.float32_rate / (2 * target.bandwidth) if target.bandwidth else 7.0,
        launch_bytes=LAUNCH_SECONDS * (target.bandwidth or 4.8e12),
    )

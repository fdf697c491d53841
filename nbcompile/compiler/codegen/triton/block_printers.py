"""Printers that know where the present block of a dimension starts, and how a walk over blocks is written."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.compiler.codegen.triton.dims import Dim
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.stages import Config


def end_of(length: str) -> str:
    """The end of a loop. Triton takes a literal from 2**31 to 2**32 for uint32, and extends it with a sign
    to its loop's int64: the loop would not run once."""
    far = length.isdigit() and 2**31 <= int(length) < 2**32
    return f"tl.cast({length}, tl.int64)" if far else length


def staged(configs: Sequence[Config], bounds: str) -> str:
    """The range of a loop; with a constant STAGES, the loads of that many blocks are under way at once."""
    if "STAGES" in configs[0].constants:
        return f"tl.range({bounds}, num_stages=STAGES)"
    return f"range({bounds})"


def chunk_of(length: str, configs: Sequence[Config], slabs: int) -> str:
    """How much of a row each of its slabs has: a multiple of the first config's block, so that all candidates
    and functions have the same slabs."""
    quantum = configs[0].constants["RBLOCK"]
    if length.isdigit():
        return str(-(-int(length) // (quantum * slabs)) * quantum)
    return f"tl.cdiv({length}, {quantum * slabs}) * {quantum}"


def declare_slab(p: TilePrinter, slab: str, chunk: str, length: str) -> tuple[str, str]:
    """The slab of this program, and the names of its first point and its end."""
    p.used_names |= {"slab", "chunk", "first", "end"}
    p.out.add(f"slab = {slab}")
    p.out.add(f"chunk = {chunk}")
    p.out.add("first = slab * chunk")
    p.out.add(f"end = tl.minimum(first + chunk, {length})")
    return "first", "end"


class PointsPrinter(TilePrinter):
    def lane_start(self, dim: Dim) -> str:
        return "start"


class RowsPrinter(TilePrinter):
    """``block_start`` is the text of the present block's first index along ``r``; ``reread``: there is a
    later walk over the same row, ``last`` is its last one."""

    r: Dim
    block_start = ""
    reread = False
    last = False

    def lane_start(self, dim: Dim) -> str:
        if dim is self.r:
            return self.block_start
        return ""

    def policy(self, value: Value) -> str:
        streamed = value.axes >= set(self.r.axes) and value.axes - set(self.r.axes)
        if not self.block_start or not streamed:
            return ""
        if self.reread:
            return ', eviction_policy="evict_last"'
        return ', eviction_policy="evict_first"' if self.last else ""

"""Where programs that share a row meet: each leaves its part's results, waits for the others, combines them.

All programs must be on the chip together (``Launch.together``), for they wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from nbcompile.compiler.codegen.triton.accumulators import (
    Accumulating,
    Online,
    accumulate_dtype,
    at_infinity,
    nan_of_nothing,
)
from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES
from nbcompile.compiler.codegen.triton.schedules.rows import RowsNest
from nbcompile.compiler.kernel_ir.values import Reduction, Store
from nbcompile.compiler.loop_ir.index import index
from nbcompile.compiler.schedule.tiling import power

WAIT = '''@triton.jit
def wait_for_all(counter, count):
    """Return when ``count`` programs have come here: what they stored before can be read after."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()'''


class Meetings:
    """The meetings of one function; ``chunk`` points of a row are a part. Each reduction has one workspace of
    ``rows * parts`` results, each meeting a counter a row that starts at 0."""

    def __init__(self, nest: RowsNest, parts: int, chunk: int) -> None:
        self.nest, self.p, self.x, self.r, self.chunk = nest, nest.p, nest.x, nest.r, chunk
        self.parts, self.length = parts, nest.r.extent.hint()
        self.counters = 0
        self.loaded: dict[str, str] = {}  # the parts' names, by output
        nest.writer.helpers.setdefault("wait_for_all", WAIT)
        self.p.used_names |= {"wait_for_all", "part", "GROUPS"}

    def publish(self, items: Sequence[Reduction]) -> None:
        """Store this part's results for the others."""
        p = self.p
        for item in items:
            size = self.x.extent * index(self.parts)
            workspace = self.nest.workspace(f"{item.output}_parts", self._dtype(item), size)
            place = f"{p.pointer(workspace.name)} + {self.x.name} * {self.parts} + part"
            p.out.add(f"tl.store({place}, {p.reduced_text[item.output]})", [item.loop.id])

    def wait(self, items: Sequence[Reduction]) -> None:
        """Wait for all parts of the row, then load what they published."""
        p, nest = self.p, self.nest
        name = f"{nest.group.loops[0].name}_arrived" + (f"_{self.counters}" if self.counters else "")
        self.counters += 1
        pointer = p.pointer(nest.workspace(name, torch.int32, self.x.extent, zeroed=True).name)
        p.out.add(f"wait_for_all({pointer} + {self.x.name}, {self.parts})")
        whole = power(self.parts)
        lanes = f"tl.arange(0, {whole})"
        for item in items:
            dtype = self._dtype(item)
            other = nest.writer.identity("sum" if item.kind == "mean" else item.kind, dtype)
            joined = f", mask=({lanes} < {self.parts}), other={other}" if whole != self.parts else ""
            loaded = self.loaded[item.output] = p.fresh(f"{item.output}_parts")
            place = f"{p.pointer(f'{item.output}_parts')} + {self.x.name} * {self.parts} + {lanes}"
            cast = ".to(tl.int1)" if dtype == torch.bool else ""
            p.out.add(f"{loaded} = tl.load({place}{joined}, volatile=True){cast}", [item.loop.id])

    def combine(self, item: Reduction, pair: Online | None = None) -> None:
        """The row's result from those of its parts; with a ``pair``, the sum of exponentials too."""
        p, writer = self.p, self.nest.writer
        place = self.r.place or 0
        accumulating = Accumulating(p, place)
        parts, loop, dtype = self.loaded[item.output], [item.loop.id], self._dtype(item)
        if item.kind == "mean":
            squares = self.loaded[item.loop.outputs[1].name]
            accumulating.combine_moments(item, parts, squares, self._counts(), f"{self.length}.0")
            return
        name = p.fresh(item.output)
        p.out.add(f"{name} = {accumulating.kept(writer.reduce(item.kind, parts, place, dtype))}", loop)
        p.reduced_text[item.output] = name
        if pair is None:
            return
        pivot, pivots = p.fresh("pivot"), p.fresh("pivots")
        p.out.add(f"{pivot} = tl.where({at_infinity(name, pair)}, 0.0, {name})", loop)
        p.out.add(f"{pivots} = tl.where({at_infinity(parts, pair)}, 0.0, {parts})", loop)
        total = p.fresh(pair.total.output)
        scaled = writer.op("exp", [f"({pivots} - {pivot})"], dtype, dtype)
        product = f"{self.loaded[pair.total.output]} * {scaled}"
        # a part without any number above -inf counts for nothing
        product = f'tl.where({parts} == float("-inf"), 0.0, {product})'
        p.out.add(f"{total} = {accumulating.kept(writer.reduce('sum', product, place, dtype))}", loop)
        if not pair.test:
            p.out.add(f"{total} = {nan_of_nothing(name, total)}", loop)
        p.reduced_text[pair.total.output] = total

    def store_short(self, short: Sequence[Store], scope: Scope) -> None:
        """Store what is one value a row, by the program of its first part."""
        p, results = self.p, self.nest.reduction_stores(split=False)
        if results or short:
            scope = p.define([item.value for item in short], scope)
            p.out.enter("if part == 0:", axes=())
            self.nest.store_results(p, results)
            self.nest.store_all(p, short, scope)
            p.out.leave()

    def _counts(self) -> str:
        """How many points each part has."""
        whole = power(self.parts)
        lanes = f"tl.arange(0, {whole})"
        if self.length == self.chunk * whole:
            return f"{self.chunk}.0"
        rest = f"tl.maximum({self.length} - {lanes} * {self.chunk}, 0)"
        return f"tl.minimum({rest}, {self.chunk}).to({TRITON_TYPES[torch.float32]})"

    def _dtype(self, item: Reduction) -> torch.dtype:
        return accumulate_dtype(item, self.nest.buffers[item.output].dtype)

"""Reductions in Triton kernels: in one tile at once, or accumulated block by block.

A running result is a tile with an element per lane, combined across lanes once at the end; its update is
one operation an element. Means and squares use Welford's update with a count that all lanes share (B. P.
Welford, Technometrics 1962); parts are combined as in Chan, Golub and LeVeque (1979). The sum of
``exp(v - max v)`` is rescaled whenever the maximum grows (Milakov and Gimelshein, "Online normalizer
calculation for softmax", 2018), so that the row need not be read for the maximum first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.triton.dims import Scope
from nbcompile.compiler.codegen.triton.expressions import TRITON_TYPES
from nbcompile.compiler.codegen.triton.tile_expression import TileExpression
from nbcompile.compiler.codegen.triton.tile_printer import TilePrinter
from nbcompile.compiler.kernel_ir.values import KernelValues, Reduction, Value

ARGS = ("argmax", "argmin")


def best_of(item: Reduction) -> str:
    """What the number is called that a reduction to a place has found there."""
    return f"{item.output}_best"


def accumulate_dtype(item: Reduction, output: torch.dtype) -> torch.dtype:
    """The type that a reduction is carried out in."""
    dtype = item.value.dtype
    if item.kind in ("sum", "prod") and not dtype.is_floating_point and not output.is_floating_point:
        return output if output != torch.bool else dtype
    return dtype


@dataclass(frozen=True)
class Online:
    """A maximum and the sum of exponentials below it, found in one walk. ``test``: for which maximum the
    program subtracts 0: ``isinf`` (as logsumexp has it), ``eq`` (to -inf), or none (empty)."""

    top: Reduction
    total: Reduction
    test: str


def find_online(values: KernelValues) -> list[Online]:
    """Pairs ``m = max v``, ``s = sum exp(v - m)`` of one kernel; several may have one maximum."""
    found: list[Online] = []
    for total in values.reductions:
        if total.kind != "sum" or total.split or total.value.op != "exp":
            continue
        difference = total.value.args[0]
        if difference.op != "sub":
            continue
        number, subtracted = difference.args
        for top in values.reductions:
            if top.kind != "max" or top.split or top.value is not number or not _float(top.value):
                continue
            test = _finite_part(subtracted, top.output)
            plain = subtracted.kind == "reduced" and subtracted.buffer == top.output
            if plain or test:
                found.append(Online(top, total, test))
                break
    return found


def _float(value: Value) -> bool:
    return value.dtype.is_floating_point


def _finite_part(value: Value, output: str) -> str:
    """The test of ``where(isinf(m), 0, m)`` or ``where(m == -inf, 0, m)``; empty if it is neither."""
    if value.op != "where":
        return ""
    test, zero, same = value.args
    matches = (
        same.kind == "reduced" and same.buffer == output
        and zero.kind == "const" and float(zero.literal) == 0
        and test.op in ("isinf", "eq") and test.args[0] is same
        and all(each.kind == "const" and float(each.literal) == float("-inf") for each in test.args[1:])
    )  # fmt: skip
    return test.op if matches else ""


class Accumulating:
    """Prints reductions over the tile dimension at ``place`` of one function."""

    def __init__(self, printer: TilePrinter, place: int) -> None:
        self.printer = printer
        self.writer = printer.writer
        self.place = place
        self.running: dict[str, tuple[str, ...]] = {}

    def dtype(self, item: Reduction) -> torch.dtype:
        return accumulate_dtype(item, self.printer.buffers[item.output].dtype)

    def kept(self, text: str) -> str:
        """A reduced tile as a row's value in the tile's shape."""
        if len(self.printer.shape) == 1:
            return text
        return f"{text}{'[:, None]' if self.place == 1 else '[None, :]'}"

    def operand(self, item: Reduction, scope: Scope, masks: Sequence[str]) -> TileExpression:
        """The value to reduce, in its type, lanes that do not exist replaced by the identity."""
        p = self.printer
        dtype = self.dtype(item)
        found = self.writer.cast(p.text(item.value, scope), item.value.dtype, dtype)
        kind = item.kind if item.kind != "mean" else "sum"
        if masks:
            literal = self.writer.identity(kind, dtype)
            if dtype.itemsize == 8:
                literal = f"tl.full((), {literal}, {TRITON_TYPES[dtype]})"
            if item.value.kind == "const":
                found = TileExpression(p.full(found.bare, dtype, self._shape_along(frozenset())))
            found = TileExpression(f"tl.where({' & '.join(masks)}, {found.bare}, {literal})")
        return found

    def spread(self, item: Reduction, found: TileExpression, masked: bool) -> TileExpression:
        """``found`` with the dimension that is to be reduced, where its value does not vary along it."""
        p = self.printer
        dims = p.dims_of(item.value.axes)
        if self.place in dims or masked:
            return found
        shape = self._shape_along(dims)
        if item.value.kind == "const":
            return TileExpression(p.full(found.bare, self.dtype(item), shape))
        return TileExpression(f"tl.broadcast_to({found}, [{', '.join(shape)}])")

    def _shape_along(self, dims: frozenset[int]) -> list[str]:
        """The tile's shape with what is to be reduced and ``dims`` alone: a sum over the rows of one value a
        row is kept in a column, and nothing wider may be added to it."""
        wanted = dims | {self.place}
        return [block if place in wanted else "1" for place, block in enumerate(self.printer.shape)]

    # -- a whole row in one tile ------------------------------------------------------------------------

    def at_once(self, item: Reduction, scope: Scope, count: str) -> None:
        """Reduce ``item`` over the tile; its result gets a name."""
        p = self.printer
        scope = p.define([item.value, *([item.position] if item.position else [])], scope)
        masks = [dim.mask for dim in p.tiled if dim.place == self.place and dim.mask]
        text = self.spread(item, self.operand(item, scope, masks), bool(masks))
        name = p.fresh(item.output)
        if item.kind in ARGS:
            assert item.position is not None
            position = p.text(item.position, scope)
            held = p.fresh("value")
            p.out.add(f"{held} = tl.broadcast_to({text.bare}, {p.shape_text()})", [item.loop.id])
            at = p.fresh("position")
            missing = "2147483647" if not p.wide else "9223372036854775807"
            spread = f"tl.broadcast_to({position}, {p.shape_text()})"
            if masks:
                spread = f"tl.where({' & '.join(masks)}, {spread}, {missing})"
            p.out.add(f"{at} = {spread}", [item.loop.id])
            best = p.fresh("best")
            call = self.writer.arg_reduce(item.kind, held, at, self.place, item.value.dtype)
            p.out.add(f"{best}, {name} = {call}", [item.loop.id])
            self._finish(item, name, name)
            return
        kind = "sum" if item.kind == "mean" else item.kind
        result = self.kept(self.writer.reduce(kind, text.bare, self.place, self.dtype(item)))
        if item.kind == "mean":
            result = f"{result} / {count}"
        p.out.add(f"{name} = {result}", [item.loop.id])
        p.reduced_text[item.output] = name

    def _finish(self, item: Reduction, name: str, text: str) -> None:
        """Give a one-dimensional result its place in the tile, and the type of its output."""
        p = self.printer
        kept = self.kept(text)
        if item.kind in ARGS:
            kept = f"{kept}.to(tl.int64)"
        if kept != name:
            p.out.add(f"{name} = {kept}", [item.loop.id])
        p.reduced_text[item.output] = name

    # -- block by block -----------------------------------------------------------------------------------

    def start(self, item: Reduction) -> None:
        """Declare the running result before the loop."""
        p, dtype = self.printer, self.dtype(item)
        if item.mean:  # the squares of a Welford pair run with its mean
            return
        name = p.fresh(item.output)
        if item.kind == "mean":
            squares = p.fresh(f"{item.output}_squares")
            p.out.add(f"{name} = {p.full('0', dtype)}", [item.loop.id])
            p.out.add(f"{squares} = {p.full('0', dtype)}", [item.loop.id])
            self.running[item.output] = (name, squares)
            return
        p.out.add(f"{name} = {p.full(self.writer.identity(item.kind, dtype), dtype)}", [item.loop.id])
        self.running[item.output] = (name,)
        if item.kind in ARGS:
            at = p.fresh(f"{item.output}_at")
            p.out.add(f"{at} = {p.full('0', torch.int64)}", [item.loop.id])
            self.running[item.output] = (name, at)

    def update(self, item: Reduction, scope: Scope, masks: list[str], step: str) -> None:
        """Fold one block in. ``step`` is the text of one over the number of blocks so far."""
        p = self.printer
        if item.mean:
            return
        name, *more = self.running[item.output]
        loop = [item.loop.id]
        if item.kind == "mean":
            value, delta = p.text(item.value, scope), p.fresh("delta")
            p.out.add(f"{delta} = {value.bare} - {name}", loop)
            if masks:
                p.out.add(f"{delta} = tl.where({' & '.join(masks)}, {delta}, 0.0)", loop)
            p.out.add(f"{name} += {delta} * {step}", loop)
            p.out.add(f"{more[0]} += {delta} * ({delta} - {delta} * {step})", loop)
            return
        if item.kind in ARGS:
            assert item.position is not None
            held = p.fresh("value")
            p.out.add(f"{held} = {self.operand(item, scope, masks).bare}", loop)
            better = p.fresh("better")
            test = self.writer.arg_better(item.kind, held, name, item.value.dtype)
            p.out.add(f"{better} = {test.bare}", loop)
            position = p.text(item.position, scope)
            p.out.add(f"{more[0]} = tl.where({better}, {position}, {more[0]})", loop)
            p.out.add(f"{name} = tl.where({better}, {held}, {name})", loop)
            return
        dtype = self.dtype(item)
        text = self.operand(item, scope, masks)
        p.out.add(f"{name} = {self.writer.combine(item.kind, name, text, dtype).bare}", loop)

    def finish(self, item: Reduction, counts: str, total: str) -> None:
        """Combine the lanes after the loop. ``counts``: how many values each lane has, ``total`` all."""
        p = self.printer
        loop = [item.loop.id]
        if item.mean:
            return
        name, *more = self.running[item.output]
        dtype = self.dtype(item)
        if item.kind == "mean":
            self.combine_moments(item, name, more[0], counts, total)
            return
        if item.kind in ARGS:
            self.combine_places(item, name, more[0])
            return
        p.out.add(f"{name} = {self.kept(self.writer.reduce(item.kind, name, self.place, dtype))}", loop)
        p.reduced_text[item.output] = name

    def combine_places(self, item: Reduction, value: str, at: str) -> None:
        """The place of the best of all lanes, from the best of each and where it stands."""
        p, best = self.printer, self.printer.fresh("best")
        call = self.writer.arg_reduce(item.kind, value, at, self.place, item.value.dtype)
        p.out.add(f"{best}, {at} = {call}", [item.loop.id])
        p.reduced_text[best_of(item)] = self.kept(best)
        self._finish(item, at, at)

    def combine_moments(self, item: Reduction, mean: str, squares: str, counts: str, total: str) -> None:
        """The mean and squares of all lanes from those of each: ``counts`` values in each lane."""
        p = self.printer
        loop, dtype = [item.loop.id], self.dtype(item)
        whole = p.fresh(f"{item.output}_whole")
        weighted = self.writer.reduce("sum", f"{mean} * {counts}", self.place, dtype)
        p.out.add(f"{whole} = {self.kept(weighted)} / {total}", loop)
        apart = f"{squares} + {counts} * ({mean} - {whole}) * ({mean} - {whole})"
        p.out.add(f"{squares} = {self.kept(self.writer.reduce('sum', apart, self.place, dtype))}", loop)
        p.out.add(f"{mean} = {whole}", loop)
        p.reduced_text[item.output] = mean
        p.reduced_text[item.loop.outputs[1].name] = squares

    # -- online softmax -------------------------------------------------------------------------------------

    def start_online(self, pair: Online) -> None:
        p, kind = self.printer, TRITON_TYPES[self.dtype(pair.top)]
        shape = [block if place != self.place else "1" for place, block in enumerate(p.shape)]
        text = f"[{', '.join(shape)}]" if len(shape) > 1 else "()"
        for item, start in ((pair.top, 'float("-inf")'), (pair.total, "0")):
            if item.output not in self.running:  # a maximum may have been started for another sum
                name = p.fresh(item.output)
                p.out.add(f"{name} = tl.full({text}, {start}, {kind})", [item.loop.id])
                self.running[item.output] = (name,)

    def update_online(self, pairs: Sequence[Online], scope: Scope, masks: list[str]) -> None:
        """A block more for each pair. A maximum stays as it was until all its sums have been scaled."""
        for top in {pair.top.output: pair.top for pair in pairs}.values():
            self._update_online(top, [pair for pair in pairs if pair.top is top], scope, masks)

    def _update_online(self, item: Reduction, pairs: list[Online], scope: Scope, masks: list[str]) -> None:
        p, dtype, up = self.printer, self.dtype(item), [item.loop.id]
        (top,) = self.running[item.output]
        block, higher = p.fresh("block"), p.fresh("higher")
        value = self.spread(item, self.operand(item, scope, masks), bool(masks))
        p.out.add(f"{block} = {value.bare}", up)
        largest = self.kept(self.writer.reduce("max", block, self.place, dtype))
        p.out.add(f"{higher} = {self.writer.combine('max', top, largest, dtype).bare}", up)
        for pair in pairs:
            (total,), pivot = self.running[pair.total.output], p.fresh("pivot")
            p.out.add(f"{pivot} = tl.where({at_infinity(higher, pair)}, 0.0, {higher})", up)
            sums = self.kept(self.writer.reduce("sum", f"tl.exp({block} - {pivot})", self.place, dtype))
            p.out.add(f"{total} = {total} * tl.exp({top} - {pivot}) + {sums}", [pair.total.loop.id])
        p.out.add(f"{top} = {higher}", up)

    def finish_online(self, pair: Online) -> None:
        (top,), (total,) = self.running[pair.top.output], self.running[pair.total.output]
        if not pair.test:
            self.printer.out.add(f"{total} = {nan_of_nothing(top, total)}", [pair.total.loop.id])
        for item in (pair.top, pair.total):
            self.printer.reduced_text[item.output] = self.running[item.output][0]


def nan_of_nothing(top: str, total: str) -> str:
    """The sum of a row of -inf alone, where the program has ``exp(-inf - -inf)``."""
    return f'tl.where({top} == float("-inf"), float("nan"), {total})'


def at_infinity(text: str, pair: Online) -> str:
    """Whether a maximum is infinite, so that nothing may be subtracted."""
    return f'tl.abs({text}) == float("inf")' if pair.test == "isinf" else f'{text} == float("-inf")'

"""Which value lies in whose memory: where the new value of an overwritten input is made, and which kernels
write in place of what they are the last to read.

Up to here values never change: an input and what a graph leaves in it are two buffers. This pass, the last
one before code is printed, lets the new value be made in the input's own memory where nothing can still need
the old one. Elsewhere it is made in memory of its own, and a copy at the end of the graph brings it where it
belongs.

Fusion asks the same question, for the copy costs time; a wrong answer there costs no more than that. What is
printed in the end is held against this by ``loop_ir/versions.py``, which knows nothing of these rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import torch

from nbcompile.compiler.fuse.alignment import nest_of, places_read
from nbcompile.compiler.fuse.cost import bytes_saved
from nbcompile.compiler.fuse.limits import Limits
from nbcompile.compiler.fuse.naming import numbered
from nbcompile.compiler.loop_ir.expr import Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Item
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, Output, View
from nbcompile.record.compilation import Decision

_ADDED = (torch.float32, torch.float64, torch.int32, torch.int64)


def with_storage(program: FusedProgram, limits: Limits, *, apart: bool = False) -> FusedProgram:
    """The program with a place for the new value of each input that it overwrites: in the input's memory
    (``Group.in_place``), by the kernel that makes it or, with a decision that says why, by a copy at the end:
    always so with ``apart``."""
    placed = _with_updates(program, limits, apart)
    return placed if apart or not limits.split_alone else _with_reuse(placed, limits)


def _with_updates(program: FusedProgram, limits: Limits, apart: bool) -> FusedProgram:
    items = list(program.items)
    copies: list[Loop] = []
    decisions = list(program.decisions)
    for old, new in program.program.updates.items():
        place = next(n for n, item in enumerate(items) if isinstance(item, Group) and new in item.stored)
        group = items[place]
        assert isinstance(group, Group)
        why = _needed_after(items, place, old) or why_not_in_place(group, old, new, limits)
        why = why or (f"it was not proved that the old {old} is read before" if apart else "")
        if not why:
            items[place] = replace(group, in_place={**group.in_place, new: old})
            continue
        maker = _maker(group, new)
        copies.append(_copy(program.program, maker, new, len(copies)))
        decisions.append(_decision(program, maker, copies[-1], why, len(decisions)))
        items.append(_alone(copies[-1], old))
    if not copies:
        return replace(program, items=tuple(items))
    loops = _with_copies(program.program, copies)
    return FusedProgram(loops, numbered(loops.graph, items), tuple(decisions))


# -- in place of what nobody needs any more ---------------------------------------------------------

_FRESH = (
    "aten.mm",
    "aten.bmm",
    "aten.addmm",
    "aten.baddbmm",
    "aten.convolution",
    "aten.cumsum",
    "aten.cumprod",
)
"""Library calls whose result lies in memory that nothing else knows of."""


def _with_reuse(program: FusedProgram, limits: Limits) -> FusedProgram:
    """The program with :attr:`Group.reuses`: on a CPU memory that is in cache is written again for nothing,
    and memory that is not has to be fetched first.

    Of buffers that lie in an input's memory, or in each other's, none is looked at."""
    items = list(program.items)
    last = {name: place for place, item in enumerate(items) for name in _named(item)}
    kept = {view.buffer.name for view in program.program.outputs if isinstance(view, View)}
    kept |= {name for group in program.groups for pair in group.in_place.items() for name in pair}
    made: dict[str, Buffer] = {}
    for place, item in enumerate(items):
        if isinstance(item, Group):
            pairs = dict(_reusing(item, {name: made[name] for name in made if last[name] == place}, limits))
            items[place] = replace(item, reuses=pairs)
            kept |= {*pairs, *pairs.values()}
        made |= {out.name: out for out in _made(item) if out.name not in kept}
    return replace(program, items=tuple(items))


def _reusing(group: Group, dead: Mapping[str, Buffer], limits: Limits) -> Iterator[tuple[str, str]]:
    """Buffer → the one of ``dead``, each read here for the last time, that it is written in place of."""
    if group.product is not None:
        return
    left = dict(dead)
    makers = {out.name: loop for loop in group.loops for out in loop.outputs if loop.kind == "pointwise"}
    for new, maker in makers.items():
        if new not in group.stored or new in group.in_place or maker.id not in group.bindings:
            continue
        made = next(out for out in maker.outputs if out.name == new)
        written = tuple(group.bindings[maker.id][axis] for axis in maker.kept)
        for name, old in left.items():
            alike = (old.shape, old.strides, old.dtype) == (made.shape, made.strides, made.dtype)
            if alike and _first_two(places_read(group.loops, group.bindings, name)) == [written]:
                if not why_not_in_place(group, name, new, limits):
                    del left[name]
                    yield new, name
                    break


def _made(item: Item) -> Iterator[Buffer]:
    """The buffers of which an item makes the memory, for itself alone."""
    if isinstance(item, Group):
        every = (out for loop in item.loops for out in loop.outputs)
        yield from (out for out in every if out.name in item.stored and out.name not in item.memory)
    elif item.name in _FRESH and not item.elsewhere and not item.kwargs.get("out"):
        yield from (out for out in item.outputs if out is not None)


def _named(item: Item) -> set[str]:
    """The buffers that an item makes or reads."""
    if isinstance(item, LibraryCall):
        return {view.buffer.name for view in item.views()} | {out.name for out in item.outputs if out}
    names = {load.buffer for loop in item.loops for load in loop.reads()} | {*item.stored}
    return names | {loop.base for loop in item.loops if loop.base}


# -- in place of an input -----------------------------------------------------------------------------


def why_not_in_place(group: Group, old: str, new: str, limits: Limits) -> str:
    """Why a kernel of this group cannot make ``new`` in the memory of ``old``, which it may read; empty if it
    can, or makes no ``new``."""
    maker = next((loop for loop in group.loops if any(out.name == new for out in loop.outputs)), None)
    if maker is None or maker.id not in group.bindings:
        return ""
    binding = group.bindings[maker.id]
    written = tuple(binding[axis] for axis in maker.kept)
    places = _first_two(places_read(group.loops, group.bindings, old, written))
    if maker.kind == "scatter":
        if not limits.split_alone and not _is_one_atomic(maker):
            return "a scatter of this type combines in memory of its own"
        return f"{old} is overwritten here, and read at other points" if places or maker.base != old else ""
    if not places:
        return ""
    if group.product is not None:
        return f"a kernel of a matrix product reads {old} in an order of its own"
    if any(place != written for place in places):
        return f"{old} is overwritten here, and read at other points"
    here = frozenset[Axis]().union(*(place.axes() for place in written))
    nest, others = group.nest, _reached_by(old, group)
    if limits.split_alone:
        # A CPU's kernel walks a row in order, and reads before the rows what is one for all.
        others &= frozenset(nest.rows)
    else:
        # Several programs may hold a row together, and all read it: one may store before another reads.
        along = any(loop.reduction or loop.scan for loop in group.loops)  # else points are shared out
        others |= frozenset(nest.rows if along else nest.axes)
    if any(axis.extent != ONE for axis in others - here):
        return f"{old} is overwritten here, and read by every row"
    return ""


def _first_two(places: Iterator[tuple[IndexExpr, ...]]) -> list[tuple[IndexExpr, ...]]:
    """Enough to tell whether there is any, and whether one is not where it should be: none comes twice."""
    return list(islice(places, 2))


def _is_one_atomic(scatter: Loop) -> bool:
    """Whether a GPU puts each point where it belongs at once: what has no atomic addition it does not."""
    return scatter.mode in (None, "set") or (scatter.mode == "add" and scatter.outputs[0].dtype in _ADDED)


def _reached_by(buffer: str, group: Group) -> frozenset[Axis]:
    """The axes of the nest along which anything is made from ``buffer``, directly or through others."""
    known, axes = {buffer}, frozenset[Axis]()
    for _ in group.loops:  # they are in no order yet
        for loop in group.loops:
            if any(load.buffer in known for load in loop.reads()):
                known |= {out.name for out in loop.outputs}
                for place in group.bindings.get(loop.id, {}).values():
                    axes |= place.axes()
    return axes


def _needed_after(items: list[Item], place: int, old: str) -> str:
    """Who reads the old value when the kernel at ``place`` is done with it; empty if nobody."""
    for item in items[place + 1 :]:
        if old in _named(item):
            return f"{item.name} reads the old {old} later"
    return ""


def _maker(group: Group, name: str) -> Loop:
    return next(loop for loop in group.loops if any(out.name == name for out in loop.outputs))


def _copy(program: LoopProgram, maker: Loop, new: str, number: int) -> Loop:
    """The loop that brings ``new`` where it belongs."""
    made = next(out for out in maker.outputs if out.name == new)
    name, buffers = f"{new}_copied", program.buffers()
    while name in buffers:
        name += "_"
    axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(made.shape))
    body = Load(new, tuple(map(index, axes)), made.dtype)
    return Loop(
        f"{program.graph}.u{number}",
        (replace(made, name=name),),
        axes,
        body,
        op="copy",
        origins=maker.origins,
    )


def _alone(copy: Loop, old: str) -> Group:
    nest, binding = nest_of(copy.axes)
    stored = frozenset({copy.name})
    return Group((copy,), nest, {copy.id: binding}, stored=stored, in_place={copy.name: old})


def _decision(program: FusedProgram, maker: Loop, copy: Loop, why: str, number: int) -> Decision:
    graph = program.program.graph
    reason = f"{why}: its new value is made elsewhere and copied at the end"
    saved = bytes_saved(copy.outputs[0], False)
    return Decision(
        f"{graph}.d{number}", f"{graph}.fused", maker.id, copy.id, "producer-consumer", False, "overwritten",
        reason, saved,
    )  # fmt: skip


def _with_copies(program: LoopProgram, copies: list[Loop]) -> LoopProgram:
    """The program with the copies at its end. What it returns of a new value shows the input's memory."""
    sources = {load.buffer: copy.outputs[0] for copy in copies for load in copy.reads()}
    makers = {out.name: item.id for item in program.statements for out in item.outputs if out is not None}
    spans = {copy.id: program.spans.get(makers[copy.reads()[0].buffer], ()) for copy in copies}
    return replace(
        program,
        statements=(*program.statements, *copies),
        outputs=tuple(_shown(output, sources) for output in program.outputs),
        spans={**program.spans, **spans},
        updates={old: sources[new].name if new in sources else new for old, new in program.updates.items()},
    )


def _shown(output: Output, copied: Mapping[str, Buffer]) -> Output:
    if isinstance(output, View) and output.buffer.name in copied:
        return replace(output, buffer=copied[output.buffer.name])
    return output

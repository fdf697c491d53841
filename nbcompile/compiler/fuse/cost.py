"""What a fusion saves and what it costs: bytes of memory traffic, and work done again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL, WORK, Expr, Guarded, Load, Op
from nbcompile.compiler.loop_ir.index import ONE
from nbcompile.compiler.loop_ir.lanes import part_blocks
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, hint_product

COSTLY_LOADS = 6


def evaluations(load: Load, reader: Loop) -> float:
    """How often the loop evaluates this load; one that is guarded (one part of a cat, say) at most once per
    element."""
    return 1.0 if _guarded(reader, load) else steps(load, reader)


def steps(load: Load, reader: Loop) -> float:
    """How often the loop comes by this load: once per point of the axes down to the innermost one that
    its index depends on (within these it is computed anew, inside of them it is kept)."""
    axes = {axis for place in load.index for axis in place.axes()}
    depth = max((n + 1 for n, axis in enumerate(reader.axes) if axis in axes), default=0)
    return float(hint_product(axis.extent for axis in reader.axes[:depth]))


def _guarded(reader: Loop, load: Load) -> bool:
    guards = [node for node in reader.nodes if isinstance(node, Guarded)]
    if any(load in set(node.inside.walk()) for node in guards):
        return True
    # the last part of a cat stands behind all guards
    bounds = [bound for node in guards if load in set(node.outside.walk()) for bound in node.bounds]
    return bool(bounds) and bool(part_blocks(reader.axes[-1], bounds))


def many_loads(loop: Loop) -> bool:
    """Whether each point reads many elements of its own (a row has its mean, a column its weight once)."""
    axes = {axis for axis in loop.axes if axis.extent != ONE}
    own = [load for load in loop.reads() if {axis for place in load.index for axis in place.axes()} >= axes]
    return len(own) >= COSTLY_LOADS


def touched(loops: Iterable[Loop], stored: frozenset[str]) -> set[str]:
    """The tensors that a kernel of these loops reads or writes."""
    loops = tuple(loops)
    made = {out.name for loop in loops for out in loop.outputs}
    read = {load.buffer for loop in loops for load in loop.reads()}
    return (read - made) | stored


def is_expensive(loop: Loop, makers: Mapping[str, Loop]) -> bool:
    """Whether computing an element again costs more than reading it: transcendental functions, or
    many loads, in the loop or in the pointwise loops of ``makers`` that it reads."""
    leaves = 0
    for node in _computed(loop, makers):
        if isinstance(node, Op) and node.name in TRANSCENDENTAL:
            return True
        leaves += isinstance(node, Load) and node.buffer not in makers
        if leaves >= COSTLY_LOADS:
            return True
    return False


def operations(loop: Loop, makers: Mapping[str, Loop], work: Mapping[str, int] = WORK) -> int:
    """What an element of the loop takes, with what it reads from ``makers``, counted in additions; its loads
    too, where ``work`` says what one takes."""
    total = 0
    for node in _computed(loop, makers):
        if isinstance(node, Op):
            total += work.get(node.name, 1)
        elif isinstance(node, Load) and node.buffer not in makers:
            total += work.get("load", 0)
    return total


def _computed(loop: Loop, makers: Mapping[str, Loop]) -> Iterator[Expr]:
    """All that is computed for an element of the loop, each loop of ``makers`` that it needs once."""
    pending, seen = [loop], {loop.id}
    while pending:
        for node in pending.pop().nodes:
            yield node
            maker = makers.get(node.buffer) if isinstance(node, Load) else None
            if maker is not None and maker.id not in seen:
                seen.add(maker.id)
                pending.append(maker)


def bytes_saved(buffer: Buffer, still_stored: bool) -> int:
    """Traffic saved when a reader of ``buffer`` moves into the kernel that makes it: the read, and
    the write too if nothing else needs it in memory. In bytes, at the hints."""
    return buffer.bytes_hint() * (1 if still_stored else 2)


def flops(loop: Loop) -> int:
    """Arithmetic operations of a loop, one per scalar operation and point."""
    work = sum(1 for node in loop.body.walk() if isinstance(node, Op) and node.name != "cast")
    return loop.points() * (work + (1 if loop.reduction or loop.scan else 0))

"""Proves that every read sees the version it means, whatever lies in whose memory.

Two halves. :func:`verify_versions` walks a fused program in running order and knows which buffer each memory
holds at every moment. :func:`verify_kernel` looks into one kernel as it was printed: ``Walk`` is the tree of
its loops with every read and write of memory in the order they stand, which the printers write down as they
print. Neither knows the rules by which ``fuse/storage.py`` decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Item
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, View
from nbcompile.errors import VerifyError

# -- a program --------------------------------------------------------------------------------------


def verify_versions(program: FusedProgram) -> FusedProgram:
    """``program`` itself; VerifyError if something reads memory that holds another version than it names, at
    the end too, or writes to memory that another value lies in."""
    loops = program.program
    memory = {item.name: item.name for item in loops.inputs if isinstance(item, Buffer)}
    memory |= {name: name for name in loops.constants}
    places = {name: old for group in program.groups for name, old in group.memory.items()}
    given = {*memory}

    def need(name: str, who: str) -> None:
        held = memory.get(places.get(name, name))
        if held != name:
            raise VerifyError(f"{who} reads {name}, but its memory holds {held or 'nothing'} by then")

    for item in program.items:
        for name in _read(item):
            need(name, item.name)
        for name in _written(item):
            place = places.get(name, name)
            if place in memory and (place == name or (place in given and loops.updates.get(place) != name)):
                raise VerifyError(f"{item.name} writes {name} where {memory[place]} lies")
            memory[place] = name
    for output in loops.outputs:
        if isinstance(output, View):
            need(output.buffer.name, "the result")
    for old, new in loops.updates.items():
        if memory.get(old) != new:
            raise VerifyError(f"{old} is to hold {new} at the end, and holds {memory.get(old)}")
    return program


def _read(item: Item) -> set[str]:
    if isinstance(item, LibraryCall):
        return {view.buffer.name for view in item.views()}
    made = {out.name for loop in item.loops for out in loop.outputs}
    return ({load.buffer for loop in item.loops for load in loop.reads()} | _bases(item)) - made


def _bases(group: Group) -> set[str]:
    return {loop.base for loop in group.loops if loop.base}


def _written(item: Item) -> set[str]:
    if isinstance(item, LibraryCall):
        return {out.name for out in item.outputs if out is not None}
    return set(item.stored)


# -- a kernel ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Touch:
    """One read or write of ``memory`` (a buffer's name) at ``place``, elements from its start in the axes of
    the kernel's nest; None where no formula says where."""

    memory: str
    place: IndexExpr | None
    write: bool = False


@dataclass(frozen=True)
class Part:
    """Which part of an axis a walk goes over: two walks of one ``division`` with other numbers share no
    point."""

    axis: Axis
    number: int
    division: int


@dataclass
class Walk:
    """A loop of a kernel, or the launch of all its programs: what is done for each point of ``axes`` (or
    ``part`` of them), in order. Without axes (an empty set) it is done once; None: nobody knows what it goes
    along."""

    axes: frozenset[Axis] | None
    body: list[Walk | Touch] = field(default_factory=list)
    part: Part | None = None


def verify_kernel(name: str, walk: Walk, overwritten: Collection[str]) -> None:
    """VerifyError unless each memory that is ``overwritten`` is read before it is written, at every point and
    by whichever thread or program. (Memory that a kernel fills and reads again holds nothing before.)

    A read and a write of one memory are held against each other: within the loops around both, an iteration
    must meet only elements of its own, so these loops' axes must all be told from the place; and within one
    iteration the read must stand before the write."""
    touches = list(_touches(walk, ()))
    written: dict[str, list[tuple[Path, Touch]]] = {}
    for path, touch in touches:
        if touch.write and touch.memory in overwritten:
            written.setdefault(touch.memory, []).append((path, touch))
    for path, touch in touches:
        for other, write in written.get(touch.memory, ()) if not touch.write else ():
            _in_order(name, path, touch, other, write)


Path = tuple[tuple[Walk, int], ...]
"""Where a touch stands: each walk around it, and the place in its body that leads there."""


def _touches(walk: Walk, above: Path) -> Iterator[tuple[Path, Touch]]:
    for number, item in enumerate(walk.body):
        path = (*above, (walk, number))
        if isinstance(item, Touch):
            yield path, item
        else:
            yield from _touches(item, path)


def _in_order(name: str, path: Path, read: Touch, other: Path, write: Touch) -> None:
    """VerifyError unless ``read`` surely sees what was there before ``write``."""
    common = [walk for (walk, _), (again, _) in zip(path, other, strict=False) if walk is again]
    place = read.place
    if place is None or place != write.place:
        raise VerifyError(
            f"{name} reads {read.memory}[{place}] and overwrites {write.memory}[{write.place}]: "
            "it may find there what it has written"
        )
    apart = told_apart(place)
    for around in common:
        if around.axes is None:
            raise VerifyError(f"{name} overwrites {write.memory}, which it reads, along nobody knows what")
        lost = [axis.text for axis in around.axes if axis.extent != ONE and axis not in apart]
        if lost:
            raise VerifyError(
                f"{name} reads {read.memory}[{place}] for each point of {', '.join(sorted(lost))}, "
                "and overwrites it at one of them"
            )
    depth = len(common) - 1
    first, second = path[depth][1], other[depth][1]
    if first > second and not _parts(common[-1].body[first], common[-1].body[second], apart):
        raise VerifyError(f"{name} reads {read.memory}[{place}] after it has overwritten it")


def _parts(one: Walk | Touch, other: Walk | Touch, apart: frozenset[Axis]) -> bool:
    """Whether two walks go over different parts of an axis that the place tells apart."""
    if isinstance(one, Touch) or isinstance(other, Touch) or one.part is None or other.part is None:
        return False
    same = (one.part.axis, one.part.division) == (other.part.axis, other.part.division)
    return same and one.part.number != other.part.number and one.part.axis in apart


def told_apart(place: IndexExpr) -> frozenset[Axis]:
    """The axes whose points a place tells apart: two points that differ in one of them are at two places.
    From the smallest step up, each axis must step over all that the axes before it reach."""
    rest, reach = place, 0
    steps: dict[Axis, int] = {}
    for axis in place.axes():
        step = place.coefficient(axis)
        if step is None:
            return frozenset()
        rest, steps[axis] = rest - step * axis, abs(step.hint())
    if rest.axes():
        return frozenset()
    for axis in sorted(steps, key=lambda axis: steps[axis]):
        if steps[axis] <= reach:
            return frozenset()
        reach += steps[axis] * (axis.extent.hint() - 1)
    return frozenset(steps)

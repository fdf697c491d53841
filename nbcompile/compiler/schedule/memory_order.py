"""Kernels of rows get what they read and write in one order of memory.

A step of the pipeline between fusion and code generation, for GPUs. Where most of what such a kernel moves
lies along one axis and a heavy tensor along another (channels-last beside channels-first), each tile is
exchanged between threads, which costs more than the bytes do. A copy through square tiles does the same at
nearly full speed: so the tensor in the other order is turned round by a kernel of its own, before for an
input, after for a result, where the bytes of that are less than the time it saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nbcompile.compiler.fuse.alignment import nest_of
from nbcompile.compiler.fuse.cost import bytes_saved
from nbcompile.compiler.fuse.naming import numbered
from nbcompile.compiler.kernel_ir.accesses import accesses
from nbcompile.compiler.kernel_ir.group_to_values import kernel_values
from nbcompile.compiler.kernel_ir.values import KernelValues
from nbcompile.compiler.loop_ir.expr import Expr, Load
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group, Item
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, index
from nbcompile.compiler.loop_ir.lanes import Access, heavy
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, LoopProgram, Statement
from nbcompile.compiler.schedule.row_shapes import kind_of_rows
from nbcompile.compiler.schedule.schedule import Work
from nbcompile.record.compilation import Decision
from nbcompile.targets import Target

LEAST_TURNED = 4 << 20  # bytes of a tensor, below which a launch counts for more
LAUNCH = 8 << 20  # bytes that are moved in the time of one more launch
COPY = 2.6  # the time of a copy, in that of its bytes moved once at full speed
# What an element in the other order costs more than one in the order of the rest, in such bytes. Measured on
# an H200 with two bytes an element: much where sums over the rows are kept beside (4.5 to 5.8 times the
# limit in all); little where columns are added up (1.9 to 2.1), unless the other order is written in pieces
# that no wide access fits (6.6 to 9.7).
BESIDE_SUMS = 24.0
BESIDE_COLUMNS = 3.0
NARROW = 24.0
GAIN = 1.25  # what is estimated to gain less is not worth the memory of a copy
WIDE_LANE = 16  # elements: what is read at once is a multiple of so many, at most


@dataclass(frozen=True)
class _Turn:
    """``old`` is read from ``new``, or made there: the same tensor in the order of the rest."""

    old: Buffer
    new: Buffer
    stored: bool


def in_one_order(program: FusedProgram, chip: Target) -> FusedProgram:
    """The program with copies before and after kernels of rows that would meet memory in two orders."""
    pass_ = _Pass(program, chip)
    for item in program.items:
        pass_.add(item)
    return pass_.finish()


class _Pass:
    def __init__(self, program: FusedProgram, chip: Target) -> None:
        self.program, self.chip = program, chip
        self.buffers = dict(program.program.buffers())
        self.items: list[Item] = []
        self.changed: dict[str, Loop] = {}
        self.before: dict[str, list[Loop]] = {}  # id of a statement → copies to put before it
        self.after: dict[str, list[Loop]] = {}
        self.spans = dict(program.program.spans)
        self.decisions = list(program.decisions)
        self.copies = 0

    def add(self, item: Item) -> None:
        updated = self.program.program.updates.values()  # these have the layout of the input
        turns = _turns(item, self.buffers, self.chip, updated) if isinstance(item, Group) else []
        if not isinstance(item, Group) or not turns:
            self.items.append(item)
            return
        group = _turned(item, turns)
        made = [self._copy(item, turn) for turn in turns]
        first = [_alone(loop) for loop, turn in zip(made, turns, strict=True) if not turn.stored]
        last = [_alone(loop) for loop, turn in zip(made, turns, strict=True) if turn.stored]
        self.items += [*first, group, *last]
        self.changed |= {loop.id: loop for loop in group.loops}
        self.buffers |= {turn.new.name: turn.new for turn in turns}

    def _copy(self, group: Group, turn: _Turn) -> Loop:
        """The loop that turns it round, entered in the program and in its record."""
        users = [loop for loop in group.loops if _uses(loop, turn)]
        source, result = (turn.new, turn.old) if turn.stored else (turn.old, turn.new)
        axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(turn.old.shape))
        loop = Loop(
            id=f"{self.program.program.graph}.t{self.copies}",
            outputs=(result,),
            axes=axes,
            body=Load(source.name, tuple(map(index, axes)), source.dtype),
            op="copy",
            origins=tuple(dict.fromkeys(origin for user in users for origin in user.origins)),
        )
        self.copies += 1
        lines = tuple(dict.fromkeys(line for user in users for line in self.spans.get(user.id, ())))
        if lines:
            self.spans[loop.id] = lines
        place = self.after if turn.stored else self.before
        place.setdefault(users[0].id, []).append(loop)
        if not turn.stored:
            self._reader_of_call(turn.old, {user.id for user in users}, loop)
        what = f"{turn.old.name} lies in another order than most of what this kernel moves"
        how = "stored in theirs and turned round after it" if turn.stored else "turned round before it"
        pair = (users[0].id, loop.id) if turn.stored else (loop.id, users[0].id)
        graph = self.program.program.graph
        self.decisions.append(
            Decision(
                f"{graph}.d{len(self.decisions)}", f"{graph}.fused", *pair, "producer-consumer", False,
                "other-order", f"{what}: {how}, so that each tile is read and written as it lies",
                bytes_saved(turn.new, False),
            )
        )  # fmt: skip
        return loop

    def _reader_of_call(self, result: Buffer, before: set[str], copy: Loop) -> None:
        """The decision about a library call and those who read its result is about the copy now."""
        statements = self.program.program.statements
        call = next((item.id for item in statements if result in item.outputs), "")
        self.decisions = [
            replace(item, consumer=copy.id)
            if item.code == "library-call" and item.producer == call and item.consumer in before else item
            for item in self.decisions
        ]  # fmt: skip

    def finish(self) -> FusedProgram:
        if not self.copies:
            return self.program
        statements: list[Statement] = []
        for item in self.program.program.statements:
            statements += self.before.get(item.id, [])
            statements.append(self.changed.get(item.id, item))
            statements += self.after.get(item.id, [])
        loops: LoopProgram = replace(self.program.program, statements=tuple(statements), spans=self.spans)
        return FusedProgram(loops, numbered(loops.graph, self.items), tuple(self.decisions))


def _uses(loop: Loop, turn: _Turn) -> bool:
    if turn.stored:
        return any(out.name == turn.old.name for out in loop.outputs)
    return any(load.buffer == turn.old.name for load in loop.reads())


# -- the group --------------------------------------------------------------------------------------


def _turned(group: Group, turns: Sequence[_Turn]) -> Group:
    """The group with the tensors of ``turns`` in their new places."""
    made = {turn.old.name: turn.new for turn in turns if turn.stored}
    names = {turn.old.name: turn.new.name for turn in turns}
    loops = tuple(
        replace(
            loop,
            outputs=tuple(made.get(out.name, out) for out in loop.outputs),
            body=_renamed(loop.body, names),
        )
        for loop in group.loops
    )
    stored = frozenset(names.get(name, name) for name in group.stored)
    return replace(group, loops=loops, stored=stored)


def _renamed(body: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with loads from other buffers; those inside an index stay."""
    if isinstance(body, Load):
        return Load(names.get(body.buffer, body.buffer), body.index, body.dtype)
    children = body.children()
    if not children:
        return body
    return body.rebuild(tuple(_renamed(child, names) for child in children), body.indices())


def _alone(loop: Loop) -> Group:
    nest, binding = nest_of(loop.axes)
    return Group((loop,), nest, {loop.id: binding}, stored=frozenset({loop.name}))


# -- whether ----------------------------------------------------------------------------------------


def _turns(group: Group, buffers: Mapping[str, Buffer], chip: Target, updated: Iterable[str]) -> list[_Turn]:
    """What to turn round so that all that is heavy lies in one order; nothing where that does not pay."""
    if not any(loop.reduction for loop in group.loops):
        return []
    if any(loop.kind in ("scan", "scatter") for loop in group.loops) or not group.stored.isdisjoint(updated):
        return []
    if any(axis.extent.constant is None for axis in group.nest.axes):
        return []
    touched = group.stored.union(load.buffer for loop in group.loops for load in loop.reads())
    if sum(buffers[name].bytes_hint() >= LEAST_TURNED for name in touched) < 2:
        return []
    values = kernel_values(group, buffers, narrow=True)
    kind = kind_of_rows(values)
    sides = _sides(values, buffers) if kind != "rows" else None
    if sides is None or not all(sides):
        return []
    values = Work.of(group, buffers, chip).values  # its axes in order, so that more of them are one
    sides = _sides(values, buffers)
    if sides is None or not all(sides):
        return []
    along, across = sides
    few = _tensors(across, buffers) <= _tensors(along, buffers)
    moved, kept = (across, along) if few else (along, across)
    if kind == "sums" and moved is along:
        return []  # rows across memory, with sums beside them: no better in one order
    turns = []
    for access in moved:
        turn = _turn(group, access, kept[0].lane, buffers)
        if turn is None:
            return []
        turns.append(turn)
    if len({turn.old.name for turn in turns}) < len(turns):
        return []  # read at two places: these need not have one order
    cost = sum(COPY * turn.old.bytes_hint() + LAUNCH for turn in turns)
    if cost * GAIN >= _excess(kind, moved, turns, buffers):
        return []
    return turns if _in_order(_turned(group, turns), turns, buffers, chip) else []


def _excess(
    kind: str, moved: Sequence[Access], turns: Sequence[_Turn], buffers: Mapping[str, Buffer]
) -> float:
    """What the other order costs at present, in bytes that are moved in that time."""
    points = sum(access.bytes // buffers[access.buffer].dtype.itemsize for access in moved)
    if kind == "sums":
        return BESIDE_SUMS * points
    narrow = all(item.lane is not None and item.lane.extent.hint() % WIDE_LANE for item in moved)
    stored = any(turn.stored for turn in turns)
    return (NARROW if narrow and stored else BESIDE_COLUMNS) * points


def _tensors(found: Sequence[Access], buffers: Mapping[str, Buffer]) -> int:
    """Bytes of what would have to be copied."""
    return sum(buffers[access.buffer].bytes_hint() for access in found)


def _sides(values: KernelValues, buffers: Mapping[str, Buffer]) -> tuple[list[Access], list[Access]] | None:
    """The heavy accesses whose neighbours in memory lie along the row, and those where they lie from row to
    row. None if some are of both kinds."""
    found = [access for access in heavy(accesses(values, dict(buffers))) if access.lanes]
    inner = values.nest.inner
    along = [access for access in found if inner.issuperset(access.lanes)]
    across = [access for access in found if inner.isdisjoint(access.lanes)]
    return (along, across) if len(along) + len(across) == len(found) else None


def _turn(group: Group, access: Access, lane: Axis | None, buffers: Mapping[str, Buffer]) -> _Turn | None:
    """The tensor of an access laid out so that neighbours lie along ``lane``; None if it must stay."""
    old = buffers[access.buffer]
    makers = [loop for loop in group.loops if any(out.name == old.name for out in loop.outputs)]
    if any(loop.kind != "pointwise" or len(loop.outputs) > 1 for loop in makers):
        return None
    whole = access.bytes >= old.bytes_hint() >= LEAST_TURNED  # else most of a copy would be in vain
    if lane is None or lane not in access.strides or not whole or not _dense(old):
        return None
    step = access.strides[lane]
    last = range(step, step * lane.extent.hint())
    order = sorted(range(len(old.shape)), key=lambda n: -old.strides[n].hint())
    order.sort(key=lambda n: old.strides[n].hint() in last and old.shape[n] != ONE)  # stable
    strides: dict[int, IndexExpr] = {}
    size = ONE
    for n in reversed(order):
        strides[n] = size
        size = size * old.shape[n]
    name = f"{old.name}_turned"
    while name in buffers:
        name += "_"
    new = Buffer(name, old.shape, tuple(strides[n] for n in range(len(order))), old.dtype)
    return _Turn(old, new, bool(makers))


def _dense(buffer: Buffer) -> bool:
    """Whether each element has a place of its own, and none is left free."""
    step = 1
    places = zip(buffer.strides, buffer.shape, strict=True)
    known = [(stride.constant, extent.constant) for stride, extent in places if extent != ONE]
    for stride, extent in sorted(known, key=lambda item: item[0] or 0):
        if extent is None or stride != step:
            return False
        step *= extent
    return True


def _in_order(group: Group, turns: Sequence[_Turn], buffers: Mapping[str, Buffer], chip: Target) -> bool:
    """Whether the group has one order now: each turned tensor is read nowhere else, and along its lane."""
    old = {turn.old.name for turn in turns}
    if any(load.buffer in old for loop in group.loops for load in loop.reads()):
        return False
    known = {**buffers, **{turn.new.name: turn.new for turn in turns}}
    values = Work.of(group, known, chip).values
    sides = _sides(values, known)
    lanes = {access.buffer: access.lane for access in accesses(values, known)}
    return sides is not None and not all(sides) and all(lanes.get(turn.new.name) for turn in turns)

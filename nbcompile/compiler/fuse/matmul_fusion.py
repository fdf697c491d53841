"""Matrix products as kernels of ours: which library calls may be one, and which group is its epilogue.

A product becomes a group of the ordinary kind: a loop that sums over ``k``, a loop that adds the bias and
rounds to the result's dtype (so a fused epilogue reads the numbers that eager would), and the loops of the
epilogue, which must be pointwise over exactly the product's points. Whether such a kernel is faster than
the library call with a kernel of its own for the epilogue is for a measurement to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from nbcompile.compiler.fuse.alignment import place_by_equations, places_read
from nbcompile.compiler.fuse.cost import bytes_saved
from nbcompile.compiler.fuse.legality import Refusal
from nbcompile.compiler.fuse.naming import group_names
from nbcompile.compiler.loop_ir.expr import Expr, Load, cast
from nbcompile.compiler.loop_ir.fused import Binding, FusedProgram, Group, Item, Nest, Product
from nbcompile.compiler.loop_ir.index import Axis, IndexExpr, Size, floordiv, index, mod, product
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, Statement, View
from nbcompile.compiler.loop_ir.substitution import substitute
from nbcompile.options import Options

Precision = Literal["ieee", "tf32"]

_FORMS = {
    torch.ops.aten.mm.default: 0, torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1, torch.ops.aten.baddbmm.default: 1,
}  # fmt: skip
"""Products that we have a kernel for: the position of their first factor (after what is added)."""

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SMALLEST = 16
"""The least extent of a product's sides for which matrix units are of use."""
MOST_BATCHES = 65_535


@dataclass(frozen=True)
class ProductCandidate:
    """One library call that may become a kernel of ours. ``epilogue`` is the group, as the program has it,
    that would run in the same kernel; ``group`` is that kernel. ``decisions`` are the ids of the program's
    decisions about the pair."""

    call: LibraryCall
    epilogue: Group | None
    group: Group
    decisions: frozenset[str] = frozenset()

    @property
    def result(self) -> Buffer:
        """What the library call makes."""
        return _result(self.call)

    @property
    def saved(self) -> int:
        """Bytes of memory traffic that the epilogue saves, at the hints."""
        return 0 if self.epilogue is None else bytes_saved(self.result, self.result.name in self.group.stored)

    def items(self) -> tuple[Item, ...]:
        """How the program does it without this kernel."""
        return (self.call,) if self.epilogue is None else (self.call, self.epilogue)


def candidates(
    program: FusedProgram, options: Options, precision: Precision
) -> tuple[tuple[ProductCandidate, ...], tuple[tuple[LibraryCall, Group, Refusal], ...]]:
    """(products that may be kernels of ours, pairs of a product and a reader of it that may not be one
    kernel, with the reason). Each group is the epilogue of one product at most: the last it reads."""
    taken: dict[str, str] = {}
    found: list[ProductCandidate] = []
    refused: list[tuple[LibraryCall, Group, Refusal]] = []
    for call in reversed([item for item in program.items if isinstance(item, LibraryCall)]):
        parts = _parts(call, precision)
        if parts is None:
            continue
        whole: Group | None = None
        epilogue: Group | None = None
        for reader in _readers(program, _result(call).name):
            if whole is not None or reader.id in taken:
                why = f"{_result(call).name} has another epilogue"
                if reader.id in taken:
                    why = f"it is the epilogue of {taken[reader.id]}"
                refused.append((call, reader, Refusal("one-epilogue", why)))
                continue
            answer = _with_epilogue(program, call, parts, reader, options)
            if isinstance(answer, Refusal):
                refused.append((call, reader, answer))
                continue
            whole, epilogue = answer, reader
            taken[reader.id] = _result(call).name
        found.append(_candidate(program, call, parts, whole, epilogue))
    return tuple(reversed(found)), tuple(refused)


def accepted(
    program: FusedProgram, candidate: ProductCandidate, group: Group, reason: str = ""
) -> FusedProgram:
    """The program with ``group`` (the candidate's, perhaps with other configs) in place of the call and of
    the epilogue. ``reason`` says what speaks for it."""
    items: list[Item] = []
    for item in program.items:
        if item is candidate.call:
            if candidate.epilogue is None:
                items.append(group)
        elif item is candidate.epilogue:
            items.append(group)
        else:
            items.append(item)
    why = reason or f"same points: {candidate.result.name} stays in registers"
    return replace(
        program,
        items=tuple(items),
        decisions=tuple(
            replace(item, accepted=True, code="epilogue", reason=why)
            if item.id in candidate.decisions else item
            for item in program.decisions
        ),
    )  # fmt: skip


def refused(program: FusedProgram, pairs: Iterable[tuple[LibraryCall, Group, Refusal]]) -> FusedProgram:
    """The program whose decisions say why these pairs are not one kernel."""
    why = {(call.id, loop.id): refusal for call, group, refusal in pairs for loop in group.loops}
    changed = []
    for item in program.decisions:
        refusal = None if item.accepted else why.get((item.producer, item.consumer))
        if refusal is not None:
            item = replace(item, code=refusal.code, reason=refusal.reason, overruled=refusal.code == "user")
        changed.append(item)
    return replace(program, decisions=tuple(changed))


def trial(program: FusedProgram, candidate: ProductCandidate, items: Sequence[Item]) -> FusedProgram:
    """A program of ``items`` alone (the candidate's own, or its one group): its inputs are what they read,
    then the sizes they mention; it returns what they store."""
    statements: tuple[Statement, ...] = (
        candidate.call,
        *(candidate.epilogue.loops if candidate.epilogue else ()),
    )
    made = {out.name for item in statements for out in item.outputs if out is not None}
    read: dict[str, None] = {}
    for item in statements:
        views = item.views() if isinstance(item, LibraryCall) else ()
        names = [view.buffer.name for view in views]
        names += [load.buffer for load in item.reads()] if isinstance(item, Loop) else []
        read |= dict.fromkeys(name for name in names if name not in made)
    buffers = program.program.buffers()
    wanted = [buffers[name] for name in read]
    results = [
        out for item in statements for out in item.outputs
        if out is not None and out.name in candidate.group.stored
    ]  # fmt: skip
    sizes = sorted({atom.text for atom in _sizes([*wanted, *results], statements)})
    small = LoopProgram(
        program.program.graph,
        (*(replace(buffer, role="input") for buffer in wanted), *sizes),
        statements,
        tuple(View.whole(buffer) for buffer in results),
        {},
        {},
    )
    return FusedProgram(small, tuple(items))


def trial_inputs(program: FusedProgram) -> tuple[list[Buffer], list[int]]:
    """What to call a trial with: its tensors, and the hints of its sizes."""
    small = program.program
    buffers = [item for item in small.inputs if isinstance(item, Buffer)]
    hints = {atom.text: atom.hint for atom in _sizes(buffers, small.statements)}
    return buffers, [hints[item] for item in small.inputs if isinstance(item, str)]


def _sizes(buffers: Iterable[Buffer], statements: Iterable[Statement]) -> Iterator[Size]:
    """Every symbolic size that these mention."""
    places: list[IndexExpr] = []
    for item in statements:
        buffers = [*buffers, *(out for out in item.outputs if out is not None)]
        if isinstance(item, LibraryCall):
            for view in item.views():
                buffers.append(view.buffer)
                places += [*view.shape, *view.index]
            places += [arg for arg in item.args if isinstance(arg, IndexExpr)]
        else:
            places += [axis.extent for axis in item.axes]
            places += [place for node in item.body.walk() for place in node.indices()]
    for buffer in buffers:
        places += [*buffer.shape, *buffer.strides]
    pending = [atom for place in places for atom in place.atoms()]
    for atom in pending:
        if isinstance(atom, Size):
            yield atom


# -- one product --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Parts:
    """A product taken apart: its loops (the sum, then bias and rounding), its nest, its axes."""

    loops: tuple[Loop, Loop]
    nest: Nest
    product: Product

    @property
    def points(self) -> tuple[Axis, ...]:
        """The axes of its result."""
        return self.loops[1].axes


def _result(call: LibraryCall) -> Buffer:
    result = call.outputs[0]
    assert result is not None
    return result


def _parts(call: LibraryCall, precision: Precision) -> _Parts | None:
    """The loops of a library call, if our kernels do what it does."""
    first = _FORMS.get(call.target)
    if first is None or len(call.args) != first + 2 or not set(call.kwargs) <= {"alpha", "beta"}:
        return None
    if call.elsewhere:
        return None
    left, right = call.args[first], call.args[first + 1]
    result = call.outputs[0]
    if result is None or not isinstance(left, View) or not isinstance(right, View):
        return None
    numbers = [call.kwargs.get(name, 1) for name in ("alpha", "beta")]
    if not all(isinstance(number, int | float) for number in numbers):
        return None
    alpha, beta = float(numbers[0]), float(numbers[1])
    if result.dtype not in _DTYPES or {left.dtype, right.dtype} != {result.dtype}:
        return None
    *batches, rows, columns = result.shape
    inner = left.shape[-1]
    if min(side.hint() for side in (rows, columns, inner)) < SMALLEST:
        return None
    if batches and not 1 < batches[0].hint() <= MOST_BATCHES:
        return None
    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", inner)
    batch = Axis("batch", batches[0]) if batches else None
    outer = (batch,) if batch is not None else ()
    work = torch.float32
    body = cast(left.load((*outer, m, k)), work) * cast(right.load((*outer, k, n)), work)
    strides: list[IndexExpr] = []
    for place in range(len(result.shape)):
        strides.append(product(result.shape[place + 1 :]))
    total = Buffer(f"{result.name}_sum", result.shape, tuple(strides), work)
    word = call.name.removeprefix("aten.")
    summing = Loop(
        call.id, (total,), (*outer, m, n, k), body, (k,), "sum", op=word, origins=call.origins
    )  # fmt: skip
    points = (*outer, m, n)
    value: Expr = Load(total.name, tuple(map(index, points)), work)
    if alpha != 1:
        value = value * alpha
    if first and beta != 0:
        added = call.args[0]
        if not isinstance(added, View) or added.dtype != result.dtype:
            return None
        # broadcast against the result: the last dimensions are matched, those of extent 1 repeated
        own = points[len(points) - len(added.axes) :]
        places = tuple(
            index(0) if axis.extent == 1 else index(point)
            for axis, point in zip(added.axes, own, strict=True)
        )
        bias = cast(added.load(places), work)
        value = value + (bias if beta == 1 else bias * beta)
    rounding = Loop(call.id, (result,), points, cast(value, result.dtype), op=word, origins=call.origins)
    nest = Nest((*points, k), frozenset({k}))
    return _Parts((summing, rounding), nest, Product(call, batch, m, n, k, precision))


def _candidate(
    program: FusedProgram, call: LibraryCall, parts: _Parts, whole: Group | None, epilogue: Group | None
) -> ProductCandidate:
    if whole is None:
        own: Binding = {axis: index(axis) for axis in parts.nest.axes}
        whole = Group(
            parts.loops, parts.nest, {call.id: own}, stored=frozenset({_result(call).name}),
            id=f"{program.program.graph}.k{call.id.rpartition('.')[2]}", product=parts.product,
        )  # fmt: skip
    name = group_names([whole])[0]
    taken = {group.name for group in program.groups if group is not epilogue}
    number = 2
    while name in taken:
        name, number = f"{group_names([whole])[0]}_{number}", number + 1
    ids = {loop.id for loop in whole.loops} - {call.id}
    about = frozenset(
        item.id for item in program.decisions if item.producer == call.id and item.consumer in ids
    )
    return ProductCandidate(call, epilogue, replace(whole, name=name), about)


# -- its epilogue ---------------------------------------------------------------------------------------


def _readers(program: FusedProgram, name: str) -> list[Group]:
    return [
        group for group in program.groups
        if any(load.buffer == name for loop in group.loops for load in loop.reads())
    ]  # fmt: skip


def _with_epilogue(
    program: FusedProgram, call: LibraryCall, parts: _Parts, reader: Group, options: Options
) -> Group | Refusal:
    """The product and ``reader`` as one kernel, or why not."""
    name = _result(call).name
    if not options.fuse:
        return Refusal("fusion-off", "fusion is switched off")
    if any((name, loop.name) in options.no_fuse for loop in reader.loops):
        return Refusal("user", "you asked not to fuse this pair")
    if reader.product is not None:
        return Refusal("one-epilogue", "it is a matrix product itself")
    if any(loop.kind == "reduction" for loop in reader.loops):
        return Refusal("whole-rows", "it reduces, and a tile of the product holds part of each row only")
    if any(loop.kind == "scatter" for loop in reader.loops) or reader.nest.inner:
        return Refusal("not-pointwise", "it is not pointwise over the product's points")
    if not _may_wait(program, call, reader):
        return Refusal("order", "something between them needs one and makes the other")
    if not reader.stored.isdisjoint(program.program.updates.values()):
        return Refusal("overwritten", "it overwrites an input, which a kernel of its own can do in place")
    bindings = _placed(parts, reader, name)
    if bindings is None:
        return Refusal("other-points", f"it is not at exactly the points of {name}")
    kept = any(
        isinstance(output, View) and output.buffer.name == name for output in program.program.outputs
    ) or any(item is not reader and name in _reads(item) for item in program.items)
    return Group(
        (*parts.loops, *reader.loops),
        parts.nest,
        {call.id: {axis: index(axis) for axis in parts.nest.axes}, **bindings},
        stored=reader.stored | ({name} if kept else set()),
        id=reader.id,
        product=parts.product,
    )


def _may_wait(program: FusedProgram, call: LibraryCall, reader: Group) -> bool:
    """Whether the call can run as late as ``reader`` does: nothing before that needs its result."""
    result = _result(call).name
    operands = {view.buffer.name for view in call.views()}
    start, end = program.items.index(call), program.items.index(reader)
    for item in program.items[start + 1 : end]:
        if result in _reads(item):
            return False
        if isinstance(item, LibraryCall):
            schema = getattr(item.target, "_schema", None)
            if schema is None or schema.is_mutable:
                return False
        elif any(program.program.updates.get(name) in item.stored for name in operands):
            return False  # it could no longer be made where the operand lies
    return start < end


def _reads(item: Item) -> set[str]:
    if isinstance(item, LibraryCall):
        return {view.buffer.name for view in item.views()}
    return {load.buffer for loop in item.loops for load in loop.reads()} | {
        loop.base for loop in item.loops if loop.base
    }


def _placed(parts: _Parts, reader: Group, name: str) -> Mapping[str, Binding] | None:
    """Bindings of the reader's loops to the product's axes, if it visits exactly the product's points and
    reads its result only where it is."""
    points = parts.points
    if product(axis.extent for axis in reader.nest.axes) != product(axis.extent for axis in points):
        return None
    first = next(places_read(reader.loops, reader.bindings, name), None)
    here = tuple(map(index, points))
    if first is None:
        return None
    placement = place_by_equations(Nest(points), reader.nest.axes, list(zip(first, here, strict=True)))
    if placement is None:
        return None
    back: dict[Axis, IndexExpr] = {}
    for whole, split in placement.splits.items():
        if whole not in points:
            continue
        own = [axis for axis in placement.nest.axes if axis in split.axes()]
        step = whole.extent
        for axis in own:
            inner = floordiv(step, axis.extent)
            place = floordiv(index(whole), inner)
            back[axis] = place if axis is own[0] else mod(place, axis.extent)
            step = inner
        if substitute(split, back) != index(whole):
            return None
    found: dict[str, Binding] = {}
    for loop in reader.loops:
        binding = reader.bindings.get(loop.id)
        if binding is not None:
            there = {axis: substitute(place, placement.binding) for axis, place in binding.items()}
            found[loop.id] = {axis: substitute(place, back) for axis, place in there.items()}
    if any(places != here for places in places_read(reader.loops, found, name)):
        return None
    if any(not place.axes() <= set(points) for binding in found.values() for place in binding.values()):
        return None
    return found

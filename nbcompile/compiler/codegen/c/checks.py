"""Indices that are looked at before anything of an input is overwritten.

Eager raises IndexError before the operation with the index does anything, and whoever mends the index and
runs the cell again finds inputs as they were. So a kernel that overwrites an input goes over the indices that
it gathers by first, over these alone, and returns if one is out of range. What a later kernel gathers by is
looked at by a function of its own, called just before the first kernel that overwrites an input, once it is
known.

What a kernel computes as an index from its own results of rows is not known beforehand: there, as in graphs
that overwrite nothing, indices are looked at where they are used.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nbcompile.compiler.codegen.c.kernel import PARALLEL_WORK, KernelPrinter, out_of_range
from nbcompile.compiler.codegen.printed import PrintedKernel
from nbcompile.compiler.kernel_ir.guard_ranges import Range, decide, segments
from nbcompile.compiler.kernel_ir.values import Gathered, Value, gathered, walk_values
from nbcompile.compiler.loop_ir.expr import Indirect
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, at_least, product
from nbcompile.compiler.loop_ir.known_sizes import sizes_given
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.errors import CodegenError

MOST_CHECKS = 64
"""Of one kernel: behind many guards an index is met along many ways, each with a loop of its own."""

Condition = tuple[Value, bool]
"""A guard, and which of its sides is taken."""


@dataclass(frozen=True)
class _Check:
    """An index that is read where the guards ``around`` allow it."""

    atom: Gathered
    around: tuple[Condition, ...]


# -- a kernel's own ---------------------------------------------------------------------------------


def look_ahead(nests: KernelPrinter, roots: Sequence[Value], places: Sequence[IndexExpr] = ()) -> bool:
    """Print the loops that look at the indices which ``roots`` and ``places`` need, as far as they are known
    before the nest, whose own checks of these are then left out. False if there are none."""
    made = frozenset(out.name for loop in nests.values.group.loops for out in loop.outputs)
    checks = list(_checks(roots, places, made))
    if len(checks) > MOST_CHECKS:
        return False
    together: dict[tuple[tuple[Axis, ...], tuple[Condition, ...]], list[Gathered]] = {}
    for check in checks:
        if (walked := _walked(nests, check)) is not None:
            together.setdefault(walked, []).append(check.atom)
    used, lines = set(nests.used_names), len(nests.out.text)
    for (axes, around), atoms in together.items():
        others = [axis.extent for axis in nests.values.nest.axes if axis not in axes]
        doubtful = [extent for extent in others if not at_least(extent, ONE)]
        if any(extent.constant is not None for extent in doubtful):
            continue  # the nest has no points
        if doubtful:  # nor may this have any: of nothing no index is looked at, in eager as well
            tests = " && ".join(f"{nests.place(extent, {})} > 0" for extent in doubtful)
            nests.out.open(f"if ({tests})", axes=())
        else:
            nests.looked_at.update((atom.value, atom.text) for atom in atoms)
            if not axes:
                nests.out.open("", axes=())  # the names of its locals are not the nest's
        _Loops(nests, around, tuple(atoms)).write(axes)
        if doubtful or not axes:
            nests.out.close()
    nests.used_names = used.union(nests.buffer_names.values())  # the names of locals are free again
    return len(nests.out.text) > lines


def stop_if_bad(nests: KernelPrinter) -> None:
    """Print what leaves the kernel before it has overwritten anything."""
    nests.looks_ahead = True
    nests.out.open("if (bad)", axes=())
    nests.out.add("*status = 1; // and nothing of an input is overwritten")
    nests.out.add("return;")
    nests.out.close()


def _checks(roots: Sequence[Value], places: Sequence[IndexExpr], made: frozenset[str]) -> Iterator[_Check]:
    """What is gathered by and needs nothing that is ``made`` here, along each way of guards that leads there:
    the shortest first, for what is met without a guard need not be asked for behind one."""
    found: set[tuple[str, tuple[Condition, ...]]] = set()
    ways: dict[int, list[frozenset[Condition]]] = {}
    pending: list[tuple[int, int, Value, tuple[Condition, ...]]] = []
    order = itertools.count()

    def noted(place: IndexExpr, around: tuple[Condition, ...]) -> Iterator[_Check]:
        for atom in sorted(place.atoms(), key=lambda atom: atom.text):
            if (
                isinstance(atom, Gathered)
                and (atom.text, around) not in found
                and _is_known(atom.value, made)
            ):
                found.add((atom.text, around))
                yield _Check(atom, around)

    def meet(value: Value, around: tuple[Condition, ...]) -> None:
        heapq.heappush(pending, (len(around), next(order), value, around))

    for place in places:
        yield from noted(place, ())
    for value in (*roots, *(value for place in places for value in gathered(place))):
        meet(value, ())
    while pending and len(found) <= MOST_CHECKS:
        _, _, value, around = heapq.heappop(pending)
        if any(way <= frozenset(around) for way in ways.get(value.number, ())):
            continue
        ways.setdefault(value.number, []).append(frozenset(around))
        for place in (value.place, *(item for bound in value.bounds for item in bound)):
            yield from noted(place, around)
        taken = decide(value.bounds, {}) if value.kind == "guard" else None
        for child in value.inputs():
            if value.kind != "guard" or child not in value.args:
                meet(child, around)
        for side, arg in enumerate(value.args if value.kind == "guard" else ()):
            if taken is None:
                meet(arg, (*around, (value, side == 0)))
            elif taken is (side == 0):
                meet(arg, around)


def _is_known(value: Value, made: frozenset[str]) -> bool:
    """Whether it is computed from memory that is there before the kernel runs."""
    return all(
        item.kind not in ("reduced", "scan") and item.buffer not in made for item in walk_values([value])
    )


def _walked(nests: KernelPrinter, check: _Check) -> tuple[tuple[Axis, ...], tuple[Condition, ...]] | None:
    """The axes that an index varies along, with the guards on these. Others only choose which of the elements
    are used: eager gathers them all. None where some are not the nest's: those of what a scatter writes into,
    which is made before by loops of its own."""
    axes, near = set(check.atom.value.axes), tuple[Condition, ...]()
    while True:
        near = tuple(item for item in check.around if _axes_of(item[0]) & axes)
        more = axes.union(*(_axes_of(guard) for guard, _ in near))
        if more == axes:
            walked = tuple(axis for axis in nests.values.nest.axes if axis in axes)
            return (walked, near) if len(walked) == len(axes) else None
        axes = more


def _axes_of(guard: Value) -> frozenset[Axis]:
    places = [place for bound in guard.bounds for place in bound]
    found = frozenset[Axis]().union(*(place.axes() for place in places))
    return found.union(*(value.axes for place in places for value in gathered(place)))


@dataclass(frozen=True)
class _Loops:
    """The loops that look at ``atoms`` where the guards ``around`` allow it."""

    nests: KernelPrinter
    around: tuple[Condition, ...]
    atoms: tuple[Gathered, ...]

    def write(self, axes: Sequence[Axis], ranges: Range | None = None, outer: bool = True) -> None:
        """Those over ``axes``, where others are in ``ranges``, cut where guards change their minds."""
        ranges, nests = ranges or {}, self.nests
        if not axes:
            self._point(ranges)
            return
        for piece in segments(axes[0], [guard.bounds for guard, _ in self.around], ranges):
            within = ranges if piece is None else {**ranges, axes[0]: piece}
            if any(decide(guard.bounds, within) is (not taken) for guard, taken in self.around):
                continue
            if pragma := self._pragma(axes, within, outer):
                nests.out.add(pragma)
            nests.for_(axes[0], piece)
            self.write(axes[1:], within, False)
            nests.out.close()

    def _pragma(self, axes: Sequence[Axis], ranges: Range, outer: bool) -> str:
        values = len(walk_values([atom.value for atom in self.atoms]))
        work = product(axis.extent for axis in axes).hint() * values
        threads = " parallel for" if outer and work >= PARALLEL_WORK else ""
        # no loads under a mask: see runtime/c/if_conversion.py
        sure = all(decide(guard.bounds, ranges) is not None for guard, _ in self.around)
        vectors = " simd" if len(axes) == 1 and sure else ""
        return f"#pragma omp{threads}{vectors} reduction(|:bad)" if threads or vectors else ""

    def _point(self, ranges: Range) -> None:
        nests = self.nests
        open_ = [item for item in self.around if decide(item[0].bounds, ranges) is None]
        tests = [(nests.guard_test(guard, {}), taken) for guard, taken in open_]
        text = " && ".join(f"({test})" if taken else f"!({test})" for test, taken in tests)
        if text:
            nests.out.open(f"if ({text})", axes=())
        scope = nests.define([atom.value for atom in self.atoms], ranges, {})
        for atom in self.atoms:
            index, size = nests.code(atom.value, scope).text, nests.place(atom.size, {})
            nests.out.add(f"{out_of_range(index, size)};", [atom.value.origin])
        if text:
            nests.out.close()


# -- those of later kernels -------------------------------------------------------------------------


def called_ahead(
    program: FusedProgram, look: Callable[[Group], PrintedKernel | None]
) -> dict[str, list[PrintedKernel]]:
    """Kernels that overwrite inputs, by id → the functions, which ``look`` prints, that look at the indices
    of later kernels and are called before them."""
    items, makers, telling = program.items, dict[str, int](), -1
    writers = [place for place, item in enumerate(items) if isinstance(item, Group) and item.in_place]
    found: dict[str, list[PrintedKernel]] = {}
    if not writers:
        return found
    given = sizes_given(program.program)
    for place, item in enumerate(items):
        if isinstance(item, LibraryCall):
            telling = place if item.tells() - given else telling
            makers |= {out.name: place for out in item.outputs if out is not None}
            continue
        makers |= dict.fromkeys(item.stored, place)
        if place <= writers[0] or not _gathers(item):
            continue
        with suppress(CodegenError):  # the kernel itself will say so
            if (printed := look(item)) is not None:
                needed = printed.calls[0].parameters
                known = [makers.get(each.buffer, -1) for each in needed if each.kind == "buffer"]
                known += [telling for each in needed if each.kind == "size" and each.name not in given]
                before = next((each for each in writers if each > max(known, default=-1)), place)
                if before < place:
                    found.setdefault(items[before].id, []).append(_named(printed, item))
    return {writer: _distinct(each) for writer, each in found.items()}


def _gathers(group: Group) -> bool:
    places = [place for loop in group.loops for place in loop.target or ()]
    places += [each for loop in group.loops for node in loop.body.walk() for each in node.indices()]
    return any(isinstance(atom, Indirect) for place in places for atom in place.atoms())


def _named(printed: PrintedKernel, group: Group) -> PrintedKernel:
    """The function with the kernel that an index out of range is said to be in."""
    return replace(printed, calls=tuple(replace(call, of=group.name) for call in printed.calls))


def _distinct(functions: Sequence[PrintedKernel]) -> list[PrintedKernel]:
    """One of each that look at the same: layers of a graph network gather by one tensor of edges."""
    found: dict[object, PrintedKernel] = {}
    for each in functions:
        given = tuple((item.kind, item.name, item.buffer) for item in each.calls[0].parameters)
        found.setdefault((each.text.partition("{")[2], given), each)
    return list(found.values())


def with_ahead(kernel: PrintedKernel, ahead: Sequence[PrintedKernel]) -> PrintedKernel:
    """The kernel with functions that are called before it."""
    texts, lines, count = list[str](), list[tuple[int, tuple[str, ...]]](), 0
    for each in (*ahead, kernel):
        texts.append(each.text)
        lines += [(count + line, origins) for line, origins in each.lines]
        count += each.text.count("\n") + 2  # an empty line stands between two
    calls = tuple(call for each in (*ahead, kernel) for call in each.calls)
    return replace(kernel, text="\n\n".join(texts), lines=tuple(lines), calls=calls)

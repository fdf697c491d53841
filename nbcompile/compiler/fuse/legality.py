"""May two groups become one kernel? Either the merged group or a refusal with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nbcompile.compiler.fuse.alignment import (
    Equation,
    Placement,
    nest_of,
    place_by_equations,
    place_by_shape,
    place_of,
)
from nbcompile.compiler.fuse.cost import many_loads, touched
from nbcompile.compiler.fuse.limits import CPU_LIMITS, Limits
from nbcompile.compiler.fuse.own_sums import (
    KEPT_BYTES,
    axes_of,
    fit_a_stack,
    lie_across,
    only_reduces,
    shares,
)
from nbcompile.compiler.fuse.recompute import (
    Computable,
    Evaluations,
    kept_parts,
    output_index,
    repeats,
    settled_reads,
)
from nbcompile.compiler.fuse.scans import counts_up, scanning
from nbcompile.compiler.fuse.storage import why_not_in_place
from nbcompile.compiler.loop_ir.fused import Binding, Group, Nest
from nbcompile.compiler.loop_ir.index import ZERO, Axis, IndexExpr
from nbcompile.compiler.loop_ir.lanes import Access, heavy_lanes, strides_of
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, hint_product
from nbcompile.compiler.loop_ir.substitution import substitute

MANY_BUFFERS = 64
MANY_LOOPS = 160  # a kernel nobody reads, and a merge that has to look at every loop again
COST = frozenset({"recompute", "few-rows", "other-order", "too-many-loops", "overwritten"})
"""Refusals of what could be one kernel, and a correct one, but a slow one: the user may overrule these."""


@dataclass(frozen=True)
class Refusal:
    """Why a pair is not fused: a short stable code and one sentence."""

    code: str
    reason: str


@dataclass(frozen=True)
class Uses:
    """Who makes and reads each buffer of a program, by statement id; ``results`` are there at its end,
    ``updates`` among them (``LoopProgram.updates``). ``forced``: sets of loops (ids) that the user wants in
    one kernel, whatever it costs."""

    makers: Mapping[str, Loop]
    readers: Mapping[str, frozenset[str]]
    results: frozenset[str]
    buffers: Mapping[str, Buffer]
    limits: Limits = CPU_LIMITS
    updates: Mapping[str, str] = field(default_factory=dict)
    forced: tuple[frozenset[str], ...] = ()

    def forces(self, loops: Iterable[Loop]) -> bool:
        """Whether the user wants a set of loops in one kernel that has all of these, or is among them."""
        ids = frozenset(loop.id for loop in loops)
        return any(ids <= wanted or wanted <= ids for wanted in self.forced)

    def stored(self, loops: Iterable[Loop]) -> frozenset[str]:
        """The outputs of ``loops`` that something outside of them needs."""
        loops = tuple(loops)
        ids = {loop.id for loop in loops}
        return frozenset(
            out.name
            for loop in loops
            for out in loop.outputs
            if out.name in self.results or not self.readers.get(out.name, frozenset()) <= ids
        )


def single(loop: Loop, uses: Uses) -> Group:
    """The group of one loop alone."""
    nest, binding = nest_of(loop.axes)
    group = Group((loop,), nest, {loop.id: binding}, stored=uses.stored((loop,)))
    scheduled = _schedule(group, uses)
    if isinstance(scheduled, Refusal):
        raise AssertionError(f"a loop alone cannot be scheduled: {scheduled.reason}")
    return scheduled


def merge(producer: Group, consumer: Group, uses: Uses) -> Group | Refusal:
    """One group that does the work of both, or why not. Dependencies through other groups are the
    caller's to check."""
    loops = producer.loops + consumer.loops
    scatters = [loop for loop in loops if loop.kind == "scatter"]
    stored = uses.stored(loops)
    if len(scatters) > 1 or any(loop.kind == "scatter" for loop in producer.loops):
        return Refusal("scatter", "a scatter must be complete before anything reads it")
    if len(touched(loops, stored)) > MANY_BUFFERS:
        return Refusal("too-many-buffers", f"one kernel would touch more than {MANY_BUFFERS} tensors")
    if len(loops) > MANY_LOOPS and not uses.forces(loops):
        return Refusal("too-many-loops", f"one kernel would do the work of more than {MANY_LOOPS} loops")
    if not uses.limits.split_alone and any(loop.reduction or loop.scan for loop in loops):
        costly = next((loop for loop in loops if not loop.reduction and many_loads(loop)), None)
        if costly is not None and not uses.forces(loops):
            why = (
                f"{costly.name} reads {len(costly.reads())} elements a point: a row of it fits in no register"
            )
            return Refusal("recompute", why)
    refusal: Refusal | None = None
    if not scatters:
        for merged in _ways_to_join(producer, consumer, stored):
            scheduled = _schedule(merged, uses, (producer, consumer))
            if isinstance(scheduled, Group):
                return scheduled
            refusal = refusal or scheduled
    inlined = _inline(producer, consumer, stored, uses)
    if isinstance(inlined, Group) or scatters:
        return inlined
    return refusal or inlined


def _ways_to_join(producer: Group, consumer: Group, stored: frozenset[str]) -> Iterable[Group]:
    """The groups of both that are to be tried, each once: many equations have one solution."""
    tried: list[Group] = []
    for host, guest in _host_first(producer, consumer):
        placed: list[Placement] = []
        for placement in _placements(host, guest):
            if placement in placed:
                continue
            placed.append(placement)
            merged = _joined(producer, consumer, host, guest, placement, stored)
            if not any(merged.nest == other.nest and merged.bindings == other.bindings for other in tried):
                tried.append(merged)
                yield merged


def _host_first(a: Group, b: Group) -> list[tuple[Group, Group]]:
    points_a, points_b = _points(a.nest.axes), _points(b.nest.axes)
    if points_a > points_b:
        return [(a, b)]
    if points_b > points_a:
        return [(b, a)]
    return [(a, b), (b, a)]


def _points(axes: Iterable[Axis]) -> int:
    return hint_product(axis.extent for axis in axes)


def _placements(host: Group, guest: Group) -> Iterable[Placement]:
    """Ways to place the guest's nest in the host's, the most promising first."""
    seen = 0
    solved: dict[tuple[Equation, ...], Placement | None] = {}  # what two loops share, they often share twice
    for equations in map(tuple, _equations(host, guest)):
        if equations not in solved:
            solved[equations] = place_by_equations(host.nest, guest.nest.axes, equations)
        placement = solved[equations]
        if placement is not None:
            yield placement
            seen += 1
            if seen == 3:
                return
    for onto in (host.nest.axes, host.nest.rows):
        placement = place_by_shape(host.nest, guest.nest.axes, onto)
        if placement is not None:
            yield placement


def _equations(host: Group, guest: Group) -> Iterable[list[Equation]]:
    read_by_host, read_by_guest = _read(host), _read(guest)
    made_by_host = _made(host, read_by_guest)
    made_by_guest = _made(guest, read_by_host | read_by_guest)
    for loop, binding in _bound(guest):
        for load in loop.reads():
            if load.buffer in made_by_host:
                yield list(zip(place_of(load, binding), made_by_host[load.buffer], strict=True))
    for loop, binding in _bound(host):
        for load in loop.reads():
            if load.buffer in made_by_guest:
                yield list(zip(made_by_guest[load.buffer], place_of(load, binding), strict=True))
    shared = read_by_guest.difference(made_by_guest)
    host_reads = {
        load.buffer: place_of(load, binding)
        for loop, binding in _bound(host)
        for load in loop.reads()
        if load.buffer in shared
    }
    for loop, binding in _bound(guest):
        for load in loop.reads():
            if load.buffer in host_reads and load.buffer not in made_by_guest:
                yield list(zip(place_of(load, binding), host_reads[load.buffer], strict=True))


def _bound(group: Group) -> Iterable[tuple[Loop, Binding]]:
    return ((loop, group.bindings[loop.id]) for loop in group.loops if loop.id in group.bindings)


def _read(group: Group) -> set[str]:
    return {load.buffer for loop, _ in _bound(group) for load in loop.reads()}


def _made(group: Group, wanted: set[str]) -> dict[str, tuple[IndexExpr, ...]]:
    return {
        out.name: tuple(binding[axis] for axis in loop.kept)
        for loop, binding in _bound(group)
        if loop.target is None
        for out in loop.outputs
        if out.name in wanted
    }


def _joined(
    producer: Group, consumer: Group, host: Group, guest: Group, placement: Placement, stored: frozenset[str]
) -> Group:
    bindings: dict[str, Binding] = {}
    for loop, binding in _bound(host):
        bindings[loop.id] = placement.apply(binding)
    for loop, binding in _bound(guest):
        bindings[loop.id] = {axis: substitute(place, placement.binding) for axis, place in binding.items()}
    loops = producer.loops + consumer.loops
    return Group(loops, placement.nest, bindings, stored=stored)


def _inline(producer: Group, consumer: Group, stored: frozenset[str], uses: Uses) -> Group | Refusal:
    """The producer's loops computed where the consumer reads them."""
    made = {out.name for loop in producer.loops for out in loop.outputs}
    if any(loop.kind != "pointwise" for loop in producer.loops) or made & stored:
        return Refusal("different-shape", "they iterate over different shapes or in different orders")
    group = replace(
        consumer, loops=producer.loops + consumer.loops, stored=stored, bindings=dict(consumer.bindings)
    )
    return _schedule(group, uses, (producer, consumer))


def _schedule(group: Group, uses: Uses, parts: tuple[Group, ...] = ()) -> Group | Refusal:
    """The group with its inner axes and split reductions chosen, or why there is no way. ``parts``: the
    groups that it was joined of."""
    if any(loop.kind == "scatter" for loop in group.loops):
        problem = _check_edges(group, uses, kept_parts(group, parts))
        return problem or replace(group, nest=Nest(group.nest.axes))
    if any(loop.kind == "scan" for loop in group.loops):
        turned = scanning(group)
        if isinstance(turned, str):
            return Refusal("scan", turned)
        return _check_edges(turned, uses, kept_parts(turned, parts)) or turned
    if not all(counts_up(group, loop) for loop in group.loops if loop.id in group.bindings):
        return Refusal("different-shape", "of equal numbers the first is wanted, which would come later here")
    reduced = {
        loop.id: axes_of(binding[axis] for axis in loop.reduced)
        for loop, binding in _bound(group)
        if loop.reduction
    }
    refusal: Refusal | None = None
    for inner, split in _schedules(group, reduced, uses):
        if uses.limits.split_alone and not fit_a_stack(group, reduced, split):
            continue
        candidate = replace(group, nest=Nest(group.nest.axes, inner), split=split)
        kept = kept_parts(candidate, parts)
        problem = _check_roots(candidate, reduced, uses, kept) or _check_edges(candidate, uses, kept)
        if problem is None:
            return candidate
        refusal = refusal or problem
    return refusal or Refusal("different-axes", "they reduce over different axes")


def _schedules(
    group: Group, reduced: Mapping[str, frozenset[Axis]], uses: Uses
) -> Iterable[tuple[frozenset[Axis], frozenset[str]]]:
    """Candidate (inner axes, split reductions), the preferred first."""
    axes = group.nest.axes
    if not reduced:
        partial = [
            axes_of(binding.values())
            for loop, binding in _bound(group)
            if any(out.name in group.stored for out in loop.outputs)
        ]
        rows = min(partial, key=len, default=frozenset(axes))
        yield frozenset(axes) - rows, frozenset()
        return
    everything = frozenset(reduced)
    read_here = {load.buffer for loop in group.loops for load in loop.reads()}
    unread = frozenset(
        loop.id
        for loop in group.loops
        if loop.reduction in ("sum", "prod", "max", "min", "any", "all")
        and not any(out.name in read_here for out in loop.outputs)
    )
    row_like = []
    for inner in dict.fromkeys(reduced[loop.id] for loop in group.loops if loop.id in reduced):
        split = frozenset(name for name in everything if reduced[name] != inner)
        if split <= unread:
            row_like.append((inner, split))
    # rows that lie along memory are walked once, in order; other reductions follow per thread
    along = [way for way in row_like if not way[1] or not axes or axes[-1] in way[0]]
    across = [way for way in row_like if way not in along]
    if not uses.limits.split_alone and _points(axes) > uses.limits.serial_points:
        across = []  # a tile of whole columns has too few of them for what is added up along the rows
    row_like = along + across
    split_all = []
    empty = any(axis.extent == ZERO for axis in axes)  # partial sums would have no memory to be added up in
    if unread == everything and uses.limits.split_alone and not empty:
        common = frozenset(axes).intersection(*reduced.values()) if reduced else frozenset()
        outer = _leading(axes, common)
        if outer:
            split_all.append((frozenset(axes) - outer, everything))
    yield from split_all + row_like if _prefer_split(group, reduced, uses.limits) else row_like + split_all


def _leading(axes: tuple[Axis, ...], allowed: frozenset[Axis]) -> frozenset[Axis]:
    """The first axes that are all ``allowed``, as few as give enough rows."""
    chosen: list[Axis] = []
    for axis in axes:
        if axis not in allowed or (chosen and _points(chosen) >= 64):
            break
        chosen.append(axis)
    return frozenset(chosen)


def _prefer_split(group: Group, reduced: Mapping[str, frozenset[Axis]], limits: Limits) -> bool:
    """Whether partial sums per thread beat a row (or a tile of columns) at a time."""
    axes = group.nest.axes
    for name in reduced:
        kept = [axis for axis in axes if axis not in reduced[name]]
        if _points(kept) < limits.split_rows and _points(axes) > limits.serial_points:
            return True
        last = axes[-1] if axes else None
        if last not in reduced[name] and axes and axes[0] in reduced[name]:
            over = _points(reduced[name])
            return _points(kept) * 8 <= KEPT_BYTES and over >= 64
    return False


def _check_roots(
    group: Group, reduced: Mapping[str, frozenset[Axis]], uses: Uses, kept: Sequence[Group]
) -> Refusal | None:
    """Whether every reduction and every stored value can be made in this nest; in those parts of the group
    that are ``kept`` as they were, they can."""
    nest, limits = group.nest, uses.limits
    all_axes, rows = frozenset(nest.axes), frozenset(nest.rows)
    known = {loop.id for part in kept for loop in part.loops}
    for loop in group.loops:
        if loop.id in known:
            continue
        binding = group.bindings.get(loop.id)
        is_root = bool(loop.reduction) or any(out.name in group.stored for out in loop.outputs)
        if binding is None:
            if is_root:
                return Refusal("different-shape", "they iterate over different shapes")
            continue
        domain = axes_of(binding.values())
        if loop.reduction and loop.id in group.split:
            if not rows <= reduced[loop.id] or domain not in (all_axes, rows):
                return Refusal("different-axes", "they reduce over different axes")
            if not rows or not (limits.split_alone or _whole_or_nothing(nest, reduced[loop.id])):
                return Refusal("different-axes", "they reduce over different axes")
        elif loop.reduction:
            if reduced[loop.id] != nest.inner or domain != all_axes:
                return Refusal("different-axes", "they reduce over different axes")
        elif is_root and domain not in (all_axes, rows):
            return Refusal("different-shape", "they iterate over different shapes")
    if any(name not in group.split for name in reduced):
        return _check_rows(group, uses)
    return None if reduced else _check_walk(group, uses)


def _check_walk(group: Group, uses: Uses) -> Refusal | None:
    """Whether a kernel that keeps something of each row, though it reduces nothing, walks the rest in order:
    on a CPU what is read once more costs less than to walk across memory."""
    nest, limits = group.nest, uses.limits
    if not (limits.split_alone and nest.rows and _points(nest.inner_axes) > limits.few_across):
        return None
    if uses.forces(group.loops) or not heavy_lanes(accesses(group, uses)).isdisjoint(nest.inner):
        return None
    return Refusal("other-order", "what is kept of each row lies along memory, and the rows across it")


def _check_rows(group: Group, uses: Uses) -> Refusal | None:
    """Whether a kernel of these rows keeps the machine busy and reads memory in order."""
    nest, limits = group.nest, uses.limits
    if len(group.loops) == 1 or uses.forces(group.loops):
        return None
    inner, rows = _points(nest.inner_axes), _points(nest.rows)
    small = inner * rows <= limits.serial_points
    if small and limits.split_alone:
        return None
    lanes, width = heavy_lanes(accesses(group, uses)), 1
    programs = shares(nest, lanes) if limits.split_alone else rows
    if limits.columns > 1:
        if not lanes.isdisjoint(nest.rows):
            programs, width = programs // limits.columns, limits.columns
            both = not lanes.isdisjoint(nest.inner) and inner > limits.longest_column
            if both and not only_reduces(group):
                return Refusal("other-order", "one reads or writes memory along the rows, the other across")
    if limits.split_alone and lie_across(nest, lanes):
        reason = f"memory lies across columns of {inner:,}: each alone is walked in its order"
        return Refusal("other-order", reason)
    if programs >= limits.few_rows or small:
        return None
    if not limits.split_alone and (only_reduces(group) or (width == 1 and _shareable(group, limits))):
        return None
    return Refusal("few-rows", f"only {rows} rows of {inner:,}: one kernel would leave cores idle")


def accesses(group: Group, uses: Uses) -> list[Access]:
    """What a group's loops read from memory and store there, in the axes of the nest."""
    makers = {out.name for loop in group.loops for out in loop.outputs}
    axes, found = group.nest.axes, []
    for loop, binding in _bound(group):
        places = [
            (load.buffer, place_of(load, binding)) for load in loop.reads() if load.buffer not in makers
        ]
        if loop.target is None:
            kept = tuple(binding[axis] for axis in loop.kept)
            places += [(out.name, kept) for out in loop.outputs if out.name in group.stored]
        for name, place in places:
            buffer = uses.buffers[name]
            offset = buffer.offset(place)
            size = _points(axis for axis in axes if axis in offset.axes()) * buffer.dtype.itemsize
            found.append(Access(name, size, strides_of(offset, axes)))
    return found


def _whole_or_nothing(nest: Nest, reduced: frozenset[Axis]) -> bool:
    """Whether a sum over the rows keeps all of the inner axes, or none."""
    kept = nest.inner - reduced
    return not kept or kept == nest.inner


def _shareable(group: Group, limits: Limits) -> bool:
    """Whether several programs can hold one row together: its length is known, and not too long."""
    if group.split:
        return False
    known = all(axis.extent.constant is not None for axis in group.nest.axes)
    positions = any(loop.reduction in ("argmax", "argmin") for loop in group.loops)
    return known and not positions and _points(group.nest.inner_axes) <= limits.shared_row


def _check_edges(group: Group, uses: Uses, kept: Sequence[Group]) -> Refusal | None:
    """Whether every value read inside the group is there, at the index it is read at. ``kept``: the parts of
    the group of which that was found, and that are in it as they were."""
    makers = {out.name: loop for loop in group.loops for out in loop.outputs}
    problem = _check_updates(group, uses)
    if problem is not None:
        return problem
    computable = Computable(group, makers)
    evaluations = Evaluations(group, makers, uses.limits)
    settled = settled_reads(group, kept, makers)
    for loop in group.loops:
        binding = group.bindings.get(loop.id)
        known = settled.get(loop.id, ())
        for load in loop.reads():
            maker = makers.get(load.buffer)
            if maker is None or load.buffer in known:
                continue
            if maker.kind == "scatter":
                return Refusal("scatter", "a scatter must be complete before anything reads it")
            if maker.id in group.split:
                return Refusal("whole-sum", f"{maker.name} is known only after all rows")
            aligned = (
                binding is not None
                and maker.id in group.bindings
                and place_of(load, binding) == output_index(group, maker)
            )
            if aligned:
                times = repeats(group, maker, makers, uses.limits)
                if times and not uses.forces((maker, loop)):
                    return Refusal("recompute", f"{maker.name} would be computed {times:,.0f} times over")
                continue
            if not computable.at(load, binding):
                return Refusal("other-rows", f"reads {load.buffer} at other rows than those it is made in")
            if uses.forces((maker, loop)):
                continue
            times = evaluations.times_over(load, loop, maker)
            if times:
                return Refusal("recompute", f"{maker.name} would be computed {times:,.0f} times over")
    return None


def _check_updates(group: Group, uses: Uses) -> Refusal | None:
    """Whether what the group makes of an input can lie where the input did; else it costs a copy."""
    if len(group.loops) == 1 or uses.forces(group.loops):
        return None
    for name, new in uses.updates.items():
        why = why_not_in_place(group, name, new, uses.limits)
        if why:
            return Refusal("overwritten", why)
    return None

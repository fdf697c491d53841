"""Which boxes of a graph stand in which group: by module, by kernel, by line, and never too many together.

Groups hold neighbours in the order of the graph, which is a topological one: so nothing that a group reads is
made after it, and no two groups read each other. A module whose ops are done in several places has a group
for each.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from nbcompile.units import clip

MAX_CHILDREN = 60
"""Boxes of one group: more are put in groups of neighbours."""
PART = 40
MAX_DEPTH = 12
"""Modules in modules that are told apart: a record may come from anyone."""

GroupKind = Literal["root", "module", "repeat", "kernel", "line", "part"]
"""What the contents of a group have in common: the graph, a module, being equal modules one after the other
(``repeat``), a kernel, a line of the source; or nothing but their place in the graph (``part``)."""
Path = tuple[str, ...]


@dataclass(eq=False)
class Box:
    """A node (``ref`` as in ``nesting.Drawing``), or a group (``kind``) with others in it. ``path`` and
    ``line`` are the module and the line of the source that a node comes from, or a module's own; ``name``
    tells a group from others. What a ``closed`` group holds is not drawn."""

    ref: int = -1
    kind: GroupKind | None = None
    label: str = ""
    name: str = ""
    path: Path = ()
    line: str = ""
    inner: list[Box] = field(default_factory=list)
    outer: Box | None = None
    closed: bool = False

    @property
    def shown(self) -> list[Box]:
        """What is drawn in it."""
        return [] if self.closed else self.inner

    def way_down(self) -> list[Box]:
        """The groups around this box, the outermost first, and itself; up to the first that is closed."""
        way = [self]
        while way[-1].outer is not None:
            way.append(way[-1].outer)
        way.reverse()
        return way[: 1 + next((n for n, box in enumerate(way) if box.closed), len(way))]

    def groups(self) -> Iterator[Box]:
        """This group and all that are drawn in it, outer ones first."""
        if self.kind is not None:
            yield self
            for box in self.shown:
                yield from box.groups()

    def nodes(self) -> Iterator[Box]:
        """All boxes in it that are no groups."""
        for box in self.inner:
            yield from box.nodes() if box.kind is not None else (box,)


def module_path(module: str) -> Path:
    """``layers.0.attn`` as ``layers.0`` and ``attn``: a number belongs to the list that it counts in."""
    out: list[str] = []
    for part in module.split(".", 4 * MAX_DEPTH)[: 4 * MAX_DEPTH]:
        if part.isdigit() and out:
            out[-1] += f".{part}"
        elif part:
            out.append(part)
    return tuple(out[:MAX_DEPTH])


def grouped(
    boxes: Sequence[Box],
    label: str,
    noun: str,
    *,
    lines: bool = False,
    flat: bool = False,
    fold: Callable[[Box], None] | None = None,
) -> Box:
    """The root of a tree of these boxes, by module and, where that leaves too many together, by line; by
    line alone if ``lines``. ``noun`` is what nodes are called. If ``flat``, a module is no group where all
    outside are of modules around it. ``fold`` puts equal modules together (:mod:`.folding`)."""
    _fill_paths(boxes)
    inner = _by_line(boxes) if lines else _by_module(boxes, 0)
    path: Path = ()
    while len(inner) == 1 and inner[0].kind == "module":
        label, path, inner = f"{label}: {inner[0].label}", inner[0].path, inner[0].inner
    while (
        flat
        and (modules := [box for box in inner if box.kind == "module"])
        and all(box is modules[0] or box.path == modules[0].path[: len(box.path)] for box in inner)
    ):
        path = modules[0].path
        inner = [each for box in inner for each in (box.inner if box in modules else [box])]
    root = Box(kind="root", label=label, path=path, inner=inner)
    if fold is not None:
        fold(root)
    limit(root, noun)
    return root


def _fill_paths(boxes: Sequence[Box]) -> None:
    """A box of no module is where its neighbours are together."""
    after: list[Path] = []
    following: Path = ()
    for box in reversed(boxes):
        following = box.path or following
        after.append(following)
    before: Path = ()
    for box, following in zip(boxes, reversed(after), strict=True):
        if box.path:
            before = box.path
        else:
            same = [a == b for a, b in zip(before, following, strict=False)]
            box.path = before[: (same + [False]).index(False)]


def _by_module(boxes: Sequence[Box], depth: int) -> list[Box]:
    """Neighbours with the same path up to ``depth`` and one further step become a group."""
    out: list[Box] = []
    for step, found in groupby(boxes, lambda box: box.path[depth] if len(box.path) > depth else None):
        run = list(found)
        if step is None or len(run) == 1:
            out += run
            continue
        end, first = depth + 1, run[0].path
        while len(first) > end and all(box.path[: end + 1] == first[: end + 1] for box in run):
            end += 1
        label = ".".join(first[depth:end])
        inner = _by_module(run, end)
        out.append(Box(kind="module", label=label, name=".".join(first[:end]), path=first[:end], inner=inner))
    return out


def limit(group: Box, noun: str) -> None:
    """Make groups of neighbours within ``group`` and all in it, until none holds too many. Sets ``outer``."""
    if group.kind == "kernel":
        noun = "loops"
    if len(group.inner) > MAX_CHILDREN and group.kind != "repeat":
        lines = _by_line(group.inner)
        group.inner = lines if len(lines) > 1 else group.inner
    while len(group.inner) > MAX_CHILDREN and group.kind != "repeat":
        parts = [group.inner[start : start + PART] for start in range(0, len(group.inner), PART)]
        group.inner = [
            Box(kind="part", label=_span(part, noun), path=group.path, inner=part) for part in parts
        ]
    for box in group.inner:
        box.outer = group
        if box.kind is not None:
            limit(box, noun)


def opened(root: Box, most: int) -> set[Box]:
    """The root, and level by level the groups to open as long as that shows at most ``most`` boxes. Of equal
    modules the first alone is shown, and opened."""
    found, count, level = {root}, len(root.inner), root.inner
    while groups := [box for box in level if box.kind is not None]:
        # Of these the first is shown: what is in it comes with them.
        groups += [box.inner[0] for box in groups if box.kind == "repeat" and box.inner[0].kind is not None]
        level = [each for box in groups if box.kind != "repeat" for each in box.inner]
        count += len(level)
        if count > most:
            break
        found.update(groups)
    return found


def close(group: Box, opened: Container[Box]) -> None:
    """Close all groups in ``group`` but those that are ``opened``."""
    for box in group.inner:
        box.closed = box.kind is not None and box not in opened
        close(box, opened)


def _by_line(boxes: Sequence[Box]) -> list[Box]:
    out: list[Box] = []
    for line, found in groupby(boxes, lambda box: box.line if box.kind is None else None):
        run = list(found)
        if not line or len(run) == 1:
            out += run
        else:
            out.append(Box(kind="line", label=clip(line, 40), name=line, inner=run))
    return out


def _span(boxes: Sequence[Box], noun: str) -> str:
    """``layers.0 – layers.39`` for groups, ``40 ops`` for nodes."""
    first, last = boxes[0], boxes[-1]
    if first.kind in ("module", "line") and last.kind == first.kind:
        return f"{clip(first.label, 24)} – {clip(last.label, 24)}"
    return f"{sum(1 for box in boxes for _ in (box.nodes() if box.kind else (box,))):,} {noun}"

"""Where the boxes of a directed graph go: layers by longest path, crossings reduced by barycentre sweeps.

Pure geometry: sizes and edges in, coordinates in pixels out. It knows nothing of compilations or SVG.
Any input is laid out, cycles and dangling edges included: an edge that points backwards in the order
the boxes were given is treated as if it ran forwards, and edges to unknown boxes are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]
Edge = tuple[str, str]

SWEEPS = 6
MAX_COLUMNS = 6
BEND_WIDTH = 6.0
MAX_BENDS = 6000
"""Long edges get one bend a layer so that they run between boxes; beyond this many they run straight."""


@dataclass(frozen=True)
class Layout:
    """``places`` are top left corners, ``routes`` run from a box's bottom edge to another's top edge.

    Between two route points that differ in x and y runs a curve, else a straight line. All in pixels.
    """

    width: float
    height: float
    places: Mapping[str, Point]
    routes: Mapping[Edge, tuple[Point, ...]]


@dataclass(eq=False)
class Item:
    """A box, or a bend of a long edge (zero height): what a layer is made of."""

    name: str
    width: float
    height: float
    layer: int = 0
    x: float = 0.0  # centre
    above: list[Item] = field(default_factory=list)
    below: list[Item] = field(default_factory=list)
    bend: bool = False
    origin: Item | None = None  # of a bend: the box that its edge comes from


@dataclass(frozen=True)
class Layered:
    """Boxes and bends in layers from top to bottom, each from left to right, with their x but no y yet.

    ``chains`` has what each edge passes, the item further up first: one a layer, but for very many edges.
    """

    items: Mapping[str, Item]
    layers: Sequence[Sequence[Item]]
    chains: Mapping[Edge, Sequence[Item]]


def lay_out(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[Edge],
    *,
    gap_x: float = 18.0,
    gap_y: float = 26.0,
    max_width: float = 1000.0,
    max_height: float = math.inf,
    fold_width: float = 0.0,
) -> Layout:
    """Coordinates for boxes of the given (width, height) and the edges between them.

    ``sizes`` is read in order, which should be a topological order. A layer wider than ``max_width``
    flows into the next. A drawing taller than ``max_height`` is folded into columns where it is slim
    enough for them to stand side by side within ``fold_width``.
    """
    drawn = layered(sizes, edges, gap_x=gap_x, max_width=max_width)
    tops, total = _place_y(drawn.layers, gap_y)
    columns = _columns(drawn.layers, tops, total, fold_width, max_height)
    return _finish(drawn, tops, columns)


def layered(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[Edge],
    *,
    top: Sequence[str] = (),
    bottom: Sequence[str] = (),
    gap_x: float = 18.0,
    bend_gap: float = 18.0,
    max_width: float = 1000.0,
) -> Layered:
    """The layers of a graph, see :func:`lay_out`. ``top`` and ``bottom`` name ports: points without extent
    that edges come from or lead to, in a layer of their own above and below all boxes."""
    ports = dict.fromkeys((*top, *bottom), (BEND_WIDTH, 0.0))
    whole = {**dict.fromkeys(top), **dict.fromkeys(sizes), **dict.fromkeys(bottom)}
    forward = _forward_edges(whole, edges)
    boxes = {name: Item(name, width, height) for name, (width, height) in sizes.items()}
    inner = {edge: ends for edge, ends in forward.items() if ends[0] in boxes and ends[1] in boxes}
    _assign_layers(boxes, inner, gap_x, max_width)
    items = boxes | {name: Item(name, *size, bend=True) for name, size in ports.items()}
    for item in boxes.values():
        item.layer += bool(top)
    for name in bottom:
        items[name].layer = 1 + max((item.layer for item in boxes.values()), default=0)
    layers, chains = _with_bends(items, forward)
    _order(layers)
    _place_x(layers, gap_x, bend_gap)
    return Layered(items, layers, chains)


def _forward_edges(sizes: Mapping[str, object], edges: Sequence[Edge]) -> dict[Edge, Edge]:
    """Each known edge once, no self loops, mapped to its direction down the page."""
    order = {name: place for place, name in enumerate(sizes)}
    out: dict[Edge, Edge] = {}
    for source, target in edges:
        if source in order and target in order and source != target:
            down = order[source] < order[target]
            out[source, target] = (source, target) if down else (target, source)
    return out


def _assign_layers(
    items: Mapping[str, Item], forward: Mapping[Edge, Edge], gap_x: float, max_width: float
) -> None:
    """Longest path from the top for inner boxes; boxes nothing feeds go right above their first reader."""
    before: dict[str, list[str]] = {name: [] for name in items}
    after: dict[str, list[str]] = {name: [] for name in items}
    for source, target in set(forward.values()):
        before[target].append(source)
        after[source].append(target)
    filled: dict[int, float] = {}

    def settle(name: str, layer: int, step: int) -> None:
        need = items[name].width + gap_x
        while filled.get(layer, 0.0) + need > max_width and filled.get(layer, 0.0) > 0:
            layer += step
        filled[layer] = filled.get(layer, 0.0) + need
        items[name].layer = layer

    for name in items:
        if before[name] or not after[name]:
            inner = [items[source].layer for source in before[name] if before[source]]
            settle(name, max(inner, default=0) + 1 if before[name] else 0, 1)
    for name in items:
        if not before[name] and after[name]:
            settle(name, min(items[target].layer for target in after[name]) - 1, -1)
    used = {item.layer for item in items.values()}
    dense = {layer: place for place, layer in enumerate(sorted(used))}
    for item in items.values():
        item.layer = dense[item.layer]


def _with_bends(
    items: Mapping[str, Item], forward: Mapping[Edge, Edge]
) -> tuple[list[list[Item]], dict[Edge, list[Item]]]:
    """The layers in reading order, and for each edge the items it passes, ends included."""
    layers: list[list[Item]] = [
        [] for _ in range(1 + max((item.layer for item in items.values()), default=0))
    ]
    for item in items.values():
        layers[item.layer].append(item)
    spans = sum(abs(items[t].layer - items[s].layer) - 1 for s, t in forward.values())
    chains: dict[Edge, list[Item]] = {}
    shared: dict[tuple[str, int], Item] = {}
    for edge, (source, target) in forward.items():
        first, last = items[source], items[target]
        if first.layer > last.layer:
            first, last = last, first
        chain = [first]
        if spans <= MAX_BENDS:
            for layer in range(first.layer + 1, last.layer):
                # All long edges of one box share their bends: one line that branches off, not a bundle.
                bend = shared.get((first.name, layer))
                if bend is None:
                    bend = Item("", BEND_WIDTH, 0.0, layer, bend=True, origin=first)
                    shared[first.name, layer] = bend
                    layers[layer].append(bend)
                chain.append(bend)
        chain.append(last)
        chains[edge] = chain
        for upper, lower in pairwise(chain):
            if upper not in lower.above:
                upper.below.append(lower)
                lower.above.append(upper)
    return layers, chains


def _order(layers: list[list[Item]]) -> None:
    """Reduce crossings: sort each layer by the mean position of its neighbours, downwards and upwards."""
    place: dict[int, float] = {}
    for layer in layers:
        place.update({id(item): index for index, item in enumerate(layer)})

    def sweep(sequence: Sequence[list[Item]], upwards: bool) -> None:
        for layer in sequence:
            if len(layer) == 1:
                continue
            weight = {}
            for item in layer:
                near = item.below if upwards else item.above
                weight[id(item)] = sum(place[id(n)] for n in near) / len(near) if near else place[id(item)]
            layer.sort(key=lambda item: weight[id(item)])
            place.update({id(item): index for index, item in enumerate(layer)})

    for turn in range(SWEEPS):
        sweep(layers[::-1] if turn % 2 else layers, bool(turn % 2))


def _place_x(layers: list[list[Item]], gap_x: float, bend_gap: float) -> None:
    """Centres as near as possible to the mean of their neighbours, in order and without overlap."""
    for layer in layers:
        x = 0.0
        for item in layer:
            item.x = x + item.width / 2
            x += item.width + gap_x
        for item in layer:
            item.x -= x / 2
    still = 0
    for turn in range(2 * SWEEPS + 1):
        upwards = bool(turn % 2)
        before = [item.x for layer in layers for item in layer]
        for layer in layers[::-1] if upwards else layers:
            _separate(layer, [_wanted_x(item, upwards) for item in layer], gap_x, bend_gap)
        still = still + 1 if before == [item.x for layer in layers for item in layer] else 0
        if still == 2:  # neither direction moves anything any more
            break


def _wanted_x(item: Item, upwards: bool) -> float:
    """Boxes align with boxes, so that chains are straight and bends go round them: with the boxes of the
    next layer where there are any, else with those at the far ends of the bends."""
    near = item.below if upwards else item.above
    if item.bend:
        return sum(n.x for n in near) / len(near) if near else item.x  # a port at the edge of the drawing
    boxes = [n for n in near if not n.bend] or [n.origin or n for n in near if not upwards] or near or [item]
    return sum(n.x for n in boxes) / len(boxes)


def _separate(layer: list[Item], wanted: Sequence[float], gap_x: float, bend_gap: float) -> None:
    """Least-squares positions under minimal distances: isotonic regression by pooling violators."""
    if len(layer) == 1:
        layer[0].x = wanted[0]
        return
    offsets, offset = [], 0.0
    for index, item in enumerate(layer):
        if index:
            gap = bend_gap if item.bend and layer[index - 1].bend else gap_x
            offset += (layer[index - 1].width + item.width) / 2 + gap
        offsets.append(offset)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for item, want, shift in zip(layer, wanted, offsets, strict=True):
        mean, weight, members = want - shift, 1.0 if item.bend else 100.0, 1
        while pools and pools[-1][0] > mean:
            m, w, n = pools.pop()
            mean, weight, members = (m * w + mean * weight) / (w + weight), w + weight, n + members
        pools.append((mean, weight, members))
    index = 0
    for mean, _, members in pools:
        for _ in range(members):
            layer[index].x = mean + offsets[index]
            index += 1


def _place_y(layers: Sequence[Sequence[Item]], gap_y: float) -> tuple[list[tuple[float, float]], float]:
    """(top, height) of every layer, and the height of all."""
    tops, y = [], 0.0
    for layer in layers:
        height = max((item.height for item in layer), default=0.0)
        tops.append((y, height))
        y += height + gap_y
    return tops, max(0.0, y - gap_y)


def _columns(
    layers: Sequence[Sequence[Item]],
    tops: list[tuple[float, float]],
    total: float,
    fold_width: float,
    max_height: float,
) -> list[tuple[int, int]]:
    """Ranges of layers, one a column. One column unless folding makes the drawing fit better."""
    whole = [(0, len(layers))]
    if total <= max_height or not any(layers):
        return whole
    for count in range(min(MAX_COLUMNS, math.ceil(total / max_height)), 1, -1):
        columns = _cut(layers, tops, total, count)
        if sum(_extent(layers[first:last])[1] + 50 for first, last in columns) - 50 <= fold_width:
            return columns
    return whole


def _extent(layers: Sequence[Sequence[Item]]) -> tuple[float, float]:
    """(left edge, width) of these layers."""
    low = min((item.x - item.width / 2 for layer in layers for item in layer), default=0.0)
    high = max((item.x + item.width / 2 for layer in layers for item in layer), default=0.0)
    return low, high - low


def _cut(
    layers: Sequence[Sequence[Item]], tops: list[tuple[float, float]], total: float, count: int
) -> list[tuple[int, int]]:
    """``count`` ranges of layers (or fewer) of about equal height, cut where few edges cross."""
    cuts = [0]
    for column in range(1, count):
        aim = total * column / count
        near = [k for k in range(cuts[-1] + 1, len(layers)) if abs(tops[k][0] - aim) < total / count / 4]
        near = near or [min(range(cuts[-1] + 1, len(layers)), key=lambda k: abs(tops[k][0] - aim), default=0)]
        if near[0] <= cuts[-1]:
            break
        # Cut where the fewest edges cross; among equals nearest to an even split.
        crossing = {k: sum(len(item.above) for item in layers[k]) for k in near}
        cuts.append(min(near, key=lambda k: (crossing[k], abs(tops[k][0] - aim))))
    return list(zip(cuts, [*cuts[1:], len(layers)], strict=True))


def _finish(
    drawn: Layered,
    tops: list[tuple[float, float]],
    columns: list[tuple[int, int]],
) -> Layout:
    """Shift every column into place, and turn chains of items into routes."""
    margin = 14.0 if len(columns) > 1 else 0.0
    shift: dict[int, tuple[float, float, int]] = {}  # layer -> dx, dy, column
    left, bottom, gutters = 0.0, 0.0, []
    for number, (first, last) in enumerate(columns):
        low, width = _extent(drawn.layers[first:last])
        for layer in range(first, last):
            shift[layer] = (left - low, margin - tops[first][0], number)
        left += width
        gutters.append(left + 22.0)
        left += 44.0
        if last > first:
            bottom = max(bottom, margin + tops[last - 1][0] + tops[last - 1][1] - tops[first][0])
    places = {}
    for item in drawn.items.values():
        dx, dy, _ = shift[item.layer]
        top, height = tops[item.layer]
        places[item.name] = (item.x - item.width / 2 + dx, top + (height - item.height) / 2 + dy)

    def route(chain: Sequence[Item]) -> tuple[Point, ...]:
        points: list[Point] = []
        for index, item in enumerate(chain):
            dx, dy, column = shift[item.layer]
            top, height = tops[item.layer]
            toward = chain[index - 1] if index else chain[1]
            same = shift[toward.layer][2] == column
            x = (meeting_x(item, toward) if same and not item.bend else item.x) + dx
            upper, lower = top + dy, top + height + dy
            if not item.bend:
                upper, lower = top + (height - item.height) / 2 + dy, top + (height + item.height) / 2 + dy
            if index and shift[chain[index - 1].layer][2] != column:
                gutter = gutters[column - 1]
                points += [
                    (points[-1][0], bottom + margin),
                    (gutter, bottom + margin),
                    (gutter, 0.0),
                    (x, 0.0),
                ]
            if index:
                points.append((x, upper))
            if index + 1 < len(chain):
                points.append((x, lower))
        return tuple(points)

    routes = {}
    for edge, chain in drawn.chains.items():
        points = route(chain)
        routes[edge] = points if chain[0].name == edge[0] else points[::-1]
    return Layout(max(0.0, left - 44.0), bottom + margin, places, routes)


def meeting_x(item: Item, toward: Item) -> float:
    """Where on ``item`` an edge to ``toward`` starts: where it can run straight if the two overlap."""

    def reach(one: Item) -> tuple[float, float]:
        room = 0.0 if one.bend else max(0.0, one.width / 2 - 12.0)
        return one.x - room, one.x + room

    (low, high), (other_low, other_high) = reach(item), reach(toward)
    if max(low, other_low) <= min(high, other_high):
        return min(max((item.x + toward.x) / 2, low, other_low), high, other_high)
    return min(max(toward.x, low), high)

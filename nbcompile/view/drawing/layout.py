"""Where the boxes of a directed graph go: layers by longest path, crossings reduced by barycentre sweeps.

Pure geometry: widths and edges in, coordinates in pixels out. It knows nothing of compilations or SVG.
Any input is laid out, cycles and dangling edges included: an edge that points backwards in the order
the boxes were given is treated as if it ran forwards, and edges to unknown boxes are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

Edge = tuple[str, str]

SWEEPS = 6
BEND_WIDTH = 6.0
MAX_BENDS = 6000
"""Long edges get one bend a layer so that they run between boxes; beyond this many they run straight."""


@dataclass(eq=False)
class Item:
    """A box, or a bend of a long edge: what a layer is made of."""

    name: str
    width: float
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


def layered(
    widths: Mapping[str, float],
    edges: Sequence[Edge],
    *,
    top: Sequence[str] = (),
    bottom: Sequence[str] = (),
    gap_x: float = 18.0,
    bend_gap: float = 18.0,
    max_width: float = 1000.0,
) -> Layered:
    """The layers of a graph of boxes of these widths.

    ``widths`` is read in order, which should be a topological order. A layer wider than ``max_width`` flows
    into the next. ``top`` and ``bottom`` name ports: points without extent that edges come from or lead to,
    in a layer of their own above and below all boxes. All in pixels; crossings are reduced as by Sugiyama,
    Tagawa and Toda (1981).
    """
    given = (tuple(widths.items()), tuple(edges), tuple(top), tuple(bottom), gap_x, bend_gap, max_width)
    return _copied(_laid_out(*given))


def _copied(laid: Layered) -> Layered:
    """One of the caller's own."""
    own = {
        id(item): Item(item.name, item.width, item.layer, item.x, bend=item.bend)
        for layer in laid.layers
        for item in layer
    }
    return Layered(
        {name: own[id(item)] for name, item in laid.items.items()},
        [[own[id(item)] for item in layer] for layer in laid.layers],
        {edge: [own[id(item)] for item in chain] for edge, chain in laid.chains.items()},
    )


@lru_cache(maxsize=256)  # a model's layers are alike
def _laid_out(
    given: tuple[tuple[str, float], ...], edges: tuple[Edge, ...], top: tuple[str, ...],
    bottom: tuple[str, ...], gap_x: float, bend_gap: float, max_width: float,
) -> Layered:  # fmt: skip
    widths = dict(given)
    whole = {**dict.fromkeys(top), **dict.fromkeys(widths), **dict.fromkeys(bottom)}
    forward = _forward_edges(whole, edges)
    boxes = {name: Item(name, width) for name, width in widths.items()}
    inner = {edge: ends for edge, ends in forward.items() if ends[0] in boxes and ends[1] in boxes}
    _assign_layers(boxes, inner, gap_x, max_width)
    items = boxes | {name: Item(name, BEND_WIDTH, bend=True) for name in dict.fromkeys((*top, *bottom))}
    for item in boxes.values():
        item.layer += bool(top)
    for name in bottom:
        items[name].layer = 1 + max((item.layer for item in boxes.values()), default=0)
    layers, chains = _with_bends(items, forward)
    _order(layers)
    _place_x(layers, gap_x, bend_gap)
    return Layered(items, layers, chains)


def _forward_edges(boxes: Mapping[str, object], edges: Sequence[Edge]) -> dict[Edge, Edge]:
    """Each known edge once, no self loops, mapped to its direction down the page."""
    order = {name: place for place, name in enumerate(boxes)}
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
                    bend = Item("", BEND_WIDTH, layer, bend=True, origin=first)
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


def meeting_x(item: Item, toward: Item) -> float:
    """Where on ``item`` an edge to ``toward`` starts: where it can run straight if the two overlap."""

    def reach(one: Item) -> tuple[float, float]:
        room = 0.0 if one.bend else max(0.0, one.width / 2 - 12.0)
        return one.x - room, one.x + room

    (low, high), (other_low, other_high) = reach(item), reach(toward)
    if max(low, other_low) <= min(high, other_high):
        return min(max((item.x + toward.x) / 2, low, other_low), high, other_high)
    return min(max(toward.x, low), high)

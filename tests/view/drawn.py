"""Reads a drawing back from its JSON, as the explorer does, for the tests of what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Item:
    """A node (``ref`` ≥ 0) or a group (``-ref``) in a row; ``left`` and ``right`` in its group, in pixels."""

    ref: int
    x: int
    width: int
    row: int

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True)
class Edge:
    """``source`` and ``target`` are numbers of items, -1 the group's border."""

    value: int
    source: int
    target: int
    xs: tuple[int, ...]


class Group:
    def __init__(self, packed: dict[str, Any]) -> None:
        self.packed = packed
        first = packed.get("first", 0)
        self.items = [
            Item(row[at] + first * (row[at] >= 0), row[at + 1], row[at + 2], number)
            for number, row in enumerate(packed["rows"])
            for at in range(0, len(row), 3)
        ]
        self.edges = [Edge(v + first, a, b, tuple(xs)) for v, a, b, *xs in packed.get("edges", ())]

    def __getitem__(self, name: str) -> Any:
        return self.packed[name]

    def row(self, number: int, border: int) -> int:
        return self.items[number].row if number >= 0 else border


def groups_of(drawing: dict[str, Any]) -> list[Group]:
    return [Group(packed) for packed in drawing["groups"]]


def check(drawing: dict[str, Any]) -> list[Group]:
    """The groups, once everything that must be true of any drawing was seen to be: they form a tree, nothing
    overlaps or sticks out, edges run down from item to item, and what leaves a group goes on outside."""
    groups = groups_of(drawing)
    homes = [-item.ref for group in groups for item in group.items if item.ref < 0]
    assert sorted(homes) == list(range(1, len(groups))), "each group but the root is in one place"
    assert len({group["id"] for group in groups}) == len(groups)
    for place, group in enumerate(groups):
        assert group["parent"] < place and (group["kind"] == "root") == (place == 0) == (group["parent"] < 0)
        assert group.items, "no empty groups"
        _check_rows(group, groups, place)
        for edge in group.edges:
            _check_edge(edge, group)
        if place:
            _check_ports(group, groups[group["parent"]], place)
        for edge in group.edges:
            if edge.source >= 0 and group.items[edge.source].ref >= 0:
                assert group.items[edge.source].ref == edge.value, "it carries the result of where it starts"
    return groups


def _check_rows(group: Group, groups: list[Group], place: int) -> None:
    for before, item in zip([None, *group.items], group.items, strict=False):
        assert item.left >= 0 and item.right <= group["width"]
        if before is not None and before.row == item.row:
            assert before.right < item.left, "neighbours do not touch"
        if item.ref < 0:
            assert groups[-item.ref]["parent"] == place and groups[-item.ref]["width"] == item.width


def _check_edge(edge: Edge, group: Group) -> None:
    first, last = group.row(edge.source, -1), group.row(edge.target, len(group["rows"]))
    assert (edge.source >= 0 or edge.target >= 0) and first < last
    assert len(edge.xs) == 2 + last - first - 1
    assert all(0 <= x <= group["width"] for x in edge.xs)
    for number, x in ((edge.source, edge.xs[0]), (edge.target, edge.xs[-1])):
        if number >= 0:
            assert group.items[number].left <= x <= group.items[number].right


def _check_ports(group: Group, parent: Group, place: int) -> None:
    (number,) = (n for n, item in enumerate(parent.items) if item.ref == -place)
    left = parent.items[number].left
    entering = {(e.value, left + e.xs[0]) for e in group.edges if e.source < 0}
    leaving = {(e.value, left + e.xs[-1]) for e in group.edges if e.target < 0}
    around_in = {(e.value, e.xs[-1]) for e in parent.edges if e.target == number}
    around_out = {(e.value, e.xs[0]) for e in parent.edges if e.source == number}
    assert entering <= around_in and leaving <= around_out
    if group["kind"] != "kernel":  # an edge of a kernel as a whole ends at its border
        assert entering == around_in and leaving == around_out


def pairs(groups: list[Group]) -> set[tuple[int, int]]:
    """(value, the node that reads it) of every edge's last stretch."""
    return {
        (edge.value, group.items[edge.target].ref)
        for group in groups
        for edge in group.edges
        if edge.target >= 0 and group.items[edge.target].ref >= 0
    }

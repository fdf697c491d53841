"""Schedules of adding into a tensor by short index tensors, each along an axis of its own, such as the
gradient of an upsampling whose index was given: for each place along a dimension the points that lead to it
are listed, and each element of the result is written once, with the sum over its lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from nbcompile.compiler.kernel_ir.values import Gathered, Value, walk_values
from nbcompile.compiler.loop_ir.index import ONE, Axis, IndexExpr, product
from nbcompile.compiler.schedule.scattered import Scattered
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.tiling import power
from nbcompile.compiler.stages import Config

MOST = 256  # points of one element that are looked up one after the other
LONGEST = 1024  # indices, and places that they name
MOST_PAIRS = 1 << 18  # (index, place) pairs of one dimension
MEETING = 16  # indices a place, on average
LEAST_POINTS = 1 << 18  # with fewer, the launches cost more
LEAST_LANE = 16  # neighbours in memory that no index names
LANES_TILE = 2048  # points of the lines that a program adds up at once
MOST_COMPARED = 1 << 15  # pairs of a lane and a place: a third of the shared memory
LEAST_PRODUCT = 16  # of each side


@dataclass(frozen=True)
class Listed:
    """Dimension ``dim`` of the output, of ``size`` places, is named by ``value``, which varies along ``axis``
    of the points only. ``place`` is the axis of the output that stands for it."""

    dim: int
    value: Value
    axis: Axis
    place: Axis

    @property
    def length(self) -> int:
        return self.axis.extent.hint()

    @property
    def size(self) -> int:
        return self.place.extent.hint()


@dataclass(frozen=True, kw_only=True)
class ListedAxes(Schedule):
    """What is added lies side by side along ``lane``, an axis that no index names: whole lines are read,
    once. The blocks are those of the printer's own tile."""

    scattered: Scattered
    listed: tuple[Listed, ...]
    lane: Axis

    name = "scatter by listed axes"
    meaning = "For each place what goes there is listed first, and added up without atomics."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where short index tensors name the places, and enough points for lists to pay."""
        listed = listed_in(work.scattered)
        if listed is None:
            return None
        lane = _lane_of_points(work.scattered, listed)
        if lane is None or not _fit_in_lists(work.scattered, listed):
            return None
        return cls(scattered=work.scattered, listed=tuple(listed), lane=lane, configs=())


@dataclass(frozen=True, kw_only=True)
class ListedLanes(Schedule):
    """The axis along which memory lies is named itself, by ``lanes``; ``listed`` has all that are named.

    What leads to one line of the output is added up line by line. Then each place along the line takes what
    names it of that sum, by a matrix product with the comparisons, zeros and ones."""

    scattered: Scattered
    listed: tuple[Listed, ...]
    lanes: Listed

    name = "scatter by listed axes"
    meaning = "For each line what goes there is listed and added up, then handed out along it by a product."
    counts_warps_of_32 = False

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        """Where what is read lies along an axis that names places of the output's fastest dimension, and some
        axis is not named."""
        scattered, out = work.scattered, work.scattered.out
        listed = listed_in(scattered)
        lanes = next((item for item in listed or () if out.strides[item.dim].constant == 1), None)
        loads = [value for value in walk_values([scattered.value]) if value.kind == "load"]
        if listed is None or lanes is None or not loads or len(listed) == len(work.values.nest.axes):
            return None
        heaviest = max(loads, key=lambda value: work.buffers[value.buffer].bytes_hint())
        step = heaviest.place.coefficient(lanes.axis)
        if step is None or step.constant != 1 or lanes.length < LEAST_LANE or out.dtype != torch.float32:
            return None
        width, places = max(LEAST_PRODUCT, power(lanes.length)), max(LEAST_PRODUCT, power(lanes.size))
        if width * places > MOST_COMPARED or not _fit_in_lists(scattered, listed):
            return None
        rows = max(LANES_TILE // width, LEAST_PRODUCT)
        constants = {"YBLOCK": rows, "LBLOCK": width, "XBLOCK": places}
        warps = max(rows * width // 1024, 1)
        configs = tuple(Config(constants, each) for each in (warps, warps * 2))
        return cls(scattered=scattered, listed=tuple(listed), lanes=lanes, configs=configs)


def listed_in(scattered: Scattered) -> list[Listed] | None:
    """The dimensions so named, if each axis of the points is one of the output or names places along one."""
    if scattered.loop.mode != "add" or scattered.out.dtype not in (torch.float32, torch.float64):
        return None
    axes = scattered.values.nest.axes
    left, found = set(axes), []
    if not all(axis.extent.constant for axis in axes) or not all(
        each.constant for each in scattered.out.shape
    ):
        return None
    for dim, (place, extent) in enumerate(zip(scattered.targets, scattered.out.shape, strict=True)):
        if place.axis in left and place.axis.extent == extent:
            left.remove(place.axis)
            continue
        if extent == ONE and place.constant == 0:
            continue
        atoms = place.atoms()
        atom = next(iter(atoms), None)
        if len(atoms) != 1 or not isinstance(atom, Gathered) or place != IndexExpr({(atom,): 1}):
            return None
        varies = atom.value.axes
        if len(varies) != 1 or not varies <= left:
            return None
        (axis,) = varies
        left.remove(axis)
        found.append(Listed(dim, atom.value, axis, Axis(f"place{dim}", extent)))
    return None if left or not found or len(found) > 2 else found


def _fit_in_lists(scattered: Scattered, listed: list[Listed]) -> bool:
    """Whether there are points enough for lists to pay, and not too many of them."""
    if product(axis.extent for axis in scattered.values.nest.axes).hint() < LEAST_POINTS:
        return False
    for item in listed:
        if max(item.length, item.size) > LONGEST or item.length * item.size > MOST_PAIRS:
            return False
        if item.length > MEETING * item.size:
            return False
    return scattered.is_narrow


def _lane_of_points(scattered: Scattered, listed: list[Listed]) -> Axis | None:
    """The axis of points and output along which most of what is read lies side by side."""
    loads = [value for value in walk_values([scattered.value]) if value.kind == "load"]
    loads.sort(key=lambda value: -scattered.buffers[value.buffer].bytes_hint())
    named = {item.axis for item in listed}
    for axis in loads[0].axes - named if loads else ():
        step = loads[0].place.coefficient(axis)
        if step is not None and step.constant == 1 and axis.extent.hint() >= LEAST_LANE:
            return axis
    return None

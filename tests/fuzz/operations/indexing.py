"""Gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tests.fuzz.draw import Draw, Made, Skip, Value, operation


def lengths_along(x: Value, axis: int) -> list[int]:
    """The extents of an axis in each call; its ranks may differ (``squeeze`` drops an axis in one alone)."""
    if any(len(shape) != x.dim for shape in x.shapes):
        raise Skip
    return [shape[axis] for shape in x.shapes]


def index_along(d: Draw, x: Value, axis: int, length: Sequence[int] | None = None) -> str:
    """A line of indices into an axis, some of them perhaps alike; of a given length in each call."""
    sizes = lengths_along(x, axis)
    least = min(sizes)
    if not least:
        raise Skip
    if length is None and d.chance(0.3):
        known = d.pick(lambda v: v.dtype == torch.int64 and v.dim == 1 and v.within(0, least - 1))
        return str(known)
    if length is None:
        length = [d.choice([1, 2, 3, 5, 8])] * len(sizes)
    if d.chance(0.4):
        return str(d.new_input([(count,) for count in length], torch.int64, f"index:{least}"))
    if list(length) == sizes and d.chance(0.4):
        return d.choice(
            [f"torch.arange({d.size(x, axis)} - 1, -1, -1)", f"torch.arange({d.size(x, axis)}) // 2"]
        )
    if len(set(length)) == 1 and d.chance(0.5):
        return f"torch.tensor({[d.integer(0, least - 1) for _ in range(length[0])]})"
    return str(d.new_input([(count,) for count in length], torch.int64, f"index:{least}"))


def index_like(d: Draw, x: Value, axis: int, shapes: Sequence[Sequence[int]], distinct: bool = False) -> str:
    """Indices into an axis in a tensor of these shapes; distinct along the axis, if so asked."""
    least = min(lengths_along(x, axis))
    if not least:
        raise Skip
    if distinct:
        same = d.pick(lambda v: v.shapes == list(map(tuple, shapes)) and not v.dtype.is_complex)
        if any(shape[axis] > least for shape in same.shapes):
            raise Skip
        return f"{same}.argsort({axis}, stable=True)"
    choices = []
    same = [v for v in d.known if v.shapes == [tuple(shape) for shape in shapes] and not v.dtype.is_complex]
    choices += [str(v) for v in same if v.dtype == torch.int64 and v.within(0, least - 1)]
    if least >= 2:
        choices += [f"({v} > 0).long()" for v in same]
    choices += [f"({v}.abs() * 3).long().clamp(max={least - 1})" for v in same if v.dtype != torch.bool]
    if choices and d.chance(0.75):
        return d.choice(choices)  # type: ignore[no-any-return]
    return str(d.new_input(shapes, torch.int64, f"index:{least}"))


@operation("indexing", weight=2.5, exact=True)
def gather(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.axis(x)
    if d.chance(0.6):
        return f"{x}.gather({axis}, {index_like(d, x, axis, x.shapes)})"
    y = d.pick(
        lambda y: (
            y.dim == x.dim
            and all(
                a == b or place == axis % x.dim
                for one, two in zip(x.shapes, y.shapes)
                for place, (a, b) in enumerate(zip(one, two))
            )
        )
    )
    return f"torch.gather({x}, {axis}, {index_like(d, x, axis, y.shapes)})"


@operation("indexing", exact=True)
def index_select(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    return f"torch.index_select({x}, {axis}, {index_along(d, x, axis)})"


@operation("indexing", weight=1.5, exact=True)
def index(d: Draw) -> str:
    """``x[index]``, along one axis or several."""
    x = d.tensor(1)
    axis = d.integer(0, min(x.dim - 1, 2))
    first = index_along(d, x, axis)
    if d.chance(0.3) and axis + 1 < x.dim:
        length = d.choice([1, 2, 4])
        first = index_along(d, x, axis, [length] * len(x.shapes))
        second = index_along(d, x, axis + 1, [length] * len(x.shapes))
        return f"{x}[{':, ' * axis}{first}, {second}]"
    return d.choice(
        [
            f"{x}[{':, ' * axis}{first}]",
            f"{x}[{':, ' * axis}{first}[:, None]]",
            f"{x}[{':, ' * axis}{first}, ...]",
        ]
    )


@operation("indexing", exact=True)
def take(d: Draw) -> str:
    x = d.tensor()
    least = min(item.numel() for item in x.tensors)
    if not least:
        raise Skip
    return f"torch.take({x}, {d.new_input([(3, 2)] * len(x.shapes), torch.int64, f'index:{least}')})"


@operation("indexing", weight=0.7, exact=True)
def take_along(d: Draw) -> str:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex)
    axis = d.axis(x)
    return f"torch.take_along_dim({x}, {x}.argsort({axis}, stable=True), {axis})"


@operation("indexing", weight=1.0)
def embedding(d: Draw) -> Made:
    x = d.pick(lambda x: x.floating and x.dim == 2)
    least = min(shape[0] for shape in x.shapes)
    index = d.pick(lambda v: v.dtype in (torch.int64, torch.int32) and v.within(0, least - 1) and least)
    extra = d.choice(["", "", ", padding_idx=0"])
    return Made(f"F.embedding({index}, {x}{extra})", exact=True)


@operation("indexing", weight=0.4)
def embedding_bag(d: Draw) -> str:
    x = d.pick(lambda x: x.floating and x.dim == 2)
    least = min(shape[0] for shape in x.shapes)
    index = d.pick(lambda v: v.dtype == torch.int64 and v.dim == 2 and least and v.within(0, least - 1))
    return f"F.embedding_bag({index}, {x}, mode='{d.choice(['sum', 'mean', 'max'])}')"


@operation("indexing", weight=1.5)
def scatter(d: Draw) -> Made:
    x = d.tensor(1)
    axis = d.axis(x)
    kind = d.choice(["set", "value", "add", "reduce"])
    if kind == "set":  # of several at one place, none is the right one
        source = d.like(x)
        return Made(
            f"{x}.scatter({axis}, {index_like(d, x, axis, x.shapes, distinct=True)}, {source})", exact=True
        )
    if kind == "value":
        index = index_like(d, x, axis, x.shapes)
        return Made(f"torch.scatter({x}, {axis}, {index}, {d.whole()})", exact=True)
    source, index = d.like(x), index_like(d, x, axis, x.shapes)
    if kind == "add":
        return Made(f"{x}.scatter_add({axis}, {index}, {source})")
    if not x.floating:
        raise Skip
    reduce = d.choice(["sum", "mean", "amax", "amin"])
    return Made(
        f"{x}.scatter_reduce({axis}, {index}, {source}, reduce={reduce!r}, include_self={d.boolean()})"
    )


@operation("indexing", weight=1.5)
def index_put(d: Draw) -> Made:
    x = d.tensor(1)
    axis = 0
    length = [3] * len(x.shapes)
    index = index_along(d, x, axis, length)
    if d.boolean():
        return Made(f"{x}.index_put(({index},), torch.ones_like({x}[:1]), accumulate=True)")
    return Made(f"torch.index_put({x}, ({index},), torch.full_like({x}[:1], 2))", exact=True)


@operation("indexing", weight=0.7)
def index_add(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    source = d.like(x)
    index = index_along(d, x, axis, lengths_along(x, axis))
    return f"torch.index_add({x}, {axis}, {index}, {source})"


@operation("indexing", weight=0.5, exact=True)
def select_scatter(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    if min(shape[axis] for shape in x.shapes) < 2:
        raise Skip
    return d.choice(
        [
            f"torch.select_scatter({x}, {x}.select({axis}, 0), {axis}, 1)",
            f"torch.slice_scatter({x}, {x}.narrow({axis}, 0, 1), {axis}, 1, 2)",
        ]
    )


@operation("indexing", weight=0.5, exact=True)
def one_hot(d: Draw) -> str:
    x = d.pick(lambda v: v.dtype == torch.int64 and v.within(0, 5))
    return f"F.one_hot({x}, 6)"


@operation("indexing", weight=0.5, exact=True)
def bucketize(d: Draw) -> str:
    x = d.floating()
    return f"torch.bucketize({x}.detach(), torch.tensor([-1.0, 0.0, 0.5, 1.0], dtype={x.dtype}))"


@operation("indexing", weight=0.4, exact=True)
def searchsorted(d: Draw) -> str:
    x = d.pick(lambda x: x.floating and x.dim == 1)
    y = d.pick(lambda y: y.dtype == x.dtype and y.dim == 1)
    return f"torch.searchsorted({x}.detach().sort().values, {y}.detach())"


@operation("indexing", weight=0.3, exact=True)
def arange_like(d: Draw) -> str:
    x = d.tensor(1)
    dtype = d.choice(["int64", "float32", "int32"])
    return d.choice(
        [
            f"torch.arange({d.size(x, 0)}, dtype=torch.{dtype})",
            f"torch.linspace(0, 1, {d.size(x, -1)})",
            f"torch.arange({d.size(x, 0)} - 1, -1, -1)",
            f"torch.eye({d.size(x, 0)} + 290, {d.size(x, -1)})",
            f"torch.eye({d.size(x, -1)}, dtype=torch.{dtype})",
            f"torch.tril_indices({d.size(x, 0)}, {d.size(x, -1)})",
        ]
    )

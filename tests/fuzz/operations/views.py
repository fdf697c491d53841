"""Views, and copies that move elements about."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Made, Skip, Value, operation


def view(weight: float = 1.0):
    return operation("views", weight=weight, exact=True)


@view()
def transpose(d: Draw) -> str:
    x = d.tensor(2)
    return d.choice(
        [
            f"{x}.transpose({d.axis(x)}, {d.axis(x)})",
            f"{x}.mT",
            f"{x}.swapaxes(0, -1)",
            f"{x}.movedim({d.axis(x)}, {d.axis(x)})",
        ]
    )


@view()
def permute(d: Draw) -> str:
    x = d.tensor(2)
    return f"{x}.permute{tuple(d.random.sample(range(x.dim), x.dim))}"


@view(0.5)
def t(d: Draw) -> str:
    return f"{d.tensor(1, 2)}.t()"


@view()
def unsqueeze(d: Draw) -> str:
    x = d.tensor(0, 4)
    return f"{x}.unsqueeze({d.integer(-x.dim - 1, x.dim)})"


@view()
def squeeze(d: Draw) -> str:
    x = d.pick(lambda x: 1 in x.shape)
    axis = x.shape.index(1)
    ones = {tuple(size == 1 for size in shape) for shape in x.shapes}
    # as many dimensions at each call
    whole = f"{x}.squeeze()" if len(ones) == 1 else f"{x}.squeeze({axis})"
    return d.choice([f"{x}.squeeze({axis})", whole, f"torch.squeeze({x}, ({axis},))"])


@view(2.0)
def slice_(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    step = d.choice(["", "", "::2", "::3", "1::2"])
    bounds = step or d.choice(
        ["1:", ":-1", "1:-1", ":2", "2:", "-2:", ":1", "0:0", ":-2", "-3:-1"],
        [3, 3, 2, 2, 2, 1, 1, 0.1, 1, 1],
    )
    if d.chance(0.2):
        return f"{x}[..., {bounds}]"
    return f"{x}[{':, ' * axis}{bounds}]"


@view()
def select(d: Draw) -> str:
    x = d.pick(lambda x: x.dim and all(all(shape) for shape in x.shapes))
    axis = d.integer(0, x.dim - 1)
    return d.choice([f"{x}[{':, ' * axis}{d.choice([0, -1])}]", f"{x}.select({axis}, 0)"])


@view()
def narrow(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    least = min(shape[axis] for shape in x.shapes)
    start = d.integer(0, least)
    shortest = 0 if d.chance(0.1) else min(1, least - start)
    return f"{x}.narrow({axis}, {start}, {d.integer(shortest, least - start)})"


@view(1.5)
def expand(d: Draw) -> str:
    x = d.tensor(0, 4)
    if 1 in x.shape and d.chance(0.7):
        axis = x.shape.index(1)
        sizes = ["-1"] * x.dim
        sizes[axis] = str(d.choice([2, 3, 4]))
        return f"{x}.expand({', '.join(sizes)})"
    if x.dim == 0:
        return f"{x}.expand({d.choice([2, 3])}, {d.choice([1, 4])})"
    return f"{x}.expand({d.choice([2, 3])}, {', '.join(['-1'] * x.dim)})"


@view(0.7)
def expand_as(d: Draw) -> str:
    x = d.tensor()
    y = d.pick(lambda y: y.dim > x.dim or (y.dim == x.dim and y.shape != x.shape))
    return d.choice([f"{x}.expand_as({y})", f"torch.broadcast_to({x}, {y}.shape)"])


@view(1.5)
def flatten(d: Draw) -> str:
    x = d.tensor(1)
    start = d.integer(0, x.dim - 1)
    end = d.integer(start, x.dim - 1)
    return d.choice(
        [
            f"{x}.flatten({start}, {end})",
            f"{x}.reshape(-1)",
            f"{x}.flatten()",
            f"{x}.view(-1)",
            f"torch.ravel({x})",
        ]
    )


@view(1.5)
def unflatten(d: Draw) -> str:
    x = d.tensor(1, 4)
    axis = d.integer(0, x.dim - 1)
    factors = [f for f in (2, 3, 4, 5, 7) if all(shape[axis] % f == 0 for shape in x.shapes)]
    if not factors:
        raise Skip
    factor = d.choice(factors)
    parts = [str(factor), "-1"] if d.boolean() else ["-1", str(factor)]
    return f"{x}.unflatten({axis}, ({', '.join(parts)}))"


@view(1.5)
def reshape(d: Draw) -> str:
    """Two neighbouring axes into one, in terms of the sizes, or a factor moved from one to the next."""
    x = d.tensor(2, 5)
    axis = d.integer(0, x.dim - 2)
    sizes = [d.size(x, place) for place in range(x.dim)]
    method = d.choice(["reshape", "view", "reshape"])
    if d.boolean() and all(shape[axis] % 2 == 0 and shape[axis] for shape in x.shapes):
        terms = [*sizes[:axis], f"{sizes[axis]} // 2", f"{sizes[axis + 1]} * 2", *sizes[axis + 2 :]]
    elif d.boolean():
        terms = [*sizes[:axis], sizes[axis + 1], sizes[axis], *sizes[axis + 2 :]]
    else:
        terms = [*sizes[:axis], f"{sizes[axis]} * {sizes[axis + 1]}", *sizes[axis + 2 :]]
    return f"{x}.{method}({', '.join(terms)})"


@view()
def as_strided(d: Draw) -> str:
    x = d.pick(
        lambda x: x.all(lambda item: item.numel() >= 4 and item.is_contiguous() and not item.storage_offset())
    )
    least = min(item.numel() for item in x.tensors)
    rows, columns = d.integer(1, 3), d.integer(1, 3)
    strides = d.choice([(1, 1), (2, 1), (1, 2), (columns, 1), (0, 1)])
    offset = d.choice([0, 0, 1, 2])
    if (rows - 1) * strides[0] + (columns - 1) * strides[1] + offset >= least:
        raise Skip
    return f"torch.as_strided({x}, ({rows}, {columns}), {strides}, {offset})"


@view(0.6)
def unfold(d: Draw) -> str:
    x = d.tensor(1, 4)
    axis = d.axis(x)
    if min(shape[axis] for shape in x.shapes) < 2:
        raise Skip
    return f"{x}.unfold({axis}, 2, {d.choice([1, 2])})"


@view(0.6)
def diagonal(d: Draw) -> str:
    x = d.tensor(2, 4)
    a, b = d.random.sample(range(x.dim), 2)
    return f"torch.diagonal({x}, {d.choice([0, 0, 1, -1])}, {a}, {b})"


@view()
def chunk(d: Draw) -> Made:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    if min(shape[axis] for shape in x.shapes) < 2:
        raise Skip
    if d.boolean() and len({shape[axis] for shape in x.shapes}) == 1:
        first = d.integer(1, x.shape[axis] - 1)
        return Made(f"{x}.split([{first}, {x.shape[axis] - first}], {axis})", results=2)
    return Made(f"torch.chunk({x}, 2, {axis})", results=2)


@view(0.6)
def unbind(d: Draw) -> Made:
    x = d.pick(lambda x: x.dim and x.shape[0] in (2, 3))
    return Made(f"{x}.unbind(0)", results=x.shape[0])


@view(0.3)
def detach(d: Draw) -> str:
    return f"{d.tensor()}.detach()"


@view(0.2)
def alias(d: Draw) -> str:
    x = d.tensor()
    return d.choice(
        [f"{x}.view({x}.shape)", f"{x}[...]", f"{x}.view_as({x})", f"{x}[None]", f"{x}.expand({x}.shape)"]
    )


@view(0.3)
def reinterpret(d: Draw) -> str:
    x = d.pick(lambda x: str(x.dtype) in ("torch.float32", "torch.int32") and not x.now.requires_grad)
    return f"{x}.view(torch.{'int32' if x.floating else 'float32'}).view(torch.{str(x.dtype)[6:]})"


# -- copies ---------------------------------------------------------------------------------------


@view(1.2)
def flip(d: Draw) -> str:
    x = d.tensor(1)
    return f"{x}.flip({', '.join(map(str, d.axes(x)))})"


@view(1.5)
def roll(d: Draw) -> str:
    x = d.tensor(1)
    if d.chance(0.15):
        return f"torch.roll({x}, {d.integer(-3, 3)})"
    if x.dim > 1 and d.chance(0.25):
        return f"torch.roll({x}, ({d.integer(-2, 3)}, {d.integer(-2, 3)}), (0, {x.dim - 1}))"
    return f"{x}.roll({d.integer(-3, 5)}, {d.axis(x)})"


@view(0.6)
def repeat(d: Draw) -> str:
    x = d.tensor(0, 3)
    counts = [str(d.choice([1, 2, 3])) for _ in range(x.dim + d.choice([0, 0, 1]))] or ["2"]
    return d.choice([f"{x}.repeat({', '.join(counts)})", f"torch.tile({x}, (2,))"])


@view(0.5)
def repeat_interleave(d: Draw) -> str:
    x = d.tensor(1, 4)
    return f"{x}.repeat_interleave({d.choice([2, 3])}, {d.axis(x)})"


@view(0.5)
def rot90(d: Draw) -> str:
    return f"torch.rot90({d.tensor(2)}, {d.choice([1, 2, 3])}, (0, 1))"


@view(0.7)
def triangle(d: Draw) -> str:
    return f"torch.{d.choice(['tril', 'triu'])}({d.tensor(2)}, {d.integer(-2, 2)})"


@view(0.4)
def channels_last(d: Draw) -> str:
    x = d.tensor(4, 4)
    return f"{x}.contiguous(memory_format=torch.{d.choice(['channels_last', 'contiguous_format'])})"


@view(0.4)
def diag(d: Draw) -> str:
    x = d.tensor(1, 2)
    return f"torch.diag_embed({x})" if d.boolean() else f"torch.diag({x}, {d.integer(-1, 1)})"


def sized(x: Value, axis: int) -> int:
    """Smallest size of an axis over the calls."""
    return min(shape[axis] for shape in x.shapes)


@view(0.4)
def pixel_shuffle(d: Draw) -> str:
    x = d.tensor(3, 4)
    if sized(x, -3) % 4 == 0 and sized(x, -3):
        return f"F.pixel_shuffle({x}, 2)"
    if sized(x, -1) % 2 == 0 and sized(x, -2) % 2 == 0:
        return f"F.pixel_unshuffle({x}, 2)"
    raise Skip

"""Several tensors into one, and padding."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Skip, Value, operation


def _others(d: Draw, x: Value, axis: int) -> list[Value]:
    """Values that can stand beside ``x`` along an axis, ``x`` among them."""
    axis %= x.dim

    def fits(y: Value) -> bool:
        return y.dim == x.dim and all(
            a == b or place == axis
            for one, two in zip(x.shapes, y.shapes)
            for place, (a, b) in enumerate(zip(one, two))
        )

    return [x if d.chance(0.3) else d.pick(fits) for _ in range(d.integer(1, 3))]


@operation("joining", weight=3.0, exact=True)
def cat(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.axis(x)
    names = [str(x), *map(str, _others(d, x, axis))]
    d.random.shuffle(names)
    return f"torch.cat([{', '.join(names)}], {axis})"


@operation("joining", weight=1.5, exact=True)
def stack(d: Draw) -> str:
    x = d.tensor(0, 4)
    names = [str(x), *(str(d.like(x)) for _ in range(d.integer(1, 2)))]
    return f"torch.stack([{', '.join(names)}], {d.integer(-x.dim - 1, x.dim)})"


@operation("joining", weight=2.5, exact=True)
def pad(d: Draw) -> str:
    x = d.tensor(1, 5)
    count = d.integer(1, min(x.dim, 3))
    amounts = [d.choice([0, 1, 2, 3, -1], [2, 4, 2, 1, 0.7]) for _ in range(2 * count)]
    return f"F.pad({x}, {tuple(amounts)}{d.choice(['', ', value=1', ', value=-2'])})"


@operation("joining", weight=1.5, exact=True)
def pad_mode(d: Draw) -> str:
    x = d.floating(2, 5)
    axes = d.integer(1, min(x.dim - 1, 3))
    if x.dim not in (axes + 1, axes + 2):
        raise Skip
    mode = d.choice(["reflect", "replicate", "circular"])
    return f"F.pad({x}, {tuple(d.choice([0, 1, 2]) for _ in range(2 * axes))}, mode={mode!r})"


@operation("joining", weight=0.4, exact=True)
def hstack(d: Draw) -> str:
    x = d.tensor(1)
    return f"torch.{d.choice(['hstack', 'vstack', 'dstack', 'column_stack'])}([{x}, {d.like(x)}])"


@operation("joining", weight=0.3, exact=True)
def block_diag(d: Draw) -> str:
    return f"torch.block_diag({d.tensor(0, 2)}, {d.tensor(0, 2)})"


@operation("joining", weight=0.3, exact=True)
def meshgrid_sum(d: Draw) -> str:
    x, y = d.tensor(1, 1), d.tensor(1, 1)
    return f"torch.meshgrid({x}, {y}, indexing='{d.choice(['ij', 'xy'])}')[{d.integer(0, 1)}]"


@operation("joining", weight=0.4, exact=True)
def split_and_join(d: Draw) -> str:
    x = d.tensor(1)
    axis = d.integer(0, x.dim - 1)
    return f"torch.cat(torch.chunk({x}, 2, {axis})[::-1], {axis})"


@operation("joining", weight=0.3, exact=True)
def cartesian(d: Draw) -> str:
    return f"torch.stack(torch.broadcast_tensors({(x := d.tensor(0, 4))}, {d.partner(x)}), -1)"

"""Matrix products of every form."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Skip, Value, operation


def _factor(d: Draw, x: Value, axis: int, rank: int) -> Value:
    """A value of so many axes whose second last one (its only one) goes with an axis of ``x``."""
    place = -2 if rank > 1 else -1

    def fits(y: Value) -> bool:
        return (
            y.dtype == x.dtype
            and y.dim == rank
            and all(one[axis] == two[place] for one, two in zip(x.shapes, y.shapes))
        )

    if d.chance(0.4):
        outer = d.choice([1, 3, 4, 8])
        if rank <= 2:
            shapes = [(shape[axis], outer)[:rank] for shape in x.shapes]
            return d.new_input(shapes, x.dtype)
    return d.pick(fits)


@operation("matmul", weight=3.0)
def matmul(d: Draw) -> str:
    x = d.pick(lambda x: x.dim and (x.floating or x.dtype.is_complex))
    y = _factor(d, x, -1, d.choice([1, 2, 2, 2, 3]))
    return d.choice([f"{x} @ {y}", f"torch.matmul({x}, {y})"])


@operation("matmul", weight=1.5)
def matmul_own(d: Draw) -> str:
    x = d.floating(2, 4)
    return d.choice([f"{x} @ {x}.mT", f"{x}.mT @ {x}", f"torch.matmul({x}, {d.like(x)}.transpose(-1, -2))"])


@operation("matmul")
def mm(d: Draw) -> str:
    x = d.floating(2, 2)
    return f"torch.mm({x}, {_factor(d, x, -1, 2)})"


@operation("matmul")
def bmm(d: Draw) -> str:
    x = d.floating(3, 3)
    return f"torch.bmm({x}, {d.like(x)}.mT)"


@operation("matmul")
def addmm(d: Draw) -> str:
    x = d.floating(2, 2)
    y = _factor(d, x, -1, 2)
    if len({shape[1] for shape in y.shapes}) > 1:
        raise Skip
    bias = d.new_input([(y.shape[1],)] * len(y.shapes), x.dtype)
    extra = d.choice(["", ", beta=0.5", ", alpha=2"])
    return f"torch.addmm({bias}, {x}, {y}{extra})"


@operation("matmul", weight=0.7)
def baddbmm(d: Draw) -> str:
    x = d.floating(3, 3, lambda x: all(shape[1] == shape[2] for shape in x.shapes))
    return f"torch.baddbmm({d.like(x)}, {x}, {d.like(x)}, beta={d.choice([0.5, 0, 1])})"


@operation("matmul")
def mv(d: Draw) -> str:
    x = d.floating(2, 2)
    return f"torch.mv({x}, {_factor(d, x, -1, 1)})"


@operation("matmul", weight=0.7)
def dot(d: Draw) -> str:
    x = d.floating(1, 1)
    return d.choice([f"torch.dot({x}, {d.like(x)})", f"torch.outer({x}, {d.like(x)})"])


@operation("matmul", weight=1.5)
def einsum(d: Draw) -> str:
    x = d.floating(2, 3)
    y = d.like(x)
    letters = "abc"[: x.dim]
    results = [letters, letters[:1], letters[1:], "", letters[::-1]]
    return f"torch.einsum('{letters},{letters}->{d.choice(results)}', {x}, {y})"


@operation("matmul", weight=0.5)
def tensordot(d: Draw) -> str:
    x = d.floating(2, 3)
    return f"torch.tensordot({x}, {d.like(x)}, dims=([0], [0]))"


@operation("matmul", weight=0.3)
def cdist(d: Draw) -> str:
    x = d.floating(2, 3, lambda x: str(x.dtype) in ("torch.float32", "torch.float64"))
    return f"torch.cdist({x}, {d.like(x)} + 0.3)"


@operation("matmul", weight=0.3)
def kron(d: Draw) -> str:
    x = d.floating(1, 2)
    return f"torch.kron({x}, {d.like(x)})"

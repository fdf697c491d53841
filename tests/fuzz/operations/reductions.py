"""Reductions along any axes, scans, and softmax."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Made, Skip, Value, operation


def _where(d: Draw, x: Value, several: bool = True) -> str:
    """Axes and keepdim as arguments; nothing for all of them."""
    if not x.dim or d.chance(0.15):
        return ""
    axes = d.axes(x) if several and d.chance(0.4) else d.axis(x)
    return f"{axes}{d.choice([', keepdim=True', '', ', True'])}"


def _whole(x: Value) -> bool:
    """Has elements in every call."""
    return x.all(lambda item: item.numel())


# name: (expression, several axes, exact, only numbers with a point)
REDUCTIONS = {
    "sum": ("{x}.sum({w})", True, False, False),
    "mean": ("{x}.mean({w})", True, False, True),
    "amax": ("{x}.amax({w})", True, True, False),
    "amin": ("torch.amin({x}, {w})", True, True, False),
    "prod": ("torch.prod({x}, {w})", False, False, False),
    "any": ("{x}.any({w})", False, True, False),
    "all": ("torch.all({x}, {w})", False, True, False),
    "logsumexp": ("torch.logsumexp({x}, {w})", True, False, True),
    "var": ("{x}.var({w})", True, False, True),
    "std": ("torch.std({x}, {w})", True, False, True),
    "nansum": ("torch.nansum({x}, {w})", True, False, True),
    "count_nonzero": ("torch.count_nonzero({x})", False, True, False),
    "argmax": ("{x}.argmax({w})", False, True, False),
    "argmin": ("torch.argmin({x}, {w})", False, True, False),
    "nanmean": ("torch.nanmean({x}, {w})", True, False, True),
}


def _reduction(name: str, text: str, several: bool, exact: bool, floating: bool) -> None:
    @operation("reductions", name, 3.0 if name in ("sum", "mean") else 0.8, exact)
    def make(d: Draw) -> str:
        x = d.floating() if floating else d.tensor()
        if name not in ("sum", "any", "all", "count_nonzero", "nansum") and not _whole(x):
            raise Skip
        if name in ("var", "std") and not x.all(lambda item: item.numel() > 1):
            raise Skip
        return text.format(x=x, w=_where(d, x, several)).replace(", )", ")")


for _name, _entry in REDUCTIONS.items():
    _reduction(_name, *_entry)


@operation("reductions", exact=True)
def max_along(d: Draw) -> Made:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex and _whole(x))
    return Made(
        f"torch.{d.choice(['max', 'min'])}({x}, {d.axis(x)}{d.choice([', keepdim=True', ''])})", results=2
    )


@operation("reductions")
def variance(d: Draw) -> Made:
    # the mean of infinite numbers is whatever the steps of eager's running mean make of them
    x = d.floating(1, test=lambda x: _whole(x) and x.all(lambda item: item.isfinite().all()))
    axes = d.axes(x)
    kind = d.choice(["var_mean", "std_mean"])
    return Made(f"torch.{kind}({x}, {axes}, correction={d.choice([0, 1])}, keepdim={d.boolean()})", results=2)


@operation("reductions")
def norm(d: Draw) -> str:
    x = d.floating(1)
    order = d.choice(["2", "1", "float('inf')", "3"])
    return f"torch.linalg.vector_norm({x} + 0.01, {order}, {d.axes(x)}, keepdim={d.boolean()})"


@operation("reductions")
def sum_dtype(d: Draw) -> str:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex)
    return f"{x}.sum({d.axis(x)}, dtype=torch.{d.choice(['float32', 'float64'])})"


@operation("reductions", weight=1.5)
def softmax(d: Draw) -> str:
    x = d.floating(1)
    kind = d.choice(["softmax", "log_softmax"])
    extra = ", dtype=torch.float32" if d.chance(0.15) else ""
    return f"{d.choice(['F', 'torch'])}.{kind}({x}, {d.axis(x)}{extra})"


@operation("reductions", weight=0.4)
def softmin(d: Draw) -> str:
    x = d.floating(1)
    return f"F.softmin({x}, {d.axis(x)})"


@operation("reductions", weight=1.2)
def cumsum(d: Draw) -> str:
    x = d.pick(lambda x: x.dim)
    return f"torch.cumsum({x}, {d.axis(x)})"


@operation("reductions", weight=0.5)
def cumprod(d: Draw) -> str:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex)
    return (
        f"torch.cumprod(torch.tanh({x}) + 1.1, {d.axis(x)})"
        if x.floating
        else f"{x}.sign().cumprod({d.axis(x)})"
    )


@operation("reductions", weight=0.4, exact=True)
def cummax(d: Draw) -> Made:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex and _whole(x))
    return Made(f"torch.{d.choice(['cummax', 'cummin'])}({x}, {d.axis(x)})", results=2)


@operation("reductions", weight=0.3)
def logcumsumexp(d: Draw) -> str:
    x = d.floating(1)
    return f"torch.logcumsumexp({x}, {d.axis(x)})"


@operation("reductions", weight=0.5, exact=True)
def diff(d: Draw) -> Made:
    x = d.pick(lambda x: x.dim and str(x.dtype) != "torch.bool")
    return Made(f"torch.diff({x}, dim={d.axis(x)})", exact=False)


@operation("reductions", weight=0.3, exact=True)
def extremes(d: Draw) -> Made:
    x = d.pick(lambda x: x.dim and not x.dtype.is_complex and _whole(x))
    return Made(f"torch.aminmax({x}, dim={d.axis(x)}, keepdim={d.boolean()})", results=2)


@operation("reductions", weight=0.3)
def distance(d: Draw) -> str:
    x = d.floating(2)
    return f"F.{d.choice(['cosine_similarity', 'pairwise_distance'])}({x}, {d.like(x)} + 0.2)"


@operation("reductions", weight=0.3)
def renormalised(d: Draw) -> str:
    x = d.floating(1)
    return f"F.normalize({x}, dim={d.axis(x)})"

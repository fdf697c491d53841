"""Sizes that depend on data, within a step whose result has a size that does not."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Value, operation

MADE_OF = ["{n}.sum()", "({n} * 2 + 1).sum()", "{n}.sin().sum()", "{n}.abs().exp().clamp(max=9).sum()"]


def _plain(value: Value) -> bool:
    return not value.dtype.is_complex


def _mask(d: Draw, x: Value) -> str:
    return f"{x} > {d.choice([0, 0.5, -1, 9])}" if x.dtype.is_floating_point else f"{x} > {d.choice([0, 1])}"


@operation("data")
def chosen(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dtype.is_floating_point and x.dim > 0)
    return str(d.choice(MADE_OF)).format(n=f"{x}[{_mask(d, x)}]")


@operation("data")
def chosen_rows(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dtype.is_floating_point and x.dim > 1)
    rows = f"{x}[{x}.flatten(1).sum(1) > {d.choice([0, -5, 50])}]"
    made = d.choice(["{n}.sum(0)", "torch.softmax({n}, -1).sum(0)", "({n} * 0.5 - 1).tanh().sum(0)"])
    return str(made).format(n=rows)


@operation("data")
def masked_select(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dtype.is_floating_point)
    return f"(torch.masked_select({x}, {_mask(d, x)}) * 2).sum()"


@operation("data", exact=True)
def found(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dim > 0)
    return f"({d.choice(['torch.nonzero({m})', 'torch.argwhere({m})']).format(m=_mask(d, x))} * 3 + 1).sum(0)"


@operation("data", exact=True)
def distinct(d: Draw) -> str:
    x = d.pick(lambda x: not x.dtype.is_floating_point and _plain(x) and x.dtype.itemsize > 1 and x.dim > 0)
    return f"(torch.unique({x}) * 2 - 1).sum()"


@operation("data", exact=True)
def filled(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dtype.is_floating_point and x.dim > 0)
    mask = _mask(d, x)
    return f"{x}.masked_scatter({mask}, {x}[{mask}] * 2)"


@operation("data", exact=True)
def counted(d: Draw) -> str:
    x = d.pick(_plain)
    return f"(torch.arange(({_mask(d, x)}).sum().item()) * 2 + 1).sum()"


@operation("data")
def first_of(d: Draw) -> str:
    x = d.pick(lambda x: _plain(x) and x.dtype.is_floating_point and x.dim > 0)
    count = f"({_mask(d, x)}).sum().clamp(max={x}.shape[0]).item()"
    return f"{x}.sort(0, stable=True).values.narrow(0, 0, {count}).cos().sum(0)"

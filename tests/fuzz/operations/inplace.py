"""What overwrites a value: whole, through a view, or at some places."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Draw, Made, Skip, Value, operation
from tests.fuzz.operations.indexing import index_along


def dense(x: torch.Tensor) -> bool:
    """Whether no two elements share memory; eager refuses to overwrite others."""
    reach = 1
    for stride, size in sorted((s, n) for n, s in zip(x.shape, x.stride()) if n > 1):
        if stride < reach:
            return False
        reach = stride * (size - 1) + reach
    return True


def writable(d: Draw, x: Value) -> bool:
    """Whether eager lets this be overwritten."""
    try:
        fixed = d.mode in ("train", "twice", "grad") and x.now.requires_grad and x.now.is_leaf
    except RuntimeError:  # one of several views whose base has been written to
        return False
    return not fixed and x.all(dense)


def target(d: Draw, least: int = 0, floating: bool = False) -> Value:
    """A value to overwrite: an argument, or a view of one, more often than not."""
    names = {item.name for item in d.inputs}

    def fits(x: Value) -> bool:
        return x.dim >= least and (x.floating or not floating) and writable(d, x)

    if d.chance(0.4):
        return d.pick(lambda x: fits(x) and x.name in names)
    return d.pick(fits)


def _view(d: Draw, x: Value) -> str:
    """The value, or a part of it."""
    if not x.dim or d.chance(0.55):
        return str(x)
    return d.choice(
        [
            f"{x}[1:]",
            f"{x}[::2]",
            f"{x}[..., :-1]",
            f"{x}[..., 0]",
            f"{x}.transpose(0, -1)",
            f"{x}[:1]",
            f"{x}.flip(0)[:0]" if d.chance(0.05) else f"{x}[-1]",
            f"{x}[..., 1:]",
        ]
    )


METHODS = {
    "add_": "{t}.add_({y})",
    "sub_": "{t}.sub_({y})",
    "mul_": "{t}.mul_({y})",
    "copy_": "{t}.copy_({y})",
    "div_": "{t}.div_({y}.abs() + 1)",
    "iadd": "{t} += {y}",
}


def _binary(name: str, text: str) -> None:
    @operation("inplace", name, 1.5, name == "copy_")
    def make(d: Draw) -> Made:
        x = target(d)
        y = d.partner(x, into=True)
        whole = text.startswith("{t} ") or d.chance(0.6)
        operand = str(y) if d.chance(0.8) else str(d.number() if x.floating else d.whole())
        if "abs" in text or text.startswith("{t}.copy_"):
            operand = str(y)
        code = text.format(t=str(x) if whole else _view(d, x), y=operand)
        return Made(code, 0, x.name)


for _name, _text in METHODS.items():
    _binary(_name, _text)


@operation("inplace", "unary_", 2.0)
def unary(d: Draw) -> Made:
    x = target(d)
    if x.floating:
        calls = [
            "relu_()",
            "sigmoid_()",
            "tanh_()",
            "neg_()",
            "abs_()",
            "clamp_(-1, 1)",
            "mul_(0.5)",
            "add_(1)",
            "sin_()",
            "zero_()",
            "fill_(0.5)",
            "clamp_(min=0.1)",
            "round_()",
        ]
    elif x.dtype == torch.bool:
        calls = ["logical_not_()", "zero_()", "fill_(True)"]
    else:
        calls = ["neg_()", "abs_()", "add_(1)", "mul_(2)", "zero_()", "fill_(3)"]
    return Made(f"{_view(d, x)}.{d.choice(calls)}", 0, x.name)


@operation("inplace", "lerp_", 0.6)
def lerp(d: Draw) -> Made:
    x = target(d, floating=True)
    y = d.like(x)
    return Made(
        d.choice(
            [
                f"{x}.lerp_({y}, 0.25)",
                f"{x}.addcmul_({y}, {d.like(x)}, value=0.5)",
                f"{x}.add_({y}, alpha=-0.5)",
            ]
        ),
        0,
        x.name,
    )


@operation("inplace", "set_part", 2.0, exact=True)
def set_part(d: Draw) -> Made:
    """``x[part] = y``."""
    x = target(d, 1)
    parts = ["[0]", "[-1]", "[1:]", "[::2]", "[..., 0]", "[..., 1:]", "[:1]", "[..., :-1]"]
    part = d.choice(parts)
    filled = str(d.number() if x.floating else d.whole())
    if d.chance(0.6):
        filled = f"{d.pick(lambda y: y.dim <= x.dim and y.dtype == x.dtype)}"
    if d.chance(0.3) and x.dtype != torch.bool:
        return Made(f"{x}{part} {d.choice(['+=', '*=', '-='])} {filled}", 0, x.name, exact=False)
    return Made(f"{x}{part} = {filled}", 0, x.name)


@operation("inplace", "set_masked", 1.0, exact=True)
def set_masked(d: Draw) -> Made:
    x = target(d)
    mask = d.partner(x, into=True)
    asked = str(mask) if mask.dtype == torch.bool else f"{mask} > 0"
    if mask.dtype.is_complex:
        raise Skip
    filled = d.choice([0, 1, -1])
    if mask.shapes == x.shapes and d.boolean():
        return Made(f"{x}[{asked}] = {filled}", 0, x.name)
    return Made(f"{x}.masked_fill_({asked}, {filled})", 0, x.name)


@operation("inplace", "index_add_", 1.0)
def index_add(d: Draw) -> Made:
    x = target(d, 1)
    axis = d.integer(0, x.dim - 1)
    source = d.like(x)
    length = [shape[axis] for shape in x.shapes]
    index = index_along(d, x, axis, length)
    return Made(f"{x}.index_add_({axis}, {index}, {source})", 0, x.name)


@operation("inplace", "index_fill_", 0.5, exact=True)
def index_fill(d: Draw) -> Made:
    x = target(d, 1)
    axis = d.integer(0, x.dim - 1)
    return Made(f"{x}.index_fill_({axis}, {index_along(d, x, axis)}, 2)", 0, x.name)


@operation("inplace", "scatter_add_", 1.0)
def scatter_add(d: Draw) -> Made:
    x = target(d, 1)
    axis = d.integer(0, x.dim - 1)
    source = d.like(x)
    index = d.choice([f"({source} > 0).long()", f"torch.zeros_like({source}, dtype=torch.int64)"])
    if source.dtype.is_complex or min(shape[axis] for shape in x.shapes) < 2:
        raise Skip
    return Made(f"{x}.scatter_add_({axis}, {index}, {source})", 0, x.name)


@operation("inplace", "out", 1.0)
def out(d: Draw) -> Made:
    """The ``out=`` form, into a value of the right shape."""
    x = target(d, floating=True)
    if x.now.requires_grad:
        raise Skip
    y = d.like(x, lambda y: not y.now.requires_grad)
    z = d.like(x, lambda z: not z.now.requires_grad)
    return Made(
        d.choice(
            [f"torch.add({y}, {z}, out={x})", f"torch.mul({y}, {z}, out={x})", f"torch.sin({y}, out={x})"]
        ),
        0,
        x.name,
    )


@operation("inplace", "metadata", 0.3, exact=True)
def metadata(d: Draw) -> Made:
    """Another shape under the same name."""
    names = {item.name for item in d.inputs}
    x = d.pick(lambda x: x.dim >= 2 and x.name not in names and not x.now.requires_grad)
    return Made(d.choice([f"{x}.unsqueeze_(0)", f"{x}.transpose_(0, 1)", f"{x}.squeeze_()"]), 0, x.name)


@operation("inplace", "foreach", 0.3)
def foreach(d: Draw) -> Made:
    x = target(d, floating=True)
    y = d.like(x)
    return Made(
        d.choice(
            [
                f"torch._foreach_add_([{x}], [{y}], alpha=0.5)",
                f"torch._foreach_mul_([{x}], 0.5)",
                f"torch._foreach_lerp_([{x}], [{y}], 0.3)",
                f"torch._foreach_addcmul_([{x}], [{y}], [{y}], 0.5)",
                f"torch._foreach_addcdiv_([{x}], [{y}], torch._foreach_exp([{y}]), [0.5])",
                f"torch._foreach_maximum_([{x}], [{y}])",
                f"torch._foreach_clamp_min_([{x}], -0.5)",
                f"torch._foreach_div_([{x}], torch._foreach_add(torch._foreach_norm([{y}]), 1))",
            ]
        ),
        0,
        x.name,
    )


@operation("inplace", "functional_inplace", 0.6)
def functional(d: Draw) -> Made:
    x = target(d, floating=True)
    return Made(
        d.choice(
            [
                f"F.relu({x}, inplace=True)",
                f"F.silu({x}, inplace=True)",
                f"F.hardtanh({x}, inplace=True)",
                f"F.leaky_relu({x}, 0.1, inplace=True)",
            ]
        ),
        0,
        x.name,
    )

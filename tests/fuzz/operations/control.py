"""Higher-order operators: bodies that are graphs of their own."""

from __future__ import annotations

from tests.fuzz.draw import Draw, Made, Value, operation

BODIES = [
    "a.sin() * b",
    "a * 0.5 + b",
    "a - b.tanh()",
    "(a * b).clamp(-2, 2)",
    "torch.where(a > b, a, b * 0.25)",
    "torch.maximum(a, b)",
]
REDUCING = ["a - b.mean()", "a / (1 + b.abs().sum())", "(a - a.amax()).exp() * b", "a.softmax(-1) + b"]


def operands(d: Draw, least: int = 0) -> tuple[Value, Value]:
    """Two values of one shape and dtype with elements, dense in memory."""

    def fits(value: Value) -> bool:
        return value.all(lambda x: x.numel() and x.is_contiguous() and x.abs().max() < 50)

    x = d.floating(least, test=fits)
    return x, d.like(x, fits)


def body(d: Draw) -> str:
    """Of both operands: a result of the operator needs a gradient if any operand does."""
    return str(d.choice(BODIES + REDUCING))


@operation("control")
def cond(d: Draw) -> str:
    x, y = operands(d, least=1)
    asked = d.choice([f"{x}.sum() > 0", f"({x} > {y}).any()", f"{y}.isfinite().all()", f"{x}.amax() < 1"])
    return f"torch.cond({asked}, lambda a, b: {body(d)}, lambda a, b: {body(d)}, ({x}, {y}))"


@operation("control", weight=0.7)
def while_loop(d: Draw) -> Made:
    x, y = operands(d, least=1)
    times = d.integer(0, 4)
    carried = f"(torch.zeros((), dtype=torch.int64), {x}.detach().clone(), {y}.detach().clone())"
    code = (
        f"torch._higher_order_ops.while_loop(lambda i, a, b: i < {times}, lambda i, a, b: "
        f"(i + 1, {body(d)}, b.clone()), {carried})[1]"
    )
    return Made(code)


@operation("control", weight=0.7)
def scan(d: Draw) -> str:
    x, _ = operands(d, least=2)
    carried = d.choice(["a * 0.5 + b", "torch.maximum(a, b)", "(a + b).tanh()", "a - b.mean()"])
    given = d.choice(["a + b", "b * 2", "(a * b).sum(-1)", "a - b"])
    which = d.integer(0, 1)
    reverse = d.choice(["", ", reverse=True"])
    return (
        f"torch._higher_order_ops.scan(lambda a, b: ({carried}, {given}), "
        f"torch.zeros_like({x}[0]), {x}{reverse})[{which}]"
    )


@operation("control", weight=0.7)
def map_(d: Draw) -> str:
    x, y = operands(d, least=2)
    if d.boolean():
        return f"torch._higher_order_ops.map(lambda a, b: {body(d)}, {x}, {y}[0])"
    return f"torch._higher_order_ops.map(lambda a: {d.choice(['a.sin()', 'a - a.mean()', 'a.sum(-1)'])}, {x})"


@operation("control", weight=0.3)
def flex_attention(d: Draw) -> str:
    heads, rows, width = d.choice([1, 2]), d.choice([3, 8, 16]), d.choice([4, 8, 16])
    shape = [(1, heads, rows, width)] * len(d.sizes)
    q, k, v = (d.new_input(shape, d.choice([d.floating().dtype])) for _ in range(3))
    score = d.choice(["s", "s + (i - j) * 0.1", "s * (i >= j)", "torch.where(i >= j, s, -20.0)", "s.tanh()"])
    return (
        "torch.nn.attention.flex_attention.flex_attention("
        f"{q}.detach(), {k}.detach(), {v}.detach(), score_mod=lambda s, b, h, i, j: {score})"
    )

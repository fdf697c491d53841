"""Elementwise arithmetic, comparisons, choices, conversions."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Draw, Made, Skip, Value, operation

# name: expression, and what has to hold of the operand: the numbers between which it lies
UNARY = {
    "sin": "torch.sin({x})",
    "cos": "{x}.cos()",
    "tanh": "torch.tanh({x})",
    "sigmoid": "torch.sigmoid({x})",
    "exp_negative": "torch.exp(-{x}.abs())",
    "expm1": ("torch.expm1({x})", -9, 5),
    "exp": ("{x}.exp()", -30, 5),
    "exp2": ("torch.exp2({x})", -30, 6),
    "log": ("torch.log({x})", 0.01, 1e5),
    "log1p": ("torch.log1p({x})", -0.9, 1e5),
    "log2": ("{x}.log2()", 0.01, 1e5),
    "log10": ("{x}.log10()", 0.01, 1e5),
    "log_shifted": "({x}.abs() + 1).log()",
    "sqrt": ("torch.sqrt({x})", 0.001, 1e5),
    "rsqrt": ("torch.rsqrt({x})", 0.01, 1e5),
    "sqrt_abs": "({x}.abs() + 0.1).sqrt()",
    "reciprocal": "1 / ({x}.abs() + 0.5)",
    "erf": "torch.erf({x})",
    "erfc": "torch.erfc({x})",
    "erfinv": ("torch.erfinv({x})", -0.97, 0.97),
    "tan": ("torch.tan({x})", -1.4, 1.4),
    "asin": ("torch.asin({x})", -0.98, 0.98),
    "acos": ("torch.acos({x})", -0.98, 0.98),
    "atan": "torch.atan({x})",
    "sinh": ("torch.sinh({x})", -5, 5),
    "cosh": ("torch.cosh({x})", -5, 5),
    "asinh": "torch.asinh({x})",
    "acosh": ("torch.acosh({x})", 1.01, 1e5),
    "atanh": ("torch.atanh({x})", -0.97, 0.97),
    "lgamma": ("torch.lgamma({x})", 0.1, 50),
    "digamma": ("torch.digamma({x})", 0.1, 50),
    "logit": ("torch.logit({x}, 1e-3)", -0.5, 1.5),
    "sinc": "torch.sinc({x})",
    "square": ("{x}.square()", -100, 100),
    "power_three": ("{x} ** 3", -30, 30),
    "power_half": ("{x} ** 0.5", 0.01, 1e5),
    "power_minus": ("{x} ** -2", 0.1, 99),
    "softplus": "F.softplus({x})",
    "gelu": "F.gelu({x}.clamp(max=1e30))",  # torch 2.13's own kernel makes NaN of infinity
    "gelu_tanh": "F.gelu({x}, approximate='tanh')",
    "silu": "F.silu({x})",
    "mish": "F.mish({x})",
    "elu": "F.elu({x}, 0.7)",
    "selu": "F.selu({x})",
    "celu": "F.celu({x}, 1.2)",
    "hardswish": "F.hardswish({x})",
    "hardsigmoid": "F.hardsigmoid({x})",
    "logsigmoid": "F.logsigmoid({x})",
    "softsign": "F.softsign({x})",
    "tanhshrink": "{x} - torch.tanh({x})",  # not by its name: the noise is to get between the two
    "i0": ("torch.special.i0({x})", -5, 5),
    "deg2rad": "torch.deg2rad({x})",
    "frac": "{x}.frac()",
    "nan_to_num": "torch.nan_to_num({x}, 0.5, 3.0, -3.0)",
    "xlog1py": "torch.special.xlog1py({x}, {x}.abs())",
}
EXACT_UNARY = {
    "neg": "-{x}",
    "abs": "{x}.abs()",
    "relu": "torch.relu({x})",
    "relu6": "F.relu6({x})",
    "floor": "{x}.floor()",
    "ceil": "{x}.ceil()",
    "round": "{x}.round()",
    "trunc": "{x}.trunc()",
    "sign": "torch.sign({x})",
    "hardtanh": "F.hardtanh({x})",
    "hardshrink": "F.hardshrink({x}, 0.4)",
    "threshold": "F.threshold({x}, 0.1, 2.0)",
    "clone": "{x}.clone()",
    "positive": "+{x}",
    "clone_contiguous": "{x}.clone(memory_format=torch.contiguous_format)",
    "zeros_like": "torch.zeros_like({x})",
    "ones_like": "torch.ones_like({x})",
    "full_like": "torch.full_like({x}, 2)",
    "isnan": "torch.isnan({x})",
    "isfinite": "{x}.isfinite()",
    "signbit": "torch.signbit({x}.nan_to_num())",
    "logical_not": "torch.logical_not({x})",
    "detach_copy": "{x}.detach().clone()",
    "to_self": "{x}.to({x}.dtype)",
    "contiguous": "{x}.contiguous()",
    "nonzero_test": "{x} != 0",
    "sgn": "torch.sgn({x})",
}
INEXACT_EXTRA = {"softshrink": "F.softshrink({x}, 0.3)", "leaky_relu": "F.leaky_relu({x}, 0.1)"}


BY_A_SIXTH = ("hardswish", "hardsigmoid")
"""ATen multiplies by the sixth of float32 here, in float64 too: it is off by more than a rounding."""


def _unary(name: str, entry: str | tuple[str, float, float], exact: bool) -> None:
    text, low, high = entry if isinstance(entry, tuple) else (entry, -1e30, 1e30)

    @operation("pointwise", name, 0.3, exact)
    def make(d: Draw) -> str:
        wide = entry is text
        x = d.pick(
            lambda x: (exact or x.floating) and (wide or d.special or x.within(low, high))
            and not (name in BY_A_SIXTH and x.dtype == torch.float64)
        )  # fmt: skip
        return text.format(x=x)


for _name, _entry in {**UNARY, **INEXACT_EXTRA}.items():
    _unary(_name, _entry, exact=False)
for _name, _entry in EXACT_UNARY.items():
    _unary(_name, _entry, exact=True)


def _both(d: Draw) -> tuple[Value, Value]:
    x = d.tensor()
    return x, d.partner(x)


# name: expression, and whether eager rounds in it
BINARY = {
    "add": ("{x} + {y}", False),
    "sub": ("{x} - {y}", False),
    "mul": ("{x} * {y}", False),
    "div_safe": ("{x} / ({y}.abs() + 1)", False),
    "maximum": ("torch.maximum({x}, {y})", True),
    "minimum": ("torch.minimum({x}, {y})", True),
    "fmax": ("torch.fmax({x}, {y})", True),
    "fmin": ("torch.fmin({x}, {y})", True),
    "atan2": ("torch.atan2({x}, {y})", False),
    "hypot": ("torch.hypot({x}, {y})", False),
    # arithmetic gives a NaN whatever sign it likes
    "copysign": ("torch.copysign({x}, {y}.nan_to_num())", True),
    "floor_divide": ("torch.floor_divide({x}, {y}.abs() + 1)", False),
    "remainder": ("{x} % ({y}.abs() + 1)", False),
    "fmod": ("torch.fmod({x}, {y}.abs() + 2)", False),
    "div_trunc": ("torch.div({x}, {y}.abs() + 1, rounding_mode='trunc')", False),
    "logaddexp": ("torch.logaddexp({x}, {y})", False),
    "xlogy": ("torch.xlogy({x}, {y}.abs() + 1)", False),
    "heaviside": ("torch.heaviside({x}, {y})", True),
    "rsub": ("torch.rsub({x}, {y})", False),
    "squared_difference": ("({x} - {y}) ** 2", False),
    "add_alpha": ("torch.add({x}, {y}, alpha=2)", False),
    "pow_safe": ("({x}.abs() + 0.5) ** torch.tanh({y})", False),
    "true_divide": ("torch.true_divide({x}, {y}.abs() + 2)", False),
    "gt": ("{x} > {y}", True),
    "le": ("{x} <= {y}", True),
    "eq": ("{x} == {y}", True),
    "ne": ("torch.ne({x}, {y})", True),
    "logical_and": ("torch.logical_and({x}, {y})", True),
    "logical_xor": ("torch.logical_xor({x}, {y})", True),
    "isclose": ("torch.isclose({x}, {y}, 0.1, 0.1)", True),
}


def _binary(name: str, text: str, exact: bool) -> None:
    @operation("pointwise", name, 1.0 if name in ("add", "sub", "mul", "div_safe") else 0.25, exact)
    def make(d: Draw) -> str:
        x, y = _both(d)
        return text.format(x=x, y=y)


for _name, (_text, _exact) in BINARY.items():
    _binary(_name, _text, _exact)


@operation("pointwise", weight=2.0)
def scalar(d: Draw) -> str:
    x = d.tensor()
    c = d.number() if x.floating or d.chance(0.3) else d.whole()
    return d.choice(
        [
            f"{x} * {c}",
            f"{x} + {c}",
            f"{c} - {x}",
            f"{x} - {c}",
            f"{x} / {abs(c) + 0.5}",
            f"{x} // {int(abs(c)) + 2}",
            f"{x} % {int(abs(c)) + 2}",
            f"torch.mul({x}, {c})",
        ]
    )


@operation("pointwise", weight=1.0, exact=True)
def scalar_test(d: Draw) -> str:
    x = d.tensor()
    return f"{x} {d.choice(['>', '<', '>=', '<=', '==', '!='])} {d.choice([0, 0.5, 1, -1])}"


@operation("pointwise", weight=1.2, exact=True)
def where(d: Draw) -> str:
    x, y = _both(d)
    test = d.pick(lambda m: m.dtype.is_complex is False and m.dim <= x.dim)
    condition = d.partner(x, into=True) if d.chance(0.3) else test
    asked = f"{condition}" if str(condition.dtype) == "torch.bool" else f"{condition} > 0"
    other = d.choice([str(y), "0.0", "1", str(y)])
    return d.choice(
        [
            f"torch.where({asked}, {x}, {other})",
            f"torch.where({asked}, {other}, {x})",
            f"{x}.masked_fill({asked}, {d.choice([0, 1, -1, 0.5])})",
        ]
    )


@operation("pointwise", weight=0.8, exact=True)
def clamp(d: Draw) -> str:
    x = d.pick(lambda x: not x.dtype.is_complex)
    if d.chance(0.25):
        return f"torch.clamp({x}, min={d.partner(x)})"
    return d.choice(
        [f"{x}.clamp(-1, 1)", f"{x}.clamp(min=0)", f"torch.clamp({x}, max=0.5)", f"{x}.clamp(0.1, 0.9)"]
    )


@operation("pointwise", weight=0.5)
def lerp(d: Draw) -> str:
    x = d.floating()
    y = d.like(x)
    return f"torch.lerp({x}, {y}, {d.choice(['0.3', '0.8', str(d.like(x))])})"


@operation("pointwise", weight=0.5)
def addcmul(d: Draw) -> str:
    x = d.floating()
    y, z = d.like(x), d.like(x)
    if d.boolean():
        return f"torch.addcmul({x}, {y}, {z}, value=0.5)"
    return f"torch.addcdiv({x}, {y}, {z}.abs() + 1, value=2)"


@operation("pointwise", weight=2.0, exact=True)
def to(d: Draw) -> str:
    """To another type; of numbers that a C cast has a meaning for."""
    x = d.tensor()
    target = d.choice(
        [
            "float32",
            "float64",
            "float16",
            "bfloat16",
            "int64",
            "int32",
            "bool",
            "uint8",
            "int8",
            "int16",
            "complex64",
        ],
        [6, 3, 2, 2, 3, 1, 1, 0.5, 0.3, 0.3, 0.3],
    )
    limits = {"int64": 1e9, "int32": 1e9, "int16": 3e4, "int8": 127, "uint8": 255}
    if target in limits and (
        x.dtype.is_complex or not x.within(0 if target == "uint8" else -limits[target], limits[target])
    ):
        raise Skip
    if target == "float16" and (x.dtype.is_complex or not x.within(-2000, 2000)):
        raise Skip
    if x.dtype.is_complex and target not in ("complex64", "bool"):
        raise Skip
    methods = {
        "float32": "float",
        "float64": "double",
        "float16": "half",
        "int64": "long",
        "int32": "int",
        "bool": "bool",
    }
    return (
        f"{x}.to(torch.{target})"
        if target not in methods or d.chance(0.8) or target.startswith("float")
        else f"{x}.{methods[target]}()"
    )


@operation("pointwise", weight=0.4, exact=True)
def long_test(d: Draw) -> str:
    return f"({d.pick(lambda x: not x.dtype.is_complex)} > 0).{d.choice(['long', 'long', 'int', 'float'])}()"


@operation("pointwise", weight=0.5, exact=True)
def bits(d: Draw) -> str:
    x = d.pick(lambda x: not x.floating and not x.dtype.is_complex)
    y = d.pick(lambda y: not y.floating and not y.dtype.is_complex and (y.shape == x.shape or not y.dim))
    shift = f"{x} << 2" if x.integral else f"~{x}"
    return d.choice([f"{x} & {y}", f"{x} | {y}", f"{x} ^ {y}", f"~{x}", shift])


@operation("pointwise", weight=0.4)
def complex_parts(d: Draw) -> Made:
    x = d.pick(lambda x: x.dtype.is_complex)
    text, exact = d.choice(
        [
            ("torch.conj({x})", True),
            ("{x}.conj() * 2", False),
            ("torch.real({x})", True),
            ("{x}.imag", True),
            ("torch.view_as_real({x})", True),
            ("torch.abs({x})", False),
            ("torch.angle({x})", False),
            ("{x}.conj().resolve_conj()", True),
            ("{x} * {x}.conj()", False),
            ("torch.exp({x} * 0.1)", False),
        ]
    )
    return Made(text.format(x=x), exact=exact)


@operation("pointwise", weight=0.2)
def make_complex(d: Draw) -> Made:
    x = d.pick(lambda x: str(x.dtype) in ("torch.float32", "torch.float64"))
    if x.dim and x.shape[-1] == 2 and d.boolean():
        return Made(f"torch.view_as_complex({x}.contiguous())", exact=True)
    return Made(f"torch.complex({x}, {d.like(x)})", exact=True)


@operation("pointwise", weight=0.5)
def glu(d: Draw) -> str:
    x = d.floating(1)
    axis = d.axis(x)
    if any(shape[axis] % 2 for shape in x.shapes):
        raise Skip
    return f"F.glu({x}, {axis})"


@operation("pointwise", weight=0.3)
def prelu(d: Draw) -> str:
    x = d.floating(1)
    weight = d.new_input([(1,) if x.dim < 2 or d.chance(0.5) else (shape[1],) for shape in x.shapes], x.dtype)
    return f"F.prelu({x}, {weight})"


@operation("pointwise", weight=0.5)
def normalised_by_row(d: Draw) -> str:
    x = d.floating(1)
    return f"{x} / ({x}.abs().sum({d.axis(x)}, keepdim=True) + 1)"

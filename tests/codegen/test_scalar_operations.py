"""Every scalar operation of the loop IR, in every type it has, at its edges: C against torch."""

from __future__ import annotations

import math

import pytest
import torch

from nbcompile.loop_ir.expr import COMPARISONS, SCALAR_OPS, Load, cast, op
from nbcompile.loop_ir.index import Axis, index
from nbcompile.loop_ir.interpret import REFERENCE
from nbcompile.loop_ir.nodes import Buffer, Loop, LoopProgram, View

from ..lower.harness import compare
from .running import compile_program, same_zeros

NAN, INF = math.nan, math.inf
EDGES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 1e-3, 10.0, -7.3, 40.0,
         -40.0, 1e30, -1e30, 1e-30]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 31, 33, 64, -64, 100, -128, 127]
FLOAT_ONLY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf erfc erfinv lgamma digamma sigmoid isinf i0 i0e i1 i1e ndtri log_ndtr erfcx "
    "div atan2 hypot copysign nextafter isnan floor ceil trunc round".split()
)
INTEGER_ONLY = "bitnot bitand bitor bitxor shl shr".split()
BOTH = (
    "neg abs sign signbit add sub mul truncdiv floordiv fmod remainder pow minimum maximum fmin fmax lt le gt "
    "ge eq ne".split()
)
LOGICAL = "not and or bitand bitor bitxor bitnot add mul minimum maximum lt le gt ge eq ne".split()
ELSEWHERE = {"cast", "where", "fma", "philox_uniform"}
OPERATIONS = {
    torch.float32: FLOAT_ONLY + BOTH,
    torch.float64: FLOAT_ONLY + BOTH,
    torch.int64: INTEGER_ONLY + BOTH,
    torch.int32: INTEGER_ONLY + BOTH,
    torch.int16: INTEGER_ONLY + BOTH,
    torch.int8: INTEGER_ONLY + BOTH,
    torch.uint8: [name for name in INTEGER_ONLY + BOTH if name not in ("neg", "bitnot")],
    torch.bool: LOGICAL,
}
EITHER_ZERO = frozenset("minimum maximum fmin fmax".split())  # of 0 and -0, either
NO_ZERO = frozenset("truncdiv floordiv fmod remainder".split())  # torch raises for integers


def test_every_operation_is_listed_here():
    assert set(FLOAT_ONLY + INTEGER_ONLY + BOTH + LOGICAL) | ELSEWHERE == set(SCALAR_OPS)


def buffer(name: str, tensor: torch.Tensor, role: str = "temporary") -> Buffer:
    return Buffer(name, (index(tensor.numel()),), (index(1),), tensor.dtype, role)  # type: ignore[arg-type]


def elementwise(inputs: dict[str, torch.Tensor], bodies: dict[str, object]) -> LoopProgram:
    """One loop a body over one-dimensional inputs; each body is a function of the loaded scalars."""
    buffers = [buffer(name, tensor, "input") for name, tensor in inputs.items()]
    size = next(iter(inputs.values())).numel()
    statements = []
    for name, body in bodies.items():
        axis = Axis(f"i_{name}", index(size))
        value = body({item.name: Load(item.name, (index(axis),), item.dtype) for item in buffers})
        out = Buffer(name, (index(size),), (index(1),), value.dtype)
        statements.append(Loop(f"g0.l{len(statements)}", (out,), (axis,), value, op=name))
    outputs = tuple(View.whole(item.outputs[0]) for item in statements)
    return LoopProgram("g0.fw", tuple(buffers), tuple(statements), outputs, {}, {})


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    if dtype.is_floating_point:
        values = torch.tensor(EDGES, dtype=dtype)
    elif dtype == torch.bool:
        values = torch.tensor([False, True])
    else:
        values = torch.tensor(INTEGERS).to(dtype)
    left, right = torch.meshgrid(values, values, indexing="ij")
    return left.reshape(-1).contiguous(), right.reshape(-1).contiguous()


@pytest.mark.parametrize("dtype", OPERATIONS, ids=str)
def test_operations_agree_with_torch(dtype):
    x, y = pairs(dtype)
    safe = torch.where(y == 0, torch.ones_like(y), y)
    names = OPERATIONS[dtype]

    def body(name):
        second = "safe" if name in NO_ZERO and not dtype.is_floating_point else "y"
        if SCALAR_OPS[name] == 1:
            return lambda at: op(name, at["x"])
        return lambda at: op(name, at["x"], at[second])

    inputs = {"x": x, "y": y, "safe": safe}
    program = elementwise(inputs, {f"{name}_": body(name) for name in names})
    got = compile_program(program)(list(inputs.values()))
    wrong = []
    for name, mine in zip(names, got, strict=True):
        second = safe if name in NO_ZERO and not dtype.is_floating_point else y
        args = [x, second][: SCALAR_OPS[name]]
        want = torch.bool if name in COMPARISONS else dtype
        expected = REFERENCE[name](*args).to(want)
        wide = expected
        if dtype == torch.float32 and want == dtype:
            wide = REFERENCE[name](*(item.double() for item in args))
        try:
            compare([mine], [expected], [wide.to(torch.float64) if wide.is_floating_point() else wide])
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
            continue
        if want.is_floating_point and name not in EITHER_ZERO and not same_zeros(mine, expected):
            wrong.append(f"{name}: the sign of a zero")
    assert not wrong, "\n".join(wrong)

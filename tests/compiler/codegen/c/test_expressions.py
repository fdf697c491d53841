"""Every scalar operation of the loop IR, in every type it has, at its edges: C against torch."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest
import torch

import nbcompile
from nbcompile.compiler.codegen.c import expressions
from nbcompile.compiler.codegen.c.helpers import HELPERS
from nbcompile.compiler.codegen.expression import Expression
from nbcompile.compiler.loop_ir.expr import COMPARISONS, SCALAR_OPS, Load, cast, op
from nbcompile.compiler.loop_ir.index import Axis, Size, floordiv, index
from nbcompile.compiler.loop_ir.interpret import REFERENCE
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, LoopProgram, View
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from tests.compiler.codegen.running import compile_program, same_zeros
from tests.compiler.lower.harness import compare
from tests.nightly import few

NAN, INF = math.nan, math.inf
EDGES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 1e-3, 10.0, -7.3, 40.0,
         -40.0, 1e30, -1e30, 1e-30]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 31, 33, 64, -64, 100, -128, 127]
FLOAT_ONLY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid isinf i0 i0e i1 i1e ndtri log_ndtr erfcx "
    "div atan2 hypot copysign nextafter isnan floor ceil trunc round".split()
)
INTEGER_ONLY = "bitnot bitand bitor bitxor shl shr".split()
BOTH = (
    "neg abs sign signbit add sub mul truncdiv floordiv fmod remainder pow minimum maximum fmin fmax lt le "
    "gt ge eq ne".split()
)
LOGICAL = "not and or bitand bitor bitxor bitnot add mul minimum maximum lt le gt ge eq ne".split()
ELSEWHERE = {"cast", "bitcast", "where", "fma", "ldexp", "philox_uniform"}
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


@few(2)
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


STORED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool]  # fmt: skip


@few(4)
@pytest.mark.parametrize("source", STORED, ids=str)
def test_casts_agree_with_torch(source):
    if source.is_floating_point:
        # halfway cases of both half types; what no integer holds only where a float is made of it
        halfway = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11]
        exact = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 100.7, -100.7, *halfway]
        special = [NAN, INF, -INF, 65519.0, 65520.0, 3.3895e38, 1e-7, 6e-8, 2e-8, 1e-40]
        x = torch.tensor(exact + special, dtype=torch.float64).to(source)
        kept = torch.tensor(exact + [0.0] * len(special), dtype=torch.float64).to(source)
    else:
        x = kept = torch.tensor([*INTEGERS, 255, 256, 40000, 70000, 2**31, 2**40 + 1]).to(source)
    inputs = {"x": x, "kept": kept}

    def body(target):
        name = "x" if target.is_floating_point or target == torch.bool else "kept"
        return lambda at: cast(at[name], target)

    names = {f"to_{str(target).removeprefix('torch.')}": body(target) for target in STORED}
    got = compile_program(elementwise(inputs, names))(list(inputs.values()))
    for target, mine in zip(STORED, got, strict=True):
        expected = (x if target.is_floating_point or target == torch.bool else kept).to(target)
        torch.testing.assert_close(mine, expected, rtol=0, atol=0, equal_nan=True, msg=str(target))
        if target.is_floating_point:
            assert same_zeros(mine, expected), target


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
def test_where_and_fma_agree_with_torch(dtype):
    x, y = pairs(dtype)
    choice = torch.arange(x.numel()) % 3 == 0
    inputs = {"x": x, "y": y, "choice": choice}
    bodies = {"chosen": lambda at: op("where", at["choice"], at["x"], at["y"])}
    if dtype.is_floating_point:
        bodies["fused"] = lambda at: op("fma", at["x"], at["y"], at["x"])
    got = compile_program(elementwise(inputs, bodies))(list(inputs.values()))
    torch.testing.assert_close(got[0], torch.where(choice, x, y), rtol=0, atol=0, equal_nan=True)
    if dtype.is_floating_point:
        torch.testing.assert_close(got[1], x * y + x, equal_nan=True)


@pytest.mark.skipif(find_toolchain().kind != "gcc", reason="asks gcc what it made vectors of")
@pytest.mark.parametrize(("low", "high"), [("maximum", "minimum"), ("fmax", "fmin")])
def test_several_extrema_in_a_row_become_vectors(low: str, high: str, tmp_path: Path) -> None:
    helpers = [HELPERS[name].text.replace("TYPE", "float").replace("SHORT", "f32") for name in (low, high)]
    source = (
        "\n".join(helpers)
        + f"""
void k(const float *x, float *y) {{
  for (long i = 0; i < 4096; i++) {{
    const float clamp = {high}_f32({low}_f32(x[i] * 1.1f - 0.2f, -1.0f), 1.0f);
    y[i] = {low}_f32(clamp * 0.5f + 0.3f, 0.0f);
  }}
}}"""
    )
    toolchain = find_toolchain()
    ran = subprocess.run(
        [*toolchain.command, *toolchain.flags, "-fopt-info-vec", "-x", "c", "-", "-o", tmp_path / "k.so"],
        input=source, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "loop vectorized" in ran.stderr


@few(2)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_small_integers_wrap_around_where_they_are_read_at_once(dtype: torch.dtype) -> None:
    """Behind the guard of a concatenation a value has no variable of its own, which would cut it."""

    def f(x: torch.Tensor) -> torch.Tensor:
        made = torch.stack([x[1:] - x[:-1], x[1:] + x[:-1], x[1:] * x[:-1]]).long()
        return torch.cat([made[:, :3], made[:, 3:]][::-1], 1)

    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.max, 2, limits.min, 0, limits.max - 1, 7, limits.max], dtype=dtype)
    got = nbcompile.compile(f, options={"cache": False, "verify": True})(x)
    torch.testing.assert_close(got, f(x), rtol=0, atol=0)


def test_a_truth_value_becomes_a_float_by_choice() -> None:
    """GCC makes no vectors of a loop that converts one: 28 times the time."""
    truth = Expression("a", torch.bool)
    assert expressions.cast(truth, torch.float32).text == "a ? 1.0f : 0.0f"
    assert expressions.cast(truth, torch.float64).text == "a ? 1.0 : 0.0"
    assert expressions.cast(truth, torch.bfloat16).text == "a ? 1.0f : 0.0f"
    assert expressions.cast(truth, torch.int32).text == "(int)a"


def test_what_fits_an_int_is_divided_as_one() -> None:
    def text(extent: int, factor: int) -> str:
        axis = Axis("k", index(extent))
        place = floordiv(index(axis) * factor, index(127)) * 4
        return expressions.index_code(place, lambda atom: atom.text).text

    assert text(128, 63) == "(long)((int)(k*63) / 127)*4"
    assert text(1 << 26, 63) == "((k*63) / 127)*4"
    size = Size("s0", 8)
    unknown = expressions.index_code(floordiv(index(size) * 3, index(127)), lambda atom: atom.text)
    assert "(int)" not in unknown.text


def test_a_nan_rounded_to_bfloat16_becomes_the_integer_that_eager_makes_of_it() -> None:
    """One written as a constant was 0, folded by GCC, where the processor says the least integer."""

    def f(x: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        rounded = x.neg()
        whole.copy_(rounded)
        return rounded

    x = torch.tensor([NAN, INF, -INF, 1e30, -1e30, 2.5, -3.0, 0.0] * 4, dtype=torch.bfloat16)
    expected, got = torch.zeros(32, dtype=torch.int64), torch.zeros(32, dtype=torch.int64)
    f(x, expected)
    nbcompile.compile(f, options={"cache": False})(x, got)
    assert got.tolist() == expected.tolist()


WHOLE = {
    "long": lambda x: x.long().to(x.dtype),
    "int": lambda x: x.int().to(x.dtype),
    "int, long": lambda x: x.int().long().to(x.dtype),
    "in a sum": lambda x: x.int().to(x.dtype) + x.long().to(x.dtype),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("name", WHOLE)
def test_a_float_that_was_an_integer_is_no_trunc(name: str, dtype: torch.dtype) -> None:
    """GCC makes trunc() of the two casts, which keeps -0, NaN and what no integer holds."""
    x = torch.tensor([-0.5, -0.25, -0.0, 0.5, -1.5, 2.7, 3e10, -3e10, 1e20, NAN, INF, -INF] * 5).to(dtype)
    torch._dynamo.reset()
    got, expected = nbcompile.compile(WHOLE[name], options={"cache": False})(x), WHOLE[name](x)
    assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.int16])
def test_a_constant_that_no_integer_holds_is_what_the_processor_makes_of_it(dtype: torch.dtype) -> None:
    """GCC took the nearest, and 0 for NaN, where it knew the number."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        floats = (x.clamp(-1e20, 1e20), torch.where(x > 0, x, NAN), torch.full((40,), 3e10))
        return [each.to(dtype) for each in (*floats, torch.full((40,), -300.5))]

    x = torch.tensor([1.0, INF, 3e10, -1.0, -INF, NAN, 300.0, 0.0] * 5)
    torch._dynamo.reset()
    for got, expected in zip(nbcompile.compile(f, options={"cache": False})(x), f(x), strict=True):
        assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_floats_beyond_a_byte_wrap_around_as_in_eager(dtype: torch.dtype) -> None:
    ends = [2.0**31, 2.0**31 + 256, 3e9, 2.0**32 + 512, 4294967040.0, 2147483520.0, 2.0**62, 1e20, math.inf]
    x = torch.tensor([-1.5, 256.0, 300.7, math.nan, *ends, *(-end for end in ends)] * 5).to(dtype)
    x = torch.cat([x, torch.randn(300).to(dtype) * 1e4])
    torch._dynamo.reset()
    run = nbcompile.compile(lambda x: (x * 1).to(torch.uint8), options={"cache": False})
    assert torch.equal(run(x), (x * 1).to(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_selections_beside_a_library_call_have_no_branch(dtype: torch.dtype) -> None:
    """What a vector function is called with is what the program gives it, in each lane (an sRGB curve)."""

    def curve(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        held = torch.minimum(torch.maximum(x, y), 2 - y)
        return torch.where(held <= 0.25, held * 12.92, 1.055 * held.clamp(1e-6, 3.0) ** 0.4 - 0.055)

    x = torch.tensor(EDGES, dtype=dtype).repeat(3)
    y = torch.tensor(EDGES[::-1], dtype=dtype).repeat(3)
    torch._dynamo.reset()
    run = nbcompile.compile(curve, options={"cache": False})
    result, expected = run(x, y), curve(x, y)
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert same_zeros(result, expected)
    (kernel,) = run.compilation.kernels
    short = "f32" if dtype == torch.float32 else "f64"
    for name in ("pick_maximum", "pick_minimum", "pick"):
        assert f"{name}_{short}(" in kernel.sources["c"]
    assert "?" not in kernel.sources["c"]

"""The rule table of Triton: how each scalar operation, type, constant and reduction is written.

Texts stand for tiles or scalars of a register type; half types are computed in float32. What takes more
than one expression is a small ``@triton.jit`` function (:data:`HELPERS`), printed only where used.

Triton types a bare number by what stands beside it, and by its size where nothing does. So a constant is
written bare where its type is what Triton would give it anyway (float32, int32) or follows from the other
operand, and as ``tl.full((), value, type)`` elsewhere.

Division is ``/``: in float32 ``div.full``, within 2 units in the last place of IEEE's quotient, well inside
the tolerance of torch's own tests (1.3e-6) and what Inductor has; it takes no branch, as IEEE's division
(``tl.div_rn``) does in every element. Where a quotient is rounded to a whole number it is IEEE's. Square
roots are IEEE's. ``exp`` of float32 is libdevice's, within 1 unit in the last place, in 7 instructions on
Hopper; ``tl.exp`` is 5 with an error that grows with ``|x|``, for kernels that keep only half types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

import torch

from nbcompile.compiler.codegen.triton.helpers import COMMON
from nbcompile.compiler.codegen.triton.scan_helpers import SCANS
from nbcompile.compiler.codegen.triton.special_functions import SPECIAL
from nbcompile.compiler.codegen.triton.tile_expression import (
    Literal,
    Operand,
    TileExpression,
    as_expression,
    grouped,
    with_type,
    without_type,
)
from nbcompile.compiler.loop_ir.expr import COMPARISONS, Number
from nbcompile.errors import CodegenError

MEMORY_TYPES = {
    torch.float32: "tl.float32", torch.float64: "tl.float64", torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16", torch.int64: "tl.int64", torch.int32: "tl.int32", torch.int16: "tl.int16",
    torch.int8: "tl.int8", torch.uint8: "tl.uint8", torch.bool: "tl.int1",
}  # fmt: skip
TRITON_TYPES = MEMORY_TYPES | {torch.float16: "tl.float32", torch.bfloat16: "tl.float32"}
"""Register types."""
POINTER_TYPES = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16", torch.bfloat16: "*bf16",
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8",
    torch.bool: "*i1",
}  # fmt: skip
"""Types of pointers in a signature; a load through ``*i1`` reads a byte and gives ``tl.int1``."""

LIBDEVICE = {
    name: name
    for name in "expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc erfinv erfcx "
    "lgamma trunc pow atan2 hypot copysign nextafter fmod".split()
} | {"round": "nearbyint"}
"""What libdevice calls an operation; all are in NVIDIA's and in AMD's."""

HELPERS = COMMON | SPECIAL | SCANS

IMPORTS = {
    "libdevice": "from triton.language.extra import libdevice",
    "gdc_wait": "from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended",
}

_POWERS = range(-100, 101)  # of two, whose reciprocals are float32


def reserved_names() -> frozenset[str]:
    """Global names of a generated file: a variable of that name would hide what a kernel calls."""
    return frozenset(HELPERS) | {"tl", "triton", *IMPORTS, "float"}


class TritonWriter:
    """Writes expressions and remembers which helpers and imports they used.

    ``helpers`` holds texts of ``@triton.jit`` functions by name in the order in which they must be
    printed, ``imports`` lines beyond ``import triton`` and ``import triton.language as tl``. Where all
    results are rounded to half types, ``precise = False`` takes the hardware's exponential as it is, and a
    shorter error function. ``early``: functions begin by waiting for the kernels before them, so that the
    driver can launch them ahead of time.
    """

    def __init__(self, *, early: bool = False) -> None:
        self.precise = True
        self.early = early
        self.helpers: dict[str, str] = {}
        self.imports: dict[str, str] = {}

    def wait(self) -> str:
        """The statement that returns when all kernels launched before have ended, their writes seen."""
        self.imports["gdc_wait"] = IMPORTS["gdc_wait"]
        return "gdc_wait()"

    def helper(self, name: str) -> str:
        """The name of a helper, noting that it and what it calls are needed."""
        if name not in self.helpers:
            entry = HELPERS[name]
            for needed in entry.needs:
                self.helper(needed)
            if "libdevice." in entry.text:
                self.imports["libdevice"] = IMPORTS["libdevice"]
            self.helpers[name] = entry.text
        return name

    def op(self, name: str, args: Sequence[Operand], dtype: torch.dtype, of: torch.dtype) -> TileExpression:
        """Triton for an operation on arguments of register type ``of`` with a result of type ``dtype``.

        Raises CodegenError for an operation that the type does not have.
        """
        if name == "cast":
            return cast(args[0], of, dtype)
        if name == "bitcast":
            return TileExpression(f"{_typed(args[0], of)}.to({TRITON_TYPES[dtype]}, bitcast=True)")
        if name == "where":
            return TileExpression(f"tl.where({args[0]}, {', '.join(_one_typed(args[1:], dtype))})")
        if name == "philox_uniform":
            return self._call(self.helper(name), [_typed(arg, of) for arg in args])
        divisor = as_expression(args[-1]).literal
        if name == "div" and of == torch.float32 and divisor and divisor.finite and divisor.value >= 1:
            if not self.precise or _is_power_of_two(divisor.value):
                return grouped(f"{args[0]} * {constant(1 / divisor.value, of)}")  # as eager mode does
        sign = (_BOOL_INFIX if of == torch.bool else _INFIX).get(name)
        if sign is not None:
            # beside a comparison Triton takes a bare number for a float32
            narrow = of == torch.float64 and name in COMPARISONS
            written = [str(_typed(arg, of)) for arg in args] if narrow else _one_typed(args, of)
            return grouped(f" {sign} ".join(written))
        if of == torch.bool:
            if name in ("not", "bitnot"):
                return grouped(f"~{_typed(args[0], of)}")
            raise CodegenError(f"no Triton for {name} on {of}")
        typed = [_typed(arg, of) for arg in args]
        return self._float(name, typed, of) if of.is_floating_point else self._int(name, typed, of)

    def _call(self, name: str, args: Sequence[Operand]) -> TileExpression:
        return TileExpression(f"{name}({', '.join(map(str, args))})")

    def _float(self, name: str, args: list[TileExpression], dtype: torch.dtype) -> TileExpression:
        rule = _FLOAT_RULES.get(name)
        if rule is not None:
            return rule(*args)
        if name in ("exp", "exp2") and self.precise:
            return self._libdevice(name, args)
        if name == "erf" and not self.precise and dtype == torch.float32:
            return self._call(self.helper("erf"), args[:1])
        if name in _LANGUAGE:
            return self._call(f"tl.{name}", args[:1])
        if name == "sqrt":
            return self._call("tl.sqrt_rn" if dtype == torch.float32 else "tl.sqrt", args[:1])
        if name == "signbit":
            bits = "tl.int32" if dtype == torch.float32 else "tl.int64"
            return grouped(f"{args[0]}.to({bits}, bitcast=True) < 0")
        if name in _FLOAT_HELPERS:
            return self._call(self.helper(_FLOAT_HELPERS[name]), args)
        if name == "truncdiv":
            return self._libdevice("trunc", [self._call(self.helper("true_divide"), args)])
        if name == "ldexp":
            return self._libdevice(name, [args[0], f"{args[1]}.to(tl.int32)"])
        if name in LIBDEVICE:
            return self._libdevice(LIBDEVICE[name], args)
        raise CodegenError(f"no Triton for {name} on {dtype}")

    def _libdevice(self, name: str, args: Sequence[Operand]) -> TileExpression:
        self.imports["libdevice"] = IMPORTS["libdevice"]
        return self._call(f"libdevice.{name}", args)

    def _int(self, name: str, args: list[TileExpression], dtype: torch.dtype) -> TileExpression:
        if name in ("neg", "bitnot"):
            if dtype == torch.uint8:  # Triton has no minus of unsigned numbers
                return grouped(f"0 - {args[0]}" if name == "neg" else f"{args[0]} ^ 255")
            return grouped(f"{'-' if name == 'neg' else '~'}{args[0]}")
        if name == "abs":
            return self._call("tl.abs", args[:1])
        if name in ("floor", "ceil", "trunc", "round"):
            return args[0]
        if name in ("isnan", "isinf"):
            return grouped(f"{args[0]} != {args[0]}")
        if name == "signbit":
            return grouped(f"{args[0]} < 0")
        if name in ("maximum", "minimum", "fmax", "fmin"):
            return self._call("tl.maximum" if "max" in name else "tl.minimum", args)
        if name in _INT_HELPERS:
            return self._call(self.helper(_INT_HELPERS[name]), args)
        raise CodegenError(f"no Triton for {name} on {dtype}")

    def constant(self, value: Number, dtype: torch.dtype) -> TileExpression:
        """A literal of register type ``dtype``, of exactly that type wherever it stands."""
        return constant(value, dtype)

    def cast(self, operand: Operand, source: torch.dtype, target: torch.dtype) -> TileExpression:
        """A conversion between register types, as ``Tensor.to`` does it."""
        return cast(operand, source, target)

    def philox_uniform4(self, seed: Operand, block: Operand, *, down: bool = False) -> TileExpression:
        """Random numbers of a tile of block numbers [..., N] (int64 or int32): float32 [..., 4*N], and with
        ``down`` of [N, M] float32 [4*N, M]."""
        helper = self.helper("philox_uniform4_down" if down else "philox_uniform4")
        return self._call(helper, [_typed(seed, torch.int64), _typed(block, torch.int64)])

    def philox_below4(
        self, seed: Operand, block: Operand, bound: int, *, down: bool = False
    ) -> TileExpression:
        """Whether the words of a tile of block numbers [..., N] are below ``bound``: bool [..., 4*N], with
        ``down`` of [N, M] bool [4*N, M]."""
        helper = self.helper("philox_below4_down" if down else "philox_below4")
        return self._call(helper, [_typed(seed, torch.int64), _typed(block, torch.int64), str(bound)])

    def reduce(self, kind: str, tile: str, axis: int, dtype: torch.dtype) -> str:
        """A tile of register type ``dtype`` reduced along ``axis``, which is dropped; the type is kept.

        ``kind`` is sum, prod, max, min, any or all; of bool, max is any and min is all.
        """
        if dtype == torch.bool:
            kind = {"max": "any", "sum": "any", "min": "all", "prod": "all"}.get(kind, kind)
        if kind in ("sum", "max", "min") and not (dtype.is_floating_point and kind != "sum"):
            reduced = f"tl.{kind}({tile}, axis={axis})"
            small = not dtype.is_floating_point and dtype.itemsize < 4  # Triton reduces these in int32
            return f"{reduced}.to({TRITON_TYPES[dtype]})" if small else reduced
        return f"{self.helper(_REDUCTIONS[kind])}({tile}, {axis})"

    def identity(self, kind: str, dtype: torch.dtype) -> str:
        """What changes nothing when combined, as a bare literal: for ``tl.full(shape, it, type)`` and for
        ``other=`` of a load. Also of argmax and argmin."""
        return literal(identity(kind, dtype), dtype).text

    def combine(self, kind: str, a: Operand, b: Operand, dtype: torch.dtype) -> TileExpression:
        """Two partial results of register type ``dtype`` elementwise as one."""
        return self.op(_COMBINATIONS[kind], [a, b], dtype, dtype)

    def arg_reduce(self, kind: str, value: str, position: str, axis: int, dtype: torch.dtype) -> str:
        """A call that returns the pair (best value, its first position) along ``axis``: ``kind`` is argmax
        or argmin, ``position`` an integer tile of the shape of ``value``. NaN is better than all."""
        del dtype  # one text for all types
        return f"{self.helper('arg_max' if kind == 'argmax' else 'arg_min')}({value}, {position}, {axis})"

    def arg_better(self, kind: str, value: str, best: str, dtype: torch.dtype) -> TileExpression:
        """Whether ``value``, met after ``best``, takes its place: a tile of bool."""
        better = grouped(f"{value} {'>' if kind == 'argmax' else '<'} {best}")
        if not dtype.is_floating_point:
            return better
        return grouped(f"{better} | (({value} != {value}) & ({best} == {best}))")


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip
_BOOL_INFIX = {
    "add": "|", "or": "|", "bitor": "|", "maximum": "|", "fmax": "|", "mul": "&", "and": "&", "bitand": "&",
    "minimum": "&", "fmin": "&", "bitxor": "^", "sub": "^", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=",
}  # fmt: skip

_REDUCTIONS = {"max": "max_nan", "min": "min_nan", "prod": "prod", "any": "any_true", "all": "all_true"}
_COMBINATIONS = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}

_FLOAT_RULES: dict[str, Callable[..., TileExpression]] = {
    "neg": lambda x: grouped(f"-1.0 * {x}"),  # Triton's -x is 0 - x, which makes 0 of 0
    "isnan": lambda x: grouped(f"{x} != {x}"),
    "isinf": lambda x: grouped(f'tl.abs({x}) == float("inf")'),
    "reciprocal": lambda x: grouped(f"1.0 / {x}"),
    "fmax": lambda x, y: TileExpression(f"tl.maximum({x}, {y})"),
    "fmin": lambda x, y: TileExpression(f"tl.minimum({x}, {y})"),
    "fma": lambda x, y, z: TileExpression(f"tl.fma({x}, {y}, {z})"),
    "round_bf16": lambda x: TileExpression(f"{x}.to(tl.bfloat16).to(tl.float32)"),
    "round_f16": lambda x: TileExpression(f"{x}.to(tl.float16).to(tl.float32)"),
}
_LANGUAGE = frozenset("abs exp exp2 log log2 sin cos erf floor ceil rsqrt".split())  # tl has them

_FLOAT_HELPERS = {
    "maximum": "maximum_nan", "minimum": "minimum_nan", "floordiv": "floor_divide_float",
    "remainder": "remainder_float", "sign": "sign", "sigmoid": "sigmoid", "log1p_unit": "log1p_unit",
} | {name: name for name in ("i0", "i0e", "i1", "i1e", "log_ndtr", "ndtri", "digamma")}  # fmt: skip
_INT_HELPERS = {
    "floordiv": "floor_divide", "remainder": "remainder", "truncdiv": "truncate_divide",
    "fmod": "truncate_remainder", "pow": "integer_power", "shl": "shift_left", "shr": "shift_right",
    "sign": "sign",
}  # fmt: skip


def identity(kind: str, dtype: torch.dtype) -> Number:
    """The number that changes nothing when combined."""
    if kind in ("any", "all"):
        return kind == "all"
    if kind in ("sum", "prod"):
        return 1 if kind == "prod" else 0
    largest = kind in ("max", "argmax")
    if dtype == torch.bool:
        return not largest
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    info = torch.iinfo(dtype)
    return info.min if largest else info.max


def constant(value: Number, dtype: torch.dtype) -> TileExpression:
    """A literal of register type ``dtype``."""
    found, name = literal(value, dtype), TRITON_TYPES[dtype]
    if dtype.is_floating_point and found.value == 0 and math.copysign(1, found.value) < 0:
        return grouped(f"tl.full((), 0.0, {name}) * -1.0")  # Triton makes a zero of either sign 0.0
    # a subnormal bare number would be float64, and a bare True has no .to()
    own = name == "tl.float32" and not 0 < abs(float(value)) < 2**-126
    bare = TileExpression(found.text, grouped=found.finite and found.value < 0, literal=found)
    return bare if own or dtype == torch.int32 else with_type(bare, name)


def literal(value: Number, dtype: torch.dtype) -> Literal:
    """The number as one of register type ``dtype``, in the fewest digits."""
    if dtype == torch.bool:
        return Literal(str(bool(value)), bool(value))
    if not dtype.is_floating_point:
        return Literal(str(int(value)), int(value))
    number = float(value)
    if TRITON_TYPES[dtype] == "tl.float32":
        number = _nearest_float32(number)
    finite = math.isfinite(number)
    return Literal(repr(number) if finite else f'float("{number}")', number, finite)


def _nearest_float32(number: float) -> float:
    """The shortest decimal that reads back as the same float32."""
    exact = _float32(number)
    if not math.isfinite(exact):
        return exact
    for digits in range(1, 10):
        short = float(f"{number:.{digits}g}")
        if _float32(short) == exact:
            return short
    return exact


def _is_power_of_two(number: float) -> bool:
    """Whether the product by the reciprocal is the quotient."""
    mantissa, exponent = math.frexp(number)
    return mantissa == 0.5 and exponent - 1 in _POWERS


def _float32(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _typed(operand: Operand, dtype: torch.dtype) -> TileExpression:
    """A bare literal as a tensor of ``dtype``; anything else as it is."""
    return with_type(operand, TRITON_TYPES[dtype])


def _one_typed(args: Sequence[Operand], dtype: torch.dtype) -> list[str]:
    """Operands with literals bare where another operand gives the type, and one with a type at least."""
    if all(as_expression(arg).literal for arg in args):
        return [str(_typed(args[0], dtype)), *map(str, args[1:])]
    return [without_type(arg, dtype) for arg in args]


def cast(operand: Operand, source: torch.dtype, target: torch.dtype) -> TileExpression:
    """A conversion between register types, as ``Tensor.to`` does it."""
    found, name = _typed(operand, source), TRITON_TYPES[target]
    if name == TRITON_TYPES[source]:
        return found
    if target == torch.bool:
        return grouped(f"{found} != 0")
    if source.is_floating_point and target in (torch.int8, torch.int16, torch.uint8):
        # negative numbers wrap around, as on the CPU; a direct conversion leaves them undefined
        return TileExpression(f"{found}.to(tl.int32).to({name})")
    return TileExpression(f"{found}.to({name})")

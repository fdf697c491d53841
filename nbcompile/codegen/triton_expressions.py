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
import re
import struct
from collections.abc import Callable

import torch

from nbcompile.codegen.triton_special import SPECIAL, Helper
from nbcompile.errors import CodegenError
from nbcompile.loop_ir.expr import Number

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

HELPERS: dict[str, Helper] = SPECIAL | {
    "maximum_nan": Helper('''@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)'''),
    "minimum_nan": Helper('''@triton.jit
def minimum_nan(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)'''),
    "sigmoid": Helper('''@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); minus by a product, as Triton's -x subtracts from 0."""
    return 1.0 / (1.0 + tl.exp(-1.0 * x))'''),
    "sign": Helper('''@triton.jit
def sign(x):
    """1, 0 or -1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)'''),
    "floor_divide_float": Helper('''@triton.jit
def floor_divide_float(a, b):
    """a // b as Python has it."""
    rest = libdevice.fmod(a, b)
    quotient = true_divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0, true_divide(a, b)), whole)
    return tl.where(b == 0, true_divide(a, b), whole)''', ("true_divide",)),
    "true_divide": Helper('''@triton.jit
def true_divide(a, b):
    """a / b rounded as IEEE says; the bare / of float32 is off by up to 2 units in the last place."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b'''),
    "remainder_float": Helper('''@triton.jit
def remainder_float(a, b):
    """a % b as Python has it."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)'''),
    "safe_divisor": Helper('''@triton.jit
def safe_divisor(b):
    """b, but 1 where dividing by it may trap: 0, and -1, by which the least integer overflows."""
    if b.dtype.is_int_signed():
        return tl.where((b == 0) | (b == -1), 1, b)
    else:
        return tl.where(b == 0, 1, b)'''),
    "truncate_divide": Helper('''@triton.jit
def truncate_divide(a, b):
    """a / b of integers, rounded toward 0; 0 where b is 0."""
    quotient = a // safe_divisor(b)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    return tl.where(b == 0, 0, quotient)''', ("safe_divisor",)),
    "floor_divide": Helper('''@triton.jit
def floor_divide(a, b):
    """a // b of integers, rounded down; 0 where b is 0."""
    divisor = safe_divisor(b)
    quotient = a // divisor
    rest = a - quotient * divisor
    quotient = quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    return tl.where(b == 0, 0, quotient)''', ("safe_divisor",)),
    "remainder": Helper('''@triton.jit
def remainder(a, b):
    """a % b of integers, with the sign of b; 0 where b is 0."""
    rest = a % safe_divisor(b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)''', ("safe_divisor",)),
    "truncate_remainder": Helper('''@triton.jit
def truncate_remainder(a, b):
    """The rest of a / b of integers, with the sign of a; 0 where b is 0."""
    return a % safe_divisor(b)''', ("safe_divisor",)),
    "integer_power": Helper('''@triton.jit
def integer_power(base, power):
    """base ** power by repeated squaring, wrapping around; of a negative power the whole part."""
    bits: tl.constexpr = base.dtype.primitive_bitwidth
    result = tl.where(power == power, 1, base)
    square = base
    rest = power
    for _ in tl.static_range(bits):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    if power.dtype.is_int_signed():
        unit = tl.where(base == 1, 1, tl.where(base == -1, 1 - 2 * (power & 1), 0))
        result = tl.where(power < 0, unit, result)
    return result'''),
    "shift_left": Helper('''@triton.jit
def shift_left(a, b):
    """a << b; 0 where all bits leave."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)'''),
    "shift_right": Helper('''@triton.jit
def shift_right(a, b):
    """a >> b with the sign kept; 0 or -1 where all bits leave."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    if a.dtype.is_int_signed():
        return a >> tl.where(inside, b, bits - 1)
    else:
        return tl.where(inside, a >> tl.where(inside, b, 0), 0)'''),
    "max_nan": Helper('''@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)''', ("maximum_nan",)),
    "min_nan": Helper('''@triton.jit
def min_nan(x, axis: tl.constexpr):
    """The smallest along an axis; NaN if any is."""
    return tl.reduce(x, axis, minimum_nan)''', ("minimum_nan",)),
    "multiply": Helper('''@triton.jit
def multiply(a, b):
    return a * b'''),
    "prod": Helper('''@triton.jit
def prod(x, axis: tl.constexpr):
    """The product along an axis."""
    return tl.reduce(x, axis, multiply)''', ("multiply",)),
    "either": Helper('''@triton.jit
def either(a, b):
    return a | b'''),
    "any_true": Helper('''@triton.jit
def any_true(x, axis: tl.constexpr):
    """Whether any is true along an axis."""
    return tl.reduce(x, axis, either)''', ("either",)),
    "both": Helper('''@triton.jit
def both(a, b):
    return a & b'''),
    "all_true": Helper('''@triton.jit
def all_true(x, axis: tl.constexpr):
    """Whether all are true along an axis."""
    return tl.reduce(x, axis, both)''', ("both",)),
    "argmax_combine": Helper('''@triton.jit
def argmax_combine(a, i, b, j):
    """The larger of two with its position; NaN is above all, and of equals the first is taken."""
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)'''),
    "arg_max": Helper('''@triton.jit
def arg_max(value, position, axis: tl.constexpr):
    """The largest along an axis and its first position."""
    return tl.reduce((value, position), axis, argmax_combine)''', ("argmax_combine",)),
    "argmin_combine": Helper('''@triton.jit
def argmin_combine(a, i, b, j):
    """The smaller of two with its position; NaN is below all, and of equals the first is taken."""
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)'''),
    "arg_min": Helper('''@triton.jit
def arg_min(value, position, axis: tl.constexpr):
    """The smallest along an axis and its first position."""
    return tl.reduce((value, position), axis, argmin_combine)''', ("argmin_combine",)),
    "philox": Helper('''@triton.jit
def philox(seed, block):
    """Four random 32-bit words a block number: Philox-4x32-10 (Salmon et al., SC 2011)."""
    key = tl.cast(seed, tl.int64)
    k0 = key.to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0 = block.to(tl.uint32)
    c2 = c0 ^ c0
    c3 = c2
    if block.dtype == tl.int64:
        c1 = (block >> 32).to(tl.uint32)
    else:
        c1 = c2
    for _ in tl.static_range(10):
        high = tl.umulhi(0xCD9E8D57, c2) ^ c1 ^ k0
        c1 = tl.mul(0xCD9E8D57, c2, sanitize_overflow=False)
        c2 = tl.umulhi(0xD2511F53, c0) ^ c3 ^ k1
        c3 = tl.mul(0xD2511F53, c0, sanitize_overflow=False)
        c0 = high
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return c0, c1, c2, c3'''),
    "unit_interval": Helper('''@triton.jit
def unit_interval(word):
    """The top 24 bits of a 32-bit word as a float32 in [0, 1)."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2**-24'''),
    "philox_uniform": Helper('''@triton.jit
def philox_uniform(seed, offset):
    """A uniform random number in [0, 1) an offset: word offset % 4 of block offset // 4."""
    w0, w1, w2, w3 = philox(seed, offset >> 2)
    odd = (offset & 1) != 0
    return unit_interval(tl.where((offset & 2) != 0, tl.where(odd, w3, w2), tl.where(odd, w1, w0)))''',
        ("philox", "unit_interval")),
    "philox_uniform4": Helper('''@triton.jit
def philox_uniform4(seed, block):
    """Four uniform random numbers in [0, 1) a block number, side by side along the last axis."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    return unit_interval(tl.reshape(words, words.shape[:-3] + [4 * words.shape[-3]]))''',
        ("philox", "unit_interval")),
}  # fmt: skip

IMPORTS = {"libdevice": "from triton.language.extra import libdevice"}

_BARE = re.compile(r"-?\d[\d.]*(e[+-]?\d+)?|\(-\d[\d.]*(e[+-]?\d+)?\)|float\(\"-?(inf|nan)\"\)")
_FULL = re.compile(r"tl\.full\(\(\), ([^()]+|float\(\"-?\w+\"\)), tl\.(\w+)\)")


def reserved_names() -> frozenset[str]:
    """Global names of a generated file: a variable of that name would hide what a kernel calls."""
    return frozenset(HELPERS) | {"tl", "triton", "libdevice", "float"}


class TritonWriter:
    """Writes expressions and remembers which helpers and imports they used.

    ``helpers`` holds texts of ``@triton.jit`` functions by name in the order in which they must be
    printed, ``imports`` lines beyond ``import triton`` and ``import triton.language as tl``. Where all
    results are rounded to half types, ``precise=False`` takes the hardware's exponential as it is.
    """

    def __init__(self, precise: bool = True) -> None:
        self.precise = precise
        self.helpers: dict[str, str] = {}
        self.imports: dict[str, str] = {}

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

    def op(self, name: str, args: list[str], dtype: torch.dtype, of: torch.dtype) -> str:
        """Triton for an operation on arguments of register type ``of`` with a result of type ``dtype``.

        Raises CodegenError for an operation that the type does not have.
        """
        if name == "cast":
            return cast(args[0], of, dtype)
        if name == "where":
            return f"tl.where({args[0]}, {', '.join(_one_typed(args[1:], dtype))})"
        if name == "philox_uniform":
            return f"{self.helper(name)}({', '.join(_typed(arg, of) for arg in args)})"
        sign = (_BOOL_INFIX if of == torch.bool else _INFIX).get(name)
        if sign is not None:
            return f"({f' {sign} '.join(_one_typed(args, of))})"
        if of == torch.bool:
            if name in ("not", "bitnot"):
                return f"(~{_typed(args[0], of)})"
            raise CodegenError(f"no Triton for {name} on {of}")
        typed = [_typed(arg, of) for arg in args]
        return self._float(name, typed, of) if of.is_floating_point else self._int(name, typed, of)

    def _float(self, name: str, args: list[str], dtype: torch.dtype) -> str:
        rule = _FLOAT_RULES.get(name)
        if rule is not None:
            return rule(*args)
        if name in ("exp", "exp2") and self.precise:
            return self._libdevice(name, args)
        if name in _LANGUAGE:
            return f"tl.{name}({args[0]})"
        if name == "sqrt":
            return f"tl.{'sqrt_rn' if dtype == torch.float32 else 'sqrt'}({args[0]})"
        if name == "signbit":
            return f"({args[0]}.to({'tl.int32' if dtype == torch.float32 else 'tl.int64'}, bitcast=True) < 0)"
        if name in _FLOAT_HELPERS:
            return f"{self.helper(_FLOAT_HELPERS[name])}({', '.join(args)})"
        if name == "truncdiv":
            return self._libdevice("trunc", [f"{self.helper('true_divide')}({', '.join(args)})"])
        if name in LIBDEVICE:
            return self._libdevice(LIBDEVICE[name], args)
        raise CodegenError(f"no Triton for {name} on {dtype}")

    def _libdevice(self, name: str, args: list[str]) -> str:
        self.imports["libdevice"] = IMPORTS["libdevice"]
        return f"libdevice.{name}({', '.join(args)})"

    def _int(self, name: str, args: list[str], dtype: torch.dtype) -> str:
        if name in ("neg", "bitnot"):
            if dtype == torch.uint8:  # Triton has no minus of unsigned numbers
                return f"(0 - {args[0]})" if name == "neg" else f"({args[0]} ^ 255)"
            return f"({'-' if name == 'neg' else '~'}{args[0]})"
        if name == "abs":
            return f"tl.abs({args[0]})"
        if name in ("floor", "ceil", "trunc", "round"):
            return args[0]
        if name in ("isnan", "isinf"):
            return f"({args[0]} != {args[0]})"
        if name == "signbit":
            return f"({args[0]} < 0)"
        if name in ("maximum", "minimum", "fmax", "fmin"):
            return f"tl.{'maximum' if 'max' in name else 'minimum'}({', '.join(args)})"
        if name in _INT_HELPERS:
            return f"{self.helper(_INT_HELPERS[name])}({', '.join(args)})"
        raise CodegenError(f"no Triton for {name} on {dtype}")

    def constant(self, value: Number, dtype: torch.dtype) -> str:
        """A literal of register type ``dtype``, of exactly that type wherever it stands."""
        return constant(value, dtype)

    def cast(self, text: str, source: torch.dtype, target: torch.dtype) -> str:
        """A conversion between register types, as ``Tensor.to`` does it."""
        return cast(text, source, target)

    def philox_uniform4(self, seed: str, block: str) -> str:
        """Random numbers of a tile of block numbers [..., N] (int64 or int32): float32 [..., 4*N]."""
        return f"{self.helper('philox_uniform4')}({_typed(seed, torch.int64)}, {_typed(block, torch.int64)})"

    def reduce(self, kind: str, text: str, axis: int, dtype: torch.dtype) -> str:
        """A tile of register type ``dtype`` reduced along ``axis``, which is dropped; the type is kept.

        ``kind`` is sum, prod, max, min, any or all; of bool, max is any and min is all.
        """
        if dtype == torch.bool:
            kind = {"max": "any", "sum": "any", "min": "all", "prod": "all"}.get(kind, kind)
        if kind in ("sum", "max", "min") and not (dtype.is_floating_point and kind != "sum"):
            reduced = f"tl.{kind}({text}, axis={axis})"
            small = not dtype.is_floating_point and dtype.itemsize < 4  # Triton reduces these in int32
            return f"{reduced}.to({TRITON_TYPES[dtype]})" if small else reduced
        return f"{self.helper(_REDUCTIONS[kind])}({text}, {axis})"

    def identity(self, kind: str, dtype: torch.dtype) -> str:
        """What changes nothing when combined, as a bare literal: for ``tl.full(shape, it, type)`` and for
        ``other=`` of a load. Also of argmax and argmin."""
        return _bare(identity(kind, dtype), dtype)

    def combine(self, kind: str, a: str, b: str, dtype: torch.dtype) -> str:
        """Two partial results of register type ``dtype`` elementwise as one."""
        return self.op(_COMBINATIONS[kind], [a, b], dtype, dtype)

    def arg_reduce(self, kind: str, value: str, position: str, axis: int, dtype: torch.dtype) -> str:
        """A call that returns the pair (best value, its first position) along ``axis``: ``kind`` is argmax
        or argmin, ``position`` an integer tile of the shape of ``value``. NaN is better than all."""
        del dtype  # one text for all types
        return f"{self.helper('arg_max' if kind == 'argmax' else 'arg_min')}({value}, {position}, {axis})"

    def arg_better(self, kind: str, value: str, best: str, dtype: torch.dtype) -> str:
        """Whether ``value``, met after ``best``, takes its place: a tile of bool."""
        better = f"({value} {'>' if kind == 'argmax' else '<'} {best})"
        if not dtype.is_floating_point:
            return better
        return f"({better} | (({value} != {value}) & ({best} == {best})))"


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

_FLOAT_RULES: dict[str, Callable[..., str]] = {
    "neg": lambda x: f"(-1.0 * {x})",  # Triton's -x is 0 - x, which makes 0 of 0
    "isnan": lambda x: f"({x} != {x})",
    "isinf": lambda x: f'(tl.abs({x}) == float("inf"))',
    "reciprocal": lambda x: f"(1.0 / {x})",
    "fmax": lambda x, y: f"tl.maximum({x}, {y})",
    "fmin": lambda x, y: f"tl.minimum({x}, {y})",
    "fma": lambda x, y, z: f"tl.fma({x}, {y}, {z})",
    "round_bf16": lambda x: f"{x}.to(tl.bfloat16).to(tl.float32)",
    "round_f16": lambda x: f"{x}.to(tl.float16).to(tl.float32)",
}
_LANGUAGE = frozenset("abs exp exp2 log log2 sin cos erf floor ceil rsqrt".split())  # tl has them

_FLOAT_HELPERS = {
    "maximum": "maximum_nan", "minimum": "minimum_nan", "floordiv": "floor_divide_float",
    "remainder": "remainder_float", "sign": "sign", "sigmoid": "sigmoid",
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


def constant(value: Number, dtype: torch.dtype) -> str:
    """A literal of register type ``dtype``."""
    text = _bare(value, dtype)
    if text == "-0.0":  # Triton makes a zero of either sign 0.0
        return f"(tl.full((), 0.0, {TRITON_TYPES[dtype]}) * -1.0)"
    # a subnormal bare number would be float64, and a bare True has no .to()
    own = TRITON_TYPES[dtype] == "tl.float32" and not 0 < abs(float(value)) < 2**-126
    if own or dtype == torch.int32:
        return f"({text})" if text.startswith("-") else text
    return f"tl.full((), {text}, {TRITON_TYPES[dtype]})"


def _bare(value: Number, dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return str(int(value))
    number = float(value)
    if TRITON_TYPES[dtype] == "tl.float32":
        number = _nearest_float32(number)
    return repr(number) if math.isfinite(number) else f'float("{number}")'


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


def _float32(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _typed(text: str, dtype: torch.dtype) -> str:
    """A bare literal as a tensor of ``dtype``; anything else as it is."""
    if _BARE.fullmatch(text):
        return f"tl.full((), {text.strip('()') if text[0] == '(' else text}, {TRITON_TYPES[dtype]})"
    return text


def _one_typed(args: list[str], dtype: torch.dtype) -> list[str]:
    """Operands with literals bare where another operand gives the type, and one with a type at least."""
    bare = [bool(_BARE.fullmatch(arg) or _FULL.fullmatch(arg)) for arg in args]
    if all(bare):
        return [_typed(args[0], dtype), *args[1:]]
    return [_weak(arg) if literal else arg for arg, literal in zip(args, bare, strict=True)]


def _weak(text: str) -> str:
    """The number inside ``tl.full((), number, type)``, where the operand beside it gives the type."""
    found = _FULL.fullmatch(text)
    if found is None or found[2] == "int1":
        return text
    return f"({found[1]})" if found[1].startswith("-") else found[1]


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion between register types, as ``Tensor.to`` does it."""
    text = _typed(text, source)
    name = TRITON_TYPES[target]
    if name == TRITON_TYPES[source]:
        return text
    if target == torch.bool:
        return f"({text} != 0)"
    if source.is_floating_point and target in (torch.int8, torch.int16, torch.uint8):
        # negative numbers wrap around, as on the CPU; a direct conversion leaves them undefined
        return f"{text}.to(tl.int32).to({name})"
    return f"{text}.to({name})"

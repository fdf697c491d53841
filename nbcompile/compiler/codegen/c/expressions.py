"""The rule table of C: how each scalar operation, type, constant and index is written.

Files are header-free. Functions that glibc's vector library has are declared with GCC's ``simd``
attribute, so that loops calling them are vectorised with NaN and infinity intact (no -ffast-math).
Small functions that C lacks are in :data:`HELPERS` and printed only where used.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import torch

from nbcompile.compiler.codegen.c.special_functions import SPECIAL
from nbcompile.compiler.loop_ir.expr import Number
from nbcompile.compiler.loop_ir.index import Atom, FloorDiv, IndexExpr, Mod
from nbcompile.errors import CodegenError

MEMORY_TYPES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "_Float16",
    torch.bfloat16: "unsigned short", torch.int64: "long", torch.int32: "int", torch.int16: "short",
    torch.int8: "signed char", torch.uint8: "unsigned char", torch.bool: "unsigned char",
}  # fmt: skip
REGISTER_TYPES = MEMORY_TYPES | {torch.float16: "float", torch.bfloat16: "float", torch.bool: "_Bool"}
SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip

# C library functions by arity; the float version has the suffix f
LIBM = {
    1: "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma floor ceil trunc".split(),
    2: "pow atan2 hypot nextafter fmod".split(),
}
INLINE = frozenset("sqrt floor ceil trunc".split())  # the compiler makes instructions of these

HELPERS: dict[str, str] = {
    "bf16_to_float": """static inline float bf16_to_float(unsigned short x) {
  union { unsigned int bits; float value; } u = { (unsigned int)x << 16 };
  return u.value;
}""",
    "float_to_bf16": """static inline unsigned short float_to_bf16(float x) { // round half to even
  union { float value; unsigned int bits; } u = { x };
  unsigned int rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}""",
    "in_range": """static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}""",
    # Two selections, not a || in one: of several in a row gcc makes branches then, and no vectors. What is
    # asked about the second operand is known of a constant, which it is in a relu and a clamp.
    "maximum": """static inline TYPE maximum_SHORT(TYPE a, TYPE b) {
  TYPE m = b > a ? b : a;
  return b != b ? b : m;
}""",
    "minimum": """static inline TYPE minimum_SHORT(TYPE a, TYPE b) {
  TYPE m = b < a ? b : a;
  return b != b ? b : m;
}""",
    "fmax": """static inline TYPE fmax_SHORT(TYPE a, TYPE b) {
  TYPE m = a > b ? a : b;
  return b != b ? a : m;
}""",
    "fmin": """static inline TYPE fmin_SHORT(TYPE a, TYPE b) {
  TYPE m = a < b ? a : b;
  return b != b ? a : m;
}""",
    "floordiv_float": """static inline TYPE floordiv_SHORT(TYPE a, TYPE b) { // as Python's //
  if (b == 0) return a / b;
  TYPE rest = fmodSUFFIX(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  TYPE whole = __builtin_floorSUFFIX(quotient);
  if (quotient == 0) return __builtin_copysignSUFFIX(0, a / b);
  return quotient - whole > (TYPE)0.5 ? whole + 1 : whole;
}""",
    "remainder_float": """static inline TYPE remainder_SHORT(TYPE a, TYPE b) { // as Python's %
  TYPE rest = fmodSUFFIX(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    "floordiv_int": """static inline TYPE floordiv_SHORT(TYPE a, TYPE b) {
  if (b == 0) return 0;
  if (MINUS_ONE) return -a;
  TYPE quotient = a / b;
  return quotient - (quotient * b != a && (a < 0) != (b < 0));
}""",
    "remainder_int": """static inline TYPE remainder_SHORT(TYPE a, TYPE b) {
  if (b == 0 || MINUS_ONE) return 0;
  TYPE rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}""",
    "truncdiv_int": """static inline TYPE truncdiv_SHORT(TYPE a, TYPE b) {
  return b == 0 ? 0 : MINUS_ONE ? -a : a / b;
}""",
    "fmod_int": """static inline TYPE fmod_SHORT(TYPE a, TYPE b) {
  return b == 0 || MINUS_ONE ? 0 : a % b;
}""",
    "pow_int": """static inline TYPE pow_SHORT(TYPE base, TYPE power) {
  if (power < 0) return base == 1 ? 1 : base == (TYPE)-1 ? (power % 2 ? -1 : 1) : 0;
  TYPE result = 1;
  for (; power; power >>= 1, base *= base) if (power & 1) result *= base;
  return result;
}""",
    "shl": """static inline TYPE shl_SHORT(TYPE a, TYPE b) {
  return b < 0 || b >= (TYPE)(sizeof(TYPE) * 8) ? 0 : (TYPE)((unsigned long)a << b);
}""",
    "shr": """static inline TYPE shr_SHORT(TYPE a, TYPE b) {
  return b < 0 || b >= (TYPE)(sizeof(TYPE) * 8) ? (a < 0 ? -1 : 0) : a >> b;
}""",
    "sign": """static inline TYPE sign_SHORT(TYPE x) { return (TYPE)((x > 0) - (x < 0)); }""",
    "philox_uniform": """static inline float philox_uniform(long seed, long offset) {
  // Philox-4x32-10 (Salmon et al., SC 2011): word offset % 4 of block offset / 4, as [0, 1)
  unsigned int c0 = (unsigned int)(offset >> 2), c1 = (unsigned int)((unsigned long)offset >> 34);
  unsigned int c2 = 0, c3 = 0;
  unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)((unsigned long)seed >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned long p = (unsigned long)0xD2511F53u * c0, q = (unsigned long)0xCD9E8D57u * c2;
    c0 = (unsigned int)(q >> 32) ^ c1 ^ k0; c1 = (unsigned int)q;
    c2 = (unsigned int)(p >> 32) ^ c3 ^ k1; c3 = (unsigned int)p;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  unsigned int word = (offset & 2) ? ((offset & 1) ? c3 : c2) : ((offset & 1) ? c1 : c0);
  return (float)(word >> 8) * 0x1p-24f;
}""",
}


def c_functions() -> frozenset[str]:
    """Names of every function that generated C may call: a variable of that name would hide it."""
    library = {name + suffix for names in LIBM.values() for name in names for suffix in ("", "f")}
    typed = {name.removesuffix("_int").removesuffix("_float") for name in HELPERS}
    ours = {*HELPERS, *SPECIAL, *(f"{name}_f64" for name in SPECIAL)}
    return frozenset(library | ours | {f"{name}_{short}" for name in typed for short in SHORT.values()})


class CWriter:
    """Writes expressions and remembers which library functions and helpers they used."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        self.helpers: dict[str, str] = {}

    def helper(self, name: str, dtype: torch.dtype | None = None) -> str:
        """The C name of a helper, noting that it is needed."""
        text = HELPERS[name]
        if dtype is None:
            self.helpers[name] = text
            return name
        kind = name.removesuffix("_int").removesuffix("_float")
        suffix = "f" if dtype == torch.float32 else ""
        # the least integer divided by -1 overflows; the largest unsigned number is no -1
        text = text.replace("MINUS_ONE", "0" if dtype == torch.uint8 else "b == (TYPE)-1")
        text = text.replace("TYPE", REGISTER_TYPES[dtype]).replace("SHORT", SHORT[dtype])
        if "fmodSUFFIX" in text:
            self.libm("fmod", dtype)
        self.helpers[f"{name}_{SHORT[dtype]}"] = text.replace("SUFFIX", suffix)
        return f"{kind}_{SHORT[dtype]}"

    def libm(self, name: str, dtype: torch.dtype) -> str:
        """A C library function for this float type, noting that it must be declared."""
        arity = next(number for number, names in LIBM.items() if name in names)
        full = name + ("f" if dtype == torch.float32 else "")
        if name in INLINE:
            return f"__builtin_{full}"
        self.functions[full] = arity
        return full

    def op(self, name: str, args: list[str], dtype: torch.dtype, of: torch.dtype) -> str:
        """C for an operation on arguments of register type ``of`` with a result of type ``dtype``."""
        if name in ("neg", "abs") and args[0].startswith("-"):
            args = [f"({args[0]})"]  # two signs in a row would be a decrement
        if name in _INFIX and not (dtype == torch.bool and name in ("add", "sub", "mul")):
            made = f"({args[0]} {_INFIX[name]} {args[1]})"
            # C computes what is smaller than an int as an int: it has to wrap around where it is read at once
            return f"(({REGISTER_TYPES[dtype]}){made})" if dtype in _PROMOTED and name in _WRAPPING else made
        if name == "cast":
            return cast(args[0], of, dtype)
        if name == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if dtype == torch.bool and name in ("add", "maximum", "bitor", "or"):
            return f"({args[0]} || {args[1]})"
        if dtype == torch.bool and name in ("mul", "minimum", "bitand", "and"):
            return f"({args[0]} && {args[1]})"
        if dtype == torch.bool and name == "bitxor":
            return f"({args[0]} != {args[1]})"
        if name in ("not", "bitnot") and dtype == torch.bool:
            return f"(!{args[0]})"
        if of.is_floating_point:
            return self._float(name, args, of)
        return self._int(name, args, of)

    def _float(self, name: str, args: list[str], dtype: torch.dtype) -> str:
        suffix = "f" if dtype == torch.float32 else ""
        one = constant(1.0, dtype)
        rule = _FLOAT_RULES.get(name)
        if rule is not None:
            return rule(args, suffix, one)
        if name == "round":
            return f"__builtin_rint{suffix}({args[0]})"
        if name == "round_bf16":
            return f"{self.helper('bf16_to_float')}({self.helper('float_to_bf16')}({args[0]}))"
        if name == "round_f16":
            return f"((float)(_Float16){args[0]})"
        if name == "sigmoid":
            return f"({one} / ({one} + {self.libm('exp', dtype)}(-{args[0]})))"
        if name in ("maximum", "minimum", "fmax", "fmin", "sign"):
            return f"{self.helper(name, dtype)}({', '.join(args)})"
        if name in ("floordiv", "remainder"):
            return f"{self.helper(name + '_float', dtype)}({', '.join(args)})"
        if name == "truncdiv":
            return f"__builtin_trunc{suffix}({args[0]} / {args[1]})"
        if name == "philox_uniform":
            return f"{self.helper('philox_uniform')}({', '.join(args)})"
        if name in SPECIAL:
            return self._special(name, args, dtype)
        if any(name in names for names in LIBM.values()):
            return f"{self.libm(name, dtype)}({', '.join(args)})"
        raise CodegenError(f"no C for {name} on {dtype}")

    def _special(self, name: str, args: list[str], dtype: torch.dtype) -> str:
        """A special function computed in double."""
        entry = SPECIAL[name]
        for needed in entry.functions:
            self.libm(needed, torch.float64)
        for needed in (*entry.needs, name):
            self.helpers[f"special_{needed}"] = SPECIAL[needed].text
        call = f"{name}_f64({', '.join(args)})"
        return f"((float){call})" if dtype == torch.float32 else call

    def _int(self, name: str, args: list[str], dtype: torch.dtype) -> str:
        if name == "neg":
            return f"(({REGISTER_TYPES[dtype]})-{args[0]})"
        if name == "bitnot":
            return f"(({REGISTER_TYPES[dtype]})~{args[0]})"
        if name == "abs":
            return f"({args[0]} < 0 ? ({REGISTER_TYPES[dtype]})-{args[0]} : {args[0]})"
        if name in ("floor", "ceil", "trunc", "round"):
            return args[0]
        if name in ("isnan", "isinf"):
            return "0"
        if name == "signbit":
            return f"({args[0]} < 0)"
        if name in ("maximum", "minimum", "fmax", "fmin"):
            sign = ">" if "max" in name else "<"
            return f"({args[0]} {sign} {args[1]} ? {args[0]} : {args[1]})"
        if name in ("floordiv", "remainder", "truncdiv", "fmod", "pow"):
            return f"{self.helper(name + '_int', dtype)}({', '.join(args)})"
        if name in ("shl", "shr", "sign"):
            return f"{self.helper(name, dtype)}({', '.join(args)})"
        if name == "philox_uniform":
            return f"{self.helper('philox_uniform')}({', '.join(args)})"
        raise CodegenError(f"no C for {name} on {dtype}")


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "&&", "or": "||", "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip

_PROMOTED = frozenset({torch.int8, torch.uint8, torch.int16})
_WRAPPING = frozenset({"add", "sub", "mul"})

_FLOAT_RULES: dict[str, Callable[[list[str], str, str], str]] = {
    "neg": lambda a, s, one: f"(-{a[0]})",
    "abs": lambda a, s, one: f"__builtin_fabs{s}({a[0]})",
    "rsqrt": lambda a, s, one: f"({one} / __builtin_sqrt{s}({a[0]}))",
    "reciprocal": lambda a, s, one: f"({one} / {a[0]})",
    "isnan": lambda a, s, one: f"({a[0]} != {a[0]})",
    "isinf": lambda a, s, one: f"(__builtin_fabs{s}({a[0]}) == __builtin_inf{s}())",
    "signbit": lambda a, s, one: f"(__builtin_copysign{s}({one}, {a[0]}) < 0)",
    "copysign": lambda a, s, one: f"__builtin_copysign{s}({a[0]}, {a[1]})",
    "fma": lambda a, s, one: f"__builtin_fma{s}({a[0]}, {a[1]}, {a[2]})",
}


def cast(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """A conversion between register types, as ``Tensor.to`` does it."""
    if target == torch.bool:
        return f"({text} != 0)"
    name = REGISTER_TYPES[target]
    if source.is_floating_point and target == torch.uint8:
        return f"(({name})(long){text})"
    if source.is_floating_point and target in (torch.int8, torch.int16):
        return f"(({name})(int){text})"
    return f"(({name}){text})"


def constant(value: Number, dtype: torch.dtype) -> str:
    """A literal of register type ``dtype``."""
    if dtype == torch.bool:
        return "1" if value else "0"
    if not dtype.is_floating_point:
        if int(value) == -(2**63):
            return "(-9223372036854775807L - 1)"
        return f"{int(value)}L" if dtype == torch.int64 else str(int(value))
    suffix = "f" if dtype == torch.float32 else ""
    number = float(value)
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    text = repr(_nearest_float32(number)) if suffix else repr(number)
    if "inf" in text:
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    return f"({text}{suffix})" if number < 0 else f"{text}{suffix}"


def _nearest_float32(number: float) -> float:
    """The shortest decimal that reads back as the same float32."""
    exact = _float32(number)
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


def index_text(place: IndexExpr, name_of: Callable[[Atom], str]) -> str:
    """An index as C, with ``name_of`` giving axes, sizes and gathered values."""
    if not place.terms:
        return "0"
    parts: list[str] = []
    for mono, coeff in place.terms:
        factors = [_atom_text(atom, name_of) for atom in mono]
        if not mono or abs(coeff) != 1:
            factors.append(str(abs(coeff)))
        sign = "-" if coeff < 0 else "+"
        parts.append((f" {sign} " if parts else ("-" if coeff < 0 else "")) + "*".join(factors))
    return "".join(parts)


def _atom_text(atom: Atom, name_of: Callable[[Atom], str]) -> str:
    if isinstance(atom, FloorDiv | Mod):
        sign = "/" if isinstance(atom, FloorDiv) else "%"
        top, bottom = index_text(atom.numerator, name_of), index_text(atom.denominator, name_of)
        return f"(({top}) {sign} {bottom if bottom.isalnum() else f'({bottom})'})"
    return name_of(atom)

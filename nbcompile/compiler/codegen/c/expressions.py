"""The rule table of C: how each scalar operation, type, constant and index is written.

Files are header-free. Functions that glibc's vector library has are declared with GCC's ``simd``
attribute, so that loops calling them are vectorised with NaN and infinity intact (no -ffast-math).
Small functions that C lacks are in :mod:`nbcompile.compiler.codegen.c.helpers` and printed only where used.
"""

from __future__ import annotations

import math
import platform
import struct
from collections.abc import Callable, Sequence

import torch

from nbcompile.compiler.codegen.c.helpers import HELPERS
from nbcompile.compiler.codegen.c.special_functions import SPECIAL
from nbcompile.compiler.codegen.expression import Binds, Expression, loose
from nbcompile.compiler.kernel_ir.values import Value
from nbcompile.compiler.loop_ir.expr import Number
from nbcompile.compiler.loop_ir.index import Atom, Axis, FloorDiv, IndexExpr, Mod, Size
from nbcompile.errors import CodegenError

MEMORY_TYPES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "unsigned short",
    torch.bfloat16: "unsigned short", torch.int64: "long", torch.int32: "int", torch.int16: "short",
    torch.int8: "signed char", torch.uint8: "unsigned char", torch.bool: "unsigned char",
}  # fmt: skip
REGISTER_TYPES = MEMORY_TYPES | {torch.float16: "float", torch.bfloat16: "float", torch.bool: "_Bool"}
HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}
"""Types whose bits are all that C has of them, by the name in the helpers that convert them."""
SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip

# C library functions with their arity; the float version has the suffix f
LIBM = dict.fromkeys(
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc lgamma floor ceil trunc".split(),
    1,
) | dict.fromkeys("pow atan2 hypot nextafter fmod".split(), 2)
INLINE = frozenset("sqrt floor ceil trunc".split())  # the compiler makes instructions of these
CALLED = (LIBM.keys() | {"sigmoid"}) - INLINE - {"exp"}
"""Operations that call the library, in vectors too."""
ONE_AT_A_TIME = frozenset("floordiv remainder fmod nextafter ldexp lgamma".split()) | SPECIAL.keys()
"""Operations, of floats, of which not every compiler makes vectors."""


def c_functions() -> frozenset[str]:
    """Names of every function that generated C may call: a variable of that name would hide it."""
    library = {name + suffix for name in LIBM for suffix in ("", "f")}
    typed = {name.removesuffix("_int").removesuffix("_float") for name in HELPERS}
    ours = {*HELPERS, *SPECIAL, *(f"{name}_f64" for name in SPECIAL)}
    return frozenset(library | ours | {f"{name}_{short}" for name in typed for short in SHORT.values()})


class CWriter:
    """Writes expressions and remembers which library functions (the type and number of their arguments by
    name) and helpers (texts by name, in the order of their first use) they need."""

    def __init__(self) -> None:
        self.functions: dict[str, tuple[str, int]] = {}
        self.helpers: dict[str, str] = {}

    def helper(self, name: str, dtype: torch.dtype | None = None) -> str:
        """The C name of a helper, noting that it is needed."""
        entry = HELPERS[name]
        if dtype is None:
            self.helpers[name] = entry.text
            return name
        kind = name.removesuffix("_int").removesuffix("_float")
        # the least integer divided by -1 overflows; the largest unsigned number is no -1
        text = entry.text.replace("MINUS_ONE", "0" if dtype == torch.uint8 else "b == (TYPE)-1")
        text = text.replace("TYPE", REGISTER_TYPES[dtype]).replace("SHORT", SHORT[dtype])
        text = text.replace("BITS", "long" if dtype.itemsize == 8 else "int")
        for needed in entry.functions:
            self.libm(needed, dtype)
        self.helpers[f"{name}_{SHORT[dtype]}"] = text.replace("SUFFIX", suffix(dtype))
        return f"{kind}_{SHORT[dtype]}"

    def libm(self, name: str, dtype: torch.dtype) -> str:
        """A C library function for this float type, noting that it must be declared."""
        full = name + suffix(dtype)
        if name in INLINE:
            return f"__builtin_{full}"
        self.functions[full] = REGISTER_TYPES[dtype], LIBM[name]
        return full

    def picked(self, name: str, args: Sequence[Expression], dtype: torch.dtype) -> Expression | None:
        """A selection of floats without a branch; None for what is none."""
        if dtype not in (torch.float32, torch.float64) or name not in ("where", "maximum", "minimum"):
            return None
        self.helper("pick", dtype)
        called = self.helper("pick" if name == "where" else f"pick_{name}", dtype)
        return Expression(f"{called}({', '.join(arg.text for arg in args)})", dtype)

    def op(self, name: str, args: Sequence[Expression], dtype: torch.dtype) -> Expression:
        """C for an operation whose result has the register type ``dtype``. CodegenError for what C cannot
        express."""
        of = args[-1 if name == "where" else 0].dtype
        assert of is not None, "an index that is computed with has a type"
        if name == "cast":
            return cast(args[0], dtype)
        if name == "bitcast":
            made = self.helper("bits", of) if of.is_floating_point else self.helper("of_bits", dtype)
            return Expression(f"{made}({args[0].text})", dtype)
        # two signs in a row would be a decrement
        texts = [arg.signed if name in ("neg", "abs", "sigmoid") else arg.operand for arg in args]
        if name == "where":
            return loose(f"{texts[0]} ? {texts[1]} : {texts[2]}", dtype)
        sign = (_INFIX | _BOOL_INFIX if dtype == torch.bool else _INFIX).get(name)
        if sign:
            made = f"{texts[0]} {sign} {texts[1]}"
            # C computes what is smaller than an int as an int: it has to wrap around where it is read at once
            narrow = dtype in _PROMOTED and name in _WRAPPING
            return loose(f"({REGISTER_TYPES[dtype]})({made})" if narrow else made, dtype)
        if name in ("not", "bitnot") and dtype == torch.bool:
            return loose(f"!{texts[0]}", dtype)
        if name == "philox_uniform":
            return Expression(f"{self.helper(name)}({', '.join(texts)})", dtype)
        return (
            self._float(name, texts, of, dtype) if of.is_floating_point else self._int(name, args, texts, of)
        )

    def _float(self, name: str, texts: list[str], of: torch.dtype, dtype: torch.dtype) -> Expression:
        one = constant(1.0, of).text
        if name in _FLOAT_OPERATORS:
            return loose(_FLOAT_OPERATORS[name](texts, suffix(of), one), dtype)
        if name == "sigmoid":
            return loose(f"{one} / ({one} + {self.libm('exp', of)}(-{texts[0]}))", dtype)
        if name in SPECIAL:
            return self._special(name, texts, of)
        if name in ("round_bf16", "round_f16"):
            half = name.removeprefix("round_")
            self.helper(f"{half}_to_float"), self.helper(f"float_to_{half}")
            return Expression(f"{self.helper(name)}({texts[0]})", dtype)
        given = " / ".join(texts) if name == "truncdiv" else ", ".join(texts)
        return Expression(f"{self._called(name, of)}({given})", dtype)

    def _called(self, name: str, of: torch.dtype) -> str:
        """The function that does an operation on floats."""
        if name in _BUILTIN:
            return f"__builtin_{_BUILTIN[name]}{suffix(of)}"
        if name in ("maximum", "minimum", "fmax", "fmin", "sign"):
            return self.helper(name, of)
        if name == "exp" and of == torch.float32:
            return self.helper(name, of)
        if name in ("floordiv", "remainder", "fmod"):
            return self.helper(f"{name}_float", of)
        if name in LIBM:
            return self.libm(name, of)
        raise CodegenError(f"no C for {name} on {of}")

    def _special(self, name: str, texts: list[str], dtype: torch.dtype) -> Expression:
        """A special function computed in double."""
        entry = SPECIAL[name]
        for needed in entry.functions:
            self.libm(needed, torch.float64)
        for needed in (*entry.needs, name):
            self.helpers[f"special_{needed}"] = SPECIAL[needed].text
        call = f"{name}_f64({', '.join(texts)})"
        return loose(f"(float){call}", dtype) if dtype == torch.float32 else Expression(call, dtype)

    def _int(self, name: str, args: Sequence[Expression], texts: list[str], of: torch.dtype) -> Expression:
        if name in ("floor", "ceil", "trunc", "round"):
            return args[0]
        if name in ("isnan", "isinf"):
            return Expression("0", torch.bool)
        if name == "signbit":
            return loose(f"{texts[0]} < 0", torch.bool)
        if name in _TWICE and max(map(len, texts)) > _TWICE_AT_MOST:
            return Expression(f"{self.helper(name, of)}({', '.join(texts)})", of)
        if name in _INT_OPERATORS:
            return loose(_INT_OPERATORS[name](texts, REGISTER_TYPES[of]), of)
        if name in ("floordiv", "remainder") and (bits := _power_of_two(args[1].text)) is not None:
            # down, as Python does, and for several at once, which no division is
            return loose(f"{texts[0]} >> {bits}" if name == "floordiv" else f"{texts[0]} & {2**bits - 1}", of)
        if name in ("floordiv", "remainder", "truncdiv", "fmod", "pow"):
            return Expression(f"{self.helper(f'{name}_int', of)}({', '.join(texts)})", of)
        if name in ("shl", "shr", "sign"):
            return Expression(f"{self.helper(name, of)}({', '.join(texts)})", of)
        raise CodegenError(f"no C for {name} on {of}")


def _power_of_two(text: str) -> int | None:
    """Which power of two, below 2**31, a literal is, if it is one."""
    digits = text.removesuffix("L")
    value = int(digits) if digits.isdecimal() else 0
    return value.bit_length() - 1 if 0 < value < 2**31 and not value & (value - 1) else None


_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "&&", "or": "||", "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip
_BOOL_INFIX = {"add": "||", "maximum": "||", "mul": "&&", "minimum": "&&", "sub": ""}  # none takes away

_PROMOTED = frozenset({torch.int8, torch.uint8, torch.int16})
_WRAPPING = frozenset({"add", "sub", "mul"})
_BUILTIN = {"abs": "fabs", "copysign": "copysign", "fma": "fma", "round": "rint", "truncdiv": "trunc"}

_FLOAT_OPERATORS: dict[str, Callable[[list[str], str, str], str]] = {
    "neg": lambda a, s, one: f"-{a[0]}",
    "rsqrt": lambda a, s, one: f"{one} / __builtin_sqrt{s}({a[0]})",
    "reciprocal": lambda a, s, one: f"{one} / {a[0]}",
    "isnan": lambda a, s, one: f"{a[0]} != {a[0]}",
    "isinf": lambda a, s, one: f"__builtin_fabs{s}({a[0]}) == __builtin_inf{s}()",
    "signbit": lambda a, s, one: f"__builtin_copysign{s}({one}, {a[0]}) < 0",
    "ldexp": lambda a, s, one: f"__builtin_ldexp{s}({a[0]}, (int){a[1]})",
}

_INT_OPERATORS: dict[str, Callable[[list[str], str], str]] = {
    "neg": lambda a, kind: f"({kind})-{a[0]}",
    "bitnot": lambda a, kind: f"({kind})~{a[0]}",
    "abs": lambda a, kind: f"{a[0]} < 0 ? ({kind})-{a[0]} : {a[0]}",
    "maximum": lambda a, kind: f"{a[0]} > {a[1]} ? {a[0]} : {a[1]}",
    "minimum": lambda a, kind: f"{a[0]} < {a[1]} ? {a[0]} : {a[1]}",
}
_TWICE = frozenset({"abs", "maximum", "minimum", "fmax", "fmin"})
"""Those that have an operand in their text twice: of thirty in a row that would be a billion."""
_TWICE_AT_MOST = 40  # characters up to which an operand may stand there twice
_INT_OPERATORS |= {"fmax": _INT_OPERATORS["maximum"], "fmin": _INT_OPERATORS["minimum"]}


_X86 = platform.machine() in ("x86_64", "AMD64")
"""There a float32 beyond an int becomes -2**31, whose last eight bits are zeros, as those of any such float32
are; and unlike conversions to a long these come in vectors."""


def suffix(dtype: torch.dtype) -> str:
    """What the names of C's functions and literals for a float type end in."""
    return "f" if dtype == torch.float32 else ""


def cast(value: Expression, target: torch.dtype) -> Expression:
    """A conversion between register types, as ``Tensor.to`` does it."""
    text, kind = value.operand, REGISTER_TYPES[target]
    if target == torch.bool:
        return loose(f"{text} != 0", target)
    if value.dtype == torch.bool and target.is_floating_point:
        # the same number, but GCC makes no vectors of a loop that converts a truth value to a float
        of = torch.float64 if target == torch.float64 else torch.float32
        return loose(f"{text} ? {constant(1.0, of).text} : {constant(0.0, of).text}", target)
    # a float beyond a small type's range is no number to C, and wraps around by way of a large one
    small = value.dtype is not None and value.dtype.is_floating_point and target in _PROMOTED
    way = f"({REGISTER_TYPES[_way(value.dtype, target)]})" if small and value.dtype is not None else ""
    return loose(f"({kind}){way}{text}", target)


def by_integers(value: Value) -> tuple[str, str, Value] | None:
    """A cast of which C compilers would make another number, as the helper that does it right, what its
    result is cast to (mostly nothing), and of what: a float that becomes an integer and the same type again,
    or that may be a constant that no integer holds."""
    if value.op != "cast" or not _X86 or value.dtype == torch.bool:
        return None
    (number,) = value.args
    if not value.dtype.is_floating_point:
        way = _way(number.dtype, value.dtype)
        if not number.dtype.is_floating_point or not _may_be_beyond(number, way):
            return None
        kind = "" if way == value.dtype else f"({REGISTER_TYPES[value.dtype]})"
        return f"to_int{8 * way.itemsize}", kind, number
    way = torch.int64
    while number.op == "cast" and number.dtype in (torch.int32, torch.int64):
        way = torch.int32 if number.dtype == torch.int32 else way
        (number,) = number.args
    if number is value.args[0] or number.dtype != value.dtype:
        return None
    return f"by_int{8 * way.itemsize}", "", number


def _way(source: torch.dtype, target: torch.dtype) -> torch.dtype:
    """By which integers a float becomes a smaller one: it wraps around from there."""
    if target == torch.uint8:
        return torch.int32 if source == torch.float32 and _X86 else torch.int64
    return torch.int32 if target.itemsize < 4 else target


_CHOICES = frozenset({"where", "maximum", "minimum", "fmax", "fmin", "neg", "add", "mul"})


def _may_be_beyond(number: Value, dtype: torch.dtype, depth: int = 6) -> bool:
    """Whether a constant that an integer type does not hold is among what a number is chosen from."""
    if number.kind == "const":
        most = float(torch.iinfo(dtype).max)
        return not abs(float(number.literal)) < most
    args = number.args[1:] if number.op == "where" else number.args
    return number.op in _CHOICES and depth > 0 and any(_may_be_beyond(arg, dtype, depth - 1) for arg in args)


def constant(value: Number, dtype: torch.dtype) -> Expression:
    """A literal of register type ``dtype``."""
    if dtype == torch.bool:
        return Expression("1" if value else "0", dtype)
    if not dtype.is_floating_point:
        if int(value) == -(2**63):
            return loose("-9223372036854775807L - 1", dtype)
        text = f"{int(value)}L" if dtype == torch.int64 else str(int(value))
        return Expression(text, dtype, Binds.SIGNED if int(value) < 0 else Binds.TIGHT)
    number = float(value)
    if math.isnan(number):
        return Expression(f'__builtin_nan{suffix(dtype)}("")', dtype)
    if dtype == torch.float32:
        number = _nearest_float32(number)
    if math.isinf(number):
        sign, binds = ("-", Binds.SIGNED) if number < 0 else ("", Binds.TIGHT)
        return Expression(f"{sign}__builtin_inf{suffix(dtype)}()", dtype, binds)
    signed = Binds.SIGNED if math.copysign(1.0, number) < 0 else Binds.TIGHT  # of -0.0
    return Expression(f"{number!r}{suffix(dtype)}", dtype, Binds.LOOSE if number < 0 else signed)


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


def index_code(
    place: IndexExpr, name_of: Callable[[Atom], str], dtype: torch.dtype | None = None
) -> Expression:
    """An index as C, with ``name_of`` giving axes, sizes and gathered values."""
    parts: list[str] = []
    for mono, coeff in place.terms:
        factors = [_atom_text(atom, name_of) for atom in mono]
        if not mono or abs(coeff) != 1:
            factors.append(str(abs(coeff)))
        sign = "-" if coeff < 0 else "+"
        parts.append((f" {sign} " if parts else ("-" if coeff < 0 else "")) + "*".join(factors))
    return Expression("".join(parts) or "0", dtype, _binds(place))


def _binds(place: IndexExpr) -> Binds:
    if len(place.terms) == 1 and place.terms[0][1] == 1 and len(place.terms[0][0]) == 1:
        return Binds.NAME if isinstance(place.terms[0][0][0], Axis | Size) else Binds.LOOSE
    return Binds.TIGHT if place.constant is not None and place.constant >= 0 else Binds.LOOSE


def _atom_text(atom: Atom, name_of: Callable[[Atom], str]) -> str:
    if isinstance(atom, FloorDiv | Mod):
        sign = "/" if isinstance(atom, FloorDiv) else "%"
        top, bottom = index_code(atom.numerator, name_of), index_code(atom.denominator, name_of)
        if _fits_an_int(atom):  # which there are vectors of to divide
            return f"(long)((int)({top.text}) {sign} {bottom.operand})"
        return f"(({top.text}) {sign} {bottom.operand})"
    return name_of(atom)


def _fits_an_int(atom: FloorDiv | Mod) -> bool:
    """Whether what is divided by a constant is less than 2**31 in size, whatever the signs of its terms."""
    if atom.denominator.constant is None or atom.denominator.constant >= 1 << 31:
        return False
    largest = 0
    for mono, coeff in atom.numerator.terms:
        term = abs(coeff)
        for each in mono:
            upper = None if isinstance(each, Size) else each.upper()
            if upper is None or upper.constant is None:
                return False
            term *= max(upper.constant, 1)
        largest += term
    return largest < 1 << 31


def may_be_one_bit(value: Value) -> bool:
    """Whether a C compiler could make a comparison's result of an integer: all but what is read from memory,
    counted, a choice of such numbers, or a sum of them."""
    if value.dtype == torch.bool:
        return True
    if value.kind == "guard" or value.op == "where":
        chosen = value.args[-2:]
        return all(arg.kind == "const" for arg in chosen) or any(map(may_be_one_bit, chosen))
    if value.kind == "op" and value.op in ("cast", "add", "sub"):
        return any(map(may_be_one_bit, value.args))
    return value.kind == "op"

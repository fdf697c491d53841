"""Scalar expressions: what one point of a loop computes.

An expression is a frozen tree over a closed vocabulary of scalar operations (``SCALAR_OPS``). Every
node has a ``dtype``; the arguments of an arithmetic operation share one. A value of a half type is
computed in float32 and rounded only where it is stored or cast.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber
from nbcompile.compiler.loop_ir.index import Atom, Axis, Index, IndexExpr, index
from nbcompile.compiler.loop_ir.substitution import substitute
from nbcompile.errors import LoweringError

Number = bool | int | float
HALF = (torch.float16, torch.bfloat16)


class Expr:
    """Base of scalar expressions. Python operators build operations of the same dtype."""

    dtype: torch.dtype
    __slots__ = ()

    def children(self) -> tuple[Expr, ...]:
        return ()

    def indices(self) -> tuple[IndexExpr, ...]:
        """The index expressions that this node itself holds."""
        return ()

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        """This node with other children and indices."""
        raise NotImplementedError(type(self))

    def substitute(self, mapping: Mapping[Axis, IndexExpr]) -> Expr:
        """This expression with axes replaced in every index."""
        if not mapping:
            return self
        return self.rebuild(
            tuple(child.substitute(mapping) for child in self.children()),
            tuple(substitute(item, mapping) for item in self.indices()),
        )

    def walk(self) -> Iterator[Expr]:
        """This node and all below it, those inside indices (gathers) included."""
        yield self
        for child in self.children():
            yield from child.walk()
        for item in self.indices():
            yield from walk_index(item)

    def axes(self) -> set[Axis]:
        found: set[Axis] = set()
        for item in self.indices():
            found |= item.axes()
        for child in self.children():
            found |= child.axes()
        return found

    def __add__(self, other: Expr | Number) -> Expr:
        return op("add", self, other)

    def __radd__(self, other: Number) -> Expr:
        return op("add", constant_like(other, self), self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return op("sub", self, other)

    def __rsub__(self, other: Number) -> Expr:
        return op("sub", constant_like(other, self), self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return op("mul", self, other)

    def __rmul__(self, other: Number) -> Expr:
        return op("mul", constant_like(other, self), self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return op("div", self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return op("div", constant_like(other, self), self)

    def __neg__(self) -> Expr:
        return op("neg", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return op("lt", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return op("le", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return op("gt", self, other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return op("ge", self, other)

    def eq(self, other: Expr | Number) -> Expr:
        return op("eq", self, other)

    def ne(self, other: Expr | Number) -> Expr:
        return op("ne", self, other)

    def __and__(self, other: Expr | Number) -> Expr:
        return op("and", self, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return op("or", self, other)

    def __invert__(self) -> Expr:
        return op("not", self)

    def cast(self, dtype: torch.dtype) -> Expr:
        """This value converted to ``dtype`` as ``Tensor.to`` would."""
        return cast(self, dtype)


@dataclass(frozen=True, eq=True, repr=False)
class Constant(Expr):
    """A number known at compile time."""

    value: Number
    dtype: torch.dtype

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        return self

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Constant)
            and repr(self.value) == repr(other.value)
            and self.dtype == other.dtype
        )

    def __str__(self) -> str:
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


@dataclass(frozen=True, repr=False)
class Load(Expr):
    """One element of a buffer, ``buffer[index]``; one index per dimension of the buffer."""

    buffer: str
    index: tuple[IndexExpr, ...]
    dtype: torch.dtype

    def indices(self) -> tuple[IndexExpr, ...]:
        return self.index

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        return Load(self.buffer, indices, self.dtype)

    def __str__(self) -> str:
        return f"{self.buffer}[{', '.join(map(str, self.index))}]" if self.index else self.buffer


@dataclass(frozen=True, repr=False)
class IndexValue(Expr):
    """The value of an index expression as a scalar (arange, argmax positions)."""

    value: IndexExpr
    dtype: torch.dtype

    def indices(self) -> tuple[IndexExpr, ...]:
        return (self.value,)

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        return IndexValue(indices[0], self.dtype)

    def __str__(self) -> str:
        return f"({self.value})" if len(self.value.terms) > 1 else str(self.value)


class Indirect(Atom):
    """The value of a scalar integer expression used as an index, ``0 <= value < size``."""

    __slots__ = ("size", "value")

    def __init__(self, value: Expr, size: IndexExpr) -> None:
        self.value, self.size = value, size
        super().__init__(f"[{value}]", value, size)

    def axes(self) -> set[Axis]:
        return self.value.axes()

    def upper(self) -> IndexExpr:
        return self.size - 1

    def substitute(self, mapping: Mapping[Axis, IndexExpr]) -> IndexExpr:
        return IndexExpr({(Indirect(self.value.substitute(mapping), self.size),): 1})


@dataclass(frozen=True, repr=False)
class Op(Expr):
    """A scalar operation of :data:`SCALAR_OPS`. ``cast`` converts its argument to ``dtype``."""

    name: str
    args: tuple[Expr, ...]
    dtype: torch.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.args

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        return Op(self.name, children, self.dtype)

    def __str__(self) -> str:
        infix = _INFIX.get(self.name)
        if infix and len(self.args) == 2:
            return f"{_wrap(self.args[0])} {infix} {_wrap(self.args[1])}"
        if self.name == "neg":
            return f"-{_wrap(self.args[0])}"
        if self.name == "cast":
            return f"{str(self.dtype).removeprefix('torch.')}({self.args[0]})"
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, repr=False)
class Guarded(Expr):
    """``inside`` where every bound holds, else ``outside``; only the chosen one is evaluated, so
    ``inside`` may load at indices that are valid only there. Each bound is ``(value, low, high)``
    and means ``low <= value < high``."""

    bounds: tuple[tuple[IndexExpr, IndexExpr, IndexExpr], ...]
    inside: Expr
    outside: Expr

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        return self.inside.dtype

    def children(self) -> tuple[Expr, ...]:
        return (self.inside, self.outside)

    def indices(self) -> tuple[IndexExpr, ...]:
        return tuple(item for bound in self.bounds for item in bound)

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[IndexExpr, ...]) -> Expr:
        bounds = tuple((indices[i], indices[i + 1], indices[i + 2]) for i in range(0, len(indices), 3))
        return Guarded(bounds, children[0], children[1])

    def __str__(self) -> str:
        tests = " and ".join(f"{low} <= {value} < {high}" for value, low, high in self.bounds)
        return f"({self.inside} if {tests} else {self.outside})"


MOST_CUT = 9
"""Places of a padded tensor that one loop reads. Of more, C's loop is not cut where some of them are outside,
and asks at each point: what is padded is laid out first, or gone over along one dimension at a time."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "and", "or": "or", "bitand": "&", "bitor": "|", "bitxor": "^",
    "shl": "<<", "shr": ">>", "pow": "**", "floordiv": "//", "remainder": "%",
}  # fmt: skip

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf", "signbit", "and", "or", "not"})

SCALAR_OPS: dict[str, int] = {
    # name: number of arguments. "div" is true division, "truncdiv" and "floordiv" round, "fmod" has the
    # sign of its first and "remainder" that of its second argument. "minimum"/"maximum" spread NaN,
    # "fmin"/"fmax" drop it. "and"/"or"/"not" are logical on bool. "round" rounds half to even.
    # "shr" is arithmetic. "philox_uniform"(seed, offset) is in [0, 1), see codegen.
    # "ldexp" takes a whole exponent that an int32 holds, in its first argument's type.
    # "bitcast" takes the bits for those of another type (BITCASTS).
    **dict.fromkeys(
        "neg abs sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan "
        "sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma floor ceil trunc round sigmoid "
        "not bitnot isnan isinf signbit cast bitcast i0 i0e i1 i1e ndtri log_ndtr erfcx".split(),
        1,
    ),
    **dict.fromkeys(
        "add sub mul div truncdiv floordiv fmod remainder pow atan2 hypot copysign nextafter ldexp minimum "
        "maximum fmin fmax lt le gt ge eq ne and or bitand bitor bitxor shl shr philox_uniform".split(),
        2,
    ),
    "where": 3,
    "fma": 3,
}

BITCASTS = {
    (torch.float32, torch.int32), (torch.int32, torch.float32),
    (torch.float64, torch.int64), (torch.int64, torch.float64),
}  # fmt: skip
"""From which type to which there is a ``bitcast``. (Half types are computed in float32.)"""

TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc erfinv lgamma digamma sigmoid pow atan2 philox_uniform i0 i0e i1 i1e ndtri log_ndtr "
    "erfcx".split()
)  # fmt: skip
"""Operations that cost many instructions: worth keeping rather than computing again."""
WORK = {
    **dict.fromkeys("div reciprocal sqrt rsqrt hypot truncdiv floordiv fmod remainder".split(), 16),
    **dict.fromkeys(("maximum", "minimum"), 4),  # they spread NaN
}
"""Other operations that take a processor as long as so many additions."""
GPU_WORK = WORK | {
    name: count
    for count, names in {
        8: "exp exp2 load", 15: "sigmoid", 20: "tanh asin acos", 25: "sinh cosh",
        32: "log log2 log10 log1p tan erfinv", 37: "sin cos expm1 erf", 50: "atan atanh",
        65: "acosh erfc lgamma", 80: "atan2 asinh", 100: "philox_uniform ndtri log_ndtr erfcx",
        140: "pow", 260: "i0 i0e i1 i1e", 340: "digamma",
    }.items()
    for name in names.split()
}  # fmt: skip
"""The same of a GPU, where functions are code of libdevice's: float32, timed on an H200 in chains of 16 and
of 48 of one function; those of the row of 100, ``i0e`` to ``i1e`` and a ``load`` are guessed."""


def op(name: str, *args: Expr | Number | SizeNumber, dtype: torch.dtype | None = None) -> Expr:
    """The operation ``name`` on ``args``; plain numbers take the dtype of the first expression.

    The result has ``dtype``, or bool for comparisons, or else the dtype of the arguments.
    """
    like = next(arg for arg in (args[1:] if name == "where" else args) if isinstance(arg, Expr))
    values = tuple(arg if isinstance(arg, Expr) else constant_like(arg, like) for arg in args)
    if dtype is None:
        dtype = torch.bool if name in COMPARISONS else like.dtype
    if len(values) != SCALAR_OPS[name]:
        raise TypeError(f"{name} takes {SCALAR_OPS[name]} arguments, not {len(values)}")
    return Op(name, values, dtype)


def where(condition: Expr, yes: Expr | Number, no: Expr | Number) -> Expr:
    """``yes`` where ``condition`` (bool) else ``no``; both are evaluated."""
    return op("where", condition, yes, no)


def cast(value: Expr, dtype: torch.dtype) -> Expr:
    """``value`` converted to ``dtype``; nothing if it has it already."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant):
        return constant(value.value, dtype)
    return Op("cast", (value,), dtype)


def constant(value: Number, dtype: torch.dtype) -> Constant:
    """``value`` as a constant of ``dtype``, converted as torch would convert it."""
    if dtype == torch.bool:
        return Constant(bool(value), dtype)
    if dtype in HALF:
        return Constant(float(torch.tensor(value, dtype=dtype)), dtype)
    if dtype.is_floating_point:
        return Constant(float(value), dtype)
    info = torch.iinfo(dtype)
    if isinstance(value, float) and not math.isfinite(value):
        return Constant(int(torch.tensor(value, dtype=torch.float64).to(dtype).item()), dtype)
    if isinstance(value, float) and not info.min <= value <= info.max:
        # the least of what the processor converts to, of which a smaller type has the last bits
        way = torch.iinfo(torch.int64 if dtype in (torch.int64, torch.uint8) else torch.int32)
        value = value if way.min <= value <= way.max else way.min
    number = int(value)
    if not info.min <= number <= info.max:
        number = (number - info.min) % (info.max - info.min + 1) + info.min
    return Constant(number, dtype)


@dataclass(frozen=True)
class SizeNumber:
    """A number that is computed of symbolic sizes: ``value``, in float64 as Python has it. It stands where a
    plain number would; a library is called with what Python computes."""

    value: Expr
    python: PythonNumber


SIGNS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
_NAMES = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True)
class SizeComparison:
    """A comparison of sizes that a graph checks when it runs (``_assert_scalar``); ``sign`` as Python
    writes it."""

    left: IndexExpr
    sign: str
    right: IndexExpr

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    def negated(self) -> SizeComparison:
        return SizeComparison(self.left, _OPPOSITE[self.sign], self.right)

    def truth(self) -> Expr:
        """Whether it is so, as kernels compute it."""
        return op(_NAMES[self.sign], index_value(self.left), index_value(self.right))

    def holds(self, number: Callable[[IndexExpr], int]) -> bool:
        """Whether it is so, of the numbers that sizes are."""
        return bool(SIGNS[self.sign](number(self.left), number(self.right)))

    def facts(self) -> tuple[IndexExpr, ...]:
        """Expressions that are not negative where it holds."""
        less, more = self.right - self.left, self.left - self.right
        known = {"<": (less - 1,), "<=": (less,), ">": (more - 1,), ">=": (more,), "==": (less, more)}
        return known.get(self.sign, ())


def scalar(value: Number | IndexExpr | SizeNumber | SizeComparison, dtype: torch.dtype) -> Expr:
    """A number, a symbolic size, or what is computed of such, as an expression of ``dtype``. LoweringError
    for what only Python computes."""
    if isinstance(value, SizeNumber):
        return cast(value.value, dtype)
    if isinstance(value, SizeComparison):
        return cast(value.truth(), dtype)
    if not isinstance(value, int | float | IndexExpr):
        raise LoweringError(f"no loop computes {value}")
    return index_value(value, dtype) if isinstance(value, IndexExpr) else constant(value, dtype)


def constant_like(value: Any, like: Expr) -> Expr:
    """A number, or what :func:`scalar` takes, as an expression of the dtype of another."""
    return scalar(value, like.dtype)


def index_value(value: Index, dtype: torch.dtype = torch.int64) -> Expr:
    """An index expression as a scalar of ``dtype`` (an integer type is cast if need be)."""
    inner = IndexValue(index(value), torch.int64)
    return cast(inner, dtype)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that values of ``dtype`` are computed in: float32 for half types, else itself."""
    return torch.float32 if dtype in HALF else dtype


def as_held(value: Expr, dtype: torch.dtype) -> Expr:
    """``value`` as a tensor of ``dtype`` holds it, rounded to a half type, in the type it is computed in.
    What decides by a number (is it above 3, is it infinite, is it the largest) decides by this one."""
    return cast(cast(value, dtype), value.dtype)


def walk_index(expr: IndexExpr) -> Iterator[Expr]:
    """All scalar expressions inside an index (the values of gathers)."""
    for atom in expr.atoms():
        if isinstance(atom, Indirect):
            yield from atom.value.walk()


def loads(expr: Expr) -> Iterator[Load]:
    """All loads in an expression, those inside gathered indices included."""
    return (node for node in expr.walk() if isinstance(node, Load))


def _wrap(expr: Expr) -> str:
    text = str(expr)
    return f"({text})" if isinstance(expr, Op) and (expr.name in _INFIX or expr.name == "neg") else text

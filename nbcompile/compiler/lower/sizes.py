"""Symbolic sizes of a graph: from torch's SymInt (sympy) to index expressions."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from functools import partial, reduce
from operator import add, mul
from typing import Any

import torch
from sympy import Float, Integer, Symbol
from torch.utils._sympy.functions import Max
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type

from nbcompile.compiler.loop_ir.computed_sizes import (
    ComputedSize,
    ExactPart,
    PythonNumber,
    base_sizes,
    computed_in,
    python_text,
)
from nbcompile.compiler.loop_ir.expr import Expr, SizeNumber, constant, index_value, op
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, Size, at_least, floordiv, index, mod
from nbcompile.compiler.loop_ir.nodes import at_most
from nbcompile.compiler.loop_ir.proofs import unrounded, well_defined
from nbcompile.compiler.stages import GUESS, can_be_guarded, guards_of, guess_of, hint_of, least_of, most_of
from nbcompile.errors import LoweringError, SymbolicSizeError

_LONGEST_PERIOD = 1 << 9
_FAR = 1 << 20
"""How many periods from 0 a guard is looked at: what it takes a remainder of is not below 0 there, which
torch refuses."""
_EXACT = 1 << 12
"""Fractions with a denominator up to this, times a size, are a float64 without rounding."""
_RELATIONS: dict[str, Callable[[IndexExpr, IndexExpr], tuple[IndexExpr, ...]]] = {
    "LessThan": lambda left, right: (right - left,),
    "StrictLessThan": lambda left, right: (right - left - 1,),
    "GreaterThan": lambda left, right: (left - right,),
    "StrictGreaterThan": lambda left, right: (left - right - 1,),
    "Equality": lambda left, right: (left - right, right - left),
}
_ARITHMETIC = frozenset({"Add", "Mul", "Pow", "FloorDiv", "CleanDiv", "Mod", "PythonMod"})
_FUNCTIONS = {
    "Add": "add", "Mul": "mul", "Pow": "pow", "PowByNatural": "pow", "ToFloat": "", "IntTrueDiv": "div",
    "FloatTrueDiv": "div", "FloatPow": "pow", "OpaqueUnaryFn_sqrt": "sqrt",
}  # fmt: skip
"""sympy's and torch's functions of numbers, by the names of ours; ToFloat changes nothing."""


class SizeTable:
    """The symbolic sizes of one graph by name."""

    def __init__(self) -> None:
        self.sizes: dict[str, Size] = {}
        self._env: Any = None
        self._symbols: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._divisors: dict[Any, int] = {}  # what symbols are surely multiples of
        self._guards = 0  # how many of them these two are from
        self._computed: dict[str, ComputedSize] = {}  # by their formula
        self._of_data: set[str] = set()
        self._explained: set[str] = set()  # those of which all is known that their formula says
        self._known: list[IndexExpr] = []  # what is not negative by how computed sizes are computed
        self._meanings: dict[str, IndexExpr] = {}  # symbols that are expressions of others

    def to_index(self, value: Any) -> IndexExpr:
        """An int, SymInt or IndexExpr as an IndexExpr. LoweringError for data-dependent sizes and
        arithmetic we do not have."""
        if isinstance(value, IndexExpr):
            return value
        if isinstance(value, torch.SymInt):
            node = value.node
            if node.constant is not None:
                return index(int(node.constant))
            return self._from_sympy(node.expr, node.shape_env)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            raise SymbolicSizeError("a symbolic number that is not an integer")
        return index(int(value))

    def strides(self, tensor: torch.Tensor) -> tuple[IndexExpr, ...]:
        """Strides of a fake tensor, up to what no element is told by: torch writes them as max(1, extent),
        which is the extent but where the tensor is empty."""
        shape: tuple[Any, ...] = tuple(tensor.shape)
        extents = {extent.node.expr for extent in shape if isinstance(extent, torch.SymInt)}
        return tuple(self._stride(stride, extents) for stride in tensor.stride())

    def _stride(self, value: Any, extents: Collection[Any]) -> IndexExpr:
        node = getattr(value, "node", None)
        if node is None or node.constant is not None:
            return self.to_index(value)
        env, found = node.shape_env, {}
        for greater in node.expr.atoms(Max):
            rest = [part for part in greater.args if part != 1]
            if len(rest) == 1 and (rest[0] in extents or env.bound_sympy(rest[0]).lower >= 0):
                found[greater] = rest[0]
        return self._from_sympy(node.expr.xreplace(found), env)

    def to_number(self, value: torch.SymFloat) -> SizeNumber:
        """A number that is computed of sizes, as Python computes it: in float64. LoweringError for one that
        depends on data, and for functions that we do not have."""
        node = value.node
        if node.constant is not None:
            number = float(node.constant)
            return SizeNumber(constant(number, torch.float64), PythonNumber(f"float('{number}')"))
        made = self._float(node.expr, node.shape_env)
        return SizeNumber(made, self.python(node.expr, node.shape_env))

    def _float(self, expr: Any, env: Any) -> Expr:
        kind = type(expr).__name__
        if expr.is_integer and not _may_wrap(expr):
            return index_value(self._from_sympy(expr, env), torch.float64)
        if expr.is_number and expr.is_real:
            return constant(float(expr), torch.float64)
        if kind not in _FUNCTIONS:
            raise SymbolicSizeError(f"no arithmetic for the symbolic number {expr}")
        parts = [self._float(part, env) for part in expr.args]
        name = _FUNCTIONS[kind]
        return reduce(partial(op, name), parts) if len(parts) > 1 else op(name, *parts) if name else parts[0]

    def facts(self) -> tuple[IndexExpr, ...]:
        """What the guards of the graph say of its sizes alone: expressions that are not negative."""
        found = list(self._known)
        for symbol in self._symbols:
            most = most_of(symbol, self._env)
            if most is not None:
                found.append(most - self._meaning(symbol, self._env))
        for relation in guards_of(self._env, self.sizes.keys()):
            try:
                found += self._from_relation(relation)
            except LoweringError:
                continue  # no index expression says it
        found += unrounded(found)
        return well_defined(fact for fact in dict.fromkeys(found) if fact.constant is None)

    def _number(self, expr: Any) -> int | None:
        """What a guard says an expression is, if it is always the same number: an extent that is surely 1
        has to be seen to be, for what is broadcast."""
        self._read_guards()
        return self._numbers.get(expr)

    def _read_guards(self) -> None:
        guards = len(getattr(self._env, "guards", ()))
        if guards == self._guards:
            return
        for guard in self._env.guards[self._guards :]:
            relation = self._env.replace(guard.expr)
            sides = relation.args if type(relation).__name__ == "Equality" else ()
            for one, other in zip(sides, sides[::-1], strict=True):
                if other.is_Integer and one.free_symbols:
                    self._numbers[one] = int(other)
            for symbol, divisor in _multiples(sides[0], sides[1], self._env) if sides else ():
                self._divisors[symbol] = math.lcm(self._divisors.get(symbol, 1), divisor)
            self._read_bound(relation)
        self._guards = guards

    def _read_bound(self, relation: Any) -> None:
        """``Max(1, s0//2) <= 1`` is what torch guards of a stride, ``s0//2 < 2`` of what it takes for equal:
        ``s0//2`` is 1, unless it may be 0."""
        kind = type(relation).__name__
        if not kind.endswith(("LessThan", "GreaterThan")) or not relation.gts.is_Integer:
            return
        value, most = relation.lts, int(relation.gts) - kind.startswith("Strict")
        for item in value.args if type(value).__name__ == "Max" else (value,):
            if item.free_symbols and self._env.bound_sympy(item).lower >= most:
                self._numbers[item] = most

    def _from_relation(self, relation: Any) -> tuple[IndexExpr, ...]:
        """What of a sympy relation can be said by expressions that are not negative."""
        kind = type(relation).__name__
        if kind not in _RELATIONS:
            return ()
        left, right = (self._from_sympy(side, self._env, plain=True) for side in relation.args)
        return _RELATIONS[kind](left, right)

    def _from_sympy(self, expr: Any, env: Any, plain: bool = False) -> IndexExpr:
        """The same as an index expression; ``plain``: as it is written, whatever the guards say of it."""
        kind = type(expr).__name__
        self._env = env
        if not plain and (number := self._number(expr)) is not None:
            return index(number)
        if expr.is_Integer:
            return index(int(expr))
        if expr.is_Symbol:
            return self._meaning(expr, env)
        if kind in ("TruncToInt", "FloorToInt"):
            scaled = self._scaled(expr.args[0], env, plain)
            if scaled is not None:
                return scaled
        if kind == "Max" and (kept := _surely_greater(expr, env)) is not None:
            return self._from_sympy(kept, env, plain)
        if kind not in _ARITHMETIC:
            return index(self._computed_size(expr, env, plain))
        parts = [self._from_sympy(part, env, plain) for part in expr.args]
        if kind == "Add":
            return reduce(add, parts)
        if kind == "Mul":
            return reduce(mul, parts)
        if kind == "Pow" and (power := parts[1].constant) is not None and power >= 0:
            return reduce(mul, [parts[0]] * power, ONE)
        if kind in ("FloorDiv", "CleanDiv"):
            return _rounded_down(parts[0], parts[1])
        if kind in ("Mod", "PythonMod"):
            return mod(parts[0], parts[1])
        return index(self._computed_size(expr, env, plain))

    # -- what Python computes ------------------------------------------------------------------

    def python(self, expr: Any, env: Any) -> PythonNumber:
        """A sympy expression as Python computes it."""
        needs: set[str] = set()
        parts: dict[str, ComputedSize] = {}
        names: dict[Any, Any] = {}
        for symbol in sorted(expr.free_symbols, key=str):
            if symbol_is_type(symbol, SymT.UNBACKED_FLOAT):
                needs.add(str(symbol))
                continue
            meaning = self._meaning(symbol, env)
            if (text := python_text(meaning)) != str(symbol):
                names[symbol] = Symbol(f"({text})")
            needs |= base_sizes([meaning])
            parts |= computed_in([meaning])
        formula = PythonPrinter().doprint(expr.xreplace(names))
        return PythonNumber(formula, frozenset(needs), tuple(parts.values()))

    def _computed_size(self, expr: Any, env: Any, plain: bool) -> ComputedSize:
        """A size that no index arithmetic of ours is, computed in Python."""
        number = self.python(expr, env)
        if plain and number.formula not in self._computed:
            raise SymbolicSizeError(f"no index arithmetic for the symbolic size {expr}")
        bounds = env.bound_sympy(expr)
        least = int(bounds.lower) if bounds.lower.is_Integer else None
        known = {each: _at_hand(each, env) for each in expr.free_symbols}
        most = None
        if number.needs - (self.sizes.keys() - self._of_data):
            most = int(bounds.upper) if bounds.upper.is_Integer else sys.maxsize
        made = self.computed(number, int(expr.xreplace(known)), least, most)
        if type(expr).__name__ in ("Min", "Max") and made.text not in self._explained:
            self._explained.add(made.text)
            for part in expr.args:
                with contextlib.suppress(LoweringError):
                    more = self._from_sympy(part, env, plain) - index(made)
                    self._known.append(more if type(expr).__name__ == "Min" else -more)
        return made

    def is_of_data(self, place: IndexExpr) -> bool:
        """Whether a place depends on data: what it was taken to be when it was traced then tells nothing."""
        return bool(base_sizes([place]) - (self.sizes.keys() - self._of_data))

    def is_untold(self, value: Any) -> bool:
        """Whether a SymInt is a size of data of which nothing is known yet but its name."""
        expr = value.node.expr if isinstance(value, torch.SymInt) and value.node.constant is None else None
        if expr is None or not expr.is_Symbol or not symbol_is_type(expr, SymT.UNBACKED_INT):
            return False
        return str(expr) not in {*self.sizes, *self._meanings}

    def tell(self, value: Any, meaning: IndexExpr) -> None:
        """What such a size is."""
        self._meanings[str(value.node.expr)] = meaning

    def within(self, formula: str, of: Sequence[IndexExpr], most: IndexExpr, hint: int) -> IndexExpr:
        """The number from 0 to ``most`` that Python computes by ``formula`` of the places ``of``."""
        number = PythonNumber(formula, frozenset(base_sizes(of)), tuple(computed_in(of).values()))
        made = index(self.computed(number, max(0, min(hint, most.hint())), 0, at_most(most)))
        self._known += [made, most - made]
        return made

    def computed(
        self, number: PythonNumber, hint: int, least: int | None, most: int | None = None
    ) -> ComputedSize:
        """The size that ``number`` is: the same one for the same formula. ``most``: of one that depends on
        data."""
        if number.formula not in self._computed:
            name = f"size_{len(self._computed)}"
            self._computed[number.formula] = ComputedSize(name, hint, least, number, most)
        return self._computed[number.formula]

    def _scaled(self, expr: Any, env: Any, plain: bool) -> IndexExpr | None:
        """``1.5 * ToFloat(s0)`` rounded down, which is what resampling by a factor makes of a size."""
        factors = [item for item in expr.args if item.is_Float] if type(expr).__name__ == "Mul" else []
        sizes = [item.args[0] for item in expr.args if type(item).__name__ == "ToFloat"]
        if len(factors) != 1 or len(sizes) != 1 or len(expr.args) != 2:
            return None
        ratio = Fraction(float(factors[0]))
        if ratio <= 0 or ratio.denominator > _EXACT or env.bound_sympy(sizes[0]).lower < 0:
            return None
        return floordiv(self._from_sympy(sizes[0], env, plain) * ratio.numerator, index(ratio.denominator))

    def _meaning(self, symbol: Any, env: Any) -> IndexExpr:
        """A symbol as an index: of one that is surely a multiple the product that it is."""
        name = str(symbol)
        if name in self._meanings:
            return self._meanings[name]
        size, self._env = self._size(symbol, env), env
        self._read_guards()
        divisor = self._divisors.get(symbol, 1) if name not in self._of_data else 1
        meaning = index(ExactPart(size, divisor)) * divisor if divisor > 1 else index(size)
        return self._meanings.setdefault(name, meaning)

    def _size(self, symbol: Any, env: Any) -> Size:
        name = str(symbol)
        if name not in self.sizes:
            # what nobody can guard may be anything at the next call
            hint, most = hint_of(symbol, env), None if can_be_guarded(symbol, env) else sys.maxsize
            if hint is None:
                self._of_data.add(name)
                hint, most = guess_of(symbol, env), most_of(symbol, env) or sys.maxsize
            if hint is None:
                raise LoweringError(f"the size {name} depends on data")
            self._symbols.append(symbol)
            self.sizes[name] = Size(name, hint, least_of(symbol, env), most)
        return self.sizes[name]


def _multiples(left: Any, right: Any, env: Any) -> list[tuple[Any, int]]:
    """Which sizes are surely multiples of what where two expressions are equal."""
    symbols = left.free_symbols | right.free_symbols
    if len(symbols) == 1:
        (symbol,) = symbols
        return [(symbol, _divisor(left - right, symbol))]
    if right == 0 or any(env.bound_sympy(symbol).lower < 1 for symbol in symbols):
        return []
    # h * w = 16 * (h // 4) * (w // 4): no 4 * (s // 4) is more than s, so both are as much
    found, scale = [], Integer(1)
    powers = (left / right).as_powers_dict()
    for base, power in powers.items():
        if type(base).__name__ == "FloorDiv" and base.args[1].is_Integer and base.args[1] > 0:
            symbol, divisor = base.args
            if not symbol.is_Symbol or powers.get(symbol) != -power:
                return []
            found.append((symbol, int(divisor)))
            scale *= divisor**power
        elif base.is_Symbol:
            whole = [each for each in powers if type(each).__name__ == "FloorDiv" and each.args[0] == base]
            if len(whole) != 1:
                return []
        elif base.is_number:
            scale /= base**power
        else:
            return []
    signs = {powers[symbol] > 0 for symbol, _ in found}
    return found if scale == 1 and len(signs) == 1 else []


def _divisor(apart: Any, symbol: Any) -> int:
    """The greatest number that a size is surely a multiple of where an expression of it is 0: what
    ``view(b, t, 8, -1)`` asks of a size, or the equal halves of a ``chunk(2)``.

    Of every ``period``-th size the expression is a line's, of which those that are level and not 0 tell that
    it is none of these sizes."""
    period = _period(apart)
    if period is None or not 1 < period <= _LONGEST_PERIOD:
        return 1
    try:
        first, second = (
            [int(apart.xreplace({symbol: Integer(at * period + n)})) for n in range(period)]
            for at in (_FAR, _FAR + 1)
        )
    except AssertionError:
        return 1
    return math.gcd(period, *(n for n in range(period) if first[n] != second[n] or first[n] == 0))


def _period(expr: Any) -> int | None:
    """How far apart the sizes are of which an expression of one size is the equation of a line; None: it may
    be none."""
    kind = type(expr).__name__
    if expr.is_Integer or expr.is_Symbol:
        return 1
    parts = [period for period in map(_period, expr.args) if period is not None]
    if len(parts) < len(expr.args):
        return None
    if kind == "Add" or (kind == "Mul" and sum(bool(part.free_symbols) for part in expr.args) == 1):
        return math.lcm(*parts)
    if kind in ("FloorDiv", "CleanDiv", "Mod", "PythonMod") and expr.args[1].is_Integer and expr.args[1] > 0:
        return parts[0] * int(expr.args[1])
    return None


def _rounded_down(numerator: IndexExpr, denominator: IndexExpr) -> IndexExpr:
    """A quotient; of what is never positive the opposite one, which C rounds as Python does."""
    if at_least(ZERO, numerator):
        return -floordiv(denominator - 1 - numerator, denominator)
    return floordiv(numerator, denominator)


def _at_hand(symbol: Any, env: Any) -> Any:
    """The number that a symbol was traced with, or is taken to be."""
    if symbol_is_type(symbol, SymT.UNBACKED_FLOAT):
        return Float(GUESS)
    hint = hint_of(symbol, env)
    return Integer(guess_of(symbol, env) if hint is None else hint)


def _may_wrap(expr: Any) -> bool:
    """Whether a whole number has a product of sizes in it, which Python computes beyond 64 bits."""
    kind = type(expr).__name__
    if kind not in ("Add", "Mul", "Pow", "PowByNatural"):
        return False
    return (kind != "Add" and sum(bool(part.free_symbols) for part in expr.args) > 1) or (
        ("Pow" in kind and bool(expr.free_symbols)) or any(map(_may_wrap, expr.args))
    )


def _surely_greater(maximum: Any, env: Any) -> Any:
    """Which part of max(1, number) it surely is; None where that depends, and for other maxima."""
    rest = [part for part in maximum.args if part != 1]
    if len(maximum.args) != 2 or len(rest) != 1 or env.bound_sympy(rest[0]).lower < 1:
        return None
    return rest[0]

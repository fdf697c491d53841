"""Symbolic sizes of a graph: from torch's SymInt (sympy) to index expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.errors import LoweringError
from nbcompile.loop_ir.index import ONE, IndexExpr, Size, floordiv, index, mod
from nbcompile.loop_ir.proofs import well_defined
from nbcompile.stages import guards_of, least_of, most_of

_RELATIONS: dict[str, Callable[[IndexExpr, IndexExpr], tuple[IndexExpr, ...]]] = {
    "LessThan": lambda left, right: (right - left,),
    "StrictLessThan": lambda left, right: (right - left - 1,),
    "GreaterThan": lambda left, right: (left - right,),
    "StrictGreaterThan": lambda left, right: (left - right - 1,),
    "Equality": lambda left, right: (left - right, right - left),
}


class SizeTable:
    """The symbolic sizes of one graph by name."""

    def __init__(self) -> None:
        self.sizes: dict[str, Size] = {}
        self._env: Any = None
        self._symbols: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._guards = 0  # how many of them _numbers is from

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
            raise LoweringError("a symbolic number that is not an integer")
        return index(int(value))

    def facts(self) -> tuple[IndexExpr, ...]:
        """What the guards of the graph say of its sizes alone: expressions that are not negative."""
        found: list[IndexExpr] = []
        for symbol in self._symbols:
            most = most_of(symbol, self._env)
            if most is not None:
                found.append(most - index(self.sizes[str(symbol)]))
        for relation in guards_of(self._env, self.sizes.keys()):
            try:
                found += self._from_relation(relation)
            except LoweringError:
                continue  # no index expression says it
        return well_defined(fact for fact in dict.fromkeys(found) if fact.constant is None)

    def _number(self, expr: Any) -> int | None:
        """What a guard says an expression is, if it is always the same number: an extent that is surely 1
        has to be seen to be, for what is broadcast."""
        guards = len(getattr(self._env, "guards", ()))
        if guards != self._guards:
            self._guards = guards
            for guard in self._env.guards:
                relation = self._env.replace(guard.expr)
                sides = relation.args if type(relation).__name__ == "Equality" else ()
                for one, other in zip(sides, sides[::-1], strict=True):
                    if other.is_Integer and one.free_symbols:
                        self._numbers[one] = int(other)
                self._read_bound(relation)
        return self._numbers.get(expr)

    def _read_bound(self, relation: Any) -> None:
        """``Max(1, s0//2) <= 1`` is what torch guards of a stride: ``s0//2`` is 1, unless it may be 0."""
        if type(relation).__name__ != "LessThan" or not relation.args[1].is_Integer:
            return
        value, most = relation.args[0], int(relation.args[1])
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
            return index(self._size(expr, env))
        parts = [self._from_sympy(part, env, plain) for part in expr.args]
        if kind == "Add":
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            return total
        if kind == "Mul":
            total = ONE
            for part in parts:
                total = total * part
            return total
        if kind == "Max" and ONE in parts and len(parts) == 2:
            # torch writes strides as max(1, extent): they differ only where the tensor is empty
            return parts[1] if parts[0] == ONE else parts[0]
        if kind == "Pow" and (power := parts[1].constant) is not None and power >= 0:
            total = ONE
            for _ in range(power):
                total = total * parts[0]
            return total
        if kind in ("FloorDiv", "CleanDiv"):
            return floordiv(parts[0], parts[1])
        if kind in ("Mod", "PythonMod"):
            return mod(parts[0], parts[1])
        raise LoweringError(f"no index arithmetic for the symbolic size {expr}")

    def _size(self, symbol: Any, env: Any) -> Size:
        name = str(symbol)
        if name not in self.sizes:
            values = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
            hint = values.get(symbol)
            if hint is None:
                raise LoweringError(f"the size {name} depends on data")
            self._symbols.append(symbol)
            self.sizes[name] = Size(name, int(hint), least_of(symbol, env))
        return self.sizes[name]

"""Symbolic sizes of a graph: from torch's SymInt (sympy) to index expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from nbcompile.errors import LoweringError
from nbcompile.loop_ir.index import ONE, IndexExpr, Size, floordiv, index, mod
from nbcompile.stages import least_of

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
        for guard in getattr(self._env, "guards", ()):
            if not {str(symbol) for symbol in guard.expr.free_symbols} <= self.sizes.keys():
                continue
            try:
                found += self._from_relation(guard.expr)
            except LoweringError:
                continue  # no index expression says it
        return tuple(dict.fromkeys(found))

    def _from_relation(self, relation: Any) -> tuple[IndexExpr, ...]:
        """What of a sympy relation can be said by expressions that are not negative."""
        kind = type(relation).__name__
        if kind not in _RELATIONS:
            return ()
        left, right = (self._from_sympy(side, self._env) for side in relation.args)
        return _RELATIONS[kind](left, right)

    def _from_sympy(self, expr: Any, env: Any) -> IndexExpr:
        kind = type(expr).__name__
        if expr.is_Integer:
            return index(int(expr))
        if expr.is_Symbol:
            return index(self._size(expr, env))
        parts = [self._from_sympy(part, env) for part in expr.args]
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
        self._env = env
        name = str(symbol)
        if name not in self.sizes:
            values = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
            hint = values.get(symbol)
            if hint is None:
                raise LoweringError(f"the size {name} depends on data")
            self.sizes[name] = Size(name, int(hint), least_of(symbol, env))
        return self.sizes[name]

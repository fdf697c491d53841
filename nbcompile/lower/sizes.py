"""Symbolic sizes of a graph: from torch's SymInt (sympy) to index expressions."""

from __future__ import annotations

from typing import Any

import torch

from nbcompile.errors import LoweringError
from nbcompile.loop_ir.index import ONE, IndexExpr, Size, floordiv, index, mod
from nbcompile.stages import least_of


class SizeTable:
    """The symbolic sizes of one graph by name."""

    def __init__(self) -> None:
        self.sizes: dict[str, Size] = {}

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
        name = str(symbol)
        if name not in self.sizes:
            values = getattr(env, "backed_var_to_val", None) or getattr(env, "var_to_val", {})
            hint = values.get(symbol)
            if hint is None:
                raise LoweringError(f"the size {name} depends on data")
            self.sizes[name] = Size(name, int(hint), least_of(symbol, env))
        return self.sizes[name]

"""Accumulators of reductions in C: type, start value, update, combination across lanes and threads."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES, constant
from nbcompile.compiler.kernel_ir.values import Reduction

LONG_ROW = 256  # float32 sums of more elements than this accumulate in double


@dataclass(frozen=True)
class Accumulator:
    """``declare`` starts it, ``update(x)`` adds a value, ``clause`` is its OpenMP reduction operator
    (empty: it cannot be vectorised), ``result`` is its final value in the type of the output."""

    item: Reduction
    name: str
    type: str
    start: str
    clause: str
    result: str

    def update(self, target: str, value: str, position: str = "") -> list[str]:
        """C statements that fold ``value`` into ``target``."""
        kind = self.item.kind
        if kind in ("sum", "mean"):
            return [f"{target} += {value};"]
        if kind == "prod":
            return [f"{target} *= {value};"]
        if kind == "any":
            return [f"{target} = {target} || {value};"]
        if kind == "all":
            return [f"{target} = {target} && {value};"]
        if kind in ("max", "min"):
            sign = ">" if kind == "max" else "<"
            if self.item.value.dtype.is_floating_point:
                return [f"{target} = {value} {sign} {target} || {value} != {value} ? {value} : {target};"]
            return [f"{target} = {value} {sign} {target} ? {value} : {target};"]
        sign = ">" if kind == "argmax" else "<"
        if self.item.value.dtype.is_floating_point:
            test = f"{value} {sign} {target} || ({value} != {value} && {target} == {target})"
        else:
            test = f"{value} {sign} {target}"
        return [f"if ({test}) {{ {target} = {value}; {target}_at = {position}; }}"]


NAN_REDUCTIONS = {
    (kind, dtype): (
        f"#pragma omp declare reduction(nan{kind}_{short} : {ctype} : omp_out = omp_in {sign} omp_out || "
        f"omp_in != omp_in ? omp_in : omp_out) initializer(omp_priv = {start})"
    )
    for dtype, short, ctype, suffix in (
        (torch.float32, "f32", "float", "f"),
        (torch.float64, "f64", "double", ""),
    )
    for kind, sign, start in (
        ("max", ">", f"-__builtin_inf{suffix}()"),
        ("min", "<", f"__builtin_inf{suffix}()"),
    )
}
"""Declarations of maximum and minimum that let NaN win, for OpenMP."""


def accumulator(item: Reduction, name: str, count: int, output: torch.dtype) -> Accumulator:
    """The accumulator of ``item``; ``count`` is how many values it folds (a hint)."""
    dtype = item.value.dtype
    kind = item.kind
    ctype = REGISTER_TYPES[dtype]
    result = name
    if kind in ("sum", "mean", "prod"):
        if dtype == torch.float32 and (count > LONG_ROW or item.split):
            ctype = "double"
        elif not dtype.is_floating_point and output.is_floating_point is False and output != torch.bool:
            ctype = REGISTER_TYPES[output]
        start = "1" if kind == "prod" else "0"
        return Accumulator(item, name, ctype, start, "*" if kind == "prod" else "+", result)
    if kind in ("any", "all"):
        return Accumulator(
            item, name, ctype, str(int(kind == "all")), "||" if kind == "any" else "&&", result
        )
    if dtype.is_floating_point:
        sign = "-" if "max" in kind else ""
        start = f"{sign}__builtin_inf{'f' if dtype == torch.float32 else ''}()"
        clause = f"nan{kind}_{'f32' if dtype == torch.float32 else 'f64'}" if kind in ("max", "min") else ""
        if clause == "" and kind in ("argmax", "argmin"):
            result = f"{name}_at"
        return Accumulator(item, name, ctype, start, clause, result)
    if dtype == torch.bool:
        start = "0" if "max" in kind else "1"
    else:
        info = torch.iinfo(dtype)
        start = constant(info.min if "max" in kind else info.max, dtype)
    if kind in ("argmax", "argmin"):
        return Accumulator(item, name, ctype, start, "", f"{name}_at")
    return Accumulator(item, name, ctype, start, kind, result)

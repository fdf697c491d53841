"""Accumulators of reductions in C: type, start value, update, combination across lanes and threads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from nbcompile.compiler.codegen.c.expressions import REGISTER_TYPES, SHORT, constant
from nbcompile.compiler.kernel_ir.values import Reduction
from nbcompile.compiler.loop_ir.index import IndexExpr

LONG_ROW = 256  # sums of more elements than this, or of who knows how many, are made of sums of pieces
LANES = 3  # sums of a vector, at the least, that the sum of a row is made of


@dataclass(frozen=True)
class Accumulator:
    """A running result, the C variable ``name`` of type ``type``, which begins as ``start``. ``clause`` is
    its OpenMP reduction operator (empty: it cannot be vectorised), ``result`` the variable that holds what
    is wanted in the end. ``flag``: the variable that notes whether a NaN was among the values, where the
    running result does not. ``in_pieces``: it folds so many floats that pieces of them are better folded by
    themselves, in :attr:`piece_type`."""

    item: Reduction
    name: str
    type: str
    start: str
    clause: str
    result: str
    flag: str = ""
    in_pieces: bool = False

    @property
    def compares(self) -> bool:
        """Whether an update reads the value more than once."""
        return self.item.kind in ("max", "min", "argmax", "argmin")

    def update(self, target: str, value: str, position: str = "") -> list[str]:
        """C statements that fold ``value`` into ``target``."""
        kind = self.item.kind
        if kind in ("sum", "mean"):
            return [f"{target} += {value};"]
        if kind == "prod":
            return [f"{target} *= {value};"]
        if kind == "any":
            return [f"{target} |= {value};"]
        if kind == "all":
            return [f"{target} &= {value};"]
        if kind in ("max", "min"):
            sign = ">" if kind == "max" else "<"
            if self.flag:
                return [
                    f"{target} = {value} {sign} {target} ? {value} : {target};",
                    f"{self.flag} |= {value} != {value};",
                ]
            if self.item.value.dtype.is_floating_point:
                return [f"{target} = {value} {sign} {target} || {value} != {value} ? {value} : {target};"]
            return [f"{target} = {value} {sign} {target} ? {value} : {target};"]
        sign = ">" if kind == "argmax" else "<"
        if self.item.value.dtype.is_floating_point:
            test = f"{value} {sign} {target} || ({value} != {value} && {target} == {target})"
        else:
            test = f"{value} {sign} {target}"
        at = self.place(target)
        if at == f"{target}_at":
            return [f"if ({test}) {{ {target} = {value}; {at} = {position}; }}"]
        # two selections: of a branch that writes to arrays no vectors are made
        return [f"{at} = {test} ? {position} : {at};", f"{target} = {test} ? {value} : {target};"]

    @staticmethod
    def place(target: str) -> str:
        """Where the position of an extreme is whose value is ``target``: ``t_at``, or ``t_at[lane]``."""
        name, bracket, element = target.partition("[")
        return f"{name}_at{bracket}{element}"

    @property
    def piece_type(self) -> str:
        """The C type of a value."""
        return REGISTER_TYPES[self.item.value.dtype]

    @property
    def can_be_flagged(self) -> bool:
        """Whether it is the largest or least of floats, and is NaN if one of them is."""
        return self.item.kind in ("max", "min") and self.item.value.dtype.is_floating_point

    def flagged(self, flag: str) -> Accumulator:
        """This one, with NaN noted in ``flag``: one instruction for a maximum, where the next has to wait for
        three in which NaN wins."""
        return replace(self, clause=self.item.kind, flag=flag)

    @property
    def nan(self) -> str:
        """What makes a NaN of the result where one was noted."""
        return f"if ({self.flag}) {self.name} = {constant(math.nan, self.item.value.dtype).text};"


NAN_REDUCTIONS = {
    (kind, dtype): (
        f"#pragma omp declare reduction(nan{kind}_{SHORT[dtype]} : {REGISTER_TYPES[dtype]} : omp_out = "
        f"omp_in {sign} omp_out || omp_in != omp_in ? omp_in : omp_out) "
        f"initializer(omp_priv = {constant(worst, dtype).text})"
    )
    for dtype in (torch.float32, torch.float64)
    for kind, sign, worst in (("max", ">", -math.inf), ("min", "<", math.inf))
}
"""Declarations of maximum and minimum that let NaN win, for OpenMP."""


def place_type(count: IndexExpr) -> str:
    """The narrowest C type of positions among ``count``: more of them are in a vector."""
    return "int" if count.constant is not None and count.constant < 2**31 else "long"


def accumulator(
    item: Reduction, name: str, count: int | None, output: torch.dtype, lanes: int = 1
) -> Accumulator:
    """The accumulator of ``item``; ``count`` is how many values it folds, in ``lanes`` sums of their own;
    None: any number, however few they were when the graph was captured."""
    dtype, kind = item.value.dtype, item.kind
    ctype = REGISTER_TYPES[dtype]
    if kind in ("sum", "mean", "prod"):
        long = dtype.is_floating_point and (count is None or count > LONG_ROW * lanes)
        if long:
            ctype = "double"
        elif not dtype.is_floating_point and not output.is_floating_point and output != torch.bool:
            ctype = REGISTER_TYPES[output]
        start, clause = ("1", "*") if kind == "prod" else ("0", "+")
        return Accumulator(item, name, ctype, start, clause, name, in_pieces=long)
    if kind in ("any", "all"):
        # in an int, of which a vector has as many as of floats: with a _Bool GCC compares one at a time
        start, clause = ("0", "|") if kind == "any" else ("1", "&")
        return Accumulator(item, name, "int", start, clause, name)
    start = _least(dtype) if "max" in kind else _greatest(dtype)
    if kind in ("argmax", "argmin"):
        return Accumulator(item, name, ctype, start, "", f"{name}_at")
    clause = f"nan{kind}_{SHORT[dtype]}" if dtype.is_floating_point else kind
    return Accumulator(item, name, ctype, start, clause, name)


def _greatest(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return constant(math.inf, dtype).text
    return "1" if dtype == torch.bool else constant(torch.iinfo(dtype).max, dtype).operand


def _least(dtype: torch.dtype) -> str:
    if dtype.is_floating_point:
        return constant(-math.inf, dtype).text
    return "0" if dtype == torch.bool else constant(torch.iinfo(dtype).min, dtype).operand

"""Where the extreme of a row is: the extreme first, in vectors, and then the first place that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbcompile.compiler.codegen.c.accumulators import Accumulator, place_type
from nbcompile.compiler.codegen.c.expressions import CALLED, ONE_AT_A_TIME
from nbcompile.compiler.codegen.c.kernel import Scope
from nbcompile.compiler.codegen.c.nests import Lanes, Nests, PointWork
from nbcompile.compiler.kernel_ir.values import Store, walk_values
from nbcompile.compiler.loop_ir.expr import TRANSCENDENTAL
from nbcompile.compiler.loop_ir.index import IndexExpr

FEW = 16
"""Elements of a row that are sooner walked one by one."""
NOT_SURELY_THE_SAME = TRANSCENDENTAL | ONE_AT_A_TIME | CALLED
"""Operations of which a vector's result need not be that of a single number."""
NOWHERE = {"int": "2147483647", "long": "9223372036854775807L"}


@dataclass(frozen=True)
class First(Accumulator):
    """The least position at which a value is ``extreme``, or NaN where ``extreme.flag`` notes one."""

    extreme: Accumulator | None = None

    def update(self, target: str, value: str, position: str = "") -> list[str]:
        assert self.extreme is not None
        found, flag = f"{value} == {self.extreme.name}", self.extreme.flag
        if flag:
            found = f"({flag} ? {value} != {value} : {found})"
        place = f"({self.type})({position})"
        return [f"{target} = {found} && {place} < {target} ? {place} : {target};"]


def extreme_of(
    nests: Nests, acc: Accumulator, count: IndexExpr, stores: Sequence[Store]
) -> Accumulator | None:
    """The extreme whose position ``acc`` is, as an accumulator; None where the row has to be walked once,
    value by value: its values are not surely the same twice (the vector's exp is not that of a single
    number, or the walk overwrites what they are made of), or they are few."""
    item = acc.item
    if item.position is None or (count.constant or FEW) < FEW:
        return None
    values = list(walk_values([item.value]))
    if any(value.kind == "op" and value.op in NOT_SURELY_THE_SAME for value in values):
        return None
    if nests.values.group.memory or {store.buffer for store in stores} & {value.buffer for value in values}:
        return None
    plain = replace(item, kind=item.kind.removeprefix("arg"), position=None)
    return nests.in_row(replace(acc, item=plain, clause=plain.kind, result=acc.name))


def print_first(
    nests: Nests, acc: Accumulator, extreme: Accumulator, count: IndexExpr, lanes: Lanes, scope: Scope
) -> None:
    """The second walk; it declares the result of ``acc``."""
    kind = place_type(count)
    first, origin = nests.fresh(f"{acc.name}_first"), [acc.item.loop.id]
    nests.out.add(f"{kind} {first} = {NOWHERE[kind]};", origin)
    found = First(acc.item, first, kind, NOWHERE[kind], "min", first, extreme=extreme)
    nests.innermost(lanes, PointWork((), (found,)), scope)
    nests.out.add(f"const long {acc.result} = {first};", origin)

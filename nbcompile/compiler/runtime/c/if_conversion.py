"""Loops that gcc is about to miscompile, by what ``-fdump-tree-ifcvt`` prints of them.

Where a loop loads on one path only, gcc makes it one path by loading under a mask (if-conversion), and
vectorizes it then. Three things go wrong at that, all seen with gcc 12.2. Without if-conversion none of them
happens, and the last neither without another pass, which costs less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_ASSIGNED = re.compile(r"\s+([\w.]+(?:\(D\))?) = (.+);")
_PHI = re.compile(r"\s+# ([\w.]+) = PHI <(.+)>")
_MASKED = re.compile(r"\.MASK_(?:LOAD|STORE) \(([\w.]+(?:\(D\))?),")
_ARRAY = re.compile(r"^  [\w ]+ (?!D\.)[\w.]+(?:\[\d+\])+;$", re.MULTILINE)
_MADE_POINTER = re.compile(r" = \([\w ]+ \*\) _\d+;")
_CAST = re.compile(r"\([^()]*\) ([\w.]+(?:\(D\))?)")
_NAME = r"[\w.]+(?:\(D\))?"
_OPERATION = re.compile(rf"(-?{_NAME}) ([-+*]|<<) (-?{_NAME})")

WITHOUT_IF_CONVERSION = ("-fno-tree-loop-if-convert",)
WITHOUT_INDUCTION_VARIABLES = ("-fno-ivopts",)
"""The flags of gcc that such texts are built with."""

Linear = dict[str, int]
"""What is added up: a coefficient for each name; that of ``""`` is added as it is."""


def needed_flags(dump: str) -> tuple[str, ...]:
    """The flags without which gcc makes wrong code of a loop that it has if-converted; none where it does
    not."""
    functions = dump.split(";; Function ")[1:]
    if any(_reads_lanes(text) or _reads_neighbours(text) for text in functions):
        return WITHOUT_IF_CONVERSION
    return WITHOUT_INDUCTION_VARIABLES if any(map(_mixes_objects, functions)) else ()


def _reads_lanes(function: str) -> bool:
    """``omp simd reduction`` keeps a copy of each sum a lane, in an array without a name. Where a sum is
    added to on one path only (a count of what is not NaN, after a rounding that asked the same), gcc (12 and
    13, at least) loads from that array under a mask, does not see then that it is the lane's own copy, and
    reads beyond."""
    lanes = set(re.findall(r"(_\d+) = &D\.\d+\[", function))
    return bool(lanes & set(re.findall(r"\.MASK_(?:LOAD|STORE) \((_\d+)", function)))


def _reads_neighbours(function: str) -> bool:
    """A loop over short rows, whose inner loop is written out, loads neighbours under a mask each. gcc takes
    them for one group, and the first one's mask for that of all, or their order in memory for that in which
    they are wanted (PR tree-optimization/114375, mended in 12.4, 13.3 and 14)."""
    assigned = map(_ASSIGNED.fullmatch, function.splitlines())
    defined = {match[1]: match[2] for match in assigned if match}
    for block in _blocks(function):
        steps = {phi: _step(phi, into, defined) for phi, into in block.phis.items()}
        seen: list[Linear] = []
        for pointer in block.masked:
            place = _linear(pointer, defined)
            moved = [steps[name] * count for name, count in place.items() if name in steps]
            if any(0 < abs(_constant_difference(place, other)) < abs(sum(moved)) for other in seen):
                return True
            seen.append(place)
    return False


def _mixes_objects(function: str) -> bool:
    """What is loaded under a mask may lie nowhere, so its address is counted in integers, and is no longer
    known to be of any object. Where the loop goes over an array of the function's own as well (a row kept for
    the next pass, sums of columns), the choice of induction variables (ivopts) may write that array's
    addresses as distances from the other's; that such a store is one to the array is not seen any more (its
    address was never taken), and what is read of it later comes from before (12.2 and 13.3; the fuzzer's seed
    20106515)."""
    own = _ARRAY.search(function) or " = __builtin_malloc (" in function
    return bool(own and _MADE_POINTER.search(function))


@dataclass
class _Block:
    phis: dict[str, list[str]] = field(default_factory=dict)
    masked: list[str] = field(default_factory=list)


def _blocks(function: str) -> Iterator[_Block]:
    """The basic blocks of a function, with the pointers at which they load or store under masks."""
    for text in re.split(r"\n\s+<bb \d+>", function)[1:]:
        block = _Block()
        for line in text.splitlines():
            if phi := _PHI.fullmatch(line):
                block.phis[phi[1]] = re.findall(rf"({_NAME})\(\d+\)", phi[2])
            block.masked += _MASKED.findall(line)
        yield block


def _step(phi: str, into: list[str], defined: Mapping[str, str]) -> int:
    """By how much a variable grows from one turn of its loop to the next; 1 << 62: not known."""
    for name in into:
        sums = _linear(name, defined)
        if sums.pop(phi, 0) == 1 and not any(count for key, count in sums.items() if key):
            return sums.get("", 0)
    return 1 << 62


def _constant_difference(one: Linear, two: Linear) -> int:
    """How far apart two sums are; 0 where that is no constant."""
    apart = {name: one.get(name, 0) - two.get(name, 0) for name in {*one, *two}}
    constant = apart.pop("", 0)
    return 0 if any(apart.values()) else constant


def _linear(name: str, defined: Mapping[str, str], depth: int = 0) -> Linear:
    """A number as a sum of multiples of what it is made of."""
    if re.fullmatch(r"-?\d+", name):
        return {"": int(name)}
    text = defined.get(name, "")
    if depth > 100 or not text:
        return {name: 1}
    if re.fullmatch(rf"-?\d+|{_NAME}", text):
        return _linear(text, defined, depth + 1)
    if cast := _CAST.fullmatch(text):
        return _linear(cast[1], defined, depth + 1)
    operation = _OPERATION.fullmatch(text)
    if operation is None:
        return {name: 1}
    one, two = (_linear(operation[number], defined, depth + 1) for number in (1, 3))
    sign = operation[2]
    if sign in "+-":
        factor = 1 if sign == "+" else -1
        return {key: one.get(key, 0) + factor * two.get(key, 0) for key in {*one, *two}}
    for given, scale in ((one, two), (two, one)):
        if set(scale) <= {""}:
            by = scale.get("", 0)
            return {key: count * (1 << by if sign == "<<" else by) for key, count in given.items()}
        if sign == "<<":
            break
    return {name: 1}

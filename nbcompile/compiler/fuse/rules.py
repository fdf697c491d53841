"""Fusion rules from outside: a program may refuse pairs that the compiler would fuse.

::

    @fusion_rule("small-kernels")
    def small_kernels(candidate):
        if len(candidate.merged.loops) > 3:
            return "a kernel of more than 3 loops is hard to read"

``options={"rules": ["small-kernels"]}`` or ``%%compile -o rules=small-kernels`` then asks it. A rule is asked
only of pairs that could be fused, for legality is not a matter of taste, and it can only refuse. A pair that
the user names in ``force_fuse`` is fused whatever rules say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from nbcompile.compiler.fuse.legality import Refusal
from nbcompile.compiler.loop_ir.fused import Group
from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.errors import OptionError


@dataclass(frozen=True)
class Candidate:
    """A pair that is about to be fused: two loops, one of which makes what the other reads (or that read the
    same: ``siblings``), the kernels that they are in so far, the kernel that these would become, and the
    traffic that it saves, in bytes."""

    producer: Loop
    consumer: Loop
    kind: Literal["producer-consumer", "siblings"]
    first: Group
    second: Group
    merged: Group
    bytes_saved: int


Rule = Callable[[Candidate], str | None]
"""Why a pair is not to be fused, in one sentence without a full stop; None or nothing where it may be."""

_rules: dict[str, Rule] = {}


def fusion_rule(name: str) -> Callable[[Rule], Rule]:
    """Register the decorated function as the rule of this name, which is the code of its decisions. A later
    one of the same name takes its place."""

    def register(rule: Rule) -> Rule:
        _rules[name] = rule
        return rule

    return register


def rules(names: Iterable[str]) -> tuple[tuple[str, Rule], ...]:
    """The rules of these names. OptionError for one that nobody has registered."""
    found = []
    for name in names:
        if name not in _rules:
            raise OptionError(
                f"there is no fusion rule {name!r}.",
                advice=f"Registered are: {', '.join(_rules) or 'none'}; "
                "see nbcompile/compiler/fuse/rules.py.",
            )
        found.append((name, _rules[name]))
    return tuple(found)


def refused(chosen: Iterable[tuple[str, Rule]], candidate: Candidate) -> Refusal | None:
    """What the first of these rules says that objects."""
    for name, rule in chosen:
        reason = rule(candidate)
        if reason:
            return Refusal(name, str(reason))
    return None

"""Which contestants of a comparison gave other results than eager, in words."""

from __future__ import annotations

from nbcompile.record.compilation import Accuracy, Compilation
from nbcompile.record.measured import RAISED
from nbcompile.units import clip


def wrong_results(compilation: Compilation, name: str) -> list[Accuracy]:
    """The results of a contestant that differ from eager's: what is wrong is no gain, however fast."""
    return [entry for entry in compilation.accuracy if not entry.agrees and entry.contestant == name]


def wrong_where(compilation: Compilation, name: str) -> str:
    """In which of its results a contestant differs from eager; empty where in none."""
    names = list(dict.fromkeys(entry.output for entry in wrong_results(compilation, name)))
    return clip(" and ".join(names[:2]) + (f" and {len(names) - 2} more" if names[2:] else ""), 60)


def wrong_others(compilation: Compilation, own: str) -> str:
    """``✗ tvm differs in y; ✗ xla raised ValueError: ...``, of contestants other than ``own``."""
    told = {}
    for each in compilation.measurements:
        if each.contestant != own:
            said = clip(each.reason, 120) if each.reason.startswith(RAISED) else ""
            if where := wrong_where(compilation, each.contestant):
                said = said or f"differs in {where}"
            if said:
                told[each.contestant] = f"✗ {clip(each.contestant, 40)} {said}"
    return "; ".join(told.values())

"""``%compile --cache``: where compiled kernels are kept, how much of it there is, and what will go first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.units import bytes_text, count_text, share_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section


@dataclass(frozen=True)
class CacheReport:
    """The compile cache as it is now. ``entries``: of each the time of its last use (seconds since 1970; 0:
    by a clock that was wrong) and its bytes, those first that go first where room is needed. ``why_not``: why
    nothing is kept there, as the rest of a sentence; empty if all is well."""

    root: Path
    limit: int
    entries: tuple[tuple[float, int], ...]
    why_not: str = ""

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(size for _, size in self.entries)

    def __repr__(self) -> str:
        return report.to_text(self._title(), self._sections())

    def _repr_html_(self) -> str:
        return report.to_html(self._title(), self._sections())

    def _title(self) -> str:
        return f"The compile cache, {bytes_text(self.size)}"

    def _sections(self) -> list[Section]:
        rows = [
            ("folder", str(self.root)),
            ("entries", count_text(len(self.entries), "entry", "entries")),
            ("size", f"{bytes_text(self.size)}, {share_text(self.size / self.limit)}"),
            ("limit", f"{bytes_text(self.limit)}: beyond it those used longest ago are removed"),
        ]
        if self.entries:
            rows += [("goes first", _when(self.entries[0][0])), ("used last", _when(self.entries[-1][0]))]
        lines = [f"Nothing is kept there: {self.why_not}."] if self.why_not else []
        lines.append("Another folder: NBCOMPILE_CACHE_DIR. Remove all: nbcompile.clear_cache().")
        return [Section(heads=("", ""), rows=tuple(rows), lines=tuple(lines))]


def cache_report() -> CacheReport:
    """What :func:`nbcompile.clear_cache` would remove."""
    cache = DiskCache.shared()
    why_not = cache.why_not()
    return CacheReport(cache.root, cache.limit, cache.contents(), why_not)


def _when(used: float) -> str:
    return (
        time.strftime("used %Y-%m-%d %H:%M", time.localtime(used)) if used else "used at no time that can be"
    )

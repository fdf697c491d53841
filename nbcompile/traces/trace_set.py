"""Many ranks' traces: an index of each, and which compiled something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any

from nbcompile.errors import TraceError
from nbcompile.traces.divergence import Divergence, divergences, diverging_ranks, first_difference
from nbcompile.traces.ranks import Progress, RankSummary, read_ranks
from nbcompile.traces.reading.index import rank_in
from nbcompile.traces.trace import Trace


class TraceSet:
    """A folder of traces. ``ranks`` has a summary of each by name: the rank's number, or the file's where
    there is none or several have the same. ``traces[3]`` is rank 3's :class:`Trace`, read when asked for.
    ``notes`` say what did not go as asked."""

    def __init__(
        self,
        folder: Path,
        files: list[Path],
        executor: Executor | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder = folder
        summaries, self.notes = read_ranks(files, executor, progress)
        self.ranks = _named(summaries, folder)
        self._read: dict[str, Trace] = {}

    @property
    def readable(self) -> dict[str, RankSummary]:
        """The ranks that are compared: a file without a rank and a compilation is some other process's."""
        ranks = self.ranks.items()
        return {
            name: rank for name, rank in ranks if not rank.error and (rank.compiles or rank.rank is not None)
        }

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """Where ranks compiled something else than most ranks, the earliest compilation first."""
        return divergences(self.readable)

    @property
    def diverging(self) -> tuple[str, ...]:
        """The ranks that differ from most in anything but caches: who compiles first fills these."""
        return diverging_ranks(self.divergences)

    def diff(self, divergence: Divergence) -> str:
        """The first lines in which a diverging rank's text parts from that of most ranks."""
        there, usual = self[divergence.ranks[0]], self[divergence.like]
        return first_difference(
            divergence,
            (usual.compilations, usual.text),
            (there.compilations, there.text),
        )

    def __getitem__(self, rank: int | str) -> Trace:
        name = str(rank)
        if name not in self.ranks:
            shown = ", ".join(list(self.ranks)[:12])
            raise TraceError(
                f"{self.folder} has no rank {rank!r}.",
                advice=f"There is {shown}{' …' if len(self.ranks) > 12 else ''}.",
            )
        if name not in self._read:
            self._read[name] = Trace(Path(self.ranks[name].path))
            # A few are compared; a thousand would not be held.
            while len(self._read) > 8:
                del self._read[next(iter(self._read))]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def __str__(self) -> str:
        from nbcompile.traces.set_report import set_text

        return set_text(self.ranks, self.divergences, self.diff, self._about())

    def __repr__(self) -> str:
        return f"<TraceSet of {len(self)} files in {self.folder}>"

    def _repr_html_(self) -> str:
        from nbcompile.traces.set_report import set_html

        return set_html(self.ranks, self.divergences, self.diff, self._about())

    def _about(self) -> tuple[str, ...]:
        return (f"{len(self.ranks):,} files of {self.folder}", *self.notes)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": str(self)}


def _named(summaries: list[RankSummary], folder: Path) -> dict[str, RankSummary]:
    counts = Counter(each.rank for each in summaries)
    named = {}
    for each in sorted(summaries, key=lambda each: (each.rank is None, each.rank or 0)):
        alone = each.rank is not None and counts[each.rank] == 1
        named[str(each.rank) if alone else str(Path(each.path).relative_to(folder))] = each
    return named


def trace_files(folder: Path) -> list[Path]:
    """The traces in a folder and below it: what torch names so, else every ``.log`` (also gzip'd)."""
    logs = [path for path in folder.rglob("*") if path.name.endswith((".log", ".log.gz")) and path.is_file()]
    own = [path for path in logs if path.name.startswith("dedicated_log_torch_trace_")] or logs
    return sorted(own, key=lambda path: (rank_in(path.name) is None, rank_in(path.name) or 0, str(path)))

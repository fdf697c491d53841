"""One rank's trace: its compilations, and each as a record in the explorer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbcompile.errors import TraceError
from nbcompile.record.compilation import Compilation
from nbcompile.traces.reading.index import index_of
from nbcompile.traces.reading.lines import text_at
from nbcompile.traces.reading.values import TraceArtifact, TracedCompile, TraceIndex

if TYPE_CHECKING:
    import plotly.graph_objects


class Trace:
    """What ``TORCH_TRACE`` wrote of one process.

    The file was gone through once; payloads are read from it again when they are looked at, so it has to stay
    where it is. ``trace["0/0"]`` is one compilation, ``trace.compilation("0/0")`` its record.
    """

    def __init__(self, path: Path, index: TraceIndex | None = None) -> None:
        self.path = path
        self.index = index if index is not None else index_of(path)

    @property
    def compilations(self) -> tuple[TracedCompile, ...]:
        """In the order in which they began."""
        return self.index.compiles

    @property
    def rank(self) -> int | None:
        """As the records say, else as the file's name does."""
        return self.index.rank

    @cached_property
    def _by_id(self) -> dict[str, TracedCompile]:
        return {each.id: each for each in self.index.compiles}

    def __getitem__(self, id: str) -> TracedCompile:
        found = self._by_id.get(id.strip("[]"))
        if found is None:
            raise TraceError(f"{self.path.name} has no compilation {id!r}.", advice=_some(list(self._by_id)))
        return found

    def __iter__(self) -> Iterator[TracedCompile]:
        return iter(self.index.compiles)

    def __len__(self) -> int:
        return len(self.index.compiles)

    def compilation(self, id: str) -> Compilation:
        """The record of one compilation, as far as the trace tells; a notebook shows it in the explorer."""
        from nbcompile.traces.records.record import record_of

        return record_of(self[id], self.index, self.text)

    def text(self, artifact: TraceArtifact | str, name: str = "") -> str:
        """What an artifact says, read from the file now; or, with the id of a compilation and a ``name``, the
        last of that name: ``trace.text("0/0", "dynamo_output_graph")``. Of more than 64 MiB the beginning."""
        if isinstance(artifact, TraceArtifact):
            return text_at(self.path, artifact.place)
        traced = self[artifact]
        found = traced.named(name)
        if not found:
            names = list(dict.fromkeys(each.name for each in traced.artifacts))
            raise TraceError(f"compilation {traced.id} has no {name!r}.", advice=_some(names))
        return text_at(self.path, found[-1].place)

    def plot(self, id: str = "") -> plotly.graph_objects.Figure:
        """Compile time as a flame chart: each stretch below the one that it is part of. ``id``: of one
        compilation. MeasureError where plotly is not installed."""
        from nbcompile.traces.flame import flame

        if id:
            self[id]
        return flame(self.index.parts, id.strip("[]"), self.path.name)

    def __str__(self) -> str:
        from nbcompile.traces.report import trace_text

        return trace_text(self.index, self.path.name)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} compilations in {self.path}>"

    def _repr_html_(self) -> str:
        from nbcompile.traces.report import trace_html

        return trace_html(self.index, self.path.name)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": str(self)}


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return f"There is {shown}{' …' if len(names) > 12 else ''}." if names else "It has none at all."

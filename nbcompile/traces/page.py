"""A trace as one HTML file that can be mailed: its index, and below it compilations in the explorer."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile import view
from nbcompile.errors import TraceError
from nbcompile.record.compilation import Compilation
from nbcompile.traces.trace import Trace
from nbcompile.traces.trace_set import TraceSet


def to_page(traces: Trace | TraceSet, only: Sequence[str] = (), *, script: bool = True) -> str:
    """``only``: these compilations; of one trace else all that have a graph, of many the first that ranks
    diverge in, there and on a rank that did as most. ``script=False``: plain HTML, as of
    :func:`nbcompile.view.to_page`."""
    if isinstance(traces, Trace):
        ids = only or [each.id for each in traces if each.status != "empty"]
        records = [traces.compilation(id) for id in ids]
        title = f"{traces.path.name}: what torch.compile did"
    else:
        if only:
            raise TraceError("a compilation is one of a rank.", advice="Say which one: --rank N.")
        records = _diverging(traces)
        title = f"{traces.folder}: what torch.compile did on {len(traces):,} ranks"
    return view.to_page(records, title, script=script, above=traces._repr_html_())


def _diverging(traces: TraceSet) -> list[Compilation]:
    for found in traces.divergences:
        if found.what in ("compiled", "caches"):
            continue
        return [traces[name].compilation(found.compile) for name in (found.ranks[0], found.like)]
    return []

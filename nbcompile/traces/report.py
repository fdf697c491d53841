"""A trace as text and HTML: an index first, and all that is behind it folded away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nbcompile.traces.reading.values import CacheEvent, TraceArtifact, TracedCompile, TraceIndex
from nbcompile.traces.stacks import stack_tree
from nbcompile.units import bytes_text, clip, clip_middle, count_text, seconds_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value

MOST_ROWS, MOST_DETAILS = 300, 60
_STYLES = {"ok": "", "restarted": "", "empty": "dim", "failed": "no", "unfinished": "no"}
_HEADS = ("id", "function", "", "seconds", "Inductor", "ops", "guards", "caches", "what happened")
_METRICS = (
    ("entire_frame_compile_time_s", "whole frame, s"),
    ("backend_compile_time_s", "backend, s"),
    ("inductor_compile_time_s", "Inductor, s"),
    ("code_gen_time_s", "code generation, s"),
    ("dynamo_time_before_restart_s", "before a restart, s"),
    ("cache_size", "cache size"),
    ("accumulated_cache_size", "accumulated cache size"),
    ("guard_count", "guards"),
    ("shape_env_guard_count", "guards of sizes"),
    ("graph_op_count", "ops"),
    ("graph_node_count", "nodes"),
    ("graph_input_count", "inputs"),
    ("compliant_custom_ops", "custom ops"),
    ("non_compliant_ops", "custom ops that break rules"),
)


def trace_text(index: TraceIndex, name: str) -> str:
    """The index as plain text, what is folded away in HTML left out."""
    sections = [section for section in _trace_sections(index) if not section.folded]
    about = [Section(lines=tuple(_about(index)))]
    return report.to_text(_trace_title(index, name), [*about, *sections])


def trace_html(index: TraceIndex, name: str) -> str:
    """An HTML fragment with inline styles only, everything from the trace escaped."""
    return report.to_html(_trace_title(index, name), _trace_sections(index), _about(index))


def _trace_title(index: TraceIndex, name: str) -> str:
    compiles = index.compiles
    counts = Counter(each.status for each in compiles)
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items() if status != "ok")
    total = sum(each.seconds or 0.0 for each in compiles)
    where = f"rank {index.rank}" if index.rank is not None else name
    return f"{where}: {count_text(len(compiles), 'compilation')} in {seconds_text(total)}" + (
        f" ({told})" if told else ""
    )


def _about(index: TraceIndex) -> list[str]:
    artifacts = sum(len(each.artifacts) for each in index.compiles) + len(index.outside)
    said = f"{index.records:,} records, {artifacts:,} artifacts, {bytes_text(index.size)}"
    lines = [f"{said}, torch {index.torch}" if index.torch else said]
    unread = ", ".join(f"{count:,} × {reason}" for reason, count in index.unread.items())
    lines += [f"Not read: {unread}."] if unread else []
    if index.damaged:
        lines.append(f"{count_text(index.damaged, 'payload')} are not what torch wrote: their hash differs.")
    unknown = ", ".join(f"{count:,} × {kind}" for kind, count in index.unknown.items())
    lines += [f"Of kinds that this version does not know, but lists: {unknown}."] if unknown else []
    if index.parts_left_out:
        lines.append(f"{index.parts_left_out:,} stretches of compile time are left out of the chart.")
    return lines


def _trace_sections(index: TraceIndex) -> list[Section]:
    compiles = index.compiles
    return [
        _index(compiles),
        *_failures(compiles),
        *_stacks(compiles),
        *_shapes(compiles),
        *_times(index),
        *_details(compiles),
        *_outside(index),
    ]


def _index(compiles: Sequence[TracedCompile]) -> Section:
    shown = compiles[:MOST_ROWS]
    return Section(
        heads=_HEADS,
        rows=tuple(_row(each) for each in shown),
        right=(3, 4, 5, 6),
        more=len(compiles) - len(shown),
    )


def _row(each: TracedCompile) -> tuple[Value, ...]:
    place = f"{each.function} {each.file.rsplit('/', 1)[-1]}:{each.line}" if each.file else each.function
    return (
        each.id,
        Styled(clip_middle(place, 48), tip=clip(f"{each.file}:{each.line}", 300)),
        Styled(each.status, _STYLES[each.status]),
        _seconds(each.seconds),
        _seconds(each.inductor_seconds),
        "" if each.graph_ops is None else f"{each.graph_ops:,}",
        "" if each.guards is None else f"{each.guards:,}",
        clip(each.cache_text, 60),
        _happened(each),
    )


def _happened(each: TracedCompile) -> str:
    said = []
    if each.failure is not None:
        said.append(f"{each.failure.type}: {_first(each.failure.reason)}")
    said += [f"restart: {_first(reason)}" for reason in each.restarts]
    if each.recompiles:
        said.append(f"recompiled: {_first(each.recompiles[0]).split('  # ')[0].strip()}")
    return clip("; ".join(said), 220)


def _failures(compiles: Iterable[TracedCompile]) -> list[Section]:
    """A row a restart, and one a failure, as people look for them."""
    rows: list[tuple[Value, ...]] = []
    for each in compiles:
        rows += [(each.id, "restart", "", clip(reason, 600)) for reason in each.restarts]
        if each.failure is not None:
            at = f"{each.failure.file}:{each.failure.line}" if each.failure.file else ""
            rows.append((each.id, Styled(each.failure.type, "no"), at, clip(each.failure.reason, 600)))
    return _folded(f"{len(rows)} restarts and failures", ("id", "", "user's line", "why"), rows)


def _stacks(compiles: Sequence[TracedCompile]) -> list[Section]:
    lines = stack_tree(compiles)
    return [Section("Where compilations come from", listing="\n".join(lines), folded=True)] if lines else []


def _shapes(compiles: Iterable[TracedCompile]) -> list[Section]:
    rows: list[tuple[Value, ...]] = [
        (each.id, fact.kind, clip(fact.text, 300), str(fact.stack[-1]) if fact.stack else "")
        for each in compiles
        for fact in each.shapes
    ]
    return _folded(f"{count_text(len(rows), 'fact')} of symbolic sizes", ("id", "", "", "at"), rows)


def _folded(title: str, heads: tuple[str, ...], rows: list[tuple[Value, ...]]) -> list[Section]:
    """A table that folds out, if there is anything in it."""
    more = len(rows) - MOST_ROWS
    return [Section(title, heads, tuple(rows[:MOST_ROWS]), folded=True, more=more)] if rows else []


def _times(index: TraceIndex) -> list[Section]:
    """By name, without what lies within each: a picture of the same is ``.plot()``."""
    own: dict[str, list[float]] = {}
    inside: dict[int, list[tuple[float, str]]] = {}
    for part in index.parts:
        stack = inside.setdefault(part.thread, [])
        while stack and stack[-1][0] <= part.begins:
            stack.pop()
        length = part.ends - part.begins
        if stack:
            own[stack[-1][1]][0] -= length
        figures = own.setdefault(part.name, [0.0, 0.0, 0.0])
        figures[0] += length
        figures[1] += length
        figures[2] += 1
        stack.append((part.ends, part.name))
    ordered = sorted(own.items(), key=lambda item: -item[1][0])[:30]
    if not ordered:
        return []
    rows = tuple(
        (name, _seconds(max(0.0, alone)), _seconds(whole), f"{int(count):,}")
        for name, (alone, whole, count) in ordered
    )
    heads = ("stretch of compile time", "alone", "with what is in it", "times")
    return [Section(f"Compile time, of {index.events:,} events", heads, rows, right=(1, 2, 3), folded=True)]


def _details(compiles: Sequence[TracedCompile]) -> list[Section]:
    inner = tuple(_detail(each) for each in compiles[:MOST_DETAILS])
    more = len(compiles) - len(inner)
    return [Section("Everything of each compilation", inner=inner, folded=True, more=more)] if inner else []


def _detail(each: TracedCompile) -> Section:
    lines: list[Value] = [
        f"stack: {frame}{': ' + frame.code if frame.code else ''}" for frame in each.stack[-20:]
    ]
    for title, metrics in (("", each.metrics), ("backward: ", each.backward_metrics)):
        said = [
            f"{name} {_metric(metrics[key])}" for key, name in _METRICS if metrics.get(key) not in (None, [])
        ]
        lines += [f"{title}{'; '.join(said)}"] if said else []
    lines += [clip(f"recompiled: {reason}", 500) for reason in each.recompiles]
    lines += [_cache_line(event) for event in each.caches]
    return Section(
        f"{each.id} {clip(each.function, 60)}",
        ("", "attempt", "artifact", "bytes", ""),
        tuple(map(_artifact_row, each.artifacts[:MOST_ROWS])),
        lines=tuple(lines),
        right=(0, 1, 3),
        folded=True,
        more=len(each.artifacts) - MOST_ROWS,
    )


def _artifact_row(artifact: TraceArtifact) -> tuple[Value, ...]:
    damaged = (
        Styled("damaged", "no")
        if not artifact.place.intact
        else Styled(clip_middle(artifact.label, 60), "dim")
    )
    return (
        f"{artifact.number}",
        f"{artifact.attempt}",
        artifact.name,
        bytes_text(artifact.place.length),
        damaged,
    )


def _cache_line(event: CacheEvent) -> str:
    said = f"{event.cache} cache: {event.state}" + (f", key {event.key}" if event.key else "")
    said += f", saved {seconds_text(event.saved)}" if event.saved is not None else ""
    return said + (f", {event.reason}" if event.reason else "")


def _outside(index: TraceIndex) -> list[Section]:
    if not index.outside:
        return []
    rows = tuple(map(_artifact_row, index.outside[:MOST_ROWS]))
    return [
        Section(
            "Artifacts of no compilation",
            ("", "attempt", "artifact", "bytes", ""),
            rows,
            right=(0, 1, 3),
            folded=True,
            more=len(index.outside) - MOST_ROWS,
        )
    ]


def _metric(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else seconds_text(value)


def _first(text: str) -> str:
    return text.strip().split("\n", 1)[0]

"""A cell on several ranks, as text and as HTML: a table of ranks, the buckets, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from markupsafe import Markup

from nbcompile.record.compilation import Span
from nbcompile.record.ranks import Bucket, Difference, RankRecord, RanksResult
from nbcompile.units import bytes_text, clip, clip_middle, count_text, percent_text, seconds_text
from nbcompile.view.html.fragment import printable
from nbcompile.view.html.styles import Styler

_HEADS = ("rank", "graphs", "kernels", "breaks", "compile", "cell", "steady", "eager", "collectives",
          "hidden", "exposed")  # fmt: skip
_NAMES = {"ddp": "DDP", "fsdp2": "FSDP2", "none": "no wrapper"}
_ROWS = 40


def to_text(result: RanksResult) -> str:
    """A table of ranks, then buckets, warnings and notes, a line each."""
    rows = [_HEADS, *(_row(record) for record in result.ranks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    lines = [_title(result), ""]
    lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    for title, items in (("warnings", _warnings(result)), ("buckets", _bucket_lines(result)),
                         ("notes", _notes(result))):  # fmt: skip
        if items:
            lines += ["", title, *(f"  {item}" for item in items)]
    return printable("\n".join(lines))


def to_html(result: RanksResult) -> str:
    """The same as a fragment for a notebook output: inline styles only."""
    css = Styler(page=False)
    out = [Markup("<div {}><div {}><p {}>{}</p></div>").format(css("root"), css("head"), css("verdict"),
                                                                _title(result))]  # fmt: skip
    for warning in _warnings(result):
        out.append(Markup("<div {}><span {}>{}</span></div>").format(css("body"), css("bad"), warning))
    out.append(_table(css, _HEADS, [_row(record) for record in result.ranks]))
    buckets = result.ranks[0].buckets
    if buckets:
        rows = [_bucket_row(bucket) for bucket in buckets[:_ROWS]]
        heads = ("bucket", "graph", "bytes", "begins", "parameters")
        out.append(_fold(css, _bucket_title(result), _table(css, heads, rows)))
    notes = _notes(result)
    if notes:
        items = Markup("").join(Markup("<div>{}</div>").format(note) for note in notes)
        out.append(_fold(css, count_text(len(notes), "note"), Markup("<div {}>{}</div>").format(
            css("body"), items)))  # fmt: skip
    out.append(Markup("</div>"))
    return printable(str(Markup("").join(out)))


def _table(css: Styler, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    def line(cells: Sequence[str], tag: str, style: str) -> Markup:
        wide = len(cells) - 1 if heads[-1] == "parameters" else len(cells)  # may be long: wrapped
        made = Markup("").join(
            Markup("<{0} {1}>{2}</{0}>").format(
                Markup(tag), css("tdw" if place == wide and tag == "td" else style), cell
            )
            for place, cell in enumerate(cells)
        )
        return Markup("<tr {}>{}</tr>").format(css("row"), made)

    body = Markup("").join(line(row, "td", "td") for row in rows)
    return Markup("<div {}><table {}>{}{}</table></div>").format(
        css("body", "wide"), css("table"), line(heads, "th", "th"), body
    )


def _fold(css: Styler, title: str, body: Markup) -> Markup:
    return Markup("<details {}><summary {}>{}</summary>{}</details>").format(
        css("fold"), css("summary"), title, body
    )


def _title(result: RanksResult) -> str:
    split = f", {', '.join(result.split)} split" if result.split else ""
    same = "the same graphs on all" if not result.differences else "the ranks compiled different graphs"
    if result.world_size == 1:
        same = count_text(result.ranks[0].graphs, "graph")
    how = f"{_NAMES[result.parallel]} over {result.collectives}{split}"
    return f"{count_text(result.world_size, 'rank')}, {how}, {result.compilation.backend}: {same}"


def _row(record: RankRecord) -> tuple[str, ...]:
    compilation, talk = record.compilation, record.communication
    steady = seconds_text(median(record.steady)) if record.steady else "–"
    return (
        f"{record.rank} ({record.device})",
        str(record.graphs),
        str(len(compilation.kernels)),
        str(len(compilation.breaks)),
        seconds_text(compilation.compile_seconds),
        seconds_text(record.seconds),
        steady,
        seconds_text(median(record.eager)) if record.eager else "–",
        seconds_text(talk.collectives) if talk else "–",
        percent_text(talk.overlapped / talk.collectives) if talk and talk.collectives else "–",
        seconds_text(talk.exposed) if talk else "–",
    )


def _warnings(result: RanksResult) -> list[str]:
    found = [_difference(each) for each in result.differences]
    for record in result.ranks:
        if record.reason and not record.steady:
            found.append(f"rank {record.rank} has no steady time: {record.reason}")
    return found


def _difference(each: Difference) -> str:
    where = f", line {each.line}" if each.line else ""
    if each.place is not None:
        where += f" ({_place(each.place)})"
    what = f"rank {each.rank} compiled something else than rank 0"
    return f"{what}: graph {each.graph}{where}: {clip(each.text, 300)}"


def _bucket_title(result: RanksResult) -> str:
    record = result.ranks[0]
    if result.parallel == "fsdp2":
        return f"{count_text(len(record.buckets), 'module')} sharded, each gathered and reduced on its own"
    title = f"{count_text(len(record.buckets), 'bucket')} by DDPOptimizer: the graph is cut between them"
    if len(record.buckets) == 1:
        title = "1 bucket by DDPOptimizer: the graph is whole"
    if record.reducer_bytes:
        sizes = ", ".join(bytes_text(size) for size in record.reducer_bytes[:12])
        title += f"; DDP itself sends {len(record.reducer_bytes)}: {sizes}"
    return title


def _bucket_row(bucket: Bucket) -> tuple[str, ...]:
    place = bucket.module
    if bucket.span is not None:
        place = f"{place} ({_place(bucket.span)})".strip()
    names = ", ".join(bucket.parameters[:8])
    more = f" and {len(bucket.parameters) - 8} more" if len(bucket.parameters) > 8 else ""
    return str(bucket.index), bucket.graph or "–", bytes_text(bucket.bytes), place or "–", names + more


def _place(span: Span) -> str:
    """``line 8``, of another file or cell with its name."""
    return f"line {span.line}" + (f" of {clip_middle(span.file, 30)}" if span.file else "")


def _bucket_lines(result: RanksResult) -> list[str]:
    buckets = result.ranks[0].buckets
    if not buckets:
        return []
    rows = [_bucket_row(bucket) for bucket in buckets[:_ROWS]]
    return [
        _bucket_title(result),
        *(f"{i}: {g} {size}, {place}: {names}" for i, g, size, place, names in rows),
    ]


def _notes(result: RanksResult) -> list[str]:
    found = list(result.notes)
    if result.split:
        found.append(f"what the cell bound is rank 0's, made of its rows of {', '.join(result.split)}")
    for record in result.ranks[:1]:
        talk = record.communication
        if talk is not None:
            kinds = ", ".join(f"{k.count} × {k.name} {seconds_text(k.seconds)}" for k in talk.kinds)
            found.append(f"collectives of one step on rank {record.rank}: {kinds} ({talk.about})")
        if record.steady:
            found.append("steady: one forward, and backward if the cell had one, of what it called; "
                         "eager: the same without compiling")  # fmt: skip
    return found

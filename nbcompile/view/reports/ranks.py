"""A cell on several ranks, as text and as HTML: a table of ranks, the buckets, and what differs."""

from __future__ import annotations

from statistics import median

from nbcompile.record.compilation import Span
from nbcompile.record.ranks import Bucket, Difference, RankRecord, RanksResult
from nbcompile.units import bytes_text, clip, clip_middle, count_text, percent_text, seconds_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled

_HEADS = ("rank", "graphs", "kernels", "breaks", "compile", "cell", "steady", "eager", "collectives",
          "hidden", "exposed")  # fmt: skip
_NAMES = {"ddp": "DDP", "fsdp2": "FSDP2", "none": "no wrapper"}
_ROWS = 40


def to_text(result: RanksResult) -> str:
    """A table of ranks, then warnings, buckets and notes."""
    return report.to_text(_title(result), _sections(result))


def to_html(result: RanksResult) -> str:
    """The same as a fragment for a notebook output; buckets and notes fold out."""
    return report.to_html(_title(result), _sections(result))


def _sections(result: RanksResult) -> list[Section]:
    ranks = tuple(_row(record) for record in result.ranks)
    out = [Section("", _HEADS, ranks, right=range(1, len(_HEADS)))]
    if warnings := tuple(Styled(text, "bad") for text in _warnings(result)):
        out.append(Section("warnings", lines=warnings))
    if buckets := result.ranks[0].buckets:
        heads = ("bucket", "graph", "bytes", "begins", "parameters")
        rows = tuple(_bucket_row(bucket) for bucket in buckets[:_ROWS])
        out.append(Section(_bucket_title(result), heads, rows, right=(2,), folded=True))
    if notes := tuple(_notes(result)):
        out.append(Section(count_text(len(notes), "note"), lines=notes, folded=True))
    return out


def _title(result: RanksResult) -> str:
    split = f", {', '.join(result.split)} split" if result.split else ""
    same = "the same graphs on all" if not result.differences else "the ranks compiled different graphs"
    if result.world_size == 1:
        same = count_text(result.ranks[0].graphs, "graph")
    if not any(record.graphs for record in result.ranks):
        same = "nothing was compiled, as the cell calls no module and no function of its own"
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

"""Many ranks' traces as text and HTML: where they diverge first, then their compilations and the ranks."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from nbcompile.traces.divergence import Divergence, diverging_ranks, ranks_text
from nbcompile.traces.ranks import RankSummary
from nbcompile.units import bytes_text, clip, clip_middle, count_text, seconds_text
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Value

MOST_ROWS, MOST_LINES = 100, 60
MOST_DIFFS = 5
Ranks = Mapping[str, RankSummary]


def set_text(
    ranks: Ranks, found: Sequence[Divergence], diff: Callable[[Divergence], str], about: Sequence[str]
) -> str:
    """The ranks, and where they diverge, as plain text."""
    sections = [section for section in _sections(ranks, found, diff, html=False) if not section.folded]
    return report.to_text(_title(ranks, found), [Section(lines=tuple(_about(ranks, about))), *sections])


def set_html(
    ranks: Ranks, found: Sequence[Divergence], diff: Callable[[Divergence], str], about: Sequence[str]
) -> str:
    """An HTML fragment with inline styles only, everything from the traces escaped."""
    return report.to_html(
        _title(ranks, found), _sections(ranks, found, diff, html=True), _about(ranks, about)
    )


def _title(ranks: Ranks, found: Sequence[Divergence]) -> str:
    diverging = diverging_ranks(found)
    count = count_text(len(ranks), "rank")
    if not any(rank.compiles for rank in ranks.values()):
        return f"{count}, of which none compiled anything"
    if not diverging:
        return f"{count}: all compiled the same"
    does = "diverges" if len(diverging) == 1 else "diverge"
    return f"{count}, of which {count_text(len(diverging), 'rank')} {does}: {ranks_text(diverging)}"


def _about(ranks: Ranks, notes: Sequence[str]) -> list[str]:
    size = sum(rank.size for rank in ranks.values())
    compiles = sum(len(rank.compiles) for rank in ranks.values())
    lines = [f"{count_text(compiles, 'compilation')} in {bytes_text(size)}", *notes]
    failed = [f"{name}: {rank.error}" for name, rank in ranks.items() if rank.error]
    lines += [f"Could not be read: {clip('; '.join(failed), 400)}"] if failed else []
    empty = [name for name, rank in ranks.items() if not rank.compiles and not rank.error]
    lines += [f"Nothing was compiled by {ranks_text(empty)}."] if empty else []
    unread = Counter[str]()
    for rank in ranks.values():
        unread.update(rank.unread)
    if unread:
        told = ", ".join(f"{count:,} × {reason}" for reason, count in unread.items())
        lines.append(f"Not read: {told}, in {sum(bool(rank.unread) for rank in ranks.values()):,} files.")
    damaged = [name for name, rank in ranks.items() if rank.damaged]
    if damaged:
        total = sum(ranks[name].damaged for name in damaged)
        lines.append(f"{count_text(total, 'payload')} are not what torch wrote, of {ranks_text(damaged)}.")
    return lines


def _sections(
    ranks: Ranks, found: Sequence[Divergence], diff: Callable[[Divergence], str], html: bool
) -> list[Section]:
    sections = [_divergences(found)] if found else []
    return [*sections, *_diffs(found, diff, html), _compile_table(ranks), _rank_table(ranks)]


def _divergences(found: Sequence[Divergence]) -> Section:
    first = [each for each in found if not each.explained]
    follow = [each for each in found if each.explained]
    title = f"{len(follow):,} more that may follow from these"
    after = Section(title, lines=_lines(follow), folded=True, more=len(follow) - MOST_LINES)
    inner = (after,) if follow else ()
    return Section("Where ranks diverge", lines=_lines(first), inner=inner, more=len(first) - MOST_LINES)


def _lines(found: Sequence[Divergence]) -> tuple[str, ...]:
    return tuple(map(str, found[:MOST_LINES]))


def _diffs(found: Sequence[Divergence], diff: Callable[[Divergence], str], html: bool) -> list[Section]:
    """The first few differences of text. HTML folds a listing away, and these are what one looks for."""
    sections: list[Section] = []
    for each in [each for each in found if not each.explained][: 4 * MOST_DIFFS]:
        text = diff(each) if len(sections) < MOST_DIFFS else ""
        if text:
            title = f"{ranks_text(each.ranks)}, {each.what} of {each.compile}"
            lines = tuple((line,) for line in text.splitlines())
            shown = Section(title, rows=lines, dense=True) if html else Section(title, listing=text)
            sections.append(shown)
    return sections


def _compile_table(ranks: Mapping[str, RankSummary]) -> Section:
    """A row a compilation: on how many ranks, and how long it took."""
    rows: dict[str, tuple[str, Counter[str], list[tuple[float, str]]]] = {}
    for name, rank in ranks.items():
        for each in rank.compiles:
            _, statuses, times = rows.setdefault(each.id, (each.function, Counter(), []))
            statuses[each.status] += 1
            if each.seconds is not None:
                times.append((each.seconds, name))
    table: list[tuple[Value, ...]] = []
    for id, (function, statuses, times) in list(rows.items())[:MOST_ROWS]:
        seconds = [each for each, _ in times]
        slowest = max(times, default=(0.0, ""))
        table.append(
            (
                id,
                clip_middle(function, 48),
                f"{statuses.total():,}",
                ", ".join(f"{count:,} {status}" for status, count in statuses.items()),
                seconds_text(statistics.median(seconds)) if seconds else "",
                seconds_text(slowest[0]) if times else "",
                f"rank {slowest[1]}" if times and len(times) > 1 else "",
            )
        )
    heads = ("id", "function", "ranks", "", "median", "slowest", "")
    return Section("Compilations", heads, tuple(table), right=(2, 4, 5), more=len(rows) - len(table))


def _rank_table(ranks: Mapping[str, RankSummary]) -> Section:
    rows: list[tuple[Value, ...]] = []
    for name, rank in list(ranks.items())[:MOST_ROWS]:
        failed = sum(each.status == "failed" for each in rank.compiles)
        rows.append(
            (name, f"{len(rank.compiles):,}", f"{failed:,}" if failed else "", seconds_text(rank.seconds),
             f"{rank.records:,}", bytes_text(rank.size), clip_middle(rank.path, 80))
        )  # fmt: skip
    heads = ("rank", "compilations", "failed", "compile time", "records", "", "file")
    return Section(
        "Ranks", heads, tuple(rows), right=(1, 2, 3, 4, 5), folded=True, more=len(ranks) - len(rows)
    )

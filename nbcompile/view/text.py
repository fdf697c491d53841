"""A compilation as plain text: at most 100 columns, the verdict first, breaks and refusals in full."""

from __future__ import annotations

from collections.abc import Sequence

from nbcompile.guard_words import in_own_names
from nbcompile.record.advice.coach import Price
from nbcompile.record.compilation import Compilation, Guard, Kernel, Recompile
from nbcompile.record.provenance import Links
from nbcompile.units import bytes_text, clip, clip_middle, percent_text, plain_line, wrap
from nbcompile.view.drawing.pipeline_strip import strip
from nbcompile.view.drawing.roofline import roofline, table
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.cell_lines import break_line, cell_lines
from nbcompile.view.facts.coaching import coached, loop_of_recompiles
from nbcompile.view.facts.kernels import call_size, launch_facts, runs_text
from nbcompile.view.facts.outside import measured_name
from nbcompile.view.facts.parts import selected
from nbcompile.view.facts.prices import briefly, forced, not_fused, prices
from nbcompile.view.facts.search import searches
from nbcompile.view.facts.since import since_text
from nbcompile.view.facts.timings import timing_table, timings
from nbcompile.view.facts.walks import walk_table, walk_title
from nbcompile.view.facts.why import why
from nbcompile.view.pending import Pending
from nbcompile.view.reports.listed import listed
from nbcompile.view.reports.report import table_text

COLUMNS = 100
MARK = {
    "fused": "+", "library": "=", "fallback": "!", "break": "x", "captured": "·", "compiled": " ",
    "eager": "~", "python": " ", "unrun": " ", None: " ",
}  # fmt: skip
_LINES, _ROWS, _FEW = 400, 12, 5
_SHORT = 12
"""Characters of a schedule's name that fit beside the kernel's figures; a longer one has its own line."""


def to_text(compilation: Compilation, show: Sequence[str] = (), pending: Pending | None = None) -> str:
    """The record in brief, or the parts of it that ``show`` names. Every line fits in 100 columns."""
    links = Links(compilation)
    facts = fact.facts(compilation, links, pending)
    out = wrap(facts.verdict.text, COLUMNS, 3)
    out += wrap(facts.verdict.detail, COLUMNS, 3) if facts.verdict.detail else []
    out += [f"  {pending.text}…"] if pending is not None else []
    out += wrap(f"{told}.", COLUMNS, 4) if (told := why(compilation, facts).text) else []
    out += wrap(f"{told}.", COLUMNS, 3) if (told := since_text(compilation)) else []
    out += _flow([facts.subtitle], "  ")
    out += _flow(facts.lines, "  ")
    steps = [f"{step.name} {step.note}".strip() for step in strip(compilation)]
    if steps:
        out += _flow(steps, "  ", " → ")
    known = prices(compilation, facts.calls)
    compilation = selected(compilation, show)
    out += _breaks(compilation) + _cell(compilation, facts, links)
    out += _walks(compilation) + _decisions(compilation, known, links) + _kernels(compilation, facts)
    out += _not_fused(compilation, facts, known)
    out += listed(compilation, show, COLUMNS)
    out += _roofline(compilation) + _autotune(compilation, links) + _timings(compilation)
    text = "\n".join(plain_line(line)[:COLUMNS].rstrip() for line in out)
    return text + "\n"


def _flow(parts: object, indent: str, glue: str = " · ") -> list[str]:
    """Parts joined with ``glue``, broken into lines between parts."""
    lines = [indent]
    for part in parts if isinstance(parts, list | tuple) else []:
        piece = clip(str(part), COLUMNS - len(indent))
        joined = lines[-1] + (glue if lines[-1].strip() else "") + piece
        if len(joined) <= COLUMNS:
            lines[-1] = joined
        else:
            lines.append(indent + piece)
    return [line for line in lines if line.strip()]


def _hung(head: str, text: str, lines: int = 3) -> list[str]:
    """``head`` followed by ``text``, later lines indented by four."""
    first, *rest = wrap(f"{head}{text}", COLUMNS - 6, lines)
    return [f"  {first}", *(f"      {line}" for line in rest)]


def _breaks(compilation: Compilation) -> list[str]:
    out: list[str] = []
    for place, item in enumerate(compilation.breaks[:_ROWS]):
        where = break_line(item.spans)
        out += _hung(f"x {where}: " if where else "x ", f"graph break: {item.reason}")
        if item.hint:
            out += _hung("  → ", item.hint)
        out += coached(compilation.breaks, place)
    out += _more(len(compilation.breaks) - _ROWS)
    for place, again in enumerate(compilation.recompiles[:_ROWS]):
        where = break_line(again.spans)
        sizes = "; ".join(
            in_own_names(code) for g in compilation.guards if _is_of_sizes(g, again) for code in g.code
        )
        then = f"; now for {sizes}" if sizes else ""
        out += _hung(f"↻ {where}: " if where else "↻ ", f"compiled again: {again.reason}{then}")
        out += coached(compilation.recompiles, place)
    out += _more(len(compilation.recompiles) - _ROWS, "recompiles")
    for told in loop_of_recompiles(compilation):
        out += _hung("↻ ", told)
    for note in compilation.notes[:_ROWS]:
        out += _hung("! ", note, 5)
    out += _more(len(compilation.notes) - _ROWS)
    return ["", *out] if out else []


def _is_of_sizes(guard: Guard, again: Recompile) -> bool:
    """Whether it says what the symbolic sizes of the graph that was compiled again may be."""
    return guard.kind == "SHAPE_ENV" and guard.graph == again.graph


def _cell(compilation: Compilation, facts: fact.Facts, links: Links) -> list[str]:
    rows = cell_lines(compilation, facts.calls, links)
    if not rows:
        return []
    eagerly = ", ~ ran eagerly" if any(row.fate == "eager" for row in rows) else ""
    captured = f", {MARK['captured']} captured" if any(row.fate == "captured" for row in rows) else ""
    of = f" of {name}" if (name := measured_name(compilation)) else ""
    share = f"% of {facts.share_of}{of}"
    signs = f"+ fused, = library call, ! fallback, x graph break{eagerly}{captured}; {share}"
    out = ["", *wrap(f"Your cell   ({signs})", COLUMNS, 2)]
    said_at: dict[str, int] = {}
    for row in rows[:_LINES]:
        chips = ", ".join(c.label + (f" ×{c.count}" if c.count > 1 else "") for c in row.chips[:4])
        chips += f" +{len(row.chips) - 4}" if len(row.chips) > 4 else ""
        share = f"{row.share:4.0%}" if row.share >= 0.005 else "    "
        code = row.text if len(row.text) <= 58 else row.text[:57] + "…"
        said = chips or (row.why if len(row.why) <= 26 else "")
        out.append(f" {MARK[row.fate]} {row.number:>3}  {code:<58} {share}  {clip(said, 26)}".rstrip())
        if row.why and row.why != said:
            first = said_at.setdefault(row.why, row.number)
            why = row.why if first == row.number or len(row.why) < COLUMNS - 11 else f"as line {first}"
            out += [f"{' ' * 9}{part}" for part in wrap(f"↳ {why}", COLUMNS - 9, 3)]
    return out + _more(len(rows) - _LINES, "lines")


def _walks(compilation: Compilation) -> list[str]:
    title = walk_title(compilation)
    return ["", title, *table_text(walk_table(compilation, _ROWS), COLUMNS)] if title else []


def _decisions(compilation: Compilation, known: dict[str, Price], links: Links) -> list[str]:
    if not compilation.decisions:
        return []
    fused = [d for d in compilation.decisions if d.accepted]
    refused = sorted((d for d in compilation.decisions if not d.accepted), key=lambda d: -d.bytes_saved)
    saved = bytes_text(fact.saved_bytes(compilation, fused))
    out = ["", f"Fusion: {len(fused):,} of {len(compilation.decisions):,} pairs fused, {saved} saved"]
    overruled = [d for d in compilation.decisions if d.overruled]
    for decision in [*overruled[:_FEW], *(d for d in refused[:_FEW] if not d.overruled)]:
        names = [
            links.nodes[id].name if id in links.nodes else id for id in (decision.producer, decision.consumer)
        ]
        verb = ("fused" if decision.accepted else "refused") + (" by you" if decision.overruled else "")
        save = f", {'saves' if decision.accepted else 'would save'} {bytes_text(decision.bytes_saved)}"
        brief = forced(known.get(decision.id), names) or briefly(known.get(decision.id))
        cost = f", {brief}" if brief else ""
        names = [clip_middle(name, 24) for name in names]
        pair = f"{names[0]} → {names[1]} {verb}{save if decision.bytes_saved else ''}{cost}: "
        out += _hung(pair, clip(decision.reason or decision.code, 200))
    return out + _more(len(refused) - _FEW, "refused pairs")


def _kernels(compilation: Compilation, facts: fact.Facts) -> list[str]:
    own = [call for call in facts.calls if call.fate == "fused"]
    if not own or not compilation.kernels:  # none, or not among the parts that are asked for
        return []
    loops = {kernel.id: len(kernel.loops) for kernel in compilation.kernels}
    schedule = {kernel.id: kernel.schedule for kernel in compilation.kernels}
    launched = {kernel.id: _launches(kernel) for kernel in compilation.kernels}
    short = max((len(name) for name in schedule.values() if len(name) <= _SHORT), default=0)
    out = ["", "Kernels"]
    word = "cell line" if compilation.cell else "line"
    for call in sorted(own, key=lambda call: -call.share)[:_ROWS]:
        more = f" +{len(call.lines) - 1}" if call.lines[1:] else ""
        lines = f"{word} {call.lines[0]}{more}" if call.lines else ""
        traffic = f"{call_size(call):>9} {percent_text(call.share):>4}"
        work = f"{loops.get(call.id, 0):>3} {'loops' if loops.get(call.id, 0) != 1 else 'loop '}"
        name = schedule.get(call.id, "")
        kind = name if len(name) <= _SHORT else ""
        head = f"  {clip(call.label, 10):<10} {clip(call.name, 30):<30} {traffic} {work}"
        out.append(f"{head}  {kind:<{short}} {lines}{runs_text(call)}")
        out += [] if kind else _flow([name], " " * 13)
        out += launched.get(call.id, [])
    return out + _more(len(own) - _ROWS, "kernels")


def _not_fused(compilation: Compilation, facts: fact.Facts, known: dict[str, Price]) -> list[str]:
    own = not_fused(compilation, facts.calls, known)
    out = ["", "Not fused"] if own else []
    for call, told in own[:_FEW]:
        out += _hung(f"{MARK[call.fate]} {call.name} ", told)
    return out + _more(len(own) - _FEW, "library calls")


def _launches(kernel: Kernel) -> list[str]:
    """How each function is launched; what spills is marked."""
    lines: list[str] = []
    for launched in kernel.launches[:_FEW]:
        facts = launch_facts(launched, len(kernel.launches) > 1)
        lines += _flow([f"! {words}" if bad else words for words, bad in facts], " " * 13)
    return lines + _more(len(kernel.launches) - _FEW, "launches")


def _roofline(compilation: Compilation) -> list[str]:
    roof = roofline(compilation) if compilation.kernels else None
    if roof is None:
        return []
    out = ["", f"Roofline: {roof.title}", *_hung("", roof.summary)]
    out += _hung("", roof.launching) if roof.launching else []
    return out + table_text(table(roof, _ROWS, 22), COLUMNS)


def _autotune(compilation: Compilation, links: Links) -> list[str]:
    if not compilation.autotune:
        return []

    def name(id: str) -> str:
        return links.nodes[id].name if id in links.nodes else id

    found = searches(compilation, name, _FEW)
    out = ["", f"Autotune: {len(compilation.autotune):,} candidates measured"]
    for search in found[:_ROWS]:
        out += _hung("", f"{search.kernel}: {search.summary}")
        shown = search.candidates[:_FEW]
        shown += tuple(item for item in search.candidates[_FEW:] if item.chosen)
        for item in shown:
            mark = "✓" if item.chosen else " "
            out.append(
                f"   {mark} {item.time:>9} {item.ratio:>6}  {clip(item.text, 60)} {clip(item.note, 20)}"
            )
    return out + _more(len(found) - _ROWS, "kernels")


def _timings(compilation: Compilation) -> list[str]:
    out: list[str] = []
    for group in timings(compilation)[:_FEW]:
        out += [
            "",
            *wrap(f"Timings: {group.about}", COLUMNS, 3),
            *table_text(timing_table(group, _ROWS, 16), COLUMNS),
        ]
    return out


def _more(count: int, what: str = "") -> list[str]:
    return [f"  … {count:,} more {what}".rstrip()] if count > 0 else []

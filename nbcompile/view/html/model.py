"""From a record to what the HTML template prints: escaped by the template, capped in size here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from nbcompile.record.compilation import Compilation, Decision, Graph, Kernel
from nbcompile.record.provenance import Links
from nbcompile.units import (
    bytes_text,
    clip,
    clip_middle,
    count_text,
    error_text,
    milliseconds_text,
    percent_text,
    seconds_text,
    shape_text,
)
from nbcompile.view.drawing.contents import Extent, loop_label, tooltips
from nbcompile.view.drawing.nesting import MAX_NODES, drawing, graphs_of_loops
from nbcompile.view.drawing.picture import graph_picture
from nbcompile.view.drawing.pipeline_strip import strip
from nbcompile.view.drawing.roofline import Roofline, quantity, roofline, roofline_picture, table
from nbcompile.view.drawing.svg import Picture, timing_picture
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.cell_lines import FATE_WORD, break_line, cell_lines
from nbcompile.view.facts.coaching import coached
from nbcompile.view.facts.kernels import (
    Sources,
    artifact_lines,
    call_size,
    launch_facts,
    runs_text,
    spilled_bytes,
    time_facts,
)
from nbcompile.view.facts.outside import measured_name
from nbcompile.view.facts.parts import selected
from nbcompile.view.facts.prices import briefly, not_fused, prices
from nbcompile.view.facts.schedules import explained
from nbcompile.view.facts.search import searches
from nbcompile.view.facts.since import since_text
from nbcompile.view.facts.timings import TimingRow, note, timing_table, timings
from nbcompile.view.facts.titles import STAGE_TITLE, graph_title
from nbcompile.view.facts.why import why
from nbcompile.view.html.highlight import highlight_lines
from nbcompile.view.html.rows import Caps, Excerpt, NumberedText, clip_line, lines_label, take
from nbcompile.view.html.styles import Styler
from nbcompile.view.pending import Pending
from nbcompile.view.reports.listed import guard_row
from nbcompile.view.reports.report import Section, Styled, Value


class Model:
    """Everything the template asks for, computed once. All strings are plain unless typed Markup."""

    def __init__(
        self, compilation: Compilation, css: Styler, caps: Caps, show: Sequence[str] = (),
        pending: Pending | None = None,
    ) -> None:  # fmt: skip
        self.record, self.css, self.caps, self.pending = compilation, css, caps, pending
        self.links = Links(compilation)
        self.file = fact.main_file(compilation)
        self.line_word = "cell line" if compilation.cell else f"{clip(self.file.rsplit('/', 1)[-1], 30)} line"
        self.facts = fact.facts(compilation, self.links, pending)
        self.why = why(compilation, self.facts).text
        self.share_of_what = f" of {name}" if (name := measured_name(compilation)) else ""
        self.prices = prices(compilation, self.facts.calls)
        self.since = since_text(compilation)
        self.strip = strip(compilation)
        self.kernels_by_id = {kernel.id: kernel for kernel in compilation.kernels}
        self._roof: Roofline | None = roofline(compilation)
        self._points = {point.kernel: point for point in self._roof.points} if self._roof else {}
        self.unfolded = css.page or bool(show)
        self.record = selected(compilation, show)  # from here on: the head above tells of all of it

    @property
    def folds(self) -> str:
        """What stands below the answer, in a few words; empty where that is nothing to fold away."""
        record = self.record
        counts = (
            "graphs" if record.graphs else "",
            count_text(len(record.decisions), "fusion decision") if record.decisions else "",
            count_text(len(record.kernels), "kernel"),
        )
        return ", ".join(each for each in counts if each) if record.graphs or record.kernels else ""

    # The cell

    def cell(self) -> Excerpt:
        rows = cell_lines(self.record, self.facts.calls, self.links)
        shown = take(rows, self.caps.cell_lines)
        starts = self.record.cell.body_starts if self.record.cell else 1
        body = "\n".join(clip_line(row.text, self.caps.width) for row in shown.items[max(0, starts - 1) :])
        colored = highlight_lines(body, "python", self.css)
        out = []
        for row in shown.items:
            index = row.number - max(1, starts)
            code = (
                colored[index] if 0 <= index < len(colored) else _dim(row.text[: self.caps.width], self.css)
            )
            chips = take(row.chips, 2)
            out.append(
                {
                    "number": row.number,
                    "code": code if self.css.page else _indented(code),
                    "fate": row.fate or "",
                    "word": FATE_WORD.get(row.fate or "", ""),
                    "chips": [
                        (
                            clip(c.label, 18) + (f" ×{c.count}" if c.count > 1 else ""),
                            c.fate,
                            _chip_note(c.fate),
                        )
                        for c in chips.items
                    ],
                    "more": chips.more,
                    "share": row.share,
                    "why": row.why,
                }
            )
        return Excerpt(out, shown.more)

    # Pictures

    def fused_pictures(self) -> list[dict[str, Any]]:
        """Kernels with their loops, calls, and the inputs that they read."""
        notes = {
            c.id: f"{call_size(c)}{runs_text(c)} · {percent_text(c.share)}"
            for c in self.facts.calls if c.share
        }  # fmt: skip
        out: list[dict[str, Any]] = []
        height = 0
        for graph in self._working("fused"):
            extent = Extent(self.caps.boxes // 2, True, 8, 560 if self.record.cell else 1040, notes=notes)
            item = self._graph(graph, extent, notes, 560)
            height += item["picture"]["height"] + 30
            out.append({**item, "beside": not out or height <= 720})
        return out

    def fx_pictures(self) -> list[dict[str, Any]]:
        """Captured ops by the line of the cell or by module, coloured by what became of them."""
        chips = self._chips()
        out = []
        for graph in self._working("fx"):
            ops = len(fact.working(graph))
            lines = self.record.cell is not None and ops <= self.caps.boxes
            extent = Extent(self.caps.boxes // 2, True, 8, 1000, lines=lines)
            item = self._graph(graph, extent, chips, 420)
            out.append({**item, "ops": ops, "small": item["picture"]["height"] < 640,
                        "by": "cell line" if lines else "module"})  # fmt: skip
        return out

    def _working(self, stage: str) -> list[Graph]:
        graphs = [
            graph
            for graph in fact.stage_graphs(self.record, stage)
            if len(graph.nodes) <= MAX_NODES and fact.working(graph)
        ]
        return graphs[: self.caps.pictures]

    def _graph(self, graph: Graph, extent: Extent, notes: Mapping[str, str], height: float) -> dict[str, Any]:
        """A graph as a picture; ``notes`` say more of nodes, by id, where they are pointed at."""
        inner = graphs_of_loops(self.record).get(graph.id)
        fates = fact.fates_of(self.facts.calls, self.links)
        made = drawing(self.record, graph, inner, fates, self.links, extent)
        tips = tooltips(graph, inner, notes) if self.css.page else {}
        loops = [loop_label(node) for node in inner.nodes] if inner else []
        picture = graph_picture(
            made, self.css.tone, loops, tips, max_height=height, max_width=max(extent.width, 1000)
        )
        return {"title": self.title(graph), "picture": self.show(picture), "notes": made.left_out}

    def _chips(self) -> dict[str, str]:
        """The labels of the calls that every captured op turned into."""
        chips: dict[str, str] = {}
        for call in self.facts.calls:
            for id in self.links.up(call.id) if call.id in self.links else ():
                held = f"{chips[id]}, " if id in chips and len(chips[id]) < 60 else "→ "
                chips[id] = held + call.label
        return chips

    def show(self, picture: Picture) -> dict[str, Any]:
        """For the template: inline SVG in the page, a data URI in the fragment."""
        return {"svg": Markup(picture.svg) if self.css.page else None,
                "uri": "" if self.css.page else picture.data_uri(),
                "width": picture.width, "height": picture.height, "alt": picture.description}  # fmt: skip

    def title(self, graph: Graph) -> str:
        return graph_title(self.record, graph)

    # Fusion

    def decisions(self) -> dict[str, Any]:
        ordered = sorted(self.record.decisions, key=lambda d: -d.bytes_saved)
        rows: list[dict[str, Any]] = [
            {
                "pair": self._pair(d),
                "accepted": d.accepted,
                "overruled": d.overruled,
                "saved": self._saved(d),
                "why": clip(d.reason or d.code, 160),
                "lines": lines_label(sorted({*self._lines(d.producer), *self._lines(d.consumer)})),
            }
            for d in ordered
        ]
        accepted = [row for row in rows if row["accepted"] and not row["overruled"]]
        other = [row for row in rows if not row["accepted"] or row["overruled"]]
        fold = len(accepted) > 8
        return {
            "count": len(rows),
            "fused": sum(1 for row in rows if row["accepted"]),
            "overruled": sum(1 for row in rows if row["overruled"]),
            "lined": any(row["lines"] for row in rows),
            "saved": bytes_text(fact.saved_bytes(self.record, ordered)),
            "folded_count": len(accepted) if fold else 0,
            "folded": _dense(
                [(row["pair"], row["saved"], row["lines"], row["why"]) for row in accepted],
                self.caps.rows // 4,
                ("pair", "saves", "line", "why"),
            ),
            "shown": take(other if fold else accepted + other, self.caps.rows // 8),
        }

    def _saved(self, decision: Decision) -> str:
        moved = bytes_text(decision.bytes_saved) if decision.bytes_saved else ""
        return ", ".join(filter(None, (moved, briefly(self.prices.get(decision.id))))) or "–"

    def not_fused(self) -> Excerpt:
        found = not_fused(self.record, self.facts.calls, self.prices)
        return take([(call.name, call.fate, told) for call, told in found], self.caps.rows // 8)

    def _pair(self, decision: Decision) -> str:
        sign = "→" if decision.kind == "producer-consumer" else "∥"
        return f"{self._name(decision.producer)} {sign} {self._name(decision.consumer)}"

    def _name(self, id: str) -> str:
        node = self.links.nodes.get(id)
        name = node.name if node else id.rsplit(".", 1)[-1]
        if id in self.kernels_by_id or (node and node.kind in ("library", "fallback")):
            name = fact.short_op(node.op) if node and node.kind != "kernel" else name
        return clip_middle(name, 28)

    def _lines(self, id: str) -> tuple[int, ...]:
        return fact.lines_of(self.links, id, self.file)

    # Kernels and texts

    def kernels(self) -> Excerpt:
        shares = {call.id: call.share for call in self.facts.calls}
        heaviest = max(self.record.kernels, key=lambda k: shares.get(k.id, 0.0), default=None)
        shown = take(self.record.kernels, self.caps.kernels)
        sources = Sources(self.css, self.caps, self._lines, artifact_lines(self.record, self.caps))
        return Excerpt(
            [self._kernel(k, shares.get(k.id, 0.0), k is heaviest, sources) for k in shown.items], shown.more
        )

    def _kernel(self, kernel: Kernel, share: float, heaviest: bool, sources: Sources) -> dict[str, Any]:
        texts = sources.of(kernel)
        launches = take(kernel.launches, self.caps.rows // 20)
        spilled = spilled_bytes(kernel)
        return {
            "label": fact.short_id(self.record, kernel.id),
            "name": clip(kernel.name, 80),
            "schedule": clip(kernel.schedule, 120),
            "meanings": explained(kernel.schedule),
            "traffic": f"reads {bytes_text(kernel.bytes_read)}, writes {bytes_text(kernel.bytes_written)}",
            "share": f"{percent_text(share)} of {self.facts.share_of}{self.share_of_what}" if share else "",
            "flops": quantity(kernel.flops, "flop") if kernel.flops else "",
            "lines": lines_label(self._lines(kernel.id)),
            "lines_many": len(self._lines(kernel.id)) > 1,
            "loops": clip(", ".join(self._name(id) for id in kernel.loops[:30]), 300),
            "loop_count": len(kernel.loops),
            "recomputed": clip(", ".join(self._name(id) for id in kernel.recomputed[:12]), 160),
            "time": time_facts(self._points.get(kernel.id)),
            "spills": f"spills {bytes_text(spilled)} a thread" if spilled else "",
            "launches": Excerpt(
                [launch_facts(each, len(kernel.launches) > 1) for each in launches.items], launches.more
            ),
            "sources": texts,
            "open": heaviest and bool(texts) and len(texts[0]["text"].lines) <= 60,
        }

    def roofline(self) -> dict[str, Any] | None:
        """The plot and the table of what each kernel reaches under its chip's ceilings."""
        roof = self._roof
        if roof is None or not self.record.kernels:
            return None
        figures = table(roof, self.caps.rows // 3)
        return {
            "title": roof.title,
            "summary": roof.summary,
            "launching": roof.launching,
            "open": roof.ceilings.target != "cpu",
            "picture": self.show(roofline_picture(roof, self.css.tone)),
            "table": figures,
            "folded": f"{len(figures.rows) + max(0, figures.more)} kernels as a table"
            if len(figures.rows) > 12
            else "",
        }

    def text(self, text: str, language: str, limit: int) -> NumberedText:
        lines = text.rstrip().split("\n")
        shown = take(lines, limit)
        body = "\n".join(clip_line(line, self.caps.width) for line in shown.items)
        return NumberedText(highlight_lines(body, language, self.css), (), shown.more)

    def texts(self) -> Excerpt:
        """The texts of all stages, in the order of the pipeline."""
        graphs = [graph for graph in self.record.graphs if graph.text.strip()]
        order = list(STAGE_TITLE)
        graphs.sort(key=lambda g: order.index(g.stage) if g.stage in order else 9)
        shown = take(graphs, 2 * self.caps.graphs)
        return Excerpt([self._stage_text(graph) for graph in shown.items], shown.more)

    def _stage_text(self, graph: Graph) -> tuple[str, str, NumberedText]:
        nouns = ("loop or call", "loops and calls") if graph.stage == "loops" else ("node", "")
        size = count_text(len(fact.working(graph)), *nouns)
        return self.title(graph), size, self.text(graph.text, "ir", self.caps.text_lines)

    # Numbers

    def timings(self) -> list[dict[str, Any]]:
        """What was timed, as bars and as a table."""
        out = []
        most = min(24, self.caps.rows)
        for group in timings(self.record)[: self.caps.graphs]:
            bars = [(self.record.measurements[row.measurement], _bar_note(row)) for row in group.rows[:most]]
            picture = timing_picture(bars, fact.contestant(self.record), self.css.tone)
            out.append(
                {
                    "what": clip(group.what, 60),
                    "about": group.about,
                    "table": timing_table(group, most),
                    "picture": self.show(picture),
                }
            )
        return out

    def accuracy(self) -> list[Section]:
        """Outputs that differ, and outputs that agree."""
        differ: list[tuple[Value, ...]] = []
        agree: list[tuple[Value, ...]] = []
        for a in self.record.accuracy:
            figures = (error_text(each) for each in (a.error, a.eager_error, a.max_difference))
            verdict = "✓ agrees" if a.agrees else Styled("✗ differs", "no")
            verdict = verdict if a.is_compared else ""  # the reason says so
            row = (clip(a.contestant, 40), clip(a.output, 60), *figures, verdict, clip(a.reason, 160))
            (agree if a.agrees else differ).append(row)
        heads = ("", "output", "error", "eager's error", "largest difference", "", "")
        shown = take(differ, self.caps.rows // 8)
        worse = Section(heads=heads, rows=tuple(shown.items), right=(2, 3, 4), more=shown.more)
        return [each for each in (worse, _dense(agree, self.caps.rows // 2, heads)) if each.rows]

    # Lists

    def breaks(self) -> Excerpt:
        return take(
            (
                (
                    break_line(b.spans),
                    clip(b.reason, 240),
                    clip(b.hint, 240),
                    "\n".join(coached(self.record.breaks, place)),
                )
                for place, b in enumerate(self.record.breaks)
            ),
            self.caps.rows // 4,
        )

    def notes(self) -> Excerpt:
        return take((clip(note, 300) for note in self.record.notes), self.caps.rows // 4)

    def recompiles(self) -> Excerpt:
        return take(
            (
                (
                    break_line(r.spans),
                    clip(r.function, 60),
                    clip(r.reason, 240),
                    "\n".join(coached(self.record.recompiles, place)),
                )
                for place, r in enumerate(self.record.recompiles)
            ),
            self.caps.rows // 4,
        )

    def guards(self) -> Section:
        """What must stay true for the code to be reused."""
        rows = [guard_row(guard) for guard in self.record.guards]
        return _dense(rows, self.caps.rows // 4)

    def autotune(self) -> Excerpt:
        """What was tried for each kernel, the fastest first."""
        return take(searches(self.record, self._name, self.caps.rows // 2), self.caps.rows // 4)

    def passes(self) -> Section:
        """Every pass, its time, and the graphs before and after it."""
        rows = [
            (clip(p.name, 60), milliseconds_text(p.milliseconds), clip(_arrow(p.before, p.after), 80),
             clip(p.note, 80))
            for p in self.record.passes
        ]  # fmt: skip
        return _dense(rows, self.caps.rows)

    def saved(self) -> list[str]:
        """For each forward graph, the tensors kept for the backward pass."""
        out = []
        for graph in fact.stage_graphs(self.record, "forward")[: self.caps.graphs]:
            if graph.saved:
                nodes = {node.id: node for node in graph.nodes} | {node.name: node for node in graph.nodes}
                size = sum(max(0, nodes[name].bytes) for name in graph.saved if name in nodes)
                names = clip(", ".join(_saved_name(nodes.get(name), name) for name in graph.saved[:12]), 200)
                count = count_text(len(graph.saved), "tensor")
                out.append(f"{count} saved for the backward pass ({bytes_text(size)}): {names}")
        return out

    def environment(self) -> Section:
        """Versions, options and flags."""
        e = self.record.environment
        pairs = [("nbcompile", e.nbcompile), ("python", e.python), ("torch", e.torch), ("triton", e.triton),
                 ("platform", e.platform), ("processor", e.processor), ("device", e.device),
                 ("threads", str(e.threads) if e.threads else ""), ("compiler", e.compiler),
                 ("flags", " ".join(e.flags[:60])),
                 ("options", ", ".join(f"{k}={v}" for k, v in list(self.record.options.items())[:40])),
                 ("record", f"{self.record.id} · {self.record.schema}")]  # fmt: skip
        return Section(rows=tuple((Styled(name, "dim"), clip(value, 300)) for name, value in pairs if value))


def _dense(rows: Sequence[tuple[Value, ...]], most: int, heads: tuple[Value, ...] = ()) -> Section:
    """A table that may be long."""
    shown = take(rows, most)
    return Section(heads=heads, rows=tuple(shown.items), dense=True, more=shown.more)


def _bar_note(row: TimingRow) -> str:
    return note(row) or (f"compile {seconds_text(row.cold)}" if row.cold is not None else "")


def _dim(text: str, css: Styler) -> Markup:
    return Markup("<span {}>{}</span>").format(css("t-com"), text)


def _indented(code: Markup) -> Markup:
    """Leading blanks as no-break spaces: where a site strips styles, ``<code>`` would lose them."""
    plain = code.lstrip(" ")
    return Markup("\u00a0" * (len(code) - len(plain))) + plain


def _chip_note(fate: str) -> str:
    """The word that says what a chip's colour says."""
    return {"fused": "fused kernel", "library": "library call", "fallback": "fallback to ATen",
            "break": "graph break", "captured": "captured"}.get(fate, "")  # fmt: skip


def _arrow(before: str, after: str) -> str:
    return f"{before} → {after}" if before and after else before or after


def _saved_name(node: Any, name: str) -> str:
    return f"{node.name} {shape_text(node.dtype, node.shape)}".strip() if node else name

"""What a check found, as text and HTML: the stages, the operator, the smallest cell, and errors by node."""

from __future__ import annotations

import dataclasses

from markupsafe import Markup

from nbcompile.record.check import CheckReport, NodeError
from nbcompile.record.compilation import Graph
from nbcompile.record.provenance import Links
from nbcompile.units import clip, error_text, seconds_text
from nbcompile.view.drawing.contents import Extent
from nbcompile.view.drawing.nesting import drawing
from nbcompile.view.drawing.picture import graph_picture
from nbcompile.view.drawing.svg import Picture
from nbcompile.view.html.styles import Styler, mid
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value

_BOXES = 300
_ROWS = 200
_WENT = {
    "agrees": ("agrees", "yes"),
    "differs": ("differs", "no"),
    "raises": ("raises", "no"),
    "not run": ("–", ""),
}


def to_text(found: CheckReport) -> str:
    """Tables, and the cell as it stands."""
    return report.to_text(_title(found), _sections(found))


def to_html(found: CheckReport) -> str:
    """A fragment for a notebook output, with the captured graph coloured by error."""
    return report.to_html(_title(found), _sections(found), about=_about(found), below=_picture(found))


def _title(found: CheckReport) -> str:
    if found.agrees:
        who = f"{found.function} on {found.backend}"
        return f"{who}: every number is as close to float64 as eager's, but for rounding"
    verb = "raises" if found.went == "raises" else "is wrong"
    if not found.operator:
        return f"{found.function} on {found.backend}: the stage {found.stage} {verb} first"
    where = f" (line {found.line}{_file(found)})" if found.line is not None else ""
    return f"{found.operator} {verb} on {found.backend}, in {found.part}{where}"


def _file(found: CheckReport) -> str:
    file = found.spans[0].file if found.spans else ""
    return f" of {file.rpartition('/')[2]}" if file else ""


def _about(found: CheckReport) -> list[str]:
    return [f"{found.function}, checked in {seconds_text(found.seconds)}"]


def _sections(found: CheckReport) -> list[Section]:
    heads = ("stage", "", "error", "eager's", "time", "what it is")
    sections = [Section("Stages", heads, tuple(_stages(found)), right=(2, 3, 4))]
    if found.operator:
        sections.append(Section("What is wrong first", rows=_told(found)))
    sections += _cell(found)
    if found.nodes:
        shown = _telling(found.nodes)
        rows = tuple(map(_node, shown))
        sections.append(
            Section(
                "Error by node, of the captured graph as a whole",
                ("node", "operator", "line", "", "error", "eager's"),
                rows,
                right=(2, 4, 5),
                more=len(found.nodes) - len(shown),
            )
        )
    if found.notes:
        sections.append(Section("Notes", lines=found.notes))
    return sections


def _stages(found: CheckReport) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for stage in found.stages:
        word, style = _WENT[stage.went]
        said = stage.reason or (f"ran eagerly: {stage.note}" if stage.note else "") or stage.meaning
        first = Styled(stage.name, "strong") if stage.name == found.stage else stage.name
        rows.append((first, Styled(word, style), _error(stage.error), _error(stage.eager_error),
                     seconds_text(stage.seconds), said))  # fmt: skip
    return rows


def _told(found: CheckReport) -> tuple[tuple[Value, ...], ...]:
    rows = [("operator", found.operator), ("within", found.within),
            ("in", f"{found.part} of stage {found.stage}"), ("node", clip(found.source, 200)),
            ("because", found.reason)]  # fmt: skip
    if found.line is not None:
        rows.insert(3, ("line", f"{found.line}{_file(found)}"))
    return tuple((name, value) for name, value in rows if value)


def _cell(found: CheckReport) -> list[Section]:
    cell = found.cell
    if cell is None:
        return []
    state = "It was run as printed, and shows it." if cell.shows else f"Not shown: {cell.said}."
    more = (cell.said[:1].upper() + cell.said[1:] + ".",) if cell.shows and cell.said else ()
    lines = (f"Inputs: {cell.chosen}.", Styled(state, "" if cell.shows else "no"), *more)
    return [
        Section("The smallest cell", lines=lines),
        Section("First its inputs", listing=cell.inputs, shown=True),
        Section("Then the cell", listing=cell.text, shown=True),
    ]


def _telling(nodes: tuple[NodeError, ...]) -> list[NodeError]:
    """Those from the first that is wrong on, and a few before."""
    first = next((n for n, node in enumerate(nodes) if node.went != "agrees"), 0)
    return list(nodes[max(0, first - 20) :][:_ROWS])


def _node(node: NodeError) -> tuple[Value, ...]:
    word, style = _WENT[node.went]
    return (clip(node.name, 32), clip(node.op, 40), str(node.line or ""), Styled(word, style, node.reason),
            _error(node.error), _error(node.eager_error))  # fmt: skip


def _error(error: float | None) -> str:
    return "–" if error is None else error_text(error)


def coloured(found: CheckReport) -> Picture | None:
    """The captured graph: green where values agree, red where they differ, else grey."""
    graph = _graph(found)
    if found.record is None or graph is None:
        return None
    made = drawing(found.record, graph, None, {}, Links(found.record), Extent(_BOXES, True, 8, 1000))
    went = {node.id: "f" if node.went == "agrees" else "x" for node in found.nodes}
    fates = "".join(went.get(node.id, fate) for node, fate in zip(graph.nodes, made.fates, strict=True))
    told = dataclasses.replace(made, fates=fates, description=f"{made.description}; red: its value differs")
    return graph_picture(told, mid, (), {}, max_height=560, max_width=1000)


def _picture(found: CheckReport) -> Markup:
    picture = coloured(found)
    if picture is None:
        return Markup("")
    css = Styler(page=False)
    key = Markup("").join(
        Markup("<span {}>{}</span> ").format(css(style), word)
        for style, word in (("yes", "agrees"), ("no", "differs"), ("dim", "not compared"))
    )
    return Markup('<p {}>{}: {}</p><div {}><img {} src="{}" alt="{}" width="{}" height="{}"></div>').format(
        css("title"), "Errors in the captured graph", key, css("canvas"), css("img"), picture.data_uri(),
        picture.description, picture.width, picture.height,
    )  # fmt: skip


def _graph(found: CheckReport) -> Graph | None:
    if found.record is None or not found.nodes:
        return None
    first = found.nodes[0].id
    return next((g for g in found.record.graphs if any(node.id == first for node in g.nodes)), None)

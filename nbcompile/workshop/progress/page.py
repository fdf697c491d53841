"""The sheet of a class as an HTML file, for a screen in the room."""

from __future__ import annotations

from importlib.resources import files

from markupsafe import Markup

from nbcompile.units import count_text, percent_text, printable
from nbcompile.view.html.fragment import environment
from nbcompile.view.html.styles import page_style_sheet
from nbcompile.workshop.progress.curriculum import Notebook
from nbcompile.workshop.progress.sheet import ClassSheet, Participant
from nbcompile.workshop.progress.text import LEGEND, mark, not_shown, notebook_of, told

MOST_COLUMNS = 26
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def to_page(sheet: ClassSheet) -> str:
    """A complete HTML file with no script and no outside resource, light and dark by the reader's setting.
    Jinja escapes whatever participants call themselves."""
    css = files("nbcompile.view.html").joinpath("templates", "sheet.css").read_text("utf-8")
    template = environment().get_template("sheet.html")
    text = template.render(
        sheet=sheet,
        policy=_POLICY,
        style=Markup(page_style_sheet() + css),
        figures=_figures(sheet),
        blocks=_blocks(sheet),
        stuck=[(each, notebook_of(each.exercise), told(each)) for each in sheet.stuck()],
        mark=mark,
        tip=_tip,
        short=lambda exercise: exercise.partition(".")[2],
        legend=LEGEND,
        not_shown=not_shown(sheet),
    )
    return printable(text)


def _blocks(sheet: ClassSheet) -> list[list[Notebook]]:
    """The notebooks that were begun, in tables of a width that a screen has: what one has to scroll to is not
    seen from the last row."""
    blocks: list[list[Notebook]] = []
    columns = MOST_COLUMNS
    for notebook in sheet.begun:
        columns += len(notebook.exercises)
        if columns > MOST_COLUMNS:
            blocks.append([])
            columns = len(notebook.exercises)
        blocks[-1].append(notebook)
    return blocks


def _figures(sheet: ClassSheet) -> list[tuple[str, str]]:
    """The class in a few numbers, each with its words."""
    asked = [name for notebook in sheet.begun for name in notebook.exercises]
    solved = sum(each.solved(asked) for each in sheet.participants)
    of = len(asked) * len(sheet.participants)
    people = len(sheet.participants)
    return [
        (f"{people:,}", "participant" if people == 1 else "participants"),
        (f"{len(sheet.begun)}", "notebook begun" if len(sheet.begun) == 1 else "notebooks begun"),
        (
            percent_text(solved / of) if of else "–",
            f"of their {of:,} exercises solved" if of else "no exercise tried yet",
        ),
    ]


def _tip(participant: Participant, exercise: str) -> str:
    entry = participant.entry(exercise)
    if entry is None:
        return f"{participant.name}, {exercise}: not tried"
    attempts = count_text(entry.attempts, "attempt")
    if entry.solved is None:
        return f"{participant.name}, {exercise}: {attempts}, not solved yet"
    minutes = max(0, round((entry.solved - entry.first) / 60))
    return f"{participant.name}, {exercise}: solved after {attempts}, {count_text(minutes, 'minute')}"

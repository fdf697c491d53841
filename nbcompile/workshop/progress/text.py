"""The sheet of a class as text for a terminal, and as a fragment for a notebook's output."""

from __future__ import annotations

from nbcompile.units import clip, count_text, significant
from nbcompile.view.reports import report
from nbcompile.view.reports.report import Section, Styled, Value
from nbcompile.workshop.progress.curriculum import NOTEBOOKS, Notebook
from nbcompile.workshop.progress.sheet import ClassSheet, Participant, Tally

_NAME = 28
LEGEND = "✓ solved (✓3: at the third attempt), 2×: tried twice, not solved yet, ·: not tried"
_TITLE = {name: f"{each.number} {each.title}" for each in NOTEBOOKS for name in each.exercises}


def to_text(sheet: ClassSheet) -> str:
    """Tables: where the class is stuck, participants by notebooks, participants by exercises."""
    legend = [Section(lines=(LEGEND,))] if sheet.begun else []
    return report.to_text(_title(sheet), [*_sections(sheet), *legend])


def to_html(sheet: ClassSheet) -> str:
    """A fragment for a notebook output: the tables of single notebooks fold out."""
    return report.to_html(_title(sheet), _sections(sheet), [LEGEND] if sheet.begun else [])


def mark(participant: Participant, exercise: str) -> str:
    """How far a participant is with an exercise, in three letters or so."""
    entry = participant.entry(exercise)
    if entry is None:
        return "·"
    if entry.solved is None:
        return f"{entry.attempts}×"
    return "✓" if entry.attempts == 1 else f"✓{entry.attempts}"


def told(tally: Tally) -> str:
    """Where a class is stuck, in a sentence."""
    each = significant(tally.attempts / tally.tried, 2)
    attempts = "one attempt" if each == "1" else f"{each} attempts"
    return f"{tally.open} of the {tally.tried} who tried are not done, {attempts} each"


def notebook_of(exercise: str) -> str:
    """The number and title of an exercise's notebook."""
    return _TITLE[exercise]


def not_shown(sheet: ClassSheet) -> list[str]:
    """What is in the folder and in no table, a line each."""
    lines = [f"{each.name} is left out: {each.reason}" for each in sheet.skipped]
    if sheet.more:
        lines.append(f"{count_text(sheet.more, 'further file')} were not looked at.")
    if sheet.unknown:
        names = clip(", ".join(sheet.unknown), 120)
        lines.append(f"{count_text(len(sheet.unknown), 'exercise')} of no notebook of the workshop: {names}")
    return lines


def _title(sheet: ClassSheet) -> str:
    return f"{sheet.title}: {sheet.summary()}"


def _sections(sheet: ClassSheet) -> list[Section]:
    sections = []
    if stuck := sheet.stuck():
        rows = tuple((each.exercise, told(each), clip(notebook_of(each.exercise), 40)) for each in stuck)
        sections.append(Section("Where the class is stuck", rows=rows))
    if sheet.begun:
        sections.append(_overview(sheet))
        sections += [_notebook(sheet, notebook) for notebook in sheet.begun]
    if lines := not_shown(sheet):
        sections.append(Section("Not in the tables", lines=tuple(lines)))
    return sections


def _overview(sheet: ClassSheet) -> Section:
    """Participants by notebooks: how many exercises of each are solved."""
    everybody = len(sheet.participants)
    done = (
        f"{sum(p.solved(n.exercises) == len(n.exercises) for p in sheet.participants)}/{everybody}"
        for n in sheet.begun
    )
    # First, since a notebook's output shows some twenty rows and scrolls to the others.
    rows: list[tuple[Value, ...]] = [("all of it solved", *done)]
    for each in sheet.participants:
        cells = (_share(each.solved(n.exercises), len(n.exercises)) for n in sheet.begun)
        rows.append((clip(each.name, _NAME), *cells))
    heads = ("", *(notebook.number for notebook in sheet.begun))
    right = range(1, len(heads))
    return Section("Solved in each notebook", heads, tuple(rows), right=right, ruled=(1,))


def _share(solved: int, of: int) -> Value:
    return Styled(f"{solved}/{of}", "yes" if solved == of else "" if solved else "dim")


def _notebook(sheet: ClassSheet, notebook: Notebook) -> Section:
    """Participants by the exercises of a notebook."""
    tallies = [sheet.tally(exercise) for exercise in notebook.exercises]
    rows: list[tuple[Value, ...]] = [
        ("solved", *(f"{each.solved}/{len(sheet.participants)}" for each in tallies))
    ]
    for each in sheet.participants:
        cells = (_cell(each, exercise) for exercise in notebook.exercises)
        rows.append((clip(each.name, _NAME), *cells))
    solved, of = sum(each.solved for each in tallies), len(tallies) * len(sheet.participants)
    heads = ("", *(exercise.partition(".")[2] for exercise in notebook.exercises))
    return Section(
        f"{notebook.number} {notebook.title}: {solved:,} of {of:,} solved",
        heads, tuple(rows), right=range(1, len(heads)), ruled=(1,), folded=True,
    )  # fmt: skip


def _cell(participant: Participant, exercise: str) -> Value:
    style = {"solved": "yes", "tried": "no", "not yet": "dim"}[participant.state(exercise)]
    return Styled(mark(participant, exercise), style)

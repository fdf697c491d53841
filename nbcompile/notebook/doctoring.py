"""``%compile --doctor f(x)`` and ``%%compile --doctor``: what could make it faster, below the record."""

from __future__ import annotations

import ast
import dataclasses
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nbcompile.bench.doctor.candidates import edited
from nbcompile.bench.doctor.examine import examined
from nbcompile.bench.doctor.patient import Patient
from nbcompile.bench.doctor.switches import Switch
from nbcompile.errors import MeasureError
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.cell.measuring import as_program
from nbcompile.notebook.cell.mended_program import MendedProgram
from nbcompile.notebook.progress import OutputPlace
from nbcompile.record.advice.doctor import DoctorReport
from nbcompile.record.compilation import Cell, Compilation, TimedCellPart
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import facts
from nbcompile.view.facts.why import why

COMMAND = "nbcompile:write-line"
"""Of the JupyterLab extension: sets the ``%%compile`` line of the active cell."""
_VALUED = ("--backend", "--mode")
_FLAGS = (("--dynamic", "--no-dynamic"), ("--optimizer",))


def doctor_parts(
    shell: Any,
    parts: Sequence[CellPart],
    options: CellOptions,
    *,
    train: bool,
    of: Compilation | None = None,
    mended: Sequence[MendedProgram] = (),
) -> DoctorReport | None:
    """Examine the parts as one program, on copies, and show what pays. ``of``: the record of their cell.
    ``mended``: the coach's rewrites of it, which are tried too. ``--into NAME`` binds the report to
    NAME_doctor."""
    if not parts:
        print("nbcompile: --doctor has nothing to try: nothing was compiled, or nothing can run again.")
        return None
    place = OutputPlace(shell)
    cell = of.cell if of is not None else None
    optimizer = None if options.optimizer or cell is None else optimizer_of(cell.source, shell.user_ns)
    fn, arguments = as_program(parts)
    names = tuple(name for part in parts for name in part.function.parameters)
    patient = Patient(fn, arguments, {}, train, optimizer if train else None, names)
    name = "this call" if of is None else _named(of.timed_part)
    try:
        edits = _edits(patient, mended)
        report = examined(patient, settings_of(options), options.doctor, place.progress, edits, name=name)
    except MeasureError as error:
        place.clear()
        print(f"nbcompile: --doctor: {error}")
        return None
    if of is not None and len(parts) > 1:  # where it breaks between them, the cell has a line for it
        report = dataclasses.replace(report, why=why(of, facts(of, Links(of))).text)
    place.show(bundle_of(report, cell))
    if options.into:
        shell.user_ns[f"{options.into}_doctor"] = report
    return report


def _named(part: TimedCellPart | None) -> str:
    return "this cell" if part is None else f"{part.name} of this cell"


def _edits(patient: Patient, mended: Sequence[MendedProgram]) -> list[Switch]:
    found = []
    for each in mended:
        where = f"in {each.mend.cell}, " if each.mend.cell else ""
        lines = [line for line in each.mend.diff.split("\n")[2:] if line.startswith(("+", "-"))]
        with each.surroundings:  # it is packed as it is then
            program = dataclasses.replace(patient, args=each.arguments)
            found.append(edited(f"{where}{each.mend.title}", program, each.fn, tuple(lines)))
    return found


def optimizer_of(source: str, namespace: Mapping[str, Any]) -> torch.optim.Optimizer | None:
    """The optimizer whose ``step()`` a cell calls; None where there is none, or more than one."""
    body = source.partition("\n")[2] if source.lstrip().startswith("%%") else source
    try:
        nodes = list(ast.walk(ast.parse(body)))
    except SyntaxError:  # other magics
        return None
    names = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "step" and isinstance(node.value, ast.Name)
    }
    found = [namespace.get(name) for name in sorted(names)]
    steps = [each for each in found if isinstance(each, torch.optim.Optimizer)]
    return steps[0] if len(steps) == 1 else None


def bundle_of(report: DoctorReport, cell: Cell | None) -> dict[str, Any]:
    """What is displayed: the report, the magic line with the best option in it, and a button that writes
    it."""
    best = report.best
    text, shown = str(report), report._repr_html_()
    if best is None or not best.option or cell is None:
        return {"text/plain": text, "text/html": shown}
    line = with_option(cell.source.lstrip().splitlines()[0], best.option)
    return {"text/plain": f"{text}\n  {line}\n", "text/html": shown + _button(line)}


def with_option(line: str, option: str) -> str:
    """A ``%%compile`` line with these options, in place of what it says of the same, and without
    ``--doctor``."""
    line = re.sub(r"\s--doctor(?:[ =]+[\d.]+(?=\s|$))?(?=\s|$)", "", line)
    words = option.split()
    for word, following in zip(words, (*words[1:], "")):
        if word in _VALUED:
            line = re.sub(rf"\s{word}[ =]+\S+", "", line)
        for flags in _FLAGS:
            if word in flags:
                line = re.sub(rf"\s(?:{'|'.join(flags)})(?=\s|$)", "", line)
        if word == "-o":  # fusion decisions add up
            name = following.partition("=")[0]
            line = line if name == "force_fuse" else re.sub(rf"\s-o {re.escape(name)}=\S+", "", line)
    if "--backend" in words:  # what was said to the other compiler
        line = re.sub(r"\s(?:-o \S+|--no-fuse(?: \S+:\S+)?|--mode[ =]+\S+)(?=\s|$)", "", line)
    return f"{line.rstrip()} {option}"


def _button(line: str) -> str:
    """Only the JupyterLab extension knows the command; elsewhere the line is there to be copied."""
    arguments = html.escape(json.dumps({"line": line}), quote=True)
    return (
        f"<p><code>{html.escape(line)}</code> "
        f'<button data-commandlinker-command="{COMMAND}" data-commandlinker-args="{arguments}" '
        'title="In JupyterLab, with nbcompile\'s extension; elsewhere copy the line">'
        "Write it into this cell</button></p>"
    )

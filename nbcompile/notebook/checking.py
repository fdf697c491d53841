"""``%compile --check f(x)`` and ``%%compile --check``: where numbers, or an error, come from."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from typing import Any

from IPython.core.error import UsageError

from nbcompile.bench.bisect.check import Program, check_program
from nbcompile.errors import CheckError, OptionError, in_one_line
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.compiling import CompiledCall, settings_of
from nbcompile.notebook.cell.measuring import as_program, has_backward, not_again, repeatable
from nbcompile.notebook.cell.surroundings import quiet_compile
from nbcompile.notebook.cell.timed_part import unchanged, why_not_again
from nbcompile.notebook.progress import OutputPlace
from nbcompile.record.check import CheckReport
from nbcompile.record.compilation import Compilation


def check_call(
    expression: str, namespace: dict[str, Any], options: CellOptions, place: OutputPlace
) -> CheckReport:
    """Check what an expression computes. UsageError, one line, for what is no call or cannot be checked; else
    raises what the program raises."""
    if not isinstance(ast.parse(expression, mode="eval").body, ast.Call):
        raise UsageError("--check wants a call, for its inputs: %compile --check model(x)")
    call = CompiledCall(expression, namespace, options, place.progress)
    fn, arguments = as_program([call.part])
    train = True if options.train else None
    try:
        with quiet_compile():
            return check_program(
                Program(fn, arguments, cell=call.compilation.cell, train=train, name=expression),
                settings_of(options),
                progress=place.progress,
            )
    except (CheckError, OptionError) as error:
        raise UsageError(str(error)) from error
    finally:
        place.clear()


def show_check(run: CellRun, compilation: Compilation, options: CellOptions, place: OutputPlace) -> None:
    """Check the parts of a cell that can be run again, those that raised too, as one program, and show what
    was found; ``--into NAME`` binds it to NAME_check."""
    failed = [part for _, part in sorted(run.failed.items())]
    backward = has_backward(run, options)
    again = [*unchanged(run, repeatable(run, compilation, train=backward)), *failed]
    parts = sorted(again, key=lambda part: part.function.first_line)
    if not parts:
        raise UsageError("--check: no part of the cell was compiled, or none can be run again")
    fn, arguments = as_program(parts)
    first, last = parts[0].function.first_line, parts[-1].function.last_line
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    train = True if backward else None
    program = Program(fn, arguments, cell=compilation.cell, train=train, name=f"the cell, {lines}")
    try:
        with quiet_compile():
            found = check_program(program, settings_of(options), progress=place.progress)
    except (CheckError, OptionError) as error:
        raise UsageError(f"--check: {_told(parts, error)}") from error
    others = [part for part in run.parts.values() if part not in parts]
    left = not_again(others, run.namespace, train=backward, done="checked")
    found = dataclasses.replace(found, notes=(*found.notes, *left))
    if options.into:
        run.namespace[f"{options.into}_check"] = found
    place.show({"text/plain": str(found), "text/html": found._repr_html_()})


def _told(parts: Sequence[CellPart], error: Exception) -> str:
    """Why there is nothing to check: of parts that are no program by themselves, that."""
    raised = error.__cause__
    return why_not_again(parts, in_one_line(raised)) + "." if raised is not None else str(error)

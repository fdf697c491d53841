"""``nbcompile.explore``: the explorer of a compilation, as a widget that can play with it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from nbcompile.api import Compiled
from nbcompile.errors import ExplorerError
from nbcompile.record.compilation import Compilation

if TYPE_CHECKING:
    from nbcompile.notebook.play.widget import Explorer


def explore(compilation: Compilation | Compiled, *inputs: Any) -> Explorer:
    """The explorer of a record, or of what :func:`nbcompile.compile` returned, as an anywidget.

    The record of a cell or call that ran in this session can be played with. A compiled function can be if
    ``inputs``, the arguments of a call, are given; tensors among them are not kept alive. ExplorerError where
    anywidget is not installed or the explorer has not been built.
    """
    try:
        from nbcompile.notebook.play.play import SESSION
        from nbcompile.notebook.play.widget import Explorer
    except ImportError as error:
        raise ExplorerError(
            f"the explorer needs {error.name or 'anywidget'}, which is not installed.",
            advice="Run: pip install anywidget",
        ) from error
    if isinstance(compilation, Compiled):
        record = compilation.compilation
        if inputs:
            from nbcompile.notebook.play.programs import CallableProgram

            program = CallableProgram(compilation, inputs)
            # Two functions of a file may have one name, and records without a cell are told apart by it.
            record = dataclasses.replace(record, id=f"{record.id}-{id(program):x}")
            SESSION.remember(record.id, program)
        return Explorer(record, SESSION)
    if not isinstance(compilation, Compilation):
        raise ExplorerError(
            f"an object of type {type(compilation).__name__} is no compilation.",
            advice="Give a record (`%%compile --into name`), or what nbcompile.compile returned.",
        )
    return Explorer(compilation, SESSION)

"""A program compiled and run once more, with other settings and all state put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from IPython.utils.capture import capture_output

from nbcompile.bench.measure.interrupts import FinishFirst
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.compiler.capture.fx_to_aten import CompileAten
from nbcompile.errors import MeasureError
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.compiling import compile_part
from nbcompile.notebook.cell.measuring import as_program
from nbcompile.notebook.cell.surroundings import changing, quiet_compile
from nbcompile.notebook.play.programs import PlayedProgram, ProgramPiece
from nbcompile.notebook.play.variations import varied
from nbcompile.record.recorder import Recorder

Tell = Callable[[str, int, int], None]
"""Progress: what is done now, and which step of how many it is."""


@dataclass(frozen=True)
class PlaySettings:
    """How a program was compiled: options, and what was changed of its arguments. ``edits`` are kernels
    (by id) with the text that replaces theirs."""

    options: CellOptions
    dtype: str = ""
    sizes: tuple[tuple[int, int], ...] = ()
    edits: tuple[tuple[str, str], ...] = ()

    @property
    def on_copies(self) -> bool:
        return bool(self.dtype or self.sizes)


@dataclass(frozen=True)
class Variant:
    """A program as it was compiled for one record."""

    program: PlayedProgram
    settings: PlaySettings


def current(program: PlayedProgram, settings: PlaySettings) -> list[ProgramPiece]:
    """The program on today's values, or on copies of these in another type or size."""
    return varied(program.pieces(), settings.dtype, dict(settings.sizes))


@contextmanager
def untouched(pieces: Sequence[ProgramPiece]) -> Iterator[Snapshot]:
    """What runs in here prints nothing, and leaves the arguments, all that the functions reach, and the
    random generators as they were, also after an interrupt. MeasureError where that cannot be."""
    roots: dict[str, Any] = {"the functions": [piece.bound for piece in pieces]}
    for piece in pieces:
        roots |= dict(zip(piece.names, piece.arguments, strict=True))
    snapshot = Snapshot(roots)
    if snapshot.unrestorable:
        raise MeasureError(
            f"playing runs the program again, and nothing can rewind {', '.join(snapshot.unrestorable)}.",
            advice="Take what the program needs from it first, and use that.",
        )
    try:
        with quiet_compile(), capture_output(display=True):
            yield snapshot
    finally:
        with FinishFirst():
            snapshot.restore()


def run_compiled(
    pieces: Sequence[ProgramPiece],
    options: CellOptions,
    recorder: Recorder,
    *,
    train: bool,
    compile_aten: CompileAten | None = None,
) -> list[ProgramPiece]:
    """Compile each function into one record and run the program once. Gives the compiled functions with the
    same arguments."""
    made = []
    for piece in pieces:
        bound = compile_part(piece.bound, options, recorder, whole=piece.whole, compile_aten=compile_aten)
        made.append(dataclasses.replace(piece, bound=bound))
    with ExitStack() as stack:
        for piece in pieces:
            stack.enter_context(changing(piece.numbers))
        step_of(made, train)()
    return made


def step_of(pieces: Sequence[ProgramPiece], train: bool) -> Step:
    """One run of the program, with its backward pass where it is to have one."""
    fn, arguments = as_program(pieces)
    leaves: list[torch.Tensor] = []
    if train:
        found = Snapshot({"fn": fn, "inputs": arguments}, copies=False).tensors.values()
        leaves = [tensor for tensor in found if tensor.is_leaf and tensor.requires_grad]
    return Step(fn, arguments, train=train, leaves=tuple(leaves))

"""``%%compile --mode A,B --dtype A,B --size NAME=1,8,64``: the cell at every combination, as a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from nbcompile.api import Compiled, compile
from nbcompile.bench.sweep.result import Sweep
from nbcompile.bench.sweep.running import sweep
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart
from nbcompile.notebook.cell.compiling import settings_of
from nbcompile.notebook.cell.measuring import as_program
from nbcompile.notebook.play.programs import ProgramPiece
from nbcompile.notebook.play.variations import sizes_of, varied

_SECONDS = 0.25  # of steady-state samples, a contestant of a point, at most


def pieces_of_parts(parts: Sequence[CellPart]) -> list[ProgramPiece]:
    """The compiled parts of a cell, with the arguments that they had there."""
    return [
        ProgramPiece(
            part.bound, part.arguments, part.function.parameters, part.grad_enabled, part.whole, part.numbers
        )
        for part in parts
    ]


def sweep_pieces(
    pieces: Sequence[ProgramPiece],
    options: CellOptions,
    namespace: Mapping[str, Any],
    progress: Callable[[str], None],
    *,
    train: bool,
) -> Sweep:
    """The program at every combination of what the options name, on copies of its arguments, compiled by the
    cell's own backend, for which ``-o`` holds, and the contestants of ``--compare``. UsageError,
    one line, for a size that the program's arguments do not have."""
    changes = {name: _meant(name, pieces, namespace) for name, _ in options.sizes}
    fn, _ = as_program(pieces)

    def make_inputs(dtype: Any = None, **sizes: int) -> tuple[Any, ...]:
        extents = {changes[name]: value for name, value in sizes.items() if changes[name]}
        made = varied(pieces, str(dtype or "").removeprefix("torch."), extents)
        return as_program([_with_numbers(piece, sizes) for piece in made])[1]

    def with_options(
        target: Callable[..., Any], *, backend: str, options: Any = None, **rest: Any
    ) -> Compiled:
        own = {**(settings_of(cell, backend).options or {}), **(options or {})}
        return compile(target, backend=backend, options=own or None, **rest)

    cell = options
    grid: dict[str, Any] = {"backend": options.compare}
    if len(options.modes) > 1:
        grid["mode"] = options.modes
    elif options.mode != "default":
        grid["mode"] = (options.mode,)
    if options.dtypes:
        grid["dtype"] = options.dtypes
    grid.update(options.sizes)
    return sweep(
        fn,
        make_inputs,
        grid,
        train=train,
        budget=2 * min(options.bench_seconds, _SECONDS),
        cold=options.cold,
        compile=with_options,
        progress=progress,
    )


def _meant(name: str, pieces: Sequence[ProgramPiece], namespace: Mapping[str, Any]) -> int:
    """The extent that a size names: itself (``64``), that of an argument (``x[0]``), or a variable's value; 0
    for a number that the program reads and no argument has as an extent."""
    known = sizes_of(pieces, {})
    places = {place: size.extent for size in known for place in size.where}
    extents = {size.extent for size in known}
    if name in places:
        return places[name]
    if name.isdigit() and int(name) in extents:
        return int(name)
    value = namespace.get(name)
    if type(value) is int and value in extents:
        return value
    if type(value) is int and any(name in piece.names for piece in pieces):
        return 0
    there = ", ".join(f"{size.extent} ({', '.join(size.where[:2])})" for size in known) or "none"
    raise UsageError(f"--size {name}: no argument has such an extent; there are {there}")


def _with_numbers(piece: ProgramPiece, sizes: Mapping[str, int]) -> ProgramPiece:
    """The piece with what it reads of the swept variables themselves."""
    pairs = zip(piece.names, piece.arguments, strict=True)
    changed = tuple(sizes[name] if name in sizes and type(value) is int else value for name, value in pairs)
    return dataclasses.replace(piece, arguments=changed)

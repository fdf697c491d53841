"""What a cell computes with jax: its jitted functions in the cell's record, and the fate of its lines."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbcompile.errors import in_one_line
from nbcompile.notebook.cell.planning import BY_JAX
from nbcompile.record.compilation import LineFate
from nbcompile.record.environment import detect
from nbcompile.record.recorder import Recorder

if TYPE_CHECKING:
    from nbcompile.backends.xla.calls import JittedCall
    from nbcompile.backends.xla.jitted import JittedProgram

ELSEWHERE = "the cell computes with jax: %%compile --backend xla shows what XLA makes of it"
"""Said under any other backend."""
NOT_JITTED = "the cell calls no jitted function directly: jax ran each operation by itself"


class JittedCell:
    """Notices the jitted functions that a cell under ``--backend xla`` calls. They run as they would without
    it; ``programs`` are what was recorded of them. ``cell_file`` is the name of the cell's code."""

    def __init__(self, cell_file: str) -> None:
        from nbcompile.backends.xla.calls import JitWatch

        self.programs: list[JittedProgram] = []
        self.cell_file = cell_file
        self._watch = JitWatch(cell_file)

    def start(self) -> None:
        """Before the cell runs."""
        self._watch.start()

    def stop(self) -> None:
        """After it: jax is as it was."""
        self._watch.stop()

    @property
    def calls(self) -> Sequence[JittedCall]:
        """The functions that were called, in the order of their first calls."""
        return self._watch.calls

    @property
    def unseen(self) -> bool:
        """Whether calls may have been missed, as the record says."""
        return bool(self._watch.notes)

    def record(self, recorder: Recorder, options: Mapping[str, Any]) -> None:
        """Add each function to the cell's record; of one that cannot be read, a sentence says so."""
        for note in self._watch.notes:
            recorder.add(note)
        if not self.calls:
            return
        from nbcompile.backends.xla.jitted import record_call

        if options:
            recorder.add("-o is for torch's graphs; a jitted function has jax.jit(compiler_options={...}).")
        for call in self.calls:
            try:
                self.programs.append(record_call(call, recorder))
            except Exception as error:  # a failure of ours is no failure of the cell's
                recorder.add(f"What XLA made of {call.name} cannot be shown: {in_one_line(error)}")
        if self.programs:
            recorder.environment = _environment(self.programs[0], recorder)

    def fates(self, lines: Sequence[LineFate]) -> tuple[LineFate, ...]:
        """The fates of the cell's lines, with those that jax ran."""
        return tuple(self._fate(line) for line in lines)

    def _fate(self, line: LineFate) -> LineFate:
        if line.fate == "unrun" or line.reason.startswith("raised"):
            return line
        here = range(line.line, line.end_line + 1)
        called = [f"{call.name} ({call.made_by})" for call in self.calls if not call.lines.isdisjoint(here)]
        if called:
            return dataclasses.replace(line, fate="compiled", reason=f"compiled by XLA: {_listed(called)}")
        if line.reason == BY_JAX:
            return dataclasses.replace(line, reason="jax ran each operation by itself")
        return line


def jax_notes(reasons: Sequence[str], jitted: JittedCell | None) -> Iterator[str]:
    """What the record of a cell says first if jax computed in it and nothing can be shown of that."""
    if BY_JAX in reasons:
        if jitted is None:
            yield ELSEWHERE
        elif not jitted.calls and not jitted.unseen:
            yield NOT_JITTED


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))


def _environment(program: JittedProgram, recorder: Recorder) -> Any:
    """Where XLA ran it: jax takes every core that there is, whatever torch is set to."""
    import jax

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    device = "cpu" if program.devices[0].platform == "cpu" else "cuda"
    known = recorder.environment or detect(device)
    threads = cores if device == "cpu" else known.threads
    return dataclasses.replace(known, threads=threads, compiler=f"jax {jax.__version__}")

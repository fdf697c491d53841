"""The cell's compiler: each part of a cell through :func:`nbcompile.compile`, all in one record."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import linecache
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.exc import Unsupported, UserError

from nbcompile.api import Compiled
from nbcompile.backends import registry
from nbcompile.compiler.capture.cell_to_function import CellStatement, make_function
from nbcompile.compiler.capture.fx_to_aten import CompileAten
from nbcompile.compiler.capture.lost.in_dynamo import mend_dynamo
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.fates import line_fates
from nbcompile.notebook.cell.fullgraph import explained, is_the_programs, place_of, refusal
from nbcompile.notebook.cell.jitting import JittedCell, jax_notes
from nbcompile.notebook.cell.planning import stays_global
from nbcompile.notebook.cell.surroundings import leave_limits_to_the_record, quiet_compile
from nbcompile.notebook.cell.tracebacks import CALL_FILE
from nbcompile.record.compilation import Cell, Compilation
from nbcompile.record.recorder import Recorder
from nbcompile.settings import CompileSettings

# These run a graph op by op, so that a failure in the middle leaves what was done in place before it.
_OP_BY_OP = frozenset({"eager", "eager_noexcept", "eager_debug", "cudagraphs"})


def settings_of(options: CellOptions, backend: str = "") -> CompileSettings:
    """What a cell asks of the compiler: its own, or ``backend``, which ``-o`` was then not meant for."""
    backend = backend or options.backend
    given: dict[str, Any] = options.mapping if backend == options.backend else {}
    if backend == "inductor":
        given = {name: _parsed(value) for name, value in given.items()}
    asked = CompileSettings(
        backend,
        None if options.mode == "default" else options.mode,
        given or None,
        options.dynamic,
        options.fullgraph,
        options.name or None,
        options.disable,
        options.recompile_limit,
    )
    return asked.drawing_as_eager()


def compile_part(
    function: Callable[..., Any],
    options: CellOptions,
    recorder: Recorder,
    *,
    whole: bool,
    compile_aten: CompileAten | None = None,
    watch: bool = False,
) -> Compiled:
    """One of several functions that share a record. ``whole``: as one graph; ``compile_aten`` as for
    :func:`nbcompile.compile`."""
    settings = dataclasses.replace(settings_of(options), fullgraph=whole)
    return Compiled(function, settings, compile_aten=compile_aten, recorder=recorder, watch=watch)


class CompiledCall:
    """``%compile f(x)``: a whole expression as a function of the names in it, called once."""

    def __init__(
        self,
        expression: str,
        namespace: dict[str, Any],
        options: CellOptions,
        progress: Callable[[str], None],
        execution_count: int | None = None,
    ) -> None:
        filename = CALL_FILE.format(next(_numbers))
        tree = ast.parse(expression, filename)
        linecache.cache[filename] = (len(expression), None, [expression + "\n"], filename)
        made = make_function(
            [CellStatement(0, tree.body[0], 0, 0, False, True)],
            name="compiled_call",
            filename=filename,
            bound=namespace,
            keep=[name for name, value in namespace.items() if stays_global(value)],
        )
        function = made.bind(namespace)
        cell = Cell(expression, filename, execution_count, body_starts=1)
        settings = settings_of(options)
        self._compiled = Compiled(function, settings, cell=cell, progress=progress, watch=options.watch)
        self.part = CellPart(
            members=(),
            function=made,
            call=self._compiled,
            bound=function,
            whole=options.fullgraph,
            code_names=tuple(name for name in made.code.co_names if name in namespace),
            arguments=tuple(namespace[name] for name in made.parameters),
            grad_enabled=torch.is_grad_enabled(),
        )

    def __call__(self) -> Any:
        try:
            with quiet_compile():
                return self._compiled(*self.part.arguments)[0]
        except (Unsupported, UserError) as error:
            refused = error
        if is_the_programs(refused):  # Python raises it
            return self.part.bound(*self.part.arguments)[0]
        raise refusal(*explained(refused), place_of(refused, "")) from None

    @property
    def compilation(self) -> Compilation:
        return self._compiled.compilation


_numbers = itertools.count(1)


class CellCompiler:
    """Compiles the parts of one cell. All of them share one recorder, and so one Compilation."""

    def __init__(self, options: CellOptions, cell: Cell, progress: Callable[[str], None]) -> None:
        leave_limits_to_the_record()
        mend_dynamo()
        self.options = options
        self.cell = cell
        self.progress = progress
        self.functional = options.backend not in _OP_BY_OP and options.backend in registry.names()
        self.compiled: list[Compiled] = []
        self.jitted: JittedCell | None = None  # what is called of jax's
        self._recorder: Recorder | None = None

    def __call__(self, function: types.FunctionType, *, whole: bool, numbers: tuple[str, ...]) -> Compiled:
        recorder = self._recorder_for(function.__code__.co_filename)
        made = compile_part(function, self.options, recorder, whole=whole, watch=self.options.watch)
        self.compiled.append(made)
        self.progress("capturing")
        return made

    def _recorder_for(self, filename: str) -> Recorder:
        if self._recorder is None:
            self.cell = dataclasses.replace(self.cell, filename=filename)
            self._recorder = settings_of(self.options).recorder(self.cell, self.progress)
        return self._recorder

    def record(self, run: CellRun) -> Compilation:
        """Everything known about the cell's compile, in the order of its lines where that matters."""
        jitted = self.jitted
        recorder = self._recorder_for(run.filename or (jitted.cell_file if jitted is not None else ""))
        if jitted is not None:
            jitted.record(recorder, self.options.mapping)
        compilation = recorder.compilation()
        breaks = sorted((*compilation.breaks, *run.breaks), key=lambda b: b.spans[0].line if b.spans else 0)
        lines = line_fates(run, compilation, recorder.ran_eagerly)
        reasons = [line.reason for line in lines] if not self.options.disable else []
        said = jax_notes(reasons, jitted)
        asked = ("--disable was given: nothing is compiled, nor timed",) if self.options.disable else ()
        if self.options.sweeps and not (
            self.options.bench or asked or self.options.doctor or self.options.check
        ):
            asked = (SWEPT_ALONE,)
        notes = (*asked, *said, *compilation.notes, *run.notes)
        if jitted is not None:
            lines = jitted.fates(lines)
        return dataclasses.replace(compilation, breaks=tuple(breaks), lines=lines, notes=notes)


SWEPT_ALONE = "the cell itself is not timed, as was asked; the sweep below it is, being made of times"


def _parsed(value: Any) -> Any:
    """``-o`` values for another backend than ours are Python's true, false and numbers, else text."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value

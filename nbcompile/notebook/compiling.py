"""The cell's compiler: each part of a cell through :func:`nbcompile.compile`, all in one record."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import linecache
import types
from collections.abc import Callable
from typing import Any

from nbcompile.api import Compiled, compile
from nbcompile.backends import registry
from nbcompile.capture.cell_to_function import CellStatement, make_function
from nbcompile.capture.fx_to_aten import CompileAten
from nbcompile.compilation import Cell, Compilation
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.planning import stays_global
from nbcompile.notebook.session import CellRun
from nbcompile.notebook.surroundings import quiet_compile
from nbcompile.options import Options
from nbcompile.recorder import Recorder

# These run a graph op by op, so that a failure in the middle leaves what was done in place before it.
_OP_BY_OP = frozenset({"eager", "eager_noexcept", "eager_debug", "cudagraphs"})


def backend_options(backend: str, options: CellOptions) -> dict[str, Any] | None:
    """Options for ``backend``, which need not be the one that ``-o`` was meant for."""
    given = options.mapping if backend == options.backend else {}
    if backend == "inductor":
        # Its own random numbers are others than eager's, and a cell must draw what it drew before.
        given = {"fallback_random": True, **{name: _parsed(value) for name, value in given.items()}}
    return given or None


def compile_callable(
    target: Callable[..., Any], options: CellOptions, progress: Callable[[str], None] | None = None
) -> Compiled:
    """``%compile``: a callable that already exists, through the backend asked for."""
    return compile(
        target,
        backend=options.backend,
        mode=_mode(options),
        fullgraph=options.fullgraph,
        dynamic=options.dynamic,
        options=backend_options(options.backend, options),
        **_rest(options),
        progress=progress,
    )


def compile_part(
    function: Callable[..., Any],
    options: CellOptions,
    recorder: Recorder,
    *,
    whole: bool,
    compile_aten: CompileAten | None = None,
) -> Compiled:
    """One of several functions that share a record. ``whole``: as one graph; ``compile_aten`` as for
    :func:`nbcompile.compile`."""
    return compile(
        function,
        backend=options.backend,
        mode=_mode(options),
        fullgraph=whole,
        dynamic=options.dynamic,
        options=backend_options(options.backend, options),
        **_rest(options),
        compile_aten=compile_aten,
        recorder=recorder,
    )


def new_recorder(
    options: CellOptions, cell: Cell | None, progress: Callable[[str], None] | None, name: str = ""
) -> Recorder:
    """A record of what is compiled with these options."""
    checked = Options.for_backend(options.backend, options.mapping, options.mode)
    return Recorder(checked, options.backend, cell, progress, name, options.mode)


class CompiledCall:
    """``%compile f(x)``: a whole expression as a function of the names in it, called once."""

    def __init__(
        self,
        expression: str,
        namespace: dict[str, Any],
        options: CellOptions,
        progress: Callable[[str], None],
    ) -> None:
        filename = f"<%compile {next(_numbers)}>"
        tree = ast.parse(expression, filename)
        linecache.cache[filename] = (len(expression), None, [expression + "\n"], filename)
        made = self.made = make_function(
            [CellStatement(0, tree.body[0], 0, 0, False, True)],
            name="compiled_call",
            filename=filename,
            bound=namespace,
            keep=[name for name, value in namespace.items() if stays_global(value)],
        )
        self.function = made.bind(namespace)
        self.arguments = tuple(namespace[name] for name in made.parameters)
        self._compiled = compile(
            self.function,
            backend=options.backend,
            mode=_mode(options),
            fullgraph=options.fullgraph,
            dynamic=options.dynamic,
            options=backend_options(options.backend, options),
            **_rest(options),
            cell=Cell(source=expression, filename=filename, body_starts=1),
            progress=progress,
        )

    def __call__(self) -> Any:
        with quiet_compile():
            return self._compiled(*self.arguments)[0]

    @property
    def compilation(self) -> Compilation:
        return self._compiled.compilation


_numbers = itertools.count(1)


class CellCompiler:
    """Compiles the parts of one cell. All of them share one recorder, and so one Compilation."""

    def __init__(self, options: CellOptions, cell: Cell, progress: Callable[[str], None]) -> None:
        self.options = options
        self.cell = cell
        self.progress = progress
        self.functional = options.backend not in _OP_BY_OP and options.backend in registry.names()
        self.compiled: list[Compiled] = []
        self._recorder: Recorder | None = None

    def __call__(self, function: types.FunctionType, *, whole: bool, numbers: tuple[str, ...]) -> Compiled:
        recorder = self._recorder_for(function.__code__.co_filename)
        made = compile_part(function, self.options, recorder, whole=whole)
        self.compiled.append(made)
        self.progress("capturing")
        return made

    def _recorder_for(self, filename: str) -> Recorder:
        if self._recorder is None:
            self.cell = dataclasses.replace(self.cell, filename=filename)
            self._recorder = new_recorder(self.options, self.cell, self.progress)
        return self._recorder

    def record(self, run: CellRun) -> Compilation:
        """Everything known about the cell's compile, in the order of its lines where that matters."""
        recorder = self._recorder_for(run.filename)
        compilation = recorder.compilation()
        breaks = sorted((*compilation.breaks, *run.breaks), key=lambda b: b.spans[0].line if b.spans else 0)
        return dataclasses.replace(compilation, breaks=tuple(breaks), notes=(*compilation.notes, *run.notes))


def backend_names() -> tuple[str, ...]:
    """Names for completion of ``--backend``."""
    return registry.names()


def _rest(options: CellOptions) -> dict[str, Any]:
    """The rest of torch.compile's arguments that a cell can give."""
    return {
        "disable": options.disable,
        "name": options.name or None,
        "recompile_limit": options.recompile_limit,
    }


def _mode(options: CellOptions) -> str | None:
    return None if options.mode == "default" else options.mode


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

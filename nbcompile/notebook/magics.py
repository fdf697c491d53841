"""``%load_ext nbcompile``: the ``%%compile`` cell magic, the ``%compile`` line magic, their defaults."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display
from traitlets import Bool, CaselessStrEnum, Float, Int, List, Unicode

from nbcompile.api import Compiled
from nbcompile.backends import registry
from nbcompile.backends.browse import OptionTable, list_options
from nbcompile.bench.measure.contestant import Kept
from nbcompile.compiler.capture.cell_to_function import prepare
from nbcompile.errors import OptionError
from nbcompile.notebook.arguments import (
    CellOptions,
    cell_options,
    options_of_magic,
    refuse_bound,
    split_expression,
    with_arguments,
)
from nbcompile.notebook.cell import hooks
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.coaching import coach_cell, is_to_be_coached
from nbcompile.notebook.cell.compiling import CellCompiler, CompiledCall, settings_of
from nbcompile.notebook.cell.jitting import JittedCell
from nbcompile.notebook.cell.measuring import (
    left_to_python,
    measure_cell,
    measure_jitted_cell,
    measure_parts,
    modes_of_cell,
    modes_of_parts,
    peers_key,
    to_be_measured,
    wanted,
    with_notes,
)
from nbcompile.notebook.cell.mended_program import MendedProgram
from nbcompile.notebook.cell.tracebacks import show_only_the_users
from nbcompile.notebook.checking import check_call, show_check
from nbcompile.notebook.completion import matcher
from nbcompile.notebook.display import Growing, save, show
from nbcompile.notebook.doctoring import doctor_parts
from nbcompile.notebook.exports import export_call
from nbcompile.notebook.kept import cache_report
from nbcompile.notebook.play import comm
from nbcompile.notebook.play.play import SESSION
from nbcompile.notebook.play.programs import CellProgram, ProgramPiece
from nbcompile.notebook.progress import OutputPlace
from nbcompile.notebook.sweeping import pieces_of_parts, sweep_pieces
from nbcompile.notebook.usage import check_callable, helpful
from nbcompile.options import PEER_MODES
from nbcompile.record.compilation import Cell, Compilation
from nbcompile.record.mode_diff import ModeDiff

if TYPE_CHECKING:
    from nbcompile.backends.xla.jitted import JittedProgram

_CELLS = 4  # whose peers are kept


@magics_class
class NbCompile(Magics):
    """Defaults of ``%%compile``: ``%config NbCompile.backend = "inductor"`` and so on."""

    backend = Unicode("nbcompile", help="backend where --backend is not given").tag(config=True)
    mode = CaselessStrEnum(PEER_MODES, "default", help="mode where --mode is not given").tag(config=True)
    fullgraph = Bool(False, help="treat every graph break as an error").tag(config=True)
    optimizer = Bool(False, help="compile the step() of optimizers too").tag(config=True)
    compare = List(
        Unicode(), ["eager", "nbcompile", "inductor"], help="contestants where --compare is not given"
    ).tag(config=True)
    bench = Bool(True, help="time each cell after it has run").tag(config=True)
    bench_seconds = Float(5.0, min=0.05, help="seconds that timing a cell may take").tag(config=True)
    cold = Bool(True, help="also time a compile with empty caches (Inductor: many seconds)").tag(config=True)
    show = List(Unicode(), [], help="parts to show where --show is not given; empty: all").tag(config=True)
    ranks_timeout = Float(600.0, min=1.0, help="seconds a cell may take with --ranks").tag(config=True)
    unroll = Int(16, min=0, help="a loop of at most so many steps may become part of one graph").tag(
        config=True
    )

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._ip: Any = shell  # IPython's methods are not typed
        self.board = hooks.Switchboard()
        self.plays = SESSION
        self._parser = cast(Any, type(self).compile).parser
        self._parser.error = helpful(self._parser)
        self._marker = hooks.CellMarker(self._accepts)
        self._transformer = hooks.CellTransformer(self._start, self._failed)
        self._matcher = matcher(self._parser._option_string_actions, registry.names)
        self._run: _Current | None = None
        self._count = 0
        self._raw, self._cell = "", ""
        self._peers: dict[Hashable, Kept] = {}

    # -- the magics ---------------------------------------------------------------------------------

    @no_var_expand
    @line_cell_magic
    @with_arguments
    @options_of_magic
    def compile(self, line: str, cell: str | None = None) -> Any:
        """Compile a cell, or with %compile one callable or call, and show all that happened.

        %%compile runs the cell exactly as it would run without the magic, its tensor statements
        compiled, and then shows what was captured, fused, generated and measured.

        %compile OPTIONS f(x) runs the call compiled and returns its result; %compile OPTIONS f
        returns the compiled callable, with its record in `.compilation`.
        """
        __tracebackhide__ = True
        if cell is None:
            try:
                return self._line(line)
            except BaseException as error:
                show_only_the_users(error)
                raise
        parsed = self._parser.parse_argstring(line)
        if parsed.help:
            print(self._parser.format_help())
            return None
        options = self._of_cell(parsed)
        if options.ranks:
            return self._on_ranks(line, cell, options)
        # Not through the input transformer: a cell magic inside this cell, or a call from a program.
        inner = cell if cell.lstrip().startswith("%%") else f"%%compile {line}\n{cell}"
        if inner is cell:
            print("nbcompile: put %%compile below the other cell magic; this cell ran without it.")
        self._ip.run_cell(inner).raise_error()
        return None

    def _line(self, line: str) -> Any:
        if "--list-options" in line.split():
            return self._options(line)
        parsed, expression = split_expression(line, self._parser.parse_argstring)
        if parsed.help:
            print(self._parser.format_help())
            return None
        if parsed.runs or parsed.cache:
            return self.plays.runs.index() if parsed.runs else cache_report()
        if parsed.ranks_stop:
            from nbcompile.notebook.ranks import stop

            return stop()
        if not expression:
            raise UsageError("%compile wants a callable or a call, e.g. %compile model(x)")
        options = cell_options(parsed, self._defaults())
        if options.export:
            place = OutputPlace(self._ip)
            report = export_call(expression, self._ip.user_ns, options, place.progress)
            place.clear()
            return report
        if options.check:
            return check_call(expression, self._ip.user_ns, options, OutputPlace(self._ip))
        tree = ast.parse(expression, mode="eval").body
        if isinstance(tree, ast.Name | ast.Attribute | ast.Subscript | ast.Lambda):
            target = self._ip.ev(expression)
            if not callable(target):
                raise UsageError(f"{expression} is not callable")
            check_callable(parsed, expression)
            if options.sweeps:
                raise UsageError(f"a sweep wants a call, e.g. %compile {expression}(x)")
            return self.plays.runs.followed(Compiled(target, settings_of(options), watch=options.watch))
        place = OutputPlace(self._ip)
        shown = self._ip.displayhook.prompt_count
        call = CompiledCall(expression, self._ip.user_ns, options, place.progress, shown)
        result = call()
        compilation, parts = call.compilation, [call.part]
        if wanted(compilation, options):
            compilation = self._measured(
                compilation, options, place,
                lambda record, watching: measure_parts(
                    parts, record, options, watching, train=options.train, what="forward"
                ),
            )  # fmt: skip
        modes = None
        if options.mode_diff:
            with self._interruptible():
                modes = modes_of_parts(parts, options, place.progress, train=options.train)
        self._remember(parts, self._ip.user_ns, compilation, options, options.train)
        self.plays.runs.remember("", compilation)
        self._deliver(compilation, options, place, modes)
        if options.sweeps:
            self._sweep(pieces_of_parts(parts), options, train=options.train)
        if options.doctor:
            doctor_parts(self._ip, parts, options, train=options.train)
        return result

    def _options(self, line: str) -> OptionTable:
        """``%compile --list-options [--backend NAME] [PATTERN]``"""
        parsed, rest = self._parser.parse_known_args(shlex.split(line))
        if rest[1:] or (rest and (parsed.list_options or rest[0].startswith("-"))):
            raise UsageError(f"--list-options takes one pattern, and this is one more: {' '.join(rest)}")
        try:
            return list_options(parsed.backend or self.backend, parsed.list_options or "".join(rest))
        except OptionError as error:
            raise UsageError(str(error)) from error

    def _on_ranks(self, line: str, cell: str, options: CellOptions) -> Any:
        from nbcompile.notebook.ranks import run_cell, show_ranks

        place = OutputPlace(self._ip)
        result = run_cell(self._ip, line, cell, options, place, self.ranks_timeout)
        if options.into:
            self._ip.user_ns[options.into] = result
        if options.save:
            save(result.compilation, options.save)
        show_ranks(result, place)
        show(result.compilation, options, OutputPlace(self._ip))
        return None if cell.rstrip().endswith(";") else result.shown

    def _measured(
        self, compilation: Compilation, options: CellOptions, place: OutputPlace,
        measure: Callable[[Compilation, Growing], Compilation],
    ) -> Compilation:  # fmt: skip
        """The record with its times; of measuring that was interrupted, with those taken until then."""
        growing, found = Growing(compilation, options, place, first=True), []
        with self._interruptible():
            found.append(measure(compilation, growing))
        if found:
            return found[0]
        shown = growing.compilation()
        told = ": what had been timed by then stands here" if shown.measurements else " before it had a time"
        return with_notes(shown, [f"Timing was stopped{told}."])

    def _peers_of(self, name: Hashable) -> Kept:
        """The peers of a cell, by :func:`peers_key`, as far as they have been compiled; those of the last few
        cells are kept."""
        kept = self._peers.pop(name, {})
        self._peers[name] = kept
        while len(self._peers) > _CELLS:
            del self._peers[next(iter(self._peers))]
        return kept

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Measuring may be stopped: what has run and what was recorded stay."""
        try:
            yield
        except KeyboardInterrupt:
            print("nbcompile: interrupted while measuring; the code itself had finished.")

    # -- a cell's life: accepted, started, asked (in session), finished -----------------------------

    def _accepts(self, line: str) -> bool:
        parsed = self._parser.parse_argstring(line)
        # On ranks a cell is no part of this session: the registered magic sends it there.
        return not (self._of_cell(parsed).ranks or parsed.help)

    def _of_cell(self, parsed: argparse.Namespace) -> CellOptions:
        if parsed.export:
            raise UsageError("--export is for a call: %compile --export model.pt2 model(x)")
        return cell_options(parsed, self._defaults())

    def _start(self, line: str, tree: ast.Module) -> ast.Module:
        options = self._of_cell(self._parser.parse_argstring(line))
        refuse_bound(options, tree)
        self._abandon()
        self._count += 1
        cell_file = hooks.hide_mark(line)
        prepared = prepare(
            tree,
            first_id=self.board.next_id,
            interactivity=self._ip.ast_node_interactivity,
            optimizer=options.optimizer,
            gated=options.fullgraph,
        )
        self.board.next_id = prepared.last_id + 1
        place = OutputPlace(self._ip)
        source = self._raw if self._raw.lstrip().startswith("%%compile") else f"%%compile {line}\n"
        # The number that the cell shows: newer versions of IPython count on before a cell runs.
        cell = Cell(source=source, execution_count=self._ip.displayhook.prompt_count)
        compiler = CellCompiler(options, cell, place.progress)
        run = CellRun(
            prepared, self._count, self.board, compiler,
            fullgraph=options.fullgraph, unroll=self.unroll, own_file=cell_file,
        )  # fmt: skip
        self._run = _Current(run, options, compiler, place)
        self.board.open(run)
        if options.backend == "xla" and not options.disable:
            compiler.jitted = JittedCell(cell_file)
            compiler.jitted.start()
        run.begun = time.perf_counter()
        return prepared.tree

    def _failed(self, error: Exception) -> None:
        kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
        print(f"nbcompile: this cell runs eagerly: {kind}{error}")

    def _before_cell(self, info: Any) -> None:
        self._raw, self._cell = info.raw_cell or "", getattr(info, "cell_id", None) or ""

    def _after_cell(self, result: Any) -> None:
        """Measure and show. Called by IPython when the cell is over, however it ended."""
        current, self._run = self._run, None
        if current is None:
            return
        run, options, place = current.run, current.options, current.place
        programs = current.stop_watching()
        run.namespace = run.namespace or self._ip.user_ns  # else its first part has found it
        run.finish(result.error_in_exec)
        modes = None
        try:
            compilation = self.plays.runs.since(self._cell, current.compiler.record(run))
            compilation, parts, train = to_be_measured(run, compilation, options)
            if result.success and not run.parts and not programs:
                compilation = left_to_python(run, compilation, options)
            elif wanted(compilation, options) and result.success:
                kept = self._peers_of(peers_key(run, compilation, options))
                compilation = self._measured(
                    compilation, options, place,
                    lambda record, watching: measure_cell(run, record, options, watching, kept),
                )  # fmt: skip
            if programs and result.success and options.bench:
                compilation = self._measured(
                    compilation, options, place,
                    lambda record, watching: measure_jitted_cell(programs, record, options, watching),
                )  # fmt: skip
            mended: tuple[MendedProgram, ...] = ()
            asked = options.doctor or (options.bench and wanted(compilation, options))
            if asked and result.success and is_to_be_coached(compilation):
                growing = Growing(compilation, options, place, "about to try mends")
                with self._interruptible():
                    compilation, mended = coach_cell(run, compilation, options, growing.progress, self._ip)
            if options.mode_diff and result.success and parts:
                growing = Growing(compilation, options, place, "about to compile in other modes")
                with self._interruptible():
                    told = growing.progress
                    compilation, modes = modes_of_cell(parts, compilation, options, told, train=train)
            if not result.success:
                line, what = run.raised or (0, "raised an error")
                who = f"Line {line}" if line else "The cell"
                compilation = with_notes(compilation, [f"{who} {what}, so nothing was measured."])
            if result.success and (parts or programs):
                compilation = self.plays.runs.since(self._cell, compilation)
                if parts:
                    self._remember(parts, run.namespace, compilation, options, train)
                self.plays.runs.remember(self._cell, compilation)
            self._deliver(compilation, options, place, modes)
            if options.check and result.success:
                with self._interruptible():
                    show_check(run, compilation, options, OutputPlace(self._ip))
            if options.sweeps and result.success and parts:
                self._sweep(pieces_of_parts(parts), options, train=train)
            if options.doctor and result.success:
                doctor_parts(self._ip, parts, options, train=train, of=compilation, mended=mended)
        except UsageError as error:
            print(f"nbcompile: {error}")
        except Exception as error:
            print(f"nbcompile: the cell ran, but its record failed: {type(error).__name__}: {error}")
        finally:
            self.board.close(run)

    def _remember(
        self,
        parts: list[CellPart],
        namespace: dict[str, Any],
        compilation: Compilation,
        options: CellOptions,
        train: bool,
    ) -> None:
        """Let the explorer change how this is compiled."""
        program = CellProgram.of_parts(parts, namespace, compilation, options, train)
        self.plays.remember(compilation.id, program)

    def _deliver(
        self, compilation: Compilation, options: CellOptions, place: OutputPlace, modes: ModeDiff | None
    ) -> None:
        """Show the record and what modes change. ``--into NAME`` binds these to NAME and NAME_modes."""
        if options.into:
            self._ip.user_ns[options.into] = compilation
            if modes is not None:
                self._ip.user_ns[f"{options.into}_modes"] = modes
        if options.save:
            print(f"nbcompile: {save(compilation, options.save)}")
        show(compilation, options, place)
        if modes is not None:
            display(modes)  # type: ignore[no-untyped-call]

    def _sweep(self, pieces: list[ProgramPiece], options: CellOptions, *, train: bool) -> None:
        """The table of a sweep, below the record."""
        place = OutputPlace(self._ip)
        found = sweep_pieces(pieces, options, self._ip.user_ns, place.progress, train=train)
        if options.sweep_into:
            self._ip.user_ns[options.sweep_into] = found
        place.show(found._repr_mimebundle_())

    def _abandon(self) -> None:
        """Forget a run that IPython never told us the end of (a silent cell)."""
        if self._run is not None:
            self._run.stop_watching()
            self.board.close(self._run.run)
            self._run = None

    def _defaults(self) -> CellOptions:
        return CellOptions(
            backend=self.backend,
            mode=self.mode,
            fullgraph=self.fullgraph,
            optimizer=self.optimizer,
            compare=tuple(self.compare),
            bench=self.bench,
            bench_seconds=self.bench_seconds,
            cold=self.cold,
            show=tuple(self.show),
        )

    # -- loading and unloading ----------------------------------------------------------------------

    def install(self) -> None:
        shell = self._ip
        shell.register_magics(self)
        shell.input_transformers_cleanup.append(self._marker)
        shell.ast_transformers.append(self._transformer)
        shell.events.register("pre_run_cell", self._before_cell)
        shell.events.register("post_run_cell", self._after_cell)
        completer = getattr(shell, "Completer", None)
        if completer is not None:
            completer.custom_matchers.append(self._matcher)
        self.board.install()
        hooks.install_mark()
        comm.register(shell, self.plays)

    def uninstall(self) -> None:
        shell = self._ip
        self._abandon()
        _remove(shell.input_transformers_cleanup, self._marker)
        _remove(shell.ast_transformers, self._transformer)
        shell.events.unregister("pre_run_cell", self._before_cell)
        shell.events.unregister("post_run_cell", self._after_cell)
        completer = getattr(shell, "Completer", None)
        if completer is not None:
            _remove(completer.custom_matchers, self._matcher)
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("compile", None)
        _remove(shell.configurables, self)
        self.board.uninstall()
        hooks.uninstall_mark()
        comm.unregister(shell)


@dataclasses.dataclass(frozen=True)
class _Current:
    run: CellRun
    options: CellOptions
    compiler: CellCompiler
    place: OutputPlace

    def stop_watching(self) -> list[JittedProgram]:
        """Leave jax as it was. The list will have its jitted functions once they are recorded."""
        jitted = self.compiler.jitted
        if jitted is None:
            return []
        jitted.stop()
        return jitted.programs


_loaded: dict[int, NbCompile] = {}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%load_ext nbcompile`` does; a second time it starts afresh."""
    unload_ipython_extension(shell)
    magics = NbCompile(shell)
    magics.install()
    _loaded[id(shell)] = magics


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """What ``%unload_ext nbcompile`` does."""
    magics = _loaded.pop(id(shell), None)
    if magics is not None:
        magics.uninstall()
    ranks = sys.modules.get("nbcompile.notebook.ranks")
    if ranks is not None:
        ranks.stop()


def _remove(items: list[Any], item: Any) -> None:
    if item in items:
        items.remove(item)

"""Mends of a cell's graph breaks, tried on copies after the cell has run: compiled, checked, timed. Pairs
that were kept apart for their cost are timed in one kernel, in the same way."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import linecache
import re
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from IPython.utils.capture import capture_output
from torch.utils._pytree import tree_leaves

from nbcompile.bench.measure.accuracy import NOT_IN_EAGER, check
from nbcompile.bench.measure.interrupts import FinishFirst
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.coach.source import Rewrite, names, unified
from nbcompile.coach.table import rewrites
from nbcompile.compiler.capture.cell_to_function import prepare
from nbcompile.errors import in_one_line
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.cell.cell_run import CellPart, CellRun
from nbcompile.notebook.cell.compiling import CellCompiler
from nbcompile.notebook.cell.harmless import hook_that_may_act, what_may_act
from nbcompile.notebook.cell.mended_program import SHOWN, MendedProgram, mended_program
from nbcompile.notebook.cell.other_cells import Mended, NotInPlaceError, OtherCell, other_cell, other_file
from nbcompile.notebook.cell.surroundings import quiet_compile
from nbcompile.record.advice.coach import OF_SIZES, Mend, Price
from nbcompile.record.compilation import Cell, Compilation, Decision, GraphBreak, Measurement, Recompile
from nbcompile.record.measured import TIE, Accuracy
from nbcompile.view.facts.why import timed_graphs

_SECONDS = 10.0  # for all mends of a cell: each compiles it once or twice
_CHAIN = 3  # breaks of a cell that are mended together
_CALLS, _TIMED = 30, 0.3
_AS_FAST = 0.97  # of the cell's speed as it is: with less another rewrite of the break is tried too
_PAIRS = 3  # of those that could be fused by force: the ones with the most bytes at stake
_SHORT = 2.0  # seconds that the cell took to compile, for which it is compiled once more for a pair
_numbers = itertools.count(1)


def coach_cell(
    run: CellRun,
    compilation: Compilation,
    options: CellOptions,
    progress: Callable[[str], None],
    shell: Any,
) -> tuple[Compilation, tuple[MendedProgram, ...]]:
    """The record with a price and a mend at each break and recompile, as far as these were found in time, and
    the mended cells as programs; and with a price at each pair that could be fused by force. ``shell``: the
    session's, whose cells may be rewritten."""
    cell = compilation.cell
    if not is_to_be_coached(compilation) or cell is None:
        return compilation, ()
    trials = _Trials(run, compilation, cell, options, time.monotonic() + _SECONDS, shell)
    refused = trials.refusal()
    found = []
    for number, item in enumerate(compilation.breaks, start=1):
        progress(f"trying mends, break {number} of {len(compilation.breaks)}")
        mend = Mend(note=refused) if refused else trials.mend(item)
        found.append(dataclasses.replace(item, mend=mend, price=_price(mend, compilation)))
    symbolic = None
    if options.dynamic is None and any(re.search(OF_SIZES, item.reason) for item in compilation.recompiles):
        progress("trying symbolic sizes")
        symbolic = Mend(note=refused) if refused else trials.symbolic()
    again = tuple(
        dataclasses.replace(
            item,
            price=_compiling(item, compilation),
            mend=symbolic if re.search(OF_SIZES, item.reason) else None,
        )
        for item in compilation.recompiles
    )
    decisions = compilation.decisions if refused else trials.decisions(progress)
    coached = dataclasses.replace(compilation, breaks=tuple(found), recompiles=again, decisions=decisions)
    return coached, tuple(trials.programs)


def is_to_be_coached(compilation: Compilation) -> bool:
    """Whether there is anything to try."""
    return bool(compilation.breaks or compilation.recompiles or _to_be_forced(compilation))


def _to_be_forced(compilation: Compilation) -> list[Decision]:
    """What could be fused by force, where compiling once more is quick: what moves the most bytes first."""
    if compilation.backend != "nbcompile" or compilation.compile_seconds > _SHORT:
        return []
    found = [each for each in compilation.decisions if each.forceable and not each.accepted]
    return sorted(found, key=lambda each: -each.bytes_saved)[:_PAIRS]


def _compiling(item: Recompile, compilation: Compilation) -> Price | None:
    """What compiling once more took."""
    own = [each.milliseconds for each in compilation.passes if each.after.split(".")[0] == item.graph]
    return Price(sum(own), graphs=1, how="compiling once more", once=True) if own else None


def _price(mend: Mend, compilation: Compilation) -> Price | None:
    """What a break costs: as its mend was timed, else an equal part of what graphs beside the first take."""
    share = len(compilation.breaks)
    own = [m for m in compilation.measurements if m.contestant == compilation.backend and m.median]
    if mend.after:
        before, after = mend.milliseconds_before, mend.milliseconds_after
        together = "" if share == 1 else f", {share} breaks together"
        timed = before is not None and after is not None
        return Price(
            _in_call(own, before, before - after) if before is not None and after is not None else None,
            mend.kernels_before - mend.kernels_after,
            mend.graphs_before - mend.graphs_after,
            measured=timed and not together,
            how=f"measured with and without{together}" if timed else f"counted{together}",
        )
    inside = [
        node.seconds * graph.runs
        for graph in compilation.of_stage("fused") for node in graph.nodes
        if node.seconds is not None
    ]  # fmt: skip
    graphs = timed_graphs(compilation) if own else 0
    if graphs < 2 or not inside:  # of one graph the time outside of its kernels would be there without breaks
        return None
    rest = max(0.0, (own[0].median or 0.0) - sum(inside)) * (graphs - 1) / graphs / share
    return Price(
        rest * 1e3,
        graphs=1 if graphs > share else None,
        how=f"estimated: an equal part of what {graphs} graphs take outside of kernels",
    )


def _in_call(own: list[Measurement], before: float, saved: float) -> float:
    """What was saved of ``before``, in milliseconds, as the same part of a call as the record has its time:
    that was taken at another moment, and a price is not to be more than the call."""
    median = own[0].median if own else None
    return saved / before * median * 1e3 if median and before > 0 else saved


@dataclasses.dataclass
class _Trial:
    """An edited cell that ran compiled."""

    record: Compilation
    run: CellRun
    options: CellOptions


@dataclasses.dataclass(frozen=True)
class _Place:
    """Whose text is rewritten: the cell's, or that of another cell that it calls into."""

    cell: Cell
    other: OtherCell | None = None

    @property
    def file(self) -> str:
        return self.other.file if self.other else ""

    @property
    def text(self) -> str:
        return self.other.text if self.other else self.cell.source

    @property
    def starts(self) -> int:
        return self.other.starts if self.other else self.cell.body_starts

    def own(self, text: str) -> str:
        """The cell's text to run, where this place's is ``text``."""
        return self.cell.source if self.other else text

    def mended(self, text: str) -> Mended:
        """While it is entered, what the other cell defined is as ``text`` has it."""
        return self.other.mended(text) if self.other else Mended()


class _Trials:
    def __init__(
        self, run: CellRun, compilation: Compilation, cell: Cell, options: CellOptions, until: float,
        shell: Any,
    ) -> None:  # fmt: skip
        self.run, self.compilation, self.cell, self.until = run, compilation, cell, until
        self.shell = shell
        self.options = dataclasses.replace(options, fullgraph=False, save="", into="", live=False)
        self.tried: dict[tuple[str, str], Mend] = {}
        self.held: dict[tuple[str, str], Mend] = {}
        self.programs: list[MendedProgram] = []

    def refusal(self) -> str:
        """Why the cell is not run again."""
        try:
            code = compile(self._tree(self.cell.source), "<cell>", "exec")
        except SyntaxError:
            return "the cell is not all Python"
        if acts := what_may_act(code, self.run.namespace):
            return f"not tried: what {acts} does may not be put back"
        with self._copies() as snapshot:
            held, acts = snapshot.unrestorable, hook_that_may_act(snapshot.tensors)
        if acts:
            return f"not tried: {acts}, may act outside this process"
        return f"not tried: {held[0]} cannot be put back" if held else ""

    def mend(self, item: GraphBreak) -> Mend:
        """The first rewrite that holds, of this break and of those that it leaves; or why none did. Where it
        is slower than the cell as it is, the fastest of those that hold."""
        why = "no rewrite is known for it"
        file = item.spans[-1].file if item.spans else ""
        other = (other_cell(self.shell, file) or other_file(file)) if file else None
        if file and other is None:
            return Mend(
                note="it breaks in text that is neither a cell's of this session nor a file's as imported"
            )
        place = _Place(self.cell, other)
        held: list[Mend] = []
        for first in rewrites(place.text, place.starts, item):
            if time.monotonic() > self.until:
                why = "no time was left to try it"
                break
            if (file, first.text) not in self.tried:
                self.tried[file, first.text] = self._chained(first, place)
            made = self.tried[file, first.text]
            if made.after:
                held.append(made)
                if made.speedup > _AS_FAST:
                    break
            why = f"{first.title}: {made.note}"
        return max(held, key=lambda made: made.speedup, default=Mend(note=why))

    def symbolic(self) -> Mend:
        """Sizes that are symbolic from the first compile, so that one serves all."""
        first, *rest = self.cell.source.split("\n")
        text = "\n".join((f"{first.rstrip()} --dynamic", *rest))
        place = _Place(self.cell)
        tried = self._compiled(text, place, dataclasses.replace(self.options, dynamic=True))
        if isinstance(tried, str):
            return Mend(note=f"--dynamic: {tried}")
        if tried.record.recompiles:
            return Mend(note=f"--dynamic: still compiled again: {tried.record.recompiles[0].reason}")
        return self._checked(text, "--dynamic", ["sizes are symbolic from the first compile"], tried, place)

    def decisions(self, progress: Callable[[str], None]) -> tuple[Decision, ...]:
        """The cell's own, with what it costs that pairs are apart which could be fused by force."""
        names = {node.id: node.name for graph in self.compilation.of_stage("loops") for node in graph.nodes}
        found = {}
        for each in _to_be_forced(self.compilation):
            pair = names.get(each.producer, ""), names.get(each.consumer, "")
            if time.monotonic() < self.until and all(pair):
                progress(f"timing {' and '.join(pair)} in one kernel")
                found[each.id] = self._fused_by_force(":".join(pair))
        return tuple(
            dataclasses.replace(each, price=price) if (price := found.get(each.id)) else each
            for each in self.compilation.decisions
        )

    def _fused_by_force(self, pair: str) -> Price | None:
        """None where it does not compile so, or the machine is too busy to tell."""
        known = self.options.mapping
        known["force_fuse"] = ",".join(filter(None, (known.get("force_fuse", ""), pair)))
        options = dataclasses.replace(self.options, options=tuple(known.items()))
        tried = self._compiled(self.cell.source, _Place(self.cell), options)
        if isinstance(tried, str):
            return None
        with self._copies():
            turns = _by_turns(self.run, tried.run, Mended())
        if turns is None:
            return None
        kernels = len(self.compilation.kernels) - len(tried.record.kernels)
        own = [m for m in self.compilation.measurements if m.contestant == self.compilation.backend]
        return Price(_in_call(own, turns.before * 1e3, turns.saved * 1e3), kernels, measured=True)

    def _chained(self, rewrite: Rewrite, place: _Place) -> Mend:
        title, notes = rewrite.title, [rewrite.note]
        for _ in range(_CHAIN):
            tried = self._compiled(rewrite.text, place)
            if isinstance(tried, str):
                return Mend(note=tried)
            left = tried.record.breaks
            if not left:
                # Two breaks that are mended together come to one text: it is checked, and timed, once.
                key = place.file, rewrite.text
                if key not in self.held:
                    self.held[key] = self._checked(rewrite.text, title, notes, tried, place)
                return self.held[key]
            here = left[0].spans and left[0].spans[-1].file == place.file
            following = next(rewrites(rewrite.text, place.starts, left[0]), None) if here else None
            if following is None or time.monotonic() > self.until:
                return Mend(note=f"it still breaks: {left[0].reason}")
            rewrite, title = following, f"{title}, {following.title}"
            notes.append(following.note)
        return Mend(note="it breaks at more places than are mended together")

    def _compiled(self, text: str, place: _Place, options: CellOptions | None = None) -> _Trial | str:
        """The cell with the text of ``place`` edited, run once; or why it did not compile."""
        scope, options = dict(self.run.namespace), options or self.options
        with self._copies(), capture_output(), quiet_compile():
            try:
                with place.mended(text):
                    run, compiler = self._run(place.own(text), scope, options)
            except NotInPlaceError as refusal:
                return str(refusal)
            except Exception as error:
                return f"as tried, it raises {in_one_line(error)}"
            record = compiler.record(run)
        if run.notes or not record.of_stage("fx"):
            return run.notes[0] if run.notes else "nothing was compiled"
        return _Trial(record, run, options)

    def _run(self, text: str, scope: dict[str, Any], options: CellOptions) -> tuple[CellRun, CellCompiler]:
        filename = f"<nbcompile mend {next(_numbers)}>"
        linecache.cache[filename] = (len(text), None, [f"{line}\n" for line in text.split("\n")], filename)
        board = self.run.board
        prepared = prepare(self._tree(text), first_id=board.next_id, interactivity="none")
        board.next_id = prepared.last_id + 1
        cell = dataclasses.replace(self.cell, source=text, filename=filename)
        compiler = CellCompiler(options, cell, lambda _: None)
        run = CellRun(prepared, next(_numbers) + 10**6, board, compiler, unroll=self.run.unroll)
        board.open(run)
        try:
            exec(compile(prepared.tree, filename, "exec"), scope)
            run.finish()
        finally:
            board.close(run)
        return run, compiler

    def _checked(self, text: str, title: str, notes: list[str], tried: _Trial, place: _Place) -> Mend:
        plain = compile(self._tree(self.cell.source), "<cell>", "exec")
        bound = [name for each in self._tree(self.cell.source).body for name in names(each, ast.Store)]

        def eager() -> dict[str, Any]:
            scope = dict(self.run.namespace)
            exec(plain, scope)
            return _results(scope, bound)

        def mended() -> dict[str, Any]:
            scope = dict(self.run.namespace)
            with place.mended(text):
                self._run(place.own(text), scope, tried.options)
            return _results(scope, bound)

        with self._copies() as snapshot, capture_output(), quiet_compile():
            try:
                rows = check(Step(eager), {"mend": Step(mended)}, snapshot)
                wrong = next((row for row in rows if not row.agrees), None)
                if wrong is not None:
                    twice = []
                    for _ in range(2):
                        snapshot.restore()
                        twice.append(eager())
                    return Mend(note=_difference(wrong, *twice))
            except Exception as error:
                return Mend(note=f"run again, the cell raises {in_one_line(error)}")
        if not rows:
            return Mend(note="it leaves nothing that could be compared with eager")
        with self._copies():
            turns = _by_turns(self.run, tried.run, place.mended(text))
        record, before_it = tried.record, self.compilation
        mend = Mend(
            title,
            unified(place.text, text),
            text,
            "; ".join(dict.fromkeys(note for note in notes if note)),
            len(before_it.of_stage("fx")),
            len(record.of_stage("fx")),
            len(before_it.kernels),
            len(record.kernels),
            None if turns is None else turns.before * 1e3,
            None if turns is None else (turns.before - turns.saved) * 1e3,
            max((row.error for row in rows if row.error is not None), default=None),
            cell=place.other.name if place.other else "",
            before=place.other.text if place.other else "",
        )
        if _gains_nothing(mend):
            same = "as fast, and as many graphs and kernels" if turns else "as many graphs and kernels"
            return Mend(note=f"{title} would gain nothing: {same}")
        if tried.options == self.options:  # symbolic sizes are an option, not another program
            own, parts = (_parts(each) for each in (self.run, tried.run))
            self.programs += filter(None, [mended_program(own, parts, mend, place.mended(text))])
        return mend

    def _tree(self, text: str) -> ast.Module:
        """The text as Python; what its last line displays is bound to a name, to be compared too."""
        lines = text.split("\n")
        starts = self.cell.body_starts - 1
        tree = ast.parse("\n".join([""] * starts + lines[starts:]))
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            target = ast.copy_location(ast.Name(SHOWN, ast.Store()), last)
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
        return tree

    def _copies(self) -> _Restored:
        used = compile(self._tree(self.cell.source), "<cell>", "exec")
        # As a function of the session that does what the cell does: what it names leads to what may change.
        return _Restored({"cell": FunctionType(used, self.run.namespace)})


class _Restored:
    """All state that these lead to is as it was, once this is left."""

    def __init__(self, roots: dict[str, Any]) -> None:
        self.snapshot = Snapshot(roots)

    def __enter__(self) -> Snapshot:
        return self.snapshot

    def __exit__(self, *_: object) -> None:
        with FinishFirst():
            self.snapshot.restore()


def _difference(wrong: Accuracy, eager: dict[str, Any], again: dict[str, Any]) -> str:
    """In which name a mend's results are others; ``eager`` and ``again`` are eager's own of two runs."""
    place = re.fullmatch(r"output\['((.+)\.(\d+))'\]", wrong.output)
    key, name, number = place.groups() if place else ("", wrong.output, "0")
    name += f"[{number}]" if int(number) else ""
    if key in eager and key in again and not torch.equal(eager[key], again[key]):
        return f"{name} has another value at each run, in eager too: it cannot be compared"
    if wrong.reason == NOT_IN_EAGER:
        return f"as tried, {name} is a tensor or a number, and without it is none"
    return f"as tried, {name} differs from eager: {wrong.reason}"


def _gains_nothing(mend: Mend) -> bool:
    """Whether a call with it is as it was: it is no help to offer that."""
    same = (mend.graphs_before, mend.kernels_before) == (mend.graphs_after, mend.kernels_after)
    return same and mend.milliseconds_before == mend.milliseconds_after


def _parts(run: CellRun) -> list[CellPart]:
    return [part for _, part in sorted(run.parts.items())]


def _results(scope: dict[str, Any], bound: list[str]) -> dict[str, Any]:
    """The tensors and numbers that the cell left in names of its own. Numbers become tensors: a mend may keep
    one where a number was."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(bound):
        for place, leaf in enumerate(tree_leaves(scope.get(name))):
            if isinstance(leaf, int | float) and not isinstance(leaf, bool):
                leaf = torch.tensor(leaf)
            if isinstance(leaf, torch.Tensor):
                found[f"{name}.{place}"] = leaf.detach()
    return found


@dataclasses.dataclass(frozen=True)
class _Turns:
    """Seconds of a call as it is, in the median. ``saved``: by turns, 0 where half of the turns do not tell
    which of the two is faster, or they are as near as makes no difference."""

    before: float
    saved: float


def _by_turns(one: CellRun, other: CellRun, mended: Mended) -> _Turns | None:
    """A call of all parts of each, by turns: ``other`` is called as mended. None where one cannot be called
    again, or the machine is too busy to tell."""
    runs = ((one, Mended()), (other, mended))
    parts = [_parts(run) for run, _ in runs]
    if not all(parts):
        return None
    arguments = {f"part {number}": part.arguments for number, part in enumerate([*parts[0], *parts[1]])}
    snapshot = Snapshot(arguments)
    times: tuple[list[float], list[float]] = ([], [])
    try:
        with capture_output(), quiet_compile():
            begun = None
            while begun is None or (len(times[0]) < _CALLS and time.perf_counter() - begun < _TIMED):
                for own, (_, surroundings), taken in zip(parts, runs, times, strict=True):
                    with surroundings:
                        start = time.perf_counter()
                        for part in own:
                            part.call(*part.arguments)
                        taken.append(time.perf_counter() - start)
                # The first may compile once more: the cell was not run with these very objects.
                if begun is None:
                    for taken in times:
                        taken.clear()
                    begun = time.perf_counter()
    except Exception:  # its values have moved on: no time, and none is claimed
        return None
    finally:
        snapshot.restore()
    found = [Measurement("cell", "mend", steady=tuple(taken)) for taken in times]
    before, after = (each.median for each in found)
    if before is None or after is None or any(each.shaky for each in found):
        return None
    saved = sorted(one - other for one, other in zip(*times, strict=True))
    low, middle, high = (saved[len(saved) * quarter // 4] for quarter in (1, 2, 3))
    told = (low > 0 or high < 0) and abs(middle) > (1 - TIE) * before
    return _Turns(before, middle if told else 0.0)

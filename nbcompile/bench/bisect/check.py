"""``nbcompile.check``: where the numbers, or an error, of a backend come from."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nbcompile.api import plain
from nbcompile.bench.bisect.cell_text import minimal_cell
from nbcompile.bench.bisect.graphs import take_graphs
from nbcompile.bench.bisect.judging import Judged, Symptom, judge, with_gradients
from nbcompile.bench.bisect.searching import Bisection, Culprit, within_aten
from nbcompile.bench.bisect.stages import StageCompiler, stages_of
from nbcompile.compiler.capture.decompositions import decompositions
from nbcompile.compiler.capture.graph_record import op_name
from nbcompile.errors import CheckError, in_one_line
from nbcompile.options import check_seconds
from nbcompile.record.check import CheckedStage, CheckReport, MinimalCell, NodeError
from nbcompile.record.compilation import Cell, Compilation, Graph, Node
from nbcompile.settings import CompileSettings, keywords_of, settings_given

Tell = Callable[[str], None]
SECONDS = 60.0
_WITHOUT = ("name", "disable", "fullgraph", "shapes_spec", "dynamic_shapes", "recompile_limit")


@keywords_of(CompileSettings, without=_WITHOUT)
def check(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    train: bool | None = None,
    seconds: float = SECONDS,
    progress: Tell | None = None,
    **settings: Any,
) -> CheckReport:
    """Find where a backend's results stop being eager's, or what it cannot compile.

    ``fn(*args, **kwargs)`` runs eagerly, in float64, and in each stage on the way to the backend. The first
    that is further from float64 than twice eager's error, or raises, is bisected: to the node of its graph,
    to the ATen operator in it, and to the smallest cell that shows it, which is run as printed. All state and
    random numbers are put back.

    backend, mode, options, dynamic: as for :func:`nbcompile.compile`.
    kwargs:     keyword arguments of ``fn``.
    train:      compare gradients too; by default where the result has any.
    seconds:    after which the program is not made smaller any more.
    progress:   called with one short sentence at each step.

    Raises CheckError where eager itself fails, OptionError for an unknown backend, mode or option.
    """
    check_seconds("seconds", seconds, zero=True)
    asked = settings_given("check", settings)
    if len(args) == 1 and isinstance(args[0], tuple):
        (args,) = args  # as for compare
    asked.check()
    given = Program(plain(fn), args, dict(kwargs or {}), None, train)
    return check_program(given, asked, seconds=seconds, progress=progress)


@dataclass(frozen=True)
class Program:
    """What is checked: a call, the cell that it is from, and whether with gradients (None: if it has any)."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cell: Cell | None = None
    train: bool | None = None
    name: str = ""


def check_program(
    program: Program, asked: CompileSettings, *, seconds: float = SECONDS, progress: Tell | None = None
) -> CheckReport:
    """:func:`check` of a call whose backend is known to be there."""
    tell = progress or (lambda _: None)
    start = time.monotonic()
    try:
        train = program.train
        if train is None:
            train = with_gradients(program.fn, program.args, program.kwargs)
    except Exception as error:
        raise CheckError(
            f"eager itself raises {in_one_line(error)}.",
            advice="Mend that first: there is nothing to compare with.",
        ) from error
    try:
        found = _checked(program, asked, train, start + seconds, tell)
    finally:
        gc.collect()  # some twenty compiles' graphs and code, in circles
    return dataclasses.replace(found, seconds=time.monotonic() - start)


def _checked(
    program: Program, asked: CompileSettings, train: bool, deadline: float, tell: Tell
) -> CheckReport:
    tried = _tried(program, asked, train, tell)
    name = program.name or str(getattr(program.fn, "__qualname__", type(program.fn).__qualname__))
    report = CheckReport(name, asked.backend_name, tuple(row for _, _, row in tried))
    wrong = next(((s, j) for s, j, _ in tried if j.went != "agrees"), None)
    if tried[-1][1].went == "agrees" or wrong is None:
        return dataclasses.replace(report, notes=_right_in_the_end(tried))
    stage, judged = wrong
    report = dataclasses.replace(report, stage=stage.name, went=judged.went, reason=judged.reason)
    return _Search(program, stage, judged, train, deadline, tell).add_to(report)


_Tried = tuple[StageCompiler, Judged, CheckedStage]


def _tried(program: Program, asked: CompileSettings, train: bool, tell: Tell) -> list[_Tried]:
    """Every stage run once."""
    found = []
    for stage in stages_of(asked):
        tell(f"checking: {stage.name}")
        began = time.monotonic()
        judged = judge(program.fn, program.args, stage.compile, kwargs=program.kwargs, train=train)
        if not judged.sound:
            said = in_one_line(judged.error) if judged.error is not None else "it cannot be run again"
            raise CheckError(
                f"nothing can be compared with eager: {said}.",
                advice="Pass what the program can be called with twice.",
            ) from judged.error
        if judged.went == "agrees" and not any(item.is_compared for item in judged.found):
            raise CheckError(
                "there is nothing to compare: no tensor or number is returned, changed or put anywhere.",
                advice="Return what is to be checked.",
            )
        worst = judged.worst
        row = CheckedStage(
            stage.name,
            stage.meaning,
            judged.went,
            worst.error if worst else None,
            worst.eager_error if worst else None,
            worst.output if worst else "",
            judged.reason,
            judged.eager_reason,
            time.monotonic() - began,
        )
        found.append((stage, judged, row))
    return found


def _right_in_the_end(tried: list[_Tried]) -> tuple[str, ...]:
    early = [stage.name for stage, judged, _ in tried if judged.went != "agrees"]
    if not early:
        return ()
    return (f"{', '.join(early)} is wrong, and {tried[-1][0].name}, which was asked for, is not",)


class _Search:
    """From the first wrong stage to the operator and the cell."""

    def __init__(
        self, program: Program, stage: StageCompiler, judged: Judged, train: bool, deadline: float, tell: Tell
    ) -> None:
        self.program, self.stage, self.train, self.deadline, self.tell = program, stage, train, deadline, tell
        self.symptom = Symptom(judged.error)
        self.notes: list[str] = []

    def add_to(self, report: CheckReport) -> CheckReport:
        """The report with what was found."""
        program = self.program
        self.tell("checking: the captured graphs")
        graphs, record = take_graphs(program.fn, program.args, program.kwargs, program.cell, None)
        for place, graph in enumerate(graphs):
            self.tell(f"checking: {len(graph.nodes)} nodes of graph {place}")
            bisection = Bisection(graph, self.stage.compile, self.symptom, self.deadline)
            culprit = bisection.run(self.train)
            if bisection.late:
                self.notes.append("the time was over before the program was as small as it gets")
            if culprit is not None:
                stage = next(iter(record.of_stage("fx")[place : place + 1]), None)
                return self._named(report, culprit, record, stage)
        self.notes.append(
            "no captured graph shows it by itself: it is in what joins them, or in what is outside of them"
        )
        return dataclasses.replace(report, record=record, notes=tuple(self.notes))

    def _named(
        self, report: CheckReport, culprit: Culprit, record: Compilation, drawn: Graph | None
    ) -> CheckReport:
        known = {node.name: node for node in drawn.nodes} if drawn is not None else {}
        own = [known[node.name] for node in culprit.nodes if node.name in known]
        within = " + ".join(op_name(node) for node in culprit.nodes)
        self.tell(f"checking: {within}")
        operator, part = within, "backward" if culprit.train else "forward"
        table = decompositions(self.stage.settings.own_options) if self.stage.settings.ours else None
        aten = (
            within_aten(culprit, self.stage.compile, self.symptom, self.deadline, table)
            if culprit.alone and self.stage.name != "captured"
            else None
        )
        if aten is not None:
            operator, part = op_name(aten[0].nodes[0]), aten[1]
        self.tell("checking: the smallest cell")
        errors = _node_errors(culprit, known)
        return dataclasses.replace(
            report,
            operator=operator,
            within=within if within != operator else "",
            part=part,
            spans=own[0].spans if own else (),
            source=own[0].text if own else "",
            cell=self._cell(culprit, aten[0] if aten is not None else None),
            nodes=errors,
            record=_with_errors(record, errors),
            notes=tuple(self.notes),
        )

    def _cell(self, culprit: Culprit, aten: Culprit | None) -> MinimalCell | None:
        """In the program's own words if that shows it, else in ATen's."""
        best: MinimalCell | None = None
        for found in (culprit, aten):
            if found is None:
                continue
            try:
                cell = minimal_cell(found.cut, self.stage, self.symptom, found.train)
            except Exception as error:
                said = error.message if isinstance(error, CheckError) else in_one_line(error)
                self.notes.append(f"the smallest program is no cell: {said}")
                continue
            if cell.shows:
                return cell
            best = best or cell
        return best


def _node_errors(culprit: Culprit, known: Mapping[str, Node]) -> tuple[NodeError, ...]:
    """The errors of the captured nodes, where their values were compared, in order."""
    out = []
    for name, item in culprit.errors.items():
        node = known.get(name)
        if node is not None:
            line = node.spans[0].line if node.spans else None
            went = "agrees" if item.agrees else "differs"
            out.append(
                NodeError(
                    node.id, name, node.op, went, item.error, item.eager_error, line,  # type: ignore[arg-type]
                    "" if item.agrees else item.reason,
                )
            )  # fmt: skip
    return tuple(out)


def _with_errors(record: Compilation, errors: tuple[NodeError, ...]) -> Compilation:
    """The record, its nodes with their errors."""
    known = {each.id: each for each in errors}
    graphs = tuple(
        dataclasses.replace(
            graph,
            nodes=tuple(
                dataclasses.replace(n, error=known[n.id].error, differs=known[n.id].went == "differs")
                if n.id in known
                else n
                for n in graph.nodes
            ),
        )
        for graph in record.graphs
    )
    return dataclasses.replace(record, graphs=graphs)

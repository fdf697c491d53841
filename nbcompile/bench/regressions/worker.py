"""What a process of ``nbcompile bench`` does: list the cases of a suite, or compile and time one of them."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

from nbcompile.bench.regressions.suite import SuiteCase, SuiteSettings, load
from nbcompile.errors import SuiteError, in_one_line
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings


def cases_of(suite: str) -> list[tuple[str, int]] | SuiteError:
    """The names of a suite's cases with their lines; or what is wrong with it."""
    try:
        return [(case.name, case.factory.__code__.co_firstlineno) for case in load(suite)]
    except SuiteError as error:
        return error


def run_case(
    suite: str, root: str, name: str, settings: SuiteSettings
) -> tuple[Compilation, dict[str, str]] | str:
    """Compile, check and time one case: its record, and the sources below ``root`` that this points into; or,
    in a line, why there is none."""
    try:
        found = [case for case in load(suite) if case.name == name]
        if not found:
            raise SuiteError(f"there is no case {name}.")
        record = _measured(found[0], settings)
        return record, sources_of(record, root)
    except SuiteError as error:
        return error.message
    except Exception as error:  # the finding of this case, not our failure
        return in_one_line(error)


def _measured(case: SuiteCase, suite: SuiteSettings) -> Compilation:
    import torch  # only now: the cases of a suite are listed without it

    from nbcompile.api import Compiled
    from nbcompile.bench.measure.compare import Measuring, arguments_of, compare_with

    torch.set_num_threads(suite.threads)
    random.seed(0)
    torch.manual_seed(0)
    fn, inputs, more = case.make()
    settings = CompileSettings(suite.backend, suite.mode, suite.options or None, case.dynamic)
    how = Measuring(case.train, suite.budget, suite.threads)
    measured = compare_with(fn, inputs, ("eager", suite.backend), settings, how)
    if not more:
        return measured
    # The record of all calls; the times are those of the first inputs.
    compiled = Compiled(fn, settings)
    for each in (inputs, *more):
        args, kwargs = arguments_of(each)
        compiled(*args, **kwargs)
    return dataclasses.replace(
        compiled.compilation,
        measurements=measured.measurements,
        accuracy=measured.accuracy,
        notes=measured.notes,
    )


def sources_of(record: Compilation, root: str) -> dict[str, str]:
    """The text of each file below ``root`` that a span of the record points into, by its relative name."""
    files = {span.file for graph in record.graphs for node in graph.nodes for span in node.spans}
    files |= {span.file for item in record.breaks for span in item.spans}
    files |= {span.file for item in record.recompiles for span in item.spans}
    out = {}
    for file in sorted(files):
        path = Path(file)
        if file and path.is_relative_to(root) and path.is_file():
            out[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return out

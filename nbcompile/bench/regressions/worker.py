"""What one process of ``nbcompile bench`` does: list the cases of a suite, or compile and time one of them.

Run as ``python -m nbcompile.bench.regressions.worker REQUEST``, a JSON object; the answer is written to its
``answer``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbcompile.bench.regressions.suite import SuiteCase, load
from nbcompile.errors import SuiteError
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request: ``{"cases": [...]}`` without a ``case``, else ``{"record", "sources"}``."""
    cases = load(request["suite"])
    if not request.get("case"):
        return {
            "cases": [
                {"name": c.name, "line": c.factory.__code__.co_firstlineno, "train": c.train} for c in cases
            ]
        }
    found = [case for case in cases if case.name == request["case"]]
    if not found:
        raise SuiteError(f"there is no case {request['case']}.")
    record = run(found[0], request)
    return {"record": record.to_dict(), "sources": sources_of(record, request["root"])}


def run(case: SuiteCase, request: Mapping[str, Any]) -> Compilation:
    """Compile, check and time one case: its record."""
    import torch  # only now: the cases of a suite are listed without it

    from nbcompile.api import Compiled
    from nbcompile.bench.measure.compare import Measuring, arguments_of, compare_with

    torch.set_num_threads(request["threads"])
    random.seed(0)
    torch.manual_seed(0)
    fn, inputs, more = case.make()
    options = request["options"] or None
    settings = CompileSettings(request["backend"], request["mode"], options, case.dynamic)
    how = Measuring(case.train, request["budget"], request["threads"])
    measured = compare_with(fn, inputs, ("eager", request["backend"]), settings, how)
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


def _main(request: Mapping[str, Any]) -> int:
    try:
        said = answer(request)
    except SuiteError as error:
        said = {"suite_error": error.message, "line": error.line, "advice": error.advice}
    except Exception as error:  # the finding of this case, not our failure
        lines = str(error).strip().splitlines()
        said = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"}
    Path(request["answer"]).write_text(json.dumps(said, ensure_ascii=False), encoding="utf-8")
    return 0


if __name__ == "__main__":
    status = _main(json.loads(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # compilers' own worker processes are not waited for

"""What CONTRIBUTING says one touches to add something, held by adding it: a copy of the package gets a
lowering, a fusion rule, a schedule, a backend and a view, and a fresh process uses each of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Addition:
    """``files``: what is written at the end of a file of ``nbcompile/``, or, of a mapping, after each of
    these texts in it. ``program`` leaves what it sees in ``answer``; ``beside``: files that CONTRIBUTING
    counts and that are not of the package (the cases in ``tests/``)."""

    row: str
    files: dict[str, str | dict[str, str]]
    program: str
    expected: object
    beside: int = 0


LOWERING = '''

@lowering(
    aten._cdist_forward.default,
    samples=[Sample("rows", lambda g: ((tensor(g, 5, 3), tensor(g, 4, 3), 1.0, None), {}))],
)
def pairwise_distances(b: Builder, x: View, y: View, p: float, compute_mode: int | None) -> View:
    """The distance in the 1-norm of each row of ``x`` (M, K) from each of ``y`` (N, K): (M, N)."""
    if p != 1 or len(x.axes) != 2:
        raise LoweringError("only the 1-norm of matrices is a loop here")
    rows, columns = unsqueeze_dims(x, (1,)), unsqueeze_dims(y, (0,))
    return b.reduce("sum", b.pointwise(lambda a, c: op("abs", a - c), rows, columns), (2,))
'''

RULE = """
    if sum(loop.reduction == "max" for loop in loops) > 1:
        return Refusal("two-maxima", "one maximum a kernel is enough")"""

SCHEDULE = '''"""Numbers, which one program computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from nbcompile.compiler.schedule.schedule import Schedule, Work


@dataclass(frozen=True, kw_only=True)
class Alone(Schedule):
    """One program does it all."""

    name = "alone"
    meaning = "One program does it all."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        return cls(configs=()) if not work.values.nest.axes else None
'''

PRINTER = '''"""What one program does."""

from nbcompile.compiler.codegen.triton.nests import TritonNest
from nbcompile.compiler.stages import Config


class AloneNest(TritonNest):
    """No axes: there is nothing to hand out."""

    def write(self) -> None:
        p = self.printer([])
        self.store_all(p, self.values.stores, {})
        self.add(self.symbol, p, ["1"], [Config({}, 1)])
'''

IMPORT_SCHEDULE = "from nbcompile.compiler.schedule.alone import Alone\n"
IMPORT_PRINTER = "from nbcompile.compiler.codegen.triton.schedules.alone import AloneNest\n"

BACKEND = '''"""Every graph as Dynamo captured it, and a word about its size."""

from nbcompile.backends.base import Backend, of_torch

BACKEND = Backend("captured", "the captured graph, run as it is", of_torch("eager"))
'''

RECORD = '''"""How many kernels each graph of a record became."""

from dataclasses import dataclass

from nbcompile.record.shown import Shown


@dataclass(frozen=True)
class KernelCounts(Shown):
    """Kernels by graph."""

    report = "kernel_counts"
    counts: tuple[tuple[str, int], ...]
'''

REPORT = '''"""Kernel counts, as text and HTML."""

from nbcompile.record.kernel_counts import KernelCounts
from nbcompile.view.reports import report


def to_text(value: KernelCounts) -> str:
    return report.to_text("Kernels", _sections(value))


def to_html(value: KernelCounts) -> str:
    return report.to_html("Kernels", _sections(value))


def _sections(value: KernelCounts) -> list[report.Section]:
    return [report.Section("", ("graph", "kernels"), tuple((name, str(n)) for name, n in value.counts))]
'''

ADDITIONS = [
    Addition(
        "an operator",
        {"compiler/lower/operators/reductions.py": LOWERING},
        """
        x, y = torch.randn(5, 3), torch.randn(4, 3)
        compiled = nbcompile.compile(lambda a, b: torch.cdist(a, b, 1.0))
        from nbcompile.compiler.lower.registry import registry
        entry = registry().lowerings[torch.ops.aten._cdist_forward.default]
        assert [sample.name for sample in entry.samples] == ["rows"]
        assert torch.allclose(compiled(x, y), torch.cdist(x, y, 1.0))
        record = compiled.compilation
        kinds = [node.kind for graph in record.graphs if graph.stage == "loops" for node in graph.nodes]
        answer = len(record.kernels), "fallback" in kinds
        """,
        [1, False],
    ),
    Addition(
        "a fusion rule",
        {"compiler/fuse/legality.py": {"    stored = uses.stored(loops)\n": RULE.lstrip("\n") + "\n"}},
        """
        f = lambda x: (x.amax(1), (-x).amax(1))
        x = torch.randn(64, 64)
        compiled = nbcompile.compile(f)
        assert all(torch.equal(*pair) for pair in zip(compiled(x), f(x)))
        record = compiled.compilation
        answer = len(record.kernels), sorted({each.code for each in record.decisions if not each.accepted})
        """,
        [2, ["two-maxima"]],
        beside=1,
    ),
    Addition(
        "a schedule",
        {
            "compiler/schedule/alone.py": SCHEDULE,
            "compiler/schedule/__init__.py": {
                "from nbcompile.compiler.loop_ir.nodes import Buffer\n": IMPORT_SCHEDULE,
                '    "points": (': "Alone, ",
            },
            "compiler/codegen/triton/schedules/alone.py": PRINTER,
            "compiler/codegen/triton/schedules/__init__.py": {
                "from nbcompile.compiler.codegen.triton.nests import TritonNest\n": IMPORT_PRINTER
                + IMPORT_SCHEDULE,
                "PRINTERS: dict[type[Schedule], type[TritonNest] | Any] = {\n": "    Alone: AloneNest,\n",
            },
        },
        """
        seen = []
        for size in ((), (4,)):
            compiled = nbcompile.compile(torch.exp, options={"interpret": True})
            x = torch.ones(size)
            assert torch.allclose(compiled(x), x.exp()) and compiled.ran_compiled
            seen += [kernel.schedule for kernel in compiled.compilation.kernels]
        answer = seen
        """,
        ["alone", "pointwise"],
    ),
    Addition(
        "a backend",
        {"backends/captured.py": BACKEND},
        """
        compiled = nbcompile.compile(torch.sin, backend="captured")
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin())
        from nbcompile.backends.registry import backends
        answer = "captured" in backends()
        """,
        True,
    ),
    Addition(
        "a view",
        {"record/kernel_counts.py": RECORD, "view/reports/kernel_counts.py": REPORT},
        """
        from nbcompile.record.kernel_counts import KernelCounts
        value = KernelCounts((("g0.fw", 2),))
        answer = "g0.fw  2" in str(value), "<td" in value._repr_html_()
        """,
        [True, True],
    ),
]


def counted(text: str) -> dict[str, int]:
    """The files that the table of CONTRIBUTING promises, by its first column's text."""
    rows = re.findall(r"^\| \[(.+?)\]\(.+?\) \| (\d+)", text, re.M)
    return {name: int(number) for name, number in rows}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What each program sees, in one process with all additions in one copy of the package."""
    folder = tmp_path_factory.mktemp("additions")
    package = folder / "nbcompile"
    shutil.copytree(ROOT / "nbcompile", package, ignore=shutil.ignore_patterns("__pycache__", "static"))
    for addition in ADDITIONS:
        for name, text in addition.files.items():
            path = package / name
            path.parent.mkdir(parents=True, exist_ok=True)
            old = path.read_text(encoding="utf-8") if path.exists() else ""
            for anchor, added in text.items() if isinstance(text, dict) else ():
                assert old.count(anchor) == 1, f"{name}: where {addition.row} is added is not clear"
                old = old.replace(anchor, anchor + added)
            path.write_text(old + (text if isinstance(text, str) else ""), encoding="utf-8")
    program = ["import json, torch, nbcompile", "answers = {}"]
    for addition in ADDITIONS:
        lines = [line.removeprefix(" " * 8) for line in addition.program.strip("\n").splitlines()]
        program += [*lines, f"answers[{addition.row!r}] = answer"]
    program += ["print(json.dumps([nbcompile.__file__, answers]))"]
    script = folder / "use.py"
    script.write_text("\n".join(program), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    used, found = json.loads(done.stdout.splitlines()[-1])
    assert Path(used).is_relative_to(folder), "another copy of the package was used"
    return dict(found)


@pytest.mark.nightly
@pytest.mark.parametrize("addition", ADDITIONS, ids=lambda addition: addition.row)
def test_what_is_added_works_and_touches_as_many_files_as_contributing_says(
    addition: Addition, answers: dict[str, object]
) -> None:
    assert answers[addition.row] == addition.expected
    promised = counted((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert promised[addition.row] == len(addition.files) + addition.beside

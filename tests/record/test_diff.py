"""What got worse between two records: real compiles of two versions of one program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.record.compilation import Accuracy, Compilation, Measurement, Recompile, Span
from nbcompile.record.diff import Change, changes
from nbcompile.record.matching import RecordedProgram, RecordMatching, line_map

BASE = """import torch
def f(x):
    y = torch.softmax(x, -1)
    z = y * 2
    return z, x.sum(0)
"""


def compiled(source: str, *inputs: Any, **settings: Any) -> RecordedProgram:
    """The record of ``f`` of this source, as a bench keeps it."""
    space: dict[str, Any] = {}
    exec(compile(source, "/project/suite.py", "exec"), space)
    made = nbcompile.compile(space["f"], **settings)
    for each in inputs or (torch.ones(64, 64),):
        made(each)
    return RecordedProgram(made.compilation, "/project", {"suite.py": source})


@pytest.fixture(scope="module")
def base() -> RecordedProgram:
    return compiled(BASE)


def of(found: tuple[Change, ...], verdict: str) -> list[tuple[str, str, str]]:
    return [(c.kind, c.where, c.message) for c in found if c.verdict == verdict]


def test_the_same_program_moved_down_is_the_same(base: RecordedProgram) -> None:
    moved = compiled(BASE.replace("def f", "# new\n\n\ndef f"))
    assert changes(base, moved) == ()
    matching = RecordMatching(base, moved)
    assert set(matching.before.values()) == set(matching.after.values())


def test_a_lost_fusion_names_the_pair_its_line_and_the_reason(base: RecordedProgram) -> None:
    apart = compiled(BASE.replace("def f", "\ndef f"), options={"no_fuse": "_softmax:mul"})
    worse = of(changes(base, apart), "regression")
    assert [kind for kind, _, _ in worse] == ["kernels", "fusions"]
    count = (len(apart.record.kernels), len(base.record.kernels))
    assert worse[0][2].startswith(f"{count[0]} kernels, {count[1]} before") and count[0] > count[1]
    assert worse[1][1] == "suite.py:5"
    assert worse[1][2].startswith("_softmax → mul are no longer one kernel, 32.8 kB of memory traffic more")
    assert "refused: you asked not to fuse this pair" in worse[1][2]
    better = of(changes(apart, base), "improvement")
    assert [kind for kind, _, _ in better] == ["kernels", "fusions"]
    assert better[1][1:] == (
        "suite.py:4",
        "_softmax → mul are one kernel now, 32.8 kB of memory traffic less",
    )


def test_a_new_break_has_its_line_and_reason(base: RecordedProgram) -> None:
    broken = compiled(BASE.replace("    z =", "    print('')\n    z ="))
    worse = of(changes(base, broken), "regression")
    assert (
        "breaks",
        "suite.py:4",
        "new graph break: print() writes to the screen, which a graph cannot do",
    ) in worse
    assert [kind for kind, _, _ in of(changes(broken, base), "improvement")].count("breaks") == 1
    # The same break on a line further down is no new one.
    lower = compiled(BASE.replace("def f", "\n\ndef f").replace("    z =", "    print('')\n    z ="))
    assert changes(broken, lower) == ()


def test_a_new_recompile_is_told() -> None:
    once = compiled(BASE, torch.ones(64, 64))
    twice = compiled(BASE, torch.ones(64, 64), torch.ones(32, 64))
    worse = of(changes(once, twice), "regression")
    assert "recompiles" in [kind for kind, _, _ in worse]


def test_generated_code_that_becomes_a_call_is_told() -> None:
    ours = compiled("def f(x):\n    return (x + 1).cumsum(0) * 2\n")
    more = compiled("def f(x):\n    return (x + 1).cumsum(0) * 2 @ x\n")
    assert [kind for kind, _, _ in of(changes(ours, more), "note")] == ["calls"]
    # A kernel whose work is a call now: the same ATen node, another fate.
    record = ours.record
    kernel = record.kernels[0]
    loop = kernel.loops[0]
    graphs = []
    for graph in record.graphs:
        nodes = graph.nodes
        if graph.stage == "loops":
            nodes = tuple(dataclasses.replace(n, kind="fallback") if n.id == loop else n for n in nodes)
        if graph.stage == "fused":
            call = next(n for g in record.graphs for n in g.nodes if n.id == loop)
            call = dataclasses.replace(call, kind="fallback", op="aten.add", note="no lowering")
            nodes = (*(n for n in nodes if n.id != kernel.id), call)
        graphs.append(dataclasses.replace(graph, nodes=nodes))
    kernels = tuple(k for k in record.kernels if k is not kernel)
    fallen = dataclasses.replace(record, graphs=tuple(graphs), kernels=kernels)
    worse = of(changes(ours, dataclasses.replace(ours, record=fallen)), "regression")
    assert ("fallbacks", "suite.py:2", "what was generated code calls aten.add now (no lowering)") in worse


def with_results(
    program: RecordedProgram, ran: bool = True, error: float = 1e-7, agrees: bool = True
) -> RecordedProgram:
    one = Measurement(
        "forward", "nbcompile", ran_compiled=ran, reason="" if ran else "ran eager: no compiler"
    )
    found = Accuracy("nbcompile", "output", error, 1e-7, agrees=agrees, reason="" if agrees else "far off")
    record = dataclasses.replace(program.record, measurements=(one,), accuracy=(found,))
    return dataclasses.replace(program, record=record)


@pytest.mark.parametrize(
    ("settings", "kind", "says"),
    [
        ({"ran": False}, "eager", "no compiled code runs any more: ran eager: no compiler"),
        ({"agrees": False}, "accuracy", "output does not agree with eager any more: far off"),
        ({"error": 3e-7}, "accuracy", "the error of output is 3.0e-07, was 1.0e-07 (eager's: 1.0e-07)"),
    ],
)
def test_eager_and_errors(base: RecordedProgram, settings: dict[str, Any], kind: str, says: str) -> None:
    good, bad = with_results(base), with_results(base, **settings)
    assert of(changes(good, bad), "regression") == [(kind, "", says)]
    assert [k for k, _, _ in of(changes(bad, good), "improvement")] == [kind]
    assert changes(good, good) == ()


def test_the_times_are_those_of_the_compiler_that_the_record_is_of(base: RecordedProgram) -> None:
    other = Measurement("forward", "inductor", ran_compiled=False, reason="not here")
    good = with_results(base)
    record = dataclasses.replace(good.record, measurements=(other, *good.record.measurements))
    assert changes(good, dataclasses.replace(good, record=record)) == ()


def test_an_error_within_eagers_own_has_not_grown(base: RecordedProgram) -> None:
    assert changes(with_results(base, error=1e-9), with_results(base, error=9e-8)) == ()


def test_kernels_of_two_backends_are_not_compared(base: RecordedProgram) -> None:
    other = dataclasses.replace(base.record, backend="inductor", kernels=())
    assert changes(base, RecordedProgram(other, base.root, base.sources)) == ()


def test_places_in_a_cell_have_no_file(base: RecordedProgram) -> None:
    def recompiled(record: Compilation) -> Compilation:
        return dataclasses.replace(record, recompiles=(Recompile("x changed", "f", "g1", (Span(3),)),))

    plain = RecordedProgram(base.record)
    worse = of(changes(plain, RecordedProgram(recompiled(base.record))), "regression")
    assert worse == [("recompiles", "line 3", "new recompile: x changed")]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda lines: lines, {1: 1, 2: 2, 3: 3}),
        (lambda lines: ["new", *lines], {1: 2, 2: 3, 3: 4}),
        (lambda lines: [lines[0], "y = x.exp() + 2", lines[2]], {1: 1, 2: 2, 3: 3}),
        (lambda lines: [lines[0], "completely(different)", lines[2]], {1: 1, 3: 3}),
    ],
)
def test_lines_are_followed(edit: Callable[[list[str]], list[str]], expected: dict[int, int]) -> None:
    lines = ["x = torch.ones(3)", "y = x.exp() + 1", "return y"]
    assert line_map("\n".join(lines), "\n".join(edit(lines))) == expected

"""The benchmark's and the operator database's own judgement: what they count, and what they say."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nbcompile.record.compilation import Graph, Node

SCRIPTS = Path(__file__).parents[2] / "scripts"


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.path.append(str(SCRIPTS))  # where a script finds those beside it
import opdb_cases  # noqa: E402

bench, opdb, backends_table = _load("bench"), _load("opdb"), _load("backends_table")


def test_bench_names_every_goal_met_and_missed() -> None:
    fast = bench.Row("fast", steady={"eager": [4.0, 4.0], "inductor": [2.0, 3.0], "ours": [1.0, 1.0]})
    slow = bench.Row("slow", steady={"eager": [1.0], "inductor": [1.0], "ours": [1.2]})
    fast.cold, slow.cold = {"inductor": 10.0, "ours": 1.0}, {"inductor": 40.0, "ours": 1.0}
    slow.failed = {"inductor": "MeasureError: died"}
    said = "\n".join(bench.verdict([fast, slow], "ours"))
    assert "run: geometric mean 1.44 times as fast as Inductor over 2 programs, from 0.83 to 2.50" in said
    assert "goal 1.3: met" in said
    assert "cold: geometric mean 20.00" in said and "goal 20: met" in said
    assert "slower than eager by 20%: slow" in said and "eager by 20%: fast" not in said
    assert "inductor has no time for slow: MeasureError: died" in said


def test_bench_ratios_are_taken_round_by_round() -> None:
    row = bench.Row("x", steady={"inductor": [2.0, 8.0], "ours": [1.0, 2.0]})
    assert row.ratios("inductor", "ours") == [2.0, 4.0]
    assert bench.spread(row.ratios("inductor", "ours")) == "3.00 (2.20–3.80)"
    table = bench.run_table([row], "ours", True).splitlines()
    assert len(table) == 3 and table[1].startswith("| --- |") and "3.00 (2.20–3.80)" in table[2]


def test_bench_figures_are_rows_as_long_as_their_header() -> None:
    row = bench.Row("x", steady={"eager": [1.0], "inductor": [2.0], "ours": [1.0]})
    row.new_kernel = {"inductor": [3.0, 4.0, 5.0], "ours": [0.5, 0.5, 0.5]}
    arguments = argparse.Namespace(ours="ours", threads=2, quick=False, load=0.0)
    figures = bench.figures([row], arguments)
    assert all(len(line) == len(figures["columns"]) for line in figures["rows"])
    assert figures["rows"][0][-2:] == ["-", "4.00 s / 0.50 s"] and "2 threads" in figures["caption"]


def test_opdb_verdicts() -> None:
    one = torch.ones(3)

    def verdict(
        got: object, expected: object, name: str = "sin", exact: object = None, again: object = None
    ) -> str:
        named = [value if isinstance(value, Exception) else {"result 0": value} for value in (got, expected)]
        more = expected if again is None else again
        return str(opdb.verdict(name, *named, lambda: {"result 0": exact}, lambda: {"result 0": more})[0])

    assert verdict(one.clone(), one) == "agree"
    assert verdict(one + 1e-3, one) == verdict(one.double(), one) == verdict(torch.ones(4), one) == "disagree"
    assert verdict(one + 1e-3, one, exact=one.double()) == "disagree"
    assert verdict(one + 1e-3, one, exact=one.double() + 1e-3) == "agree"  # eager is the one that is off
    assert verdict(one + float("nan"), one, exact=one.double()) == "disagree"
    assert verdict(2, 3) == "disagree"
    assert verdict(ValueError("no"), one) == "error"
    assert verdict(one, ValueError("no")) == "disagree"
    assert verdict(ValueError("no"), ValueError("no")) == "both raise"
    assert verdict(one * 7, one, "empty") == "uninitialised"
    assert verdict(torch.ones(4), one, "empty") == "disagree"
    more = {"result 0": one, "gradient of input 0": one}
    assert opdb.verdict("sin", {"result 0": one}, more, dict, dict)[0] == "disagree"
    count = torch.ones(3, dtype=torch.int64)
    assert verdict(count + 1, count) == "disagree"
    assert verdict(count + 1, count, again=count + 2) == "uninitialised"  # nor does eager know it
    assert verdict(one + 1, one, again=one + 2) == "disagree"
    half, infinite = torch.tensor([14.6]).half(), torch.tensor([float("inf")]).half()
    assert (
        verdict(half, infinite, exact=torch.tensor([14.6]).double()) == "agree"
    )  # eager overflows on the way
    assert verdict(half, infinite, exact=torch.tensor([14.9]).double()) == "disagree"
    assert verdict(half, infinite, exact=torch.tensor([1e6]).double()) == "disagree"
    assert verdict(infinite, half, exact=torch.tensor([14.6]).double()) == "disagree"


def test_opdb_compares_gradients_and_inputs_that_change() -> None:
    def case(program: object) -> object:
        def make(to: object) -> object:
            return program, opdb_cases.copied((torch.arange(3.0, requires_grad=True), torch.ones(3)), to), {}

        return opdb_cases.Case(make)

    def right(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x * x

    def wrong_gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x.detach() * x

    def wrong_input(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * x

    found = [opdb_cases.results(case(f), lambda f: f) for f in (right, wrong_gradient, wrong_input)]
    assert found[0].keys() == {"result 0", "input 0", "input 1", "gradient of input 0"}
    reasons = [
        opdb.verdict("f", each, found[0], lambda: found[0], dict)[1].partition(":")[0] for each in found
    ]
    assert reasons == ["", "gradient of input 0", "input 1"]


def test_opdb_counts_graphs_that_were_not_lowered_as_fallbacks() -> None:
    nodes = (
        Node("g0.fw.n0", "a", "aten.sin.default", "compute"),
        Node("g0.fw.n1", "b", "aten.mm.default", "library"),
        Node("g0.fw.n2", "c", "aten.view.default", "view"),
    )
    forward, loops = Graph("g0.fw", "forward", "", nodes), Graph("g0.fw.loops", "loops", "", parent="g0.fw")
    lowered, eager = opdb.Outcome("x", "agree"), opdb.Outcome("x", "agree")
    opdb.count_nodes(lowered, (forward, loops))
    assert lowered.nodes == {"compute": 1, "library": 1, "view": 1}
    opdb.count_nodes(eager, (forward,))
    assert eager.nodes == {"fallback": 2, "view": 1}
    text = opdb.report("nbcompile", [lowered, eager])
    assert "2 of 2 agree" in text and "1 of 4 (25.0%)" in text and "aten.mm.default (library) ×1" in text


@pytest.mark.parametrize("hung", [False, True])
def test_opdb_loses_one_operator_to_a_crash_and_goes_on_with_the_rest(tmp_path: Path, hung: bool) -> None:
    errors = (tmp_path / "errors.txt").open("w")
    errors.write("some output\nSegmentation fault\n")
    done = {3: opdb.Outcome("three", "agree")}
    worker = SimpleNamespace(
        done=done, errors=errors, current=(4, opdb.Outcome("four", "agree", samples={"agree": 2})),
        left=lambda: [4, 5, 6],
        process=SimpleNamespace(returncode=-11),
    )  # fmt: skip
    outcomes: dict[int, Any] = {}
    batches = [[9]]
    opdb.retire(worker, hung, 30.0, outcomes, batches)
    assert outcomes[3].status == "agree" and outcomes[4].status == "error"
    assert outcomes[4].samples == {"agree": 2, "error": 1}
    assert ("no answer in 30 s" if hung else "died (-11)") in outcomes[4].reason
    assert "Segmentation fault" in outcomes[4].reason and batches == [[5, 6], [9]]


def _found(seconds: float, error: float | None, **more: Any) -> dict[str, Any]:
    times = [seconds * 0.9, seconds, seconds * 1.1]
    return {"reason": "", "times": times, "error": error, "disagrees": [], **more}


def test_a_cell_of_the_backends_table_is_a_time_and_an_error_or_a_reason() -> None:
    eager = _found(4e-3, 1e-7)
    assert backends_table.cell(eager, None) == "4.00 (3.60–4.40), 1e-07"
    assert backends_table.cell(_found(2e-3, 3e-7), eager) == "2.00 (1.80–2.20), 2.00×, 3e-07"
    assert backends_table.cell(_found(2e-3, None), eager) == "2.00 (1.80–2.20), 2.00×, exact"
    wrong = _found(2e-3, 0.5, disagrees=["result"])
    assert backends_table.cell(wrong, eager).endswith("**disagrees: result**")
    assert backends_table.cell({"reason": "ran eager: no a|b. See more."}, eager) == "ran eager: no a\\|b"


def test_a_process_that_dies_loses_only_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def process(program: str, names: list[str], budget: float) -> dict[str, Any] | str:
        if "bad" in names:
            return "the process died of signal 11"
        return {"eager": _found(2e-3, 1e-7), **{name: _found(1e-3, 1e-7) for name in names}}

    monkeypatch.setattr(backends_table, "in_own_process", process)
    row = backends_table.row("softmax", ["good", "bad", "fine"], 0.1)
    assert row["bad"] == {"reason": "the process died of signal 11"}
    assert not row["good"]["reason"] and not row["fine"]["reason"] and "eager" in row
    page = backends_table.page({"softmax": row}, ["good", "bad", "fine"])
    assert "good 1 of 1, bad 0 of 1, fine 1 of 1" in page

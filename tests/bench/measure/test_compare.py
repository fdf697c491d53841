"""compare: one record, honest numbers, and the program's state as it was."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import nbcompile
from nbcompile.bench.measure.compare import Audience, Measuring, compare, compare_with
from nbcompile.bench.measure.contestant import Contestant, Kept
from nbcompile.errors import MeasureError, OptionError
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.settings import CompileSettings

FAST = {"budget": 0.02, "cold": False}


def by_name(record: Compilation) -> dict[str, Any]:
    return {measurement.contestant: measurement for measurement in record.measurements}


def test_times_and_errors_of_every_contestant_are_in_the_record() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.1))
    x = torch.randn(8, 16)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    heard: list[str] = []
    record = compare(
        model, (x,), ("eager", "aot_eager"), train=True, budget=0.5, progress=heard.append, threads=1
    )
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    eager, compiled = by_name(record)["eager"], by_name(record)["aot_eager"]
    assert eager.what == compiled.what == "forward+backward" and eager.threads == 1
    assert eager.cold is None and not eager.ran_compiled and len(eager.steady) >= 5
    assert eager.first and eager.first > 0 and eager.reason == "" and eager.counts
    assert compiled.ran_compiled and compiled.graphs == 1 and compiled.breaks == 0
    assert len(compiled.steady) == len(eager.steady)
    assert compiled.cold > compiled.median and compiled.warm > compiled.median and compiled.first > 0
    assert {item.output for item in record.accuracy} >= {"output", "fn.0.weight.grad", "fn.1.running_mean"}
    assert all(item.agrees for item in record.accuracy)
    assert Compilation.from_json(record.to_json()) == record
    assert heard == ["compiling with aot_eager", "checking against float64", "timing eager, aot_eager"]


def test_what_is_quick_is_shown_before_others_compile_and_then_all_are_timed_together() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(1.5).sin()

    shown: list[tuple[Compilation, bool]] = []
    heard: list[str] = []
    x, settings = torch.ones(64), CompileSettings()
    kept: Kept = {}
    for number in range(2):
        once = tuple(heard)
        record = compare_with(
            program, (x,), ("eager", "nbcompile", "aot_eager"), settings, Measuring(budget=0.2),
            audience=Audience(heard.append, lambda make, over: shown.append((make(), over)), kept),
        )  # fmt: skip
        assert torch.equal(x, torch.ones(64)), "also between the stages"
        assert all(item.agrees for item in record.accuracy)
        assert {item.contestant for item in record.accuracy} == {"nbcompile", "aot_eager"}
        if number:
            break
        early = next(found for found, over in shown if over)
        assert [item.contestant for item in early.measurements] == ["eager", "nbcompile"]
        assert all(item.median for item in (*early.measurements, *record.measurements))
        assert {item.contestant for item in early.accuracy} == {"nbcompile"}
        lengths = {len(item.steady) for item in record.measurements}
        assert len(lengths) == 1, "in turns"
    first = heard.index("compiling with aot_eager")
    assert (
        heard[first - 1] == "compiling with nbcompile, its caches empty"
        and heard[:first].count("timing eager, nbcompile") == 1
    )
    assert not any(text.startswith("compiling") for text in heard[len(once) :]), "nothing is compiled again"
    assert [item.cold for item in record.measurements[1:]] == [
        kept[name].cold for name in ("nbcompile", "aot_eager")
    ]


def test_what_takes_long_to_compile_is_not_compiled_again_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where somebody waits: a comparison that nobody watches measures all."""
    monkeypatch.setattr("nbcompile.bench.measure.compare._LONG", 0.0)

    heard: list[str] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x * 1.25).cos()

    def found(grown: Any, kept: Kept) -> Compilation:
        return compare_with(
            program, (torch.ones(64),), ("eager", "nbcompile", "aot_eager"),
            CompileSettings(), Measuring(budget=0.05), audience=Audience(heard.append, grown, kept),
        )  # fmt: skip

    kept: Kept = {}
    record = found(lambda make, over: None, kept)
    ours, other = by_name(record)["nbcompile"], by_name(record)["aot_eager"]
    assert ours.cold is None and other.cold and other.warm is None
    assert ours.median and other.median
    assert any(note.startswith("nbcompile, aot_eager: over 0 s to compile") for note in record.notes)
    heard.clear()
    again = found(lambda make, over: None, kept)
    assert not any("its caches empty" in text for text in heard), "nor when the cell runs again"
    assert again.notes == record.notes
    record = found(None, {})
    assert all(
        by_name(record)[name].cold and by_name(record)[name].warm for name in ("nbcompile", "aot_eager")
    )
    assert not any("to compile" in note for note in record.notes)


def test_what_was_kept_of_another_program_is_compiled_again() -> None:
    kept: Kept = {}
    x, how = torch.randn(8), Measuring(budget=0.05, cold=False)
    for function in (torch.sin, torch.cos):  # under one name
        record = compare_with(
            function, (x,), ("eager", "nbcompile", "aot_eager"), CompileSettings(), how,
            audience=Audience(kept=kept),
        )  # fmt: skip
        assert all(item.agrees for item in record.accuracy), record.accuracy
        assert all(item.median for item in record.measurements)


def test_a_contestant_that_runs_eager_has_a_reason_and_no_times() -> None:
    @torch._dynamo.disable
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    measured = by_name(compare(program, torch.ones(3), ("eager", "aot_eager"), **FAST))["aot_eager"]
    assert not measured.ran_compiled and measured.reason
    assert measured.steady == () and measured.warm is None and measured.first is None


def test_contestants_run_where_gradients_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbcompile.bench.measure.compare._WARM", set())
    with torch.no_grad():
        found = by_name(compare(torch.sin, torch.ones(8), ("eager", "aot_eager"), budget=0.02))
    assert found["aot_eager"].ran_compiled and found["aot_eager"].cold


def test_a_contestant_that_fails_leaves_the_others_their_times() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print("never shown")
        return x.sin()

    record = compare(
        program,
        torch.ones(3),
        ("eager", Contestant("no_such_backend", "no_such_backend"), "aot_eager"),
        **FAST,
    )
    measured = by_name(record)
    assert "no_such_backend" in measured["no_such_backend"].reason
    assert measured["no_such_backend"].steady == () and measured["aot_eager"].steady
    assert measured["aot_eager"].breaks == 1


def test_the_programs_prints_are_silent_and_progress_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        print("noise")
        return x * 2

    compare(program, torch.ones(3), ("eager", "aot_eager"), progress=print, **FAST)
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "checking against float64", "timing eager, aot_eager",
    ]  # fmt: skip


def test_in_place_programs_are_timed_on_restored_state() -> None:
    x = torch.full((64,), 1.5)
    seen: list[float] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    class Spy:
        """Compiles nothing; notes the value each call starts from."""

        ran_compiled, eager_reason, compilation = True, "", Compilation(id="spy", backend="spy")

        def __init__(self, fn: Any, **_: Any) -> None:
            self.fn = fn

        def __call__(self, x: torch.Tensor) -> Any:
            seen.append(float(x[0]))
            return self.fn(x)

    record = compare(program, (x,), ("eager", "spy"), compile=Spy, **FAST)
    assert torch.equal(x, torch.full((64,), 1.5))
    assert record.id == "spy" and all(item.agrees for item in record.accuracy)
    assert {item.output for item in record.accuracy} == {"output", "args[0]"} or len(record.accuracy) == 2
    assert seen[:3] == [1.5, 1.5, 1.5]


def test_an_interrupt_restores_everything_and_passes_on() -> None:
    x = torch.ones(4)

    def interrupted(fn: Any, **_: Any) -> Any:
        x.fill_(9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(lambda x: x + 1, (x,), ("eager", "any"), compile=interrupted, **FAST)
    assert torch.equal(x, torch.ones(4))


def test_what_the_program_raises_in_eager_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        compare(lambda x: x / (1 // 0), torch.ones(1), ("eager",), **FAST)


def test_contestants_are_parsed() -> None:
    assert Contestant.parse("inductor:max-autotune", "default").mode == "max-autotune"
    assert Contestant.parse("inductor", "max-autotune").mode == "max-autotune"
    assert Contestant.parse("eager", "max-autotune").mode is None
    assert Contestant.parse("inductor", None, {"random": "philox"}).options is None
    assert Contestant.parse("nbcompile", None, {"random": "philox"}).options == {"random": "philox"}
    with pytest.raises(MeasureError, match="names no backend"):
        Contestant.parse(":fast")
    with pytest.raises(MeasureError, match="twice"):
        compare(torch.sin, torch.ones(1), ("eager", "eager"))


def test_nothing_runs_where_a_run_would_use_up_an_iterator() -> None:
    batches = iter([torch.ones(2), torch.zeros(2)])

    def program() -> torch.Tensor:
        return next(batches) * 2

    with pytest.raises(MeasureError, match=r"rewind program.batches|fn.batches"):
        compare(program, (), ("eager",), **FAST)
    assert len(list(batches)) == 2


@pytest.mark.nightly
@pytest.mark.slow
def test_what_the_others_compilers_made_is_kept_beside_ours() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * 2

    record = compare(fn, torch.randn(8, 16), ("eager", "nbcompile", "inductor"), timing=False)
    assert record.backend == "nbcompile"
    (peer,) = record.peers
    assert peer.backend == "inductor" and peer.kernels and peer.measurements == record.measurements
    # The captured graph is the same, and so are its places in the source: both lead to the same line.
    assert peer.graph("g0.fx") == record.graph("g0.fx")
    (line,) = {span.line for node in record.graph("g0.fx").nodes for span in node.spans}
    file = record.graph("g0.fx").nodes[1].spans[0].file
    for each in (record, peer):
        links = Links(each)
        assert all(line in links.lines(kernel.id, file) for kernel in each.kernels)
    assert Compilation.from_json(record.to_json()) == record


class Counting(nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_each_sample_of_a_program_that_counts_is_the_same_call() -> None:
    """Calls in a row would be other ones to Dynamo, which compiles each anew until it gives up."""
    model = Counting()
    record = compare(model, torch.randn(8, 64), ("eager", "nbcompile"), budget=0.2, cold=False)
    ours = by_name(record)["nbcompile"]
    assert ours.ran_compiled and len(ours.steady) >= 5
    assert not ours.recompiles and not record.recompiles and not record.notes
    assert model.calls == 0


def test_a_backend_that_raises_is_told_with_what_it_raised() -> None:
    def broken(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        raise ValueError("no such operator")

    record = compare(lambda x: x.sin() * 2, (torch.randn(8),), ("eager", broken), budget=0.1, cold=False)
    reason = record.measurements[-1].reason
    assert reason.startswith("raised BackendCompilerFailed: backend='broken' raised: ValueError: no such")


@pytest.mark.parametrize(
    ("contestants", "told"),
    [
        ("nbcompile", "contestants are a list, and this is 'nbcompile'"),
        ((), "no contestant is named"),
        (("eager", "nbcompil"), "backend 'nbcompil' is unknown. Did you mean nbcompile"),
        (("eager", ":mode"), "names no backend"),
    ],
)
def test_what_is_no_contestant_is_refused_before_anything_runs(contestants: Any, told: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("it ran")

    with pytest.raises((MeasureError, OptionError), match=re.escape(told)):
        compare(fn, (torch.randn(2),), contestants)


def test_a_function_is_a_contestant_as_it_is_a_backend() -> None:
    def as_it_is(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        return graph.forward

    record = compare(lambda x: x.sin() * 2, (torch.randn(8),), ("eager", as_it_is), budget=0.1, cold=False)
    mine = record.measurements[-1]
    assert mine.contestant == "as_it_is" and mine.counts and mine.median, mine.reason


def test_a_comparison_has_the_roof_over_its_kernels() -> None:
    record = nbcompile.compare(
        lambda x: x.sin() * 2, (torch.randn(1 << 16),), ("eager", "nbcompile"), budget=0.1, cold=False
    )
    assert record.kernels and [each.target for each in record.ceilings] == ["cpu"]

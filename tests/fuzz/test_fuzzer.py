"""The fuzzer itself: it finds faults that were put in, makes them small, and is not fooled by rounding."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.fuzz import check as check_module
from tests.fuzz.check import EagerDiesError, References, Target, check, compare_calls, torchs_own
from tests.fuzz.compare import differences, nearer, within
from tests.fuzz.draw import Draw, Skip, Value, draw
from tests.fuzz.execute import Noise, Outcome, Runner
from tests.fuzz.meeting import meeting
from tests.fuzz.operations.indexing import index_along, index_like
from tests.fuzz.program import Input, Program, Step
from tests.fuzz.rounding import Rounding
from tests.fuzz.running import reduced
from tests.fuzz.sanitizers import environment
from tests.fuzz.write import test_source as source_of_test

ROOT = Path(__file__).parents[2]
FAULTS = {
    "wrong_numbers": {"values"},
    "wrong_edge": {"values"},
    "drops_update": {"input values", "values"},
    "copies_views": {"alias-lost"},
    "other_strides": {"strides"},
    "other_dtype": {"dtype"},
    "no_gradient": {"requires_grad", "gradient-none", "gradient values"},
    "extra_draw": {"generator"},
    "raises": {"raises NotImplementedError"},
}


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_made_small(fault: str) -> None:
    target = Target(backend=f"tests.fuzz.broken:{fault}")
    for seed in range(60):
        program = draw(seed)
        kinds = [item.kind for item in check(program, target).failures if item.kind in FAULTS[fault]]
        if kinds:
            break
    else:
        pytest.fail("not found in 60 programs")
    assert len(program.steps) >= 12
    small = reduced(program, kinds[0], target, seconds=60)
    assert len(small.steps) <= 4, small.source()
    assert kinds[0] in check(small, target).kinds
    verdict = check(small, Target(backend="eager"))
    assert not verdict.failures and not verdict.torch


@pytest.mark.nightly
def test_nothing_is_found_where_nothing_is_wrong() -> None:
    for seed in range(12):
        verdict = check(draw(seed), Target(backend="eager"))
        assert not verdict.failures and not verdict.torch, (seed, verdict)


def test_a_seed_always_gives_the_same_program() -> None:
    for seed in range(5):
        program = draw(seed)
        assert program == draw(seed)
        assert Program.from_json(program.to_json()) == program


def test_an_axis_that_one_call_has_not_is_not_drawn() -> None:
    x = Value("x", [torch.randn(2, 3), torch.randn(3)])
    for draws in (
        lambda: index_along(Draw(0, 0, "cpu"), x, 1),
        lambda: index_like(Draw(0, 0, "cpu"), x, 1, x.shapes),
    ):
        with pytest.raises(Skip):
            draws()


def _run(out: Path, seeds: str, backend: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "scripts" / "fuzz.py")
    asked = ["--seeds", seeds, "--timeout", "10", "--backend", f"tests.fuzz.broken:{backend}"]
    command = [sys.executable, script, *asked, "--out", str(out), "--jobs", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.nightly
def test_what_a_program_leaves_behind_is_not_the_next_programs(tmp_path: Path) -> None:
    """The rest is tried in another process."""
    run = _run(tmp_path / "out.jsonl", "4:7", "spoils_its_process")
    assert "3 programs" in run.stdout and "no program" not in run.stdout, run.stdout + run.stderr


@pytest.mark.nightly
def test_workers_that_die_or_hang_are_failures(tmp_path: Path) -> None:
    flips, rolls = (
        {seed for seed in range(60) if name in draw(seed).source()} for name in (".flip(", ".roll(")
    )
    for seed, kind in ((min(flips - rolls), "crash 11"), (min(rolls - flips), "hang")):
        out = tmp_path / f"{kind}.jsonl"
        run = _run(out, f"{seed}:{seed + 2}", "dies")
        assert run.returncode == 1, run.stdout + run.stderr
        assert "2 programs" in run.stdout
        kinds = {json.loads(line)["done"]: json.loads(line)["kinds"] for line in out.read_text().splitlines()}
        assert kinds[seed] == [kind], run.stdout


def test_rounding_is_no_failure_and_the_same_size_elsewhere_is() -> None:
    """A sum that cancels may be off by what its terms round to; a plain copy may not."""
    off = Target(backend="tests.fuzz.broken:slightly_off")
    assert not check(_program("(v0 * 1000).sum() - (v0 * 1000).sum(0).sum()"), off).failures
    assert [item.kind for item in check(_program("v0.clone()", exact=True), off).failures] == ["values"]


def test_a_gpu_that_dies_while_a_difference_is_judged_is_not_the_next_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float64 an index may be another one, and lie outside: torch's process ends there, and says so."""
    program = _program("v0.clone()")
    references = References(program, Runner(program))

    def dies(*_: object, **__: object) -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered", 710)

    monkeypatch.setattr(Runner, "run", dies)
    with pytest.raises(EagerDiesError):
        references.wide(0)


def test_a_few_integers_that_rounding_decides_are_no_failure() -> None:
    """Where the noise moves many, a few more may lie as near to the number at which they change."""
    a = torch.arange(100) % 2
    noisy = a.clone()
    noisy[:60] += 1
    few, many = a.clone(), a.clone()
    few[90:93] += 1
    many[90:94] += 1
    assert within(a, few, [noisy]).all()
    assert not within(a, many, [noisy])[90:94].any()
    assert not within(a, few, [a])[90:93].any()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_kernel_that_reaches_beyond_its_tensor_is_caught(tmp_path: Path) -> None:
    """With --sanitize: torch's tensors lie between red zones."""
    program = (
        "import ctypes, torch, pathlib\n"
        "from nbcompile.compiler.runtime.c.toolchain import find_toolchain\n"
        f"out = pathlib.Path({str(tmp_path)!r}) / 'k.so'\n"
        "find_toolchain().compile('void f(float *x, long n) { x[n] = 1; }', out)\n"
        "x = torch.zeros(100)\n"
        "for n in (99, 100):\n"
        "    print(n, flush=True)\n"
        "    ctypes.CDLL(str(out)).f(ctypes.c_void_p(x.data_ptr()), ctypes.c_long(n))\n"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment(tmp_path, "gcc", "O1", "address")}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode != 0
    assert run.stdout.split() == ["99", "100"], run.stderr[-2000:]
    assert "heap-buffer-overflow" in run.stderr


def _program(code: str, exact: bool = False) -> Program:
    return Program(0, (Input("v0", "(40, 40)", "float32"),), (Step("it", code, ("v1",), exact),), ("v1",))


def test_a_written_test_is_the_program() -> None:
    program = draw(3)
    scope: dict[str, object] = {}
    exec(source_of_test(program, "values", 'a "reason"'), scope)
    assert scope["PROGRAM"] == program
    assert callable(scope["test_values"])


def test_noise_leaves_exact_steps_alone() -> None:
    program = Program(
        0,
        (Input("v0", "(4, 4)", "float32", "few"),),
        (Step("t", "v0.t()", ("v1",), exact=True), Step("sin", "v1.sin()", ("v2",))),
        ("v1", "v2"),
    )
    runner = Runner(program)
    plain, noisy = runner.run(0), runner.run_noisily(0, 0, 1.0)
    assert torch.equal(plain.results[0], noisy.results[0])
    assert noisy.results[0].data_ptr() == noisy.inputs[0].data_ptr()
    assert not torch.equal(plain.results[1], noisy.results[1])
    torch.testing.assert_close(plain.results[1], noisy.results[1])


def test_noise_takes_infinity_for_no_small_number() -> None:
    """Else the gradient through ``log10`` of a norm of equal numbers, which is NaN, is one."""
    x = torch.tensor([1.0, float("inf")])
    with Rounding(1, 1.0):
        total = x.sum()
    assert total.isinf()


@pytest.mark.nightly
def test_a_reshape_that_shows_a_fake_tensor_is_torchs() -> None:
    """Fake tensors of two types are added in another order of memory, in which the reshape is no copy."""
    mixed = "torch.add(v0.permute(2, 0, 1), torch.ones(1, 15, 2, dtype=torch.int16), alpha=2)"
    steps = (Step("add", mixed, ("v1",)), Step("reshape", "v1.reshape(-1)", ("v2",)))
    program = Program(0, (Input("v0", "(1, 2, 12)", "int64"),), steps, ("v1", "v2"))
    verdict = check(program, Target("cpu"))
    assert not verdict.failures
    assert {item.kind for item in verdict.torch} == {"strides", "alias-made"}
    clone = (Step("add", "v0 + 1", ("v1",)), Step("clone", "v1.clone()", ("v2",)))
    shared = Target(backend="tests.fuzz.broken:shares_copies")
    failures = check(dataclasses.replace(program, steps=clone), shared).failures
    assert [item.kind for item in failures] == ["alias-made"]


@pytest.mark.nightly
def test_a_shape_that_only_fake_tensors_have_is_torchs() -> None:
    steps = (Step("pixel_unshuffle", "F.pixel_unshuffle(v0, 2)", ("v1",)),)
    program = Program(0, (Input("v0", "(0, 2, 2)", "float32"),), steps, ("v1",))
    verdict = check(program, Target("cpu"))
    assert not verdict.failures and [item.kind for item in verdict.torch] == ["shape"]
    grown = Target(backend="tests.fuzz.broken:grows")
    assert [item.kind for item in check(_program("v0 + 1"), grown).failures] == ["shape"]


@pytest.mark.nightly
def test_strides_that_only_fake_tensors_have_are_torchs() -> None:
    """Of symbolic sizes alone, and beyond a branch that fake tensors cannot take."""
    pool = (
        Step("mul", "v0.permute(0, 2, 3, 1) * torch.ones_like(v0[:, :1, :1]).permute(0, 3, 1, 2)", ("v1",)),
        Step("pool", "F.avg_pool2d(v1, 2, stride=1, padding=1)", ("v2",)),
    )
    wide = Input("v0", "(A, A, A, 1)", "float32")
    symbolic = Program(0, (wide,), pool, ("v2",), dynamic=True, sizes=({"A": 9},))
    branch = (
        Step("norm", "F.batch_norm(v0, None, None, None, None, training=True)", ("v1",)),
        Step(
            "cond", "torch.cond(v1.isfinite().all(), lambda a: a.clamp(-2, 2), lambda a: -a, (v1,))", ("v2",)
        ),
    )
    half = Input("v0", "(3, 3, 3, 3)", "bfloat16", view="b.permute(2, 1, 3, 0)")
    for program in (symbolic, Program(0, (half,), branch, ("v2",))):
        verdict = check(program, Target("cpu"))
        assert not verdict.failures and [item.kind for item in verdict.torch] == ["strides"]


def test_what_is_drawn_in_an_order_that_only_fake_tensors_have_is_torchs() -> None:
    """Before a branch that they cannot take."""
    inputs = (
        Input("v0", "(12, 12)", "float32"),
        Input("v1", "(33,)", "float32", view="b.as_strided((8, 12, 1, 12), (1, 1, 1, 1))"),
    )
    steps = (
        Step("add", "torch.add(v0, v1, alpha=2)", ("v2",)),
        Step("random_like", "torch.randn_like(v2)", ("v3",)),
        Step("cond", "torch.cond(v3.any(), lambda a: -a, lambda a: a + 1, (v3,))", ("v4",)),
        Step("hstack", "torch.hstack([v3, v4])", ("v5",)),
    )
    verdict = check(Program(0, inputs, steps, ("v5",)), Target("cpu"))
    assert not verdict.failures and "values" in [item.kind for item in verdict.torch]


def test_nothing_is_copied_to_what_comes_to_share_its_memory() -> None:
    """Which elements are overwritten before they are read is nobody's promise."""
    inputs = (Input("v0", "(8,)", "float32"), Input("v1", "(8,)", "float32"))
    copied = Step("copy_", "v1.copy_(v0)", ("v2",), writes="v1")
    added = Step("add_", "v1.mul_(2)", ("v2",), writes="v1")
    programs = [Program(seed, inputs, (step,), ("v2",)) for step in (copied, added) for seed in range(20)]
    met = [bool(meeting(program, "cpu").meets) for program in programs]
    assert not any(met[:20]) and any(met[20:])


def test_an_input_saved_and_overwritten_after_a_graph_break_is_refused_by_torch_too() -> None:
    inputs = (
        Input("v0", "(26,)", "float32", view="b.as_strided((2, 3, 2), (12, 3, 1), 2)"),
        Input("v1", "", "float32", view="b.unsqueeze(0)", base="v0"),
        Input("v2", "(3,)", "int64", "index:26"),
        Input("v3", "(3, 1)", "float32", grad=True),
    )
    steps = (
        Step("sub", "v1 - v3", ("v4",)),
        Step("cross_entropy", "F.cross_entropy(v4, v2, ignore_index=0, reduction='sum')", ("v5",)),
        Step("out", "torch.mul(v0, v0, out=v0)", (), writes="v0"),
    )
    verdict = check(Program(0, inputs, steps, ("v5",), mode="train"), Target("cpu"))
    assert not verdict.failures and [item.kind for item in verdict.torch] == ["raises RuntimeError"]


def test_noise_is_as_large_as_what_subnormal_numbers_round() -> None:
    x = torch.full((100,), 2.0**-12, dtype=torch.float16)
    with Rounding(0, 1.0):
        made = x * x * 3
    assert {round(float(unit)) for unit in made * 2.0**24} >= {2, 3, 4}
    with Rounding(0, 1.0):
        assert not (x * 0).any()


def test_what_dynamo_alone_does_otherwise_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where AOTAutograd raises, and shows nothing of it."""
    program = _program("v0.clone()")
    runner = Runner(program)
    expected = runner.run(0)
    inputs, state = expected.inputs, expected.generator
    other = Outcome(inputs, (expected.results[0].double(),), generator=state)
    monkeypatch.setattr(
        check_module,
        "compiled_outcomes",
        lambda _, __, backend: [other if backend == "eager" else Outcome(error=RuntimeError(), stage="call")],
    )
    references = References(program, runner)
    found = compare_calls([expected], [other], references)
    assert [item.kind for item in found] == ["dtype"]
    assert torchs_own(found, program, runner, [expected], references) >= {found[0].identity}


def test_aot_eager_stands_in_for_the_graphs_that_we_compiled_alone() -> None:
    """A gradient of zeros where eager has none is AOTAutograd's, also beside a graph that it cannot trace."""

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        used, unused = x.sin(), (x * w).sum()
        torch._dynamo.graph_break()
        return used, unused.detach().cos()

    given = []
    for left in ((), (0, 1)):
        torch._dynamo.reset()
        x, w = (torch.ones(3, requires_grad=True) for _ in range(2))
        made = torch.compile(program, backend=check_module.aot_but_of(left, check_module.aot_eager()))(x, w)
        made[0].sum().backward()
        given.append(w.grad)
    assert given[0] is not None
    assert given[1] is None


def test_results_are_compared_where_backward_fails() -> None:
    """Else what torch has as well, and raises besides, would be taken for ours."""
    state = torch.get_rng_state()
    expected = Outcome(results=(torch.ones(2),), gradients=[(torch.ones(2),)], generator=state)
    got = Outcome(results=(torch.zeros(2),), generator=state, error=RuntimeError(), stage="backward")
    found = differences(expected, got, lambda: [expected], lambda: None)
    assert [item.kind for item in found] == ["raises RuntimeError", "values"]


def test_some_programs_have_no_arguments() -> None:
    programs = [draw(seed) for seed in (60, 80)]
    for program in programs:
        assert not program.inputs and len(program.steps) >= 12
        assert "from_nothing" in {step.op for step in program.steps}
        assert not check(program, Target("cpu")).failures
        there = Runner(program, "cuda").program.source("cuda")
        assert "device='cuda'" in there and "device='cpu'" not in there


def test_noise_is_not_disturbed_in_turn() -> None:
    """Else two numbers that were made equal are told apart again, and no run shows them equal."""
    x = torch.rand(64) + 0.5
    noise = Noise(3, 1.0, "")
    with Rounding(3, 1.0):
        assert torch.equal(noise.snapped(x), noise.snapped(x))


def test_a_group_of_one_number_has_no_deviation() -> None:
    """Another order of rounding leaves the bias alone, of which eager's leaves it scaled by 1 / sqrt(eps)."""
    x, bias = torch.randn(4, 5), torch.rand(5)
    with torch.no_grad(), Rounding(3, 1.0):
        assert torch.equal(torch.nn.functional.group_norm(x, 5, None, bias), bias.expand(4, 5))


def test_random_numbers_are_the_same_in_float64() -> None:
    """Else a program that draws any has nothing that is nearer than eager to hold a result against."""
    inputs = (Input("v0", "(4, 5)", "float32"), Input("v1", "(8,)", "float16"))
    steps = (
        Step("randn_like", "torch.randn_like(v0)", ("v2",)),
        Step("dropout", "F.dropout(v0 + v2, 0.5)", ("v3",)),
        Step("bernoulli", "torch.bernoulli(v1.sigmoid())", ("v4",)),
        Step("normal_", "v0.normal_()", (), writes="v0"),
    )
    program = Program(0, inputs, steps, ("v2", "v3", "v4", "v0"))
    runner = Runner(program)
    narrow, wide = runner.run(0), References(program, runner).wide(0)
    assert wide is not None and wide.error is None
    for one, other in zip(narrow.results, wide.results, strict=True):
        assert other.dtype == torch.float64
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_where_a_half_type_overflows_in_eager_alone() -> None:
    eager = torch.full((4,), math.nan, dtype=torch.float16)
    ours = torch.tensor([9e3, math.inf, math.inf, 1], dtype=torch.float16)
    exact = torch.tensor([1e4, 100, 7e4, math.inf], dtype=torch.float64)
    assert nearer(eager, ours, exact).tolist() == [True, False, True, False]


def test_a_norm_of_equal_numbers_may_be_off_by_what_their_sum_is() -> None:
    steps = (Step("add", "v0.expand(5, 99) + 1", ("v1",)), Step("norm", "F.layer_norm(v1, (99,))", ("v2",)))
    norm = Program(0, (Input("v0", "()", "float32"),), steps, ("v2",))
    runner = Runner(norm)
    moved = max(float(run.results[0].abs().max()) for run in References(norm, runner).noisy(0, more=True))
    assert 1e-5 < moved < 1e-2

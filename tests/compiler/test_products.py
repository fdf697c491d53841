"""Choosing between ATen and our matrix products: with a clock that the test sets, no GPU needed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch

from nbcompile import targets
from nbcompile.compiler import compile_graph as driver
from nbcompile.compiler import pipeline
from nbcompile.compiler import products as matrix_products
from nbcompile.compiler.passes import Setting
from nbcompile.compiler.products import ProductBench, Products, in_two_steps, precision_of
from nbcompile.compiler.runtime import gpu_module
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.stages import CompiledModule
from nbcompile.errors import CodegenError
from nbcompile.options import Options
from nbcompile.record.compilation import AutotuneChoice, Decision, Kernel
from nbcompile.record.recorder import Recorder
from tests.compiler.codegen.running import aten_of

pytest.importorskip("triton")
CHIP = targets.parse("cuda:90")
TUNED = Options(mode="max-autotune", target="cuda:90")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix_products, "OFFERED", frozenset({"tiles", "persistent"}))
    cache = DiskCache(tmp_path)
    monkeypatch.setattr(DiskCache, "shared", classmethod(lambda cls: cache))


class Clock:
    """Gives each call the seconds of the first name that its source mentions; counts what it timed."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.timed, self.time = seconds, 0, 0.0

    def now(self) -> float:
        return self.time

    def sample(self, call, repeats, prepare):
        self.timed += 1
        call()
        named = call.args[0].named
        found = next((spent for word, spent in self.seconds.items() if word in named), 2e-3)
        self.time += found * repeats
        return [found] * repeats


class Named:
    """The call of a module, and what it is called by the clock."""

    def __init__(self, call, named: str) -> None:
        self.call, self.named = call, named

    def __call__(self, args):
        return self.call(args)


def bench(clock: Clock, *, wrong: bool = False, fails: str = "") -> ProductBench:
    """Candidates run in the interpreter; the seconds are the clock's."""

    def begin(source, config):
        future: Future[Built] = Future()
        if fails and fails in source.kernels[0].schedule:
            future.set_exception(CodegenError("it does not compile."))
        else:
            function = source.launches[0].function
            future.set_result(
                Built(function, function, "cuda:90", "cubin", b"", {}, config, (), config.warps, 0, 32, 0)
            )
        return future

    def ours(source, built):
        source = replace(source, launches=(replace(source.launches[0], configs=(built.config,)),))
        call = gpu_module.interpreted(source, {}).call
        if wrong:
            right = call
            call = lambda args: [item + 1 for item in right(args)]
        words = f"{source.kernels[0].schedule}; BLOCK_M {built.config.constants['BLOCK_M']};"
        return Named(call, words)

    return ProductBench(
        begin, ours, lambda source: Named(gpu_module.interpreted(source, {}).call, "aten"),
        lambda source, built: "", clock, CPU,
    )  # fmt: skip


def linear(x, w, b):
    return torch.relu(torch.nn.functional.linear(x, w, b))


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).bfloat16() for shape in ((32, 32), (64, 32), (64,))]


def chosen(clock, options=TUNED, search=True, fn=linear, **how):
    """(record, the graph's source, whether it is settled) with a bench on this clock."""
    recorder = Recorder(options)
    aten = aten_of(fn, *inputs())
    products = Products(options, CHIP, recorder, CPU, search=search, bench=bench(clock, **how))
    source = driver.source_of(aten, pipeline.GPU, Setting(options, recorder, CHIP, products), ("test",))
    return recorder, source, products.settled


def about_the_product(recorder) -> Decision:
    (found,) = [item for item in recorder.parts(Decision) if item.producer == "g0.fw.c0"]
    return found


def test_the_fastest_kernel_takes_atens_place():
    recorder, source, settled = chosen(Clock({"aten": 412e-6, "persistent; BLOCK_M 64": 371e-6}))
    assert settled
    assert [item.schedule for item in source.kernels] == ["matrix product, persistent"]
    assert len(source.launches[0].configs) == 1
    assert source.launches[0].configs[0].constants["BLOCK_M"] == 64
    assert "mm_out" not in source.wrapper
    decision = about_the_product(recorder)
    assert decision.accepted
    assert decision.reason == "ATen and a separate kernel took 412 µs, fused 371 µs"
    tried = recorder.parts(AutotuneChoice)
    assert tried[0].candidate == "aten.addmm, then relu" and tried[0].seconds == 412e-6
    (best,) = [item for item in tried if item.chosen]
    assert best.kernel == "g0.fw.k0" and best.candidate.startswith("persistent: ")
    assert len(tried) > 10
    (got,) = gpu_module.interpreted(source, {}).call(inputs())
    torch.testing.assert_close(got, linear(*inputs()), rtol=2e-2, atol=2e-2)


def test_aten_stays_where_it_is_faster():
    recorder, source, settled = chosen(Clock({"aten": 371e-6, "persistent": 412e-6}))
    assert settled
    assert "addmm_out" in source.wrapper and [item.name for item in source.kernels] == ["relu"]
    decision = about_the_product(recorder)
    assert not decision.accepted and decision.code == "measured"
    assert decision.reason == "ATen and a separate kernel took 371 µs, the fastest fused kernel 412 µs"
    assert [item.candidate for item in recorder.parts(AutotuneChoice) if item.chosen] == [
        "aten.addmm, then relu"
    ]


@pytest.mark.nightly
def test_a_difference_within_the_noise_changes_nothing():
    _, source, _ = chosen(Clock({"aten": 400e-6, "persistent": 396e-6}))
    assert "addmm_out" in source.wrapper


@pytest.mark.nightly
def test_a_product_without_an_epilogue_is_measured_too():
    recorder, source, _ = chosen(
        Clock({"aten": 4e-4, "product;": 3e-4}), fn=lambda x, w, b: torch.mm(x, w.t())
    )
    assert [item.schedule for item in source.kernels] == ["matrix product"]
    assert recorder.parts(AutotuneChoice)[0].candidate == "aten.mm"


@pytest.mark.nightly
def test_what_is_known_is_not_measured_again():
    clock = Clock({"aten": 412e-6, "persistent": 371e-6})
    first, source, _ = chosen(clock)
    timed = clock.timed
    assert timed > 10
    again, same, settled = chosen(clock, search=False)  # the whole graph comes from the cache
    assert clock.timed == timed and settled and same == source
    assert again.parts(AutotuneChoice) == first.parts(AutotuneChoice)
    # nothing is known of another epilogue
    other, _, settled = chosen(clock, search=False, fn=lambda x, w, b: linear(x, w, b) * 2)
    assert not settled and not other.parts(AutotuneChoice)
    # another graph with the same product in it, under other names
    third, twin, settled = chosen(clock, search=False, fn=lambda u, v, c: linear(u, v, c))
    assert settled and clock.timed == timed
    assert [item.schedule for item in twin.kernels] == ["matrix product, persistent"]
    assert [item.seconds for item in third.parts(AutotuneChoice)] == [
        item.seconds for item in first.parts(AutotuneChoice)
    ]


def test_nothing_known_and_no_search_leaves_aten():
    recorder, source, settled = chosen(Clock({}), search=False)
    assert not settled and "addmm_out" in source.wrapper
    assert not recorder.parts(AutotuneChoice)
    assert about_the_product(recorder).code == "library-call"
    # and such code is not kept: the search is still to come
    assert chosen(Clock({"aten": 2.0, "persistent": 1.0}), search=True)[2]


def test_wrong_results_are_never_chosen():
    recorder, source, _ = chosen(Clock({"aten": 1.0, "product": 1e-6}), wrong=True)
    assert "addmm_out" in source.wrapper
    notes = {item.note for item in recorder.parts(AutotuneChoice)[1:]}
    assert notes and all("differs from ATen" in note for note in notes)


def test_what_does_not_compile_is_noted():
    recorder, source, _ = chosen(Clock({"aten": 1.0, "product;": 0.5}), fails="persistent")
    assert [item.schedule for item in source.kernels] == ["matrix product"]
    failed = [item for item in recorder.parts(AutotuneChoice) if item.candidate.startswith("persistent")]
    assert failed and all(item.note == "it does not compile." and item.seconds is None for item in failed)


def test_a_budget_ends_the_search():
    clock = Clock({"aten": 1.0, "product": 2.0})
    recorder, _, settled = chosen(clock, replace(TUNED, autotune_seconds=4.0))
    assert settled
    notes = [item.note for item in recorder.parts(AutotuneChoice)]
    assert sum(note == "not reached in time" for note in notes) > 5
    assert chosen(Clock({}), replace(TUNED, autotune_seconds=0.0))[2] is False


@pytest.mark.parametrize(
    "options", [Options(target="cuda:90"), Options(mode="reduce-overhead", target="cuda:90")]
)
def test_other_modes_do_nothing(options, monkeypatch):
    monkeypatch.setattr(matrix_products.fusion, "candidates", lambda *_: pytest.fail("it looked"))
    assert Products(options, CHIP, Recorder(options), None).fingerprint == ()
    _, source, settled = chosen(Clock({}), options)
    assert settled and "addmm_out" in source.wrapper


def test_without_the_chip_every_epilogue_is_fused():
    options = Options(mode="max-autotune", target="cuda:90", interpret=True, cache=False)
    recorder = Recorder(options)
    module = driver.compile_graph(aten_of(linear, *inputs()), options, recorder)
    (got,) = module.call(inputs())
    assert not recorder.ran_eagerly
    torch.testing.assert_close(got, linear(*inputs()), rtol=2e-2, atol=2e-2)
    (kernel,) = recorder.compilation().kernels
    assert kernel.name == "addmm_relu" and kernel.loops[0] == "g0.fw.c0"
    assert kernel.flops >= 2 * 32 * 32 * 64
    fused = recorder.compilation().graph("g0.fw.fused")
    assert [node.name for node in fused.nodes if node.kind != "input"] == ["addmm_relu"]


def test_the_precision_of_float32_is_torchs(monkeypatch):
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        assert precision_of(CHIP) == "tf32"
        assert precision_of(targets.parse("hip:gfx942")) == "ieee"
        torch.backends.cuda.matmul.allow_tf32 = False
        assert precision_of(CHIP) == "ieee"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def test_the_first_result_comes_before_the_best():
    ran: list[str] = []

    def module(name):
        return CompiledModule("g0.fw", lambda args: ran.append(name))

    def better():
        ran.append("search")
        return module("best")

    recording = [False]
    call = in_two_steps(module("first"), better, lambda: recording[0]).call
    call([])
    recording[0] = True
    call([])
    recording[0] = False
    call([])
    call([])
    assert ran == ["first", "first", "search", "best", "best"]


def test_the_second_step_keeps_the_record_whole(monkeypatch):
    """What the pipeline does after a search: one set of kernels in the record; and if it fails, the old."""
    recorder = Recorder(TUNED)
    aten = aten_of(linear, *inputs())
    products = Products(TUNED, CHIP, recorder, CPU, search=False, bench=bench(Clock({})))
    driver.source_of(aten, pipeline.GPU, Setting(TUNED, recorder, CHIP, products), ("test",))
    before = recorder.part(aten.id)
    first = CompiledModule(aten.id, lambda args: args)

    def broken(*_, **__):
        raise CodegenError("no luck.")

    monkeypatch.setattr(driver, "_for_gpu", broken)
    assert driver._measured(first, aten, CPU, TUNED, recorder) is first
    assert recorder.part(aten.id) == before
    assert any("stay as they were" in note for note in recorder.parts(str))


@pytest.fixture
def pretended_gpu(monkeypatch):
    """A clock, and a pipeline that takes the CPU for a GPU whose kernels the interpreter runs."""
    clock = Clock({"aten": 412e-6, "persistent": 371e-6})
    monkeypatch.setattr(driver, "device_of", lambda aten: torch.device("cuda", 0))
    monkeypatch.setattr(targets, "of_device", lambda number: CHIP)
    monkeypatch.setattr(matrix_products, "gpu_bench", lambda chip, device: bench(clock))
    monkeypatch.setattr(driver, "detect", lambda device: None)
    monkeypatch.setattr(gpu_module, "check_devices", lambda aten, device: None)
    monkeypatch.setattr(
        gpu_module, "on_device", lambda tuner, *_: gpu_module.interpreted(tuner.source, {})
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return clock


def test_the_second_call_searches_and_the_record_follows(pretended_gpu):
    options = Options(mode="max-autotune-no-cudagraphs")
    recorder = Recorder(options)
    module = driver.compile_graph(aten_of(linear, *inputs()), options, recorder)
    (first,) = module.call(inputs())
    assert pretended_gpu.timed == 0 and not about_the_product(recorder).accepted
    assert [item.name for item in recorder.parts(Kernel)] == ["relu"]
    (second,) = module.call(inputs())
    timed = pretended_gpu.timed
    assert timed > 0 and about_the_product(recorder).accepted
    assert [item.name for item in recorder.parts(Kernel)] == ["addmm_relu"]
    module.call(inputs())
    assert pretended_gpu.timed == timed and not recorder.ran_eagerly
    torch.testing.assert_close(first, second, rtol=2e-2, atol=2e-2)
    # a later process starts with what was found
    again = Recorder(options)
    module = driver.compile_graph(aten_of(linear, *inputs()), options, again)
    (third,) = module.call(inputs())
    module.call(inputs())
    assert torch.equal(third, second) and pretended_gpu.timed == timed
    assert again.parts(AutotuneChoice) == recorder.parts(AutotuneChoice)
    assert about_the_product(again) == about_the_product(recorder)

"""The search: with a clock and launchers of our own, on the CPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch

from nbcompile.compiler.runtime.autotune.configs import config_text
from nbcompile.compiler.runtime.autotune.tuner import Bench, Tuner
from nbcompile.compiler.runtime.bind import bind
from nbcompile.compiler.runtime.gpu.compile import Built
from nbcompile.compiler.stages import Argument, Config, KernelSource, KernelText, Launch
from nbcompile.errors import CodegenError, LaunchError
from nbcompile.options import Options
from nbcompile.record.compilation import AutotuneChoice, Kernel, Launched
from nbcompile.record.recorder import Recorder
from nbcompile.targets import parse

CHIP = parse("cuda:90")
CPU = torch.device("cpu")

TEXT = """
import triton
import triton.language as tl


@triton.jit
def k0_twice(x_ptr, twice_ptr, n, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(twice_ptr + i, x + x, mask=i < n)


@triton.jit
def k1_again(twice_ptr, again_ptr, n, XBLOCK: tl.constexpr):
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    twice = tl.load(twice_ptr + j, mask=j < n)
    tl.store(again_ptr + j, twice + twice, mask=j < n)


@triton.jit
def k2_sink(again_ptr, n, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    again = tl.load(again_ptr + i, mask=i < n)
    tl.store(again_ptr + i, -again, mask=i < n)
"""

WRAPPER = """def call(args):
    x, = args
    args.clear()
    twice = empty((8,), (1,), torch.float32)
    k0_twice(x, twice, 8)
    again = empty((8,), (1,), torch.float32)
    k1_again(twice, again, 8)
    k2_sink(again, 8)
    return (again,)
"""
FACTORS = {"k0_twice": 2.0, "k1_again": 2.0, "k2_sink": -1.0}


class Clock:
    """Time that passes only where a launch says so."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sample(
        self, call: Callable[[], object], repeats: int, prepare: Callable[[], object] | None
    ) -> list[float]:
        found = []
        for _ in range(repeats):
            if prepare is not None:
                prepare()
            begun = self.time
            call()
            found.append(self.time - begun)
        return found


def configs(*blocks: int, warps: int = 4) -> tuple[Config, ...]:
    return tuple(Config({"XBLOCK": block}, warps) for block in blocks)


def source(blocks: tuple[int, ...] = (256, 512, 1024), **changes: Any) -> KernelSource:
    def launch(function: str, inputs: str, output: str, kernel: str) -> Launch:
        pointers = (Argument(inputs, "*fp32", written=not output),)
        pointers += (Argument(output, "*fp32", written=True),) if output else ()
        arguments = (*pointers, Argument("n", "i32", hint=8))
        return Launch(function, kernel, arguments, ("cdiv(n, XBLOCK)",), configs(*blocks), **changes)

    launches = (
        launch("k0_twice", "x_ptr", "twice_ptr", "g0.fw.k0"),
        launch("k1_again", "twice_ptr", "again_ptr", "g0.fw.k1"),
        launch("k2_sink", "again_ptr", "", "g0.fw.k2"),
    )
    kernels = tuple(
        KernelText(item.kernel, item.function.partition("_")[2], "", (), "pointwise") for item in launches
    )
    return KernelSource("g0.fw", "triton", (TEXT,), kernels, WRAPPER, (), launches=launches)


def built(launch: Launch, config: Config, **facts: Any) -> Built:
    values: dict[str, Any] = {"shared_bytes": 0, "registers": 32, "spill_bytes": 0} | facts
    return Built(
        launch.function, launch.function, CHIP.name, "cubin", b"", {}, config, (), config.warps, **values
    )


class Machine:
    """Compiles anything at once and runs it in as many seconds as ``cost`` says of (function, config)."""

    def __init__(self, cost: Callable[[str, Config], float], **facts: Callable[[Config], Any]) -> None:
        self.clock, self.cost, self.facts = Clock(), cost, facts
        self.compiled: list[tuple[str, str]] = []
        self.launched: list[tuple[str, Config]] = []
        self.fails: dict[str, Exception] = {}  # by config text, at compiling
        self.unloadable: set[str] = set()
        self.wrong: set[str] = set()
        self.room = 10_000
        self.capturing = False

    def begin(self, launch: Launch, config: Config) -> Future[Built]:
        self.compiled.append((launch.function, config_text(config)))
        future: Future[Built] = Future()
        if config_text(config) in self.fails:
            future.set_exception(self.fails[config_text(config)])
        else:
            facts = {name: value(config) for name, value in self.facts.items()}
            future.set_result(built(launch, config, **facts))
        return future

    def launcher(self, launch: Launch, made: Built) -> Callable[..., None]:
        text = config_text(made.config)
        if text in self.unloadable:
            raise LaunchError("the driver refuses.")

        def run(*args: Any) -> None:
            *tensors, _ = args
            tensors[-1].copy_(tensors[0] * FACTORS[launch.function] + (text in self.wrong))
            self.clock.time += self.cost(launch.function, made.config)
            self.launched.append((launch.function, made.config))

        return run

    def bench(self) -> Bench:
        return Bench(self.begin, self.launcher, lambda made: self.room, self.clock, lambda: self.capturing)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path))
    yield


class Graph:
    """The module of ``source`` with a tuner, as the pipeline makes it."""

    def __init__(self, machine: Machine, code: KernelSource, **options: Any) -> None:
        given = {"mode": "max-autotune-no-cudagraphs", **options}
        self.told: list[str] = []
        self.recorder = Recorder(Options(**given), progress=self.told.append)
        for item in code.launches:
            launched = (Launched(item.function, (1, 1, 1), dict(item.configs[0].constants)),)
            self.recorder.add(
                Kernel(item.kernel, item.function, "g0.fw.fused", (), "pointwise", {}, bytes_read=32,
                       launches=launched, seconds=None)
            )  # fmt: skip
        self.tuner = Tuner(code, CHIP, Options(**given), self.recorder)
        self.machine = machine

        def functions() -> dict[str, Callable[..., None]]:
            made = {}
            for item in code.launches:
                config = self.tuner.chosen.get(item.function, item.configs[0])
                made[item.function] = machine.launcher(item, built(item, config))
            return made

        def empty(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty_strided(shape, strides, dtype=dtype)

        self.call = self.tuner.module(
            lambda use: bind(code, use, {}, False, empty), functions, CPU, machine.bench()
        ).call

    def __call__(self) -> list[float]:
        """One call; its result, checked."""
        x = torch.arange(8.0)
        (result,) = self.call([x])
        assert x.equal(torch.arange(8.0))
        assert result.equal(x * -4.0)
        return list(result.tolist())

    def last(self) -> dict[str, str]:
        """The configs of the last call's launches."""
        return {name: config_text(config) for name, config in self.machine.launched[-3:]}

    def choices(self, kernel: str) -> dict[str, AutotuneChoice]:
        return {item.candidate: item for item in self.recorder.parts(AutotuneChoice) if item.kernel == kernel}

    def kernel(self, id: str) -> Kernel:
        return next(item for item in self.recorder.parts(Kernel) if item.id == id)


def by_block(function: str, config: Config) -> float:
    """A block of 1024 and four warps are best."""
    steps = abs(math.log2(config.constants["XBLOCK"] / 1024))
    return 1e-5 * (1 + steps / 4) * (1 + abs(config.warps - 4) / 10)


def test_first_call_runs_at_once_second_searches_third_runs_the_winners() -> None:
    machine = Machine(by_block)
    graph = Graph(machine, source())
    graph()
    assert len(machine.launched) == 3 and set(graph.last().values()) == {"XBLOCK 256, 4 warps"}
    assert not graph.recorder.parts(AutotuneChoice) and not graph.tuner.settled
    graph()
    assert graph.tuner.settled and len(machine.launched) > 30
    count = len(machine.launched)
    graph()
    assert len(machine.launched) == count + 3, "nothing of the search is left in the way"
    assert set(graph.last().values()) == {"XBLOCK 1024, 4 warps"}


def test_the_record_has_every_candidate_and_the_chosen_time() -> None:
    graph = Graph(Machine(by_block, spill_bytes=lambda config: 128 * (config.warps == 2)), source())
    graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert {"XBLOCK 256, 4 warps", "XBLOCK 512, 4 warps", "XBLOCK 1024, 4 warps"} <= set(found)
    assert [text for text, item in found.items() if item.chosen] == ["XBLOCK 1024, 4 warps"]
    best = found["XBLOCK 1024, 4 warps"].seconds
    assert best == pytest.approx(1e-5)
    assert graph.kernel("g0.fw.k0").seconds == best
    assert graph.kernel("g0.fw.k0").launches[0].constants == {"XBLOCK": 1024}
    assert "spills 128 bytes" in found["XBLOCK 1024, 2 warps"].note
    slow = [item.note for item in found.values() if "slower after" in item.note]
    assert slow and all(item.seconds for item in found.values())
    assert graph.told[0] == "autotuning twice: 1 of 2"


def test_the_same_function_under_another_name_is_searched_once() -> None:
    machine = Machine(by_block)
    graph = Graph(machine, source())
    graph(), graph()
    assert len(graph.choices("g0.fw.k0")) > 3
    (follower,) = graph.choices("g0.fw.k1").values()
    assert follower.chosen and follower.note == "searched as k0_twice"
    assert [text for name, text in machine.compiled if name == "k1_again"] == ["XBLOCK 1024, 4 warps"]
    assert graph.kernel("g0.fw.k1").seconds == graph.kernel("g0.fw.k0").seconds


def test_a_second_process_starts_with_the_winners() -> None:
    first = Graph(Machine(by_block), source())
    first(), first()
    machine = Machine(by_block)
    again = Graph(machine, source())
    assert again.tuner.settled
    assert set(again.tuner.chosen) == set(FACTORS)
    again()
    assert set(again.last().values()) == {"XBLOCK 1024, 4 warps"} and not machine.compiled
    found = again.choices("g0.fw.k1")
    assert len(found) == len(first.choices("g0.fw.k0"))
    assert all("from cache" in item.note for item in found.values())
    assert again.kernel("g0.fw.k0").seconds == first.kernel("g0.fw.k0").seconds


@pytest.mark.parametrize("options", [{"mode": "default"}, {"autotune_seconds": 0.0}])
def test_no_search(options: dict[str, Any]) -> None:
    machine = Machine(by_block)
    graph = Graph(machine, source(), **options)
    graph(), graph(), graph()
    assert graph.tuner.settled and len(machine.launched) == 9 and not machine.compiled


def test_without_the_cache_nothing_is_kept() -> None:
    for _ in range(2):
        graph = Graph(Machine(by_block), source(), cache=False)
        assert not graph.tuner.settled and not graph.tuner.chosen
        graph(), graph()
        assert graph.choices("g0.fw.k0")["XBLOCK 1024, 4 warps"].chosen


def test_a_gain_within_the_noise_changes_nothing() -> None:
    graph = Graph(Machine(lambda name, config: 1e-4 - 1e-6 * (config.constants["XBLOCK"] > 256)), source())
    graph(), graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert found["XBLOCK 256, 4 warps"].chosen
    assert found["XBLOCK 512, 4 warps"].note == "not faster by more than the noise"
    assert set(graph.last().values()) == {"XBLOCK 256, 4 warps"}


def test_candidates_that_fail_are_noted() -> None:
    machine = Machine(by_block, shared_bytes=lambda config: 300_000 * (config.warps == 8))
    machine.fails["XBLOCK 1024, 4 warps"] = CodegenError("Triton refuses it.")
    machine.unloadable.add("XBLOCK 512, 4 warps")
    graph = Graph(machine, source())
    graph(), graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert found["XBLOCK 1024, 4 warps"].note == "CodegenError: Triton refuses it."
    assert found["XBLOCK 512, 4 warps"].note == "LaunchError: the driver refuses."
    assert found["XBLOCK 512, 8 warps"].note == "does not fit: 300000 bytes of shared memory"
    assert all(found[f"XBLOCK {n}, 4 warps"].seconds is None for n in (512, 1024))
    assert sum(item.chosen for item in found.values()) == 1


def test_a_candidate_that_raises_when_launched_is_noted() -> None:
    def cost(function: str, config: Config) -> float:
        if config.constants["XBLOCK"] == 1024:
            raise LaunchError("out of resources.")
        return by_block(function, config)

    graph = Graph(Machine(cost), source())
    graph(), graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert found["XBLOCK 1024, 4 warps"].note == "LaunchError: out of resources."
    assert found["XBLOCK 512, 4 warps"].chosen


def test_a_faster_candidate_whose_results_differ_is_refused() -> None:
    machine = Machine(by_block)
    machine.wrong.add("XBLOCK 1024, 4 warps")
    graph = Graph(machine, source())
    graph(), graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert "its results differ" in found["XBLOCK 1024, 4 warps"].note
    chosen = next(text for text, item in found.items() if item.chosen)
    assert chosen != "XBLOCK 1024, 4 warps" and found[chosen].seconds < found["XBLOCK 256, 4 warps"].seconds


def test_neighbours_are_climbed() -> None:
    def cost(function: str, config: Config) -> float:
        return by_block(function, config) if config.warps < 8 else 1e-6 * (16 / config.warps)

    graph = Graph(Machine(cost), source())
    graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert found["XBLOCK 1024, 16 warps"].chosen or found["XBLOCK 1024, 32 warps"].chosen


def test_the_budget_bounds_the_search_and_is_told() -> None:
    machine = Machine(lambda name, config: 0.05)
    graph = Graph(machine, source(), autotune_seconds=0.2)
    graph(), graph()
    assert graph.tuner.settled and machine.clock.time < 3.0
    assert any(item.note == "not reached in time" for item in graph.choices("g0.fw.k0").values())
    # the same budget would find no more: a later process does not search again; a larger one does
    same = Graph(machine, source(), autotune_seconds=0.2)
    more = Graph(machine, source(), autotune_seconds=5.0)
    assert same.choices("g0.fw.k0") and not more.choices("g0.fw.k0")


def test_what_was_not_reached_is_told() -> None:
    machine = Machine(lambda name, config: 1.0)
    graph = Graph(machine, source(), autotune_seconds=0.5)
    graph(), graph()
    notes = graph.recorder.parts(str)
    assert any("The 0.5 s for autotuning were spent" in note and "sink" in note for note in notes)


def test_nothing_is_searched_while_a_graph_is_captured() -> None:
    machine = Machine(by_block)
    graph = Graph(machine, source())
    graph()
    machine.capturing = True
    graph()
    assert len(machine.launched) == 6 and not graph.tuner.settled
    machine.capturing = False
    graph()
    assert graph.tuner.settled


def test_an_interrupt_ends_the_search_for_good() -> None:
    machine = Machine(by_block)
    graph = Graph(machine, source())
    graph()

    def interrupted(*args: Any) -> list[float]:
        raise KeyboardInterrupt

    machine.clock.sample = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        graph()
    assert graph.tuner.settled
    graph()


def test_launches_whose_programs_wait_for_each_other_must_fit() -> None:
    machine = Machine(by_block)
    machine.room = 4
    code = source()
    whole = dataclasses.replace(code.launches[0], grid=("cdiv(2048, XBLOCK)",), together=True)
    graph = Graph(machine, dataclasses.replace(code, launches=(whole, *code.launches[1:])))
    graph(), graph()
    found = graph.choices("g0.fw.k0")
    assert found["XBLOCK 128, 4 warps"].note == "does not fit: 16 programs at once, room for 4"

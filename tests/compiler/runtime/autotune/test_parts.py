"""The parts of a search: measuring, candidates beside a good one, copies, names of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from nbcompile.compiler.runtime.autotune import copies
from nbcompile.compiler.runtime.autotune.configs import config_text, free_constants, misfit, neighbours
from nbcompile.compiler.runtime.autotune.measure import CandidateTiming, faster, measure
from nbcompile.compiler.runtime.autotune.store import search_key
from nbcompile.compiler.stages import Config, Launch
from nbcompile.targets import parse
from tests.compiler.runtime.autotune.host_stopwatch import HostStopwatch
from tests.compiler.runtime.autotune.test_tuner import CHIP, TEXT, Clock, built, source


def test_measure_drops_the_slow_keeps_the_reference_and_takes_turns() -> None:
    clock, order = Clock(), []

    def costing(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            clock.time += seconds

        return call

    found = measure(
        {"a": costing("a", 9e-4), "b": costing("b", 8e-4), "c": costing("c", 3e-3)},
        60.0, watch=clock, reference="a", rounds=6,
    )  # fmt: skip
    assert found["a"].seconds == pytest.approx(9e-4) and found["b"].seconds == pytest.approx(8e-4)
    assert found["c"].note == "slower after 1 round" and found["c"].rounds == 1
    turns = order[order.index("c") + 2 :]
    assert "a" in turns and turns[-2:] in (["a", "b"], ["b", "a"])
    assert faster(found, "a") == ["b"]


def test_measure_works_on_the_hosts_clock() -> None:
    found = measure({"x": lambda: sum(range(1000)), "y": lambda: 1 // 0}, 0.2, watch=HostStopwatch())
    assert found["x"].seconds and found["y"].note == "ZeroDivisionError: integer division or modulo by zero"


def test_faster_needs_more_than_the_references_spread() -> None:
    steady = CandidateTiming(1.0, (1.0,) * 8)
    noisy = CandidateTiming(1.0, (0.8, 0.85, 0.88, 1.0, 1.0, 1.1, 1.2))
    rival = CandidateTiming(0.95, (0.95,) * 8)
    assert faster({"base": steady, "rival": rival}, "base") == ["rival"]
    assert faster({"base": noisy, "rival": rival}, "base") == []


def test_neighbours_change_only_what_is_free() -> None:
    launch = Launch(
        "f", "k", (), (),
        (Config({"XBLOCK": 4, "RBLOCK": 1024}, 8), Config({"XBLOCK": 8, "RBLOCK": 1024}, 4)),
    )  # fmt: skip
    assert free_constants(launch) == {"XBLOCK": (4, 8)}
    found = neighbours(launch.configs[0], launch)
    assert {config.constants["RBLOCK"] for config in found} == {1024}
    assert {config.constants["XBLOCK"] for config in found} == {2, 4, 8}
    assert all(8 % config.constants["XBLOCK"] == 0 for config in found), "masks may rely on the greatest"
    known = dataclasses.replace(launch, grid=("cdiv(48, XBLOCK)",))
    assert {config.constants["XBLOCK"] for config in neighbours(launch.configs[1], known)} == {4, 8, 16}
    odd = dataclasses.replace(launch, grid=("cdiv(24, XBLOCK)",))
    assert {config.constants["XBLOCK"] for config in neighbours(launch.configs[1], odd)} == {4, 8}
    masked = dataclasses.replace(launch, grid=("cdiv(20, XBLOCK)", "3"))
    assert {config.constants["XBLOCK"] for config in neighbours(launch.configs[1], masked)} == {4, 8, 16}
    walked = Launch("f", "k", (), ("1",), (Config({"STAGES": 1}), Config({"STAGES": 3})))
    assert {item.constants["STAGES"] for item in neighbours(walked.configs[1], walked)} == {2, 3, 4}
    assert {config.stages for config in found} == {1}
    staged = neighbours(launch.configs[0], launch, pipelined=True)
    assert {config.stages for config in staged} == {1, 2}
    assert len({config_text(config) for config in found}) == len(found)


def test_configs_that_differ_have_texts_that_differ() -> None:
    plain = Config({"XBLOCK": 8})
    assert config_text(plain) == "XBLOCK 8, 4 warps"
    others = [dataclasses.replace(plain, warps=1), dataclasses.replace(plain, constants={"XBLOCK": 9})]
    for item in dataclasses.fields(plain):  # fields of later versions too
        if isinstance(item.default, int):
            others.append(dataclasses.replace(plain, **{item.name: 77}))
    assert len({config_text(config) for config in (plain, *others)}) == 1 + len(others)


def test_too_many_threads_do_not_fit() -> None:
    chip = parse("hip:gfx942")
    launch = source().launches[0]
    assert "2048 threads" in misfit(launch, built(launch, Config({}, 32)), chip, {}, lambda _: 1)


def test_written_arguments() -> None:
    found = {item.function: copies.written(item) for item in source().launches}
    assert found == {"k0_twice": (1,), "k1_again": (1,), "k2_sink": (0,)}


def test_copies_keep_strides_and_what_lies_between() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    part = whole[1:, 1:4].t()
    copy = copies.copy_of(part)
    assert copy.stride() == part.stride() and copy.equal(part)
    copy.zero_()
    assert whole.equal(torch.arange(24.0).reshape(4, 6))
    copies.restore(copy, part)
    assert copy.equal(part)
    assert copies.copy_of(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda x: x.clone(), True),
        (lambda x: x * (1 + 1e-6), True),
        (lambda x: x * 1.01, False),
        (lambda x: x.index_fill(0, torch.tensor([3]), float("nan")), False),
        (lambda x: x.index_fill(0, torch.tensor([3]), float("inf")), False),
    ],
)
def test_agreement(change: Callable[[torch.Tensor], torch.Tensor], same: bool) -> None:
    x = torch.linspace(1.0, 2.0, 50)
    x[7] = float("nan")
    assert copies.agree(x, change(x)) is same
    assert copies.agree(torch.arange(9), torch.arange(9)) and not copies.agree(
        torch.arange(9), torch.zeros(9).long()
    )


def test_the_name_of_a_search() -> None:
    code = source()
    first, second, third = (search_key(code, item, CHIP) for item in code.launches)
    assert first == second != third
    assert search_key(code, code.launches[0], parse("cuda:80")) != first
    grown = dataclasses.replace(code.launches[0].arguments[2], hint=4096)
    larger = dataclasses.replace(code.launches[0], arguments=(*code.launches[0].arguments[:2], grown))
    assert search_key(code, larger, CHIP) != first
    edited = dataclasses.replace(code, head=(TEXT.replace("x + x", "x * x"),))
    assert search_key(edited, code.launches[0], CHIP) != first

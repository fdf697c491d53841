"""Timing: turns, repeats, spread, and nothing left changed."""

from __future__ import annotations

import gc
import itertools
import sys
import time

import pytest
import torch

from nbcompile.bench.measure.timing import Step, break_even, interleaved, is_narrow, quiet, timed


def test_contestants_take_turns_and_are_reset_before_each_sample() -> None:
    order: list[str] = []

    def slow(name: str) -> None:
        order.append(name)
        time.sleep(0.002)

    samples = interleaved(
        {"a": lambda: slow("a"), "b": lambda: slow("b")},
        budget=0.08, warm_up=1, min_rounds=3, reset=lambda: order.append("reset"),
    )  # fmt: skip
    timed_part = order[4:]
    assert set(timed_part[::2]) == {"reset"}
    rounds = list(zip(timed_part[1::4], timed_part[3::4], strict=True))
    assert set(rounds) == {("a", "b"), ("b", "a")}, "each once a round, and neither always after the other"
    assert len(samples["a"]) == len(samples["b"]) >= 3
    assert all(0.0015 < second < 0.05 for second in samples["a"])


def test_short_calls_are_repeated_until_a_sample_is_long_enough() -> None:
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    start = time.perf_counter()
    samples = interleaved({"tick": tick}, budget=0.01, min_rounds=5, sample_seconds=2e-3)
    assert time.perf_counter() - start >= 5 * 1e-3
    assert count > 1000 and len(samples["tick"]) >= 5
    assert all(second < 1e-5 for second in samples["tick"])


def test_budget_bounds_the_rounds() -> None:
    samples = interleaved({"a": lambda: time.sleep(0.01)}, budget=0.05, min_rounds=1)
    assert 2 <= len(samples["a"]) <= 6


def test_a_median_that_is_known_well_enough_is_not_sampled_further() -> None:
    now = 0.0

    def steady() -> None:
        nonlocal now
        now += 0.002

    calls = 0

    def restless() -> None:
        nonlocal now, calls
        calls += 1
        now += 0.002 * (1 + calls % 2)

    samples = interleaved({"steady": steady}, budget=60.0, clock=lambda: now)
    assert 20 < len(samples["steady"]) < 60
    samples = interleaved({"restless": restless}, budget=60.0, clock=lambda: now)
    assert len(samples["restless"]) == 200, "as many rounds as there may be"
    assert is_narrow([1.0] * 30) and is_narrow([1.0, 1.005, 1.01] * 12)
    assert not is_narrow([1.0] * 5) and not is_narrow([1.0, 1.1] * 15)


def test_samples_are_looked_at_while_they_are_taken() -> None:
    seen: list[int] = []
    seconds = itertools.cycle((0.01, 0.03))
    samples = interleaved(
        {"a": lambda: time.sleep(next(seconds))},
        budget=1.6,
        look=lambda so_far: seen.append(len(so_far["a"])),
    )
    assert 2 <= len(seen) <= 3 and seen == sorted(set(seen)) and seen[-1] < len(samples["a"])


def test_quiet_puts_everything_back_on_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    gc.unfreeze()  # of what earlier modules left (conftest.py)
    with pytest.raises(KeyboardInterrupt), quiet(threads + 1, silent=True) as used:
        assert used == threads + 1 and not gc.isenabled() and gc.get_freeze_count() > 0
        print("nobody sees this")
        print("nor this", file=sys.stderr)
        raise KeyboardInterrupt
    assert gc.isenabled() and gc.get_freeze_count() == 0 and torch.get_num_threads() == threads
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.nightly
def test_quiet_leaves_a_disabled_collector_disabled() -> None:
    gc.disable()
    try:
        with quiet():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_step_with_train_runs_backward_once_from_clean_gradients() -> None:
    weight = torch.ones(3, requires_grad=True)
    step = Step(lambda x: {"y": (weight * x, x)}, (torch.arange(3.0),), train=True, leaves=(weight,))
    state = torch.get_rng_state()
    step()
    first = weight.grad
    step()
    assert first is not None and weight.grad is not None and weight.grad is not first
    assert torch.equal(first, weight.grad)
    assert torch.equal(state, torch.get_rng_state())
    other = step.with_function(lambda x: {"y": (weight * x * 2, x)})
    other()
    assert torch.equal(weight.grad, first * 2)


def test_timed_and_break_even() -> None:
    seconds, value = timed(lambda: time.sleep(0.01) or 5)
    assert value == 5 and 0.009 < seconds < 0.2
    assert break_even(1.0, 0.003, 0.001) == pytest.approx(500)
    assert break_even(1.0, 0.001, 0.003) is None and break_even(None, 1.0, 0.5) is None


def test_calls_longer_than_the_budget_are_sampled_once_and_no_more() -> None:
    count = 0

    def slow() -> None:
        nonlocal count
        count += 1
        time.sleep(0.02)

    samples = interleaved({"slow": slow}, budget=0.005, min_rounds=5, warm_up=0)
    assert count == len(samples["slow"]) == 1

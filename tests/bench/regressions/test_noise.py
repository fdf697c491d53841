"""Which difference of times counts."""

from __future__ import annotations

import random

from nbcompile.bench.regressions.noise import ratio_of


def draws(random_: random.Random, middle: float, spread: float, count: int = 4) -> list[float]:
    return [middle * random_.lognormvariate(0, spread) for _ in range(count)]


def test_noise_alone_is_seldom_a_difference_and_a_real_one_is_found() -> None:
    source = random.Random(0)
    alarms = found = covered = 0
    for _ in range(2000):
        same = ratio_of(draws(source, 1.0, 0.03), draws(source, 1.0, 0.03), spread=0.05)
        slower = ratio_of(draws(source, 1.0, 0.03), draws(source, 1.25, 0.03), spread=0.05)
        assert same is not None and slower is not None
        alarms += same.slower(0.05)
        found += slower.slower(0.05)
        covered += slower.low <= 1.25 <= slower.high
    assert alarms <= 10  # half a percent of them is one side of a 99% interval
    assert found >= 1900
    assert covered >= 1960


def test_the_interval_is_welchs() -> None:
    ratio = ratio_of([1.0, 1.1, 0.9, 1.02], [2.0, 2.2, 2.1, 1.95], spread=0.0)
    assert ratio is not None and not ratio.assumed
    # scipy.stats.ttest_ind(log after, log before, equal_var=False).confidence_interval(0.99), 5.13 degrees of
    # freedom; the table takes 5, so it is a little wider.
    low, high = 1.68936826800453, 2.500410279615874
    assert 0.99 * low < ratio.low < low and high < ratio.high < 1.01 * high


def test_one_process_a_side_supposes_a_spread() -> None:
    ratio = ratio_of([1.0], [1.15], spread=0.05)
    assert ratio is not None and ratio.assumed and not ratio.slower(0.05)
    ratio = ratio_of([1.0], [1.5], spread=0.05)
    assert ratio is not None and ratio.slower(0.05) and not ratio.faster(0.05)
    assert ratio_of([1.5], [1.0], spread=0.05).faster(0.05)  # type: ignore[union-attr]


def test_nothing_measured_is_no_ratio() -> None:
    assert ratio_of([], [1.0], spread=0.05) is None
    assert ratio_of([0.0], [1.0], spread=0.05) is None


def test_less_than_the_threshold_does_not_count() -> None:
    ratio = ratio_of([1.0, 1.0001, 0.9999], [1.02, 1.0201, 1.0199], spread=0.05)
    assert ratio is not None and ratio.low > 1
    assert not ratio.slower(0.05) and ratio.slower(0.01)

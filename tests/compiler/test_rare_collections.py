"""The garbage collector leaves old objects alone while a graph is compiled, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

import nbcompile
from nbcompile.compiler.rare_collections import rare_collections


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_compile_has_fewer_and_leaves_thresholds_as_they_were() -> None:
    gc.set_threshold(700, 10, 10)
    full = []

    def note(phase: str, told: dict[str, int]) -> None:
        if phase == "stop" and told["generation"] == 2 and gc.get_threshold()[0] > 700:
            full.append(told)

    gc.callbacks.append(note)
    try:
        run = nbcompile.compile(lambda x: (x.sin() * 2).sum(-1), options={"cache": False})
        run(torch.randn(4, 8))
    finally:
        gc.callbacks.remove(note)
    assert run.ran_compiled and not full
    assert gc.get_threshold() == (700, 10, 10)


def test_one_within_another_and_one_that_raises() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(ValueError, match="so"), rare_collections():
        with rare_collections():
            assert gc.get_threshold()[0] > 700
        assert gc.get_threshold()[0] > 700
        raise ValueError("so")
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (10**6, 5, 5)])
def test_what_a_user_chose_stays(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with rare_collections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_what_is_set_meanwhile_stays() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_collections():
        gc.set_threshold(500, 5, 5)
    assert gc.get_threshold() == (500, 5, 5)

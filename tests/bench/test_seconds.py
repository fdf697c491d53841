"""What takes seconds or threads refuses what is none before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import nbcompile
from nbcompile.errors import MeasureError, NbcompileError, OptionError, RanksError
from nbcompile.options import check_count, check_seconds

X = torch.ones(4)
GRID = {"backend": ["eager"]}


def never(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("it ran")


def exported(value: Any) -> Any:
    return nbcompile.export(never, X, Path("never.pt2"), budget=value)


ASKED: dict[str, tuple[Callable[[Any], Any], type[NbcompileError]]] = {
    "compare budget": (lambda value: nbcompile.compare(never, X, budget=value), OptionError),
    "compare threads": (lambda value: nbcompile.compare(never, X, threads=value), OptionError),
    "sweep budget": (
        lambda value: nbcompile.compare(never, X, GRID, budget=value),
        OptionError,
    ),
    "sweep timeout": (
        lambda value: nbcompile.compare(never, lambda: X, GRID, isolated=True, timeout=value),
        OptionError,
    ),
    "mode_diff budget": (lambda value: nbcompile.mode_diff(never, X, budget=value), OptionError),
    "doctor budget": (lambda value: nbcompile.doctor(never, X, budget=value), OptionError),
    "export budget": (exported, OptionError),
    "captures budget": (lambda value: nbcompile.captures(never, X, budget=value), MeasureError),
    "check seconds": (lambda value: nbcompile.check(never, X, seconds=value), OptionError),
    "Ranks timeout": (lambda value: nbcompile.Ranks(1, timeout=value), RanksError),
}


@pytest.mark.parametrize("value", [-1, math.nan, "2", True, math.inf, [1.0]], ids=repr)
@pytest.mark.parametrize("name", ASKED)
def test_what_is_no_time_or_count_is_refused(name: str, value: object) -> None:
    ask, error = ASKED[name]
    with pytest.raises(error) as raised:
        ask(value)
    assert f"{name.split()[-1]}={value!r} wants a" in str(raised.value)


@pytest.mark.parametrize("name", [name for name in ASKED if name != "check seconds"])
def test_nothing_is_measured_in_no_time(name: str) -> None:
    ask, error = ASKED[name]
    with pytest.raises(error, match=r"=0 wants a"):
        ask(0)


def test_any_real_number_is_a_time() -> None:
    for value in (1, 0.5, numpy.float32(2), numpy.int64(3)):
        check_seconds("budget", value)
    check_seconds("seconds", 0, zero=True)
    check_count("threads", numpy.int64(2))
    with pytest.raises(OptionError):
        check_count("threads", 1.5)

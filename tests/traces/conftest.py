"""Traces of real compiles, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbcompile
from nbcompile.traces.trace import Trace
from tests.traces.programs import CAPTURES, TRAINING, traced


@pytest.fixture(scope="package")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of what Dynamo meets, behind our own backend."""
    return traced(CAPTURES, tmp_path_factory.mktemp("captures"), "nbcompile")


@pytest.fixture(scope="package")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two steps through Inductor, the second from its cache."""
    return traced(TRAINING, tmp_path_factory.mktemp("training"), "inductor")


@pytest.fixture
def trace(captures: Path) -> Trace:
    found = nbcompile.open(captures)
    assert isinstance(found, Trace)
    return found


@pytest.fixture
def step(training: Path) -> Trace:
    found = nbcompile.open(training)
    assert isinstance(found, Trace)
    return found

"""Traces of real compiles, each made once, by whichever worker comes first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from filelock import FileLock

import nbcompile
from nbcompile.traces.trace import Trace
from tests.traces.programs import CAPTURES, TRAINING, traced


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="package")
def captures(together: Path) -> Path:
    """Of what Dynamo meets, behind our own backend."""
    return _made(CAPTURES, together / "captures", "nbcompile")


@pytest.fixture(scope="package")
def training(together: Path) -> Path:
    """Of two steps through Inductor, the second from its cache."""
    return _made(TRAINING, together / "training", "inductor")


def _made(program: str, folder: Path, backend: str) -> Path:
    folder.mkdir(exist_ok=True)
    with FileLock(folder / "lock"):
        done = folder / "done"
        if not done.exists():
            done.write_text(str(traced(program, folder, backend)))
        return Path(done.read_text())


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

"""What every test shares: cache folders of its own, so that no test reads what another run left."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

# Set before torch or nbcompile is imported, so that worker processes and kernels inherit it.
_FOLDER = tempfile.TemporaryDirectory(prefix="nbcompile-tests-", ignore_cleanup_errors=True)
os.environ["NBCOMPILE_CACHE_DIR"] = os.path.join(_FOLDER.name, "cache")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_FOLDER.name, "inductor")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-golden", action="store_true", help="write the files of tests/golden anew")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without a C compiler."""
    monkeypatch.setenv("NBCOMPILE_CC", "/nowhere/cc")
    yield

"""What every test shares: cache folders of its own, so that no test reads what another run left."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.nightly import beyond_few

# Set before torch or nbcompile is imported, so that worker processes and kernels inherit it.
_FOLDER = tempfile.TemporaryDirectory(prefix="nbcompile-tests-", ignore_cleanup_errors=True)
os.environ["NBCOMPILE_CACHE_DIR"] = os.path.join(_FOLDER.name, "cache")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_FOLDER.name, "inductor")
# A history of commands of its own: that of whoever runs the tests is not written to, nor by two at once.
os.environ["IPYTHONDIR"] = os.path.join(_FOLDER.name, "ipython")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept-golden", action="store_true", help="write the files of tests/golden anew")
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--nightly"):
        left_out = {item for item in items if item.get_closest_marker("nightly")}
        left_out.update(beyond_few([item for item in items if item not in left_out]))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def nightly(pytestconfig: pytest.Config) -> bool:
    """Whether there is time for more of the same."""
    return bool(pytestconfig.getoption("--nightly"))


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """What earlier modules left, Dynamo's code of every program above all, is not walked again and again by
    the collections that each measurement begins with: they were a third of all tests' time."""
    gc.collect()
    gc.freeze()
    yield


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without a C compiler."""
    monkeypatch.setenv("NBCOMPILE_CC", "/nowhere/cc")
    yield

"""C kernels called from Python: what they are given, and what is refused before they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from nbcompile.compiler.runtime.c import calls
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.stages import EntryPoint
from nbcompile.errors import LaunchError, ToolchainError

COUNTS = (1, 4, 5, 9, 17, 33, 64, 65)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``takes_n(out, v1, …)`` stores the sum of k * vk; 65 arguments are more than ``call.c`` passes on."""
    text = []
    for count in COUNTS:
        given = [f"long v{n}" for n in range(1, count)]
        total = " + ".join(["0", *(f"{n} * v{n}" for n in range(1, count))])
        text.append(f"void takes_{count}({', '.join(['long *out', *given])}) {{ *out = {total}; }}")
    path = tmp_path_factory.mktemp("calls") / "kernel.so"
    find_toolchain().compile("\n".join(text), path)
    return path


@pytest.fixture(params=["native", "ctypes"])
def takes(
    request: pytest.FixtureRequest, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable]:
    if request.param == "ctypes":
        monkeypatch.setattr(calls, "native_caller", lambda: None)
    points = [EntryPoint(f"takes_{count}", "k0", ("p",) * count) for count in COUNTS]
    yield calls.load(library, points).__getitem__


@pytest.mark.parametrize("count", COUNTS)
def test_every_argument_arrives(takes: Callable, count: int) -> None:
    out = torch.zeros(2, dtype=torch.int64)
    numbers = [(-1) ** n * (n << 33) for n in range(1, count)]
    takes(f"takes_{count}")(out, *numbers)
    assert out.tolist() == [sum(n * number for n, number in enumerate(numbers, start=1)), 0]


def test_tensors_are_given_as_where_they_begin(takes: Callable) -> None:
    out = torch.zeros(4, dtype=torch.int64)
    given = out[2:], torch.nn.Parameter(torch.ones(3)), torch.ones(2, 3).t()[1:], torch.empty(0)
    takes("takes_5")(given[0], *given[1:], 0)
    assert out[2] == sum(n * item.data_ptr() for n, item in enumerate(given) if n)
    takes("takes_1")(out.data_ptr())  # an address of one's own
    assert out[0] == 0


def test_a_library_that_is_none_cannot_be_loaded(tmp_path: Path, library: Path) -> None:
    with pytest.raises(ToolchainError, match="could not be loaded"):
        calls.load(tmp_path / "none.so", [])
    with pytest.raises(ToolchainError, match="could not be loaded"):
        calls.load(library, [EntryPoint("missing", "k0", ())])


def test_what_is_neither_a_tensor_nor_an_integer_is_refused(library: Path) -> None:
    if calls.native_caller() is None:
        pytest.skip("this torch gives no addresses in C")
    run = calls.load(library, [EntryPoint("takes_4", "k0", ("p",) * 4)])["takes_4"]
    out = torch.zeros(1, dtype=torch.int64)
    for wrong in (None, 1.5, "x", [out]):
        with pytest.raises(LaunchError, match="argument 2 of kernel takes_4 is neither a tensor nor"):
            run(out, 1, wrong, 1)
    with pytest.raises(LaunchError, match="takes 4 arguments, got 3"):
        run(out, 1, 1)
    with pytest.raises(OverflowError):
        run(out, 1, 1 << 80, 1)
    assert out.tolist() == [0], "nothing was called"


def test_other_threads_run_meanwhile(tmp_path: Path) -> None:
    """A kernel that waits for what another thread writes would wait for ever with the interpreter's lock."""
    import threading

    path = tmp_path / "kernel.so"
    find_toolchain().compile("void waits(volatile long *flag) { while (!*flag) ; }", path)
    flag = torch.zeros(1, dtype=torch.int64)
    run = calls.load(path, [EntryPoint("waits", "k0", ("flag",))])["waits"]
    timer = threading.Timer(0.2, lambda: flag.fill_(1))
    timer.start()
    run(flag)
    timer.join()
    assert flag.item() == 1

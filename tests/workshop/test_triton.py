"""What a reader is told of a kernel that they wrote: the line of their own text, and that it is theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from nbcompile.errors import OUR_BUG, EditError
from nbcompile.workshop.triton import compile_for, interpret

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402


@triton.jit
def unmasked(x, n, block: tl.constexpr):
    at = tl.arange(0, block)
    tl.store(x + at, 1.0)


@triton.jit
def unknown(x, n, block: tl.constexpr):
    at = tl.arange(0, block)

    tl.store(x + at, nowhere, mask=at < n)  # noqa: F821


def interpreted(kernel: object) -> None:
    interpret(kernel, torch.zeros(10), 10, programs=1, block=16)


def compiled(kernel: object) -> None:
    compile_for("cuda:90", kernel, torch.zeros(10), 10, block=16)


@pytest.mark.parametrize(
    ("run", "kernel", "line", "says"),
    [
        (interpreted, unmasked, 4, "stores element 10 of the storage of argument x"),
        (interpreted, unknown, 5, "name 'nowhere' is not defined"),
        (compiled, unknown, 5, "nowhere is not defined"),
    ],
)
def test_an_error_of_a_kernel_by_hand_is_its_readers(
    run: Callable[[object], None], kernel: object, line: int, says: str
) -> None:
    with pytest.raises(EditError, match=says) as caught:
        run(kernel)
    assert caught.value.line == line, "from the line of @triton.jit, which is 1"
    assert f"which is yours: correct line {line} of it" in str(caught.value)
    assert OUR_BUG not in str(caught.value) and "generated" not in str(caught.value)

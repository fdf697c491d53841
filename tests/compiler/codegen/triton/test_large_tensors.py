"""Kernels over more than 2**31 elements, read: none fits on the machines that run the suite. They run on a
GPU in tests/gpu/test_large.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.compiler.codegen.triton_running import aten_of_fake, compiled, generated
from tests.gpu.test_large import COLUMNS, ROWS, N


def line(dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.empty(N, dtype=dtype)


def put(x: Tensor, at: Tensor) -> Tensor:
    return x.index_put((at,), at.to(torch.uint8))


def places() -> Tensor:
    return torch.empty(65, dtype=torch.int64)


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "argmax": (lambda x: x.argmax(), lambda: (line(),)),
    "not quite so many": (lambda x: x.sum(), lambda: (torch.empty(2**31 - 100, dtype=torch.uint8),)),
    "long rows": (lambda x: x.sum(1), lambda: (torch.empty(600, N, dtype=torch.uint8),)),
    "a row walked twice": (lambda x: (x - x.mean()).square().mean(), lambda: (line(torch.bfloat16),)),
    "a scan": (lambda x: x.cumsum(0, dtype=torch.int32), lambda: (line(),)),
    "a scatter": (lambda x, at: x.scatter(0, at, 3), lambda: (line(), places())),
    "by index": (put, lambda: (line(), places())),
    "by index, of what a kernel makes": (lambda x, at: put(x + 1, at), lambda: (line(), places())),
    "added by index": (lambda x, at: x.index_add(0, at, at.int()), lambda: (line(torch.int32), places())),
    "rows": (lambda x: x.sum(1), lambda: (torch.empty(ROWS, COLUMNS, dtype=torch.uint8),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_places_are_int64(name: str) -> None:
    _, source = generated(aten_of_fake(*PROGRAMS[name]))
    text = "\n".join(kernel.text for kernel in source.kernels)
    assert "tl.program_id" in text or "tl.range" in text
    assert not re.search(r"tl\.program_id\(\d\)(?!\.to\(tl\.int64\))", text)
    assert not re.search(r"tl\.arange\(0, [A-Z]+\)(?!\.to\(tl\.int64\)| ==)", text)
    # a literal that Triton takes for uint32, with which a loop's count is extended with a sign
    assert not re.search(r"range\([^)]*?, (2[1-9]\d{8}|3\d{9}|4[01]\d{8}), ", text)


def test_triton_takes_the_end_of_a_loop() -> None:
    """The loop that runs to 2**31 and more starts below its end: in Triton's IR both are int64."""
    _, source = generated(aten_of_fake(*PROGRAMS["long rows"]))
    for built in compiled(source, "cuda:90", assemble=False).values():
        ttir = built.texts["ttir"]
        assert "2147483725_i64" in ttir and "-2147483571" not in ttir

"""Of equal numbers argmax and argmin find the first, in whatever order a kernel goes through them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import nbcompile
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip
from tests.nightly import few

Tensor = torch.Tensor

READERS: dict[str, Callable[[Tensor], Tensor]] = {
    "alone": lambda x: x.argmin(0),
    "flipped": lambda x: (x <= x.argmin(0)).flip(1, 0),
    "rolled": lambda x: (x <= x.argmax(0)).roll(1, 0),
    "turned": lambda x: (x <= x.argmax(-1, keepdim=True)).mT.contiguous(),
    "of all": lambda x: (x + x.argmax()).flip(-1),
    "both": lambda x: torch.min(x, 0)[1] + torch.max(x.flip(0), 0)[1],
}


@few(2)
@pytest.mark.parametrize("interpret", [False, True], ids=["c", "triton"])
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32])
@pytest.mark.parametrize("name", READERS)
def test_the_first_of_equals(name: str, dtype: torch.dtype, interpret: bool) -> None:
    if interpret:
        pytest.importorskip("triton")
    options = {"cache": False, "verify": True, "interpret": interpret}
    function = READERS[name]
    for x in (torch.randint(0, 3, (4, 8, 5)), torch.randint(0, 2, (40, 6)).t()):
        torch._dynamo.reset()
        assert torch.equal(nbcompile.compile(function, options=options)(x.to(dtype)), function(x.to(dtype)))


@few(2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, -1).argmax(-1),
        lambda x: (x - x.mean(-1, keepdim=True)).argmin(-1),
        lambda x: torch.softmax(x, -1).max(-1)[1],
    ],
    ids=["argmax", "argmin", "max"],
)
def test_the_first_of_equals_in_a_row_that_is_walked_twice(function: Callable[[Tensor], Tensor]) -> None:
    """A second walk goes backwards elsewhere."""
    pytest.importorskip("triton")
    x = torch.zeros(9, 1024)
    x[1, 100] = x[1, 900] = 1
    graph = aten_of(function, x)
    with small_chip(LONGEST_ROW=64, WALK_BLOCK=64, SMALL_DATA=1 << 30):
        _, source = generated(graph)
        assert torch.equal(run_interpreted(source, graph, [x])[0], function(x))

"""What a window or a stencil reads several times is computed again where that is cheaper than memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from tests.compiler.fuse.test_decisions import fuse, ones, refusals
from tests.nightly import few

Function = Callable[[torch.Tensor], torch.Tensor]

PRODUCERS: dict[str, Function] = {
    "add": lambda x: x + 1,
    "relu": torch.relu,
    "div": lambda x: 1 / (x + 10),
    "exp": torch.exp,
}


def five_points(x: torch.Tensor) -> torch.Tensor:
    middle = x[:, :, 1:-1, 1:-1] * 4
    return middle - x[:, :, :-2, 1:-1] - x[:, :, 2:, 1:-1] - x[:, :, 1:-1, :-2] - x[:, :, 1:-1, 2:]


CONSUMERS: list[tuple[str, Function, str]] = [
    # name, function, producers that are worth computing again
    ("apart", lambda x: F.avg_pool2d(x, 2), "add relu div exp"),
    ("strided", lambda x: F.avg_pool2d(x, 3, 2), "add relu div"),
    ("overlapping", lambda x: F.avg_pool2d(x, 3, 1), "add"),
    ("overlapping max", lambda x: F.max_pool2d(x, 3, 1), "add"),
    ("padded", lambda x: F.max_pool2d(x, 3, 2, 1), ""),  # behind guards: not in SIMD
    ("difference", lambda x: x[..., 1:] - x[..., :-1], "add relu div"),
    ("in several loops", five_points, "add relu"),
    ("two parts", lambda x: torch.cat([x, -x], 3), "add relu div"),
    ("halves", lambda x: torch.cat([x[..., 16:], x[..., :16]], 3), "add relu div exp"),
]


@few(14)
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize(
    ("consumer", "worth"), [case[1:] for case in CONSUMERS], ids=[c[0] for c in CONSUMERS]
)
def test_cheap_producers_are_computed_again_and_costly_ones_are_not(producer, consumer, worth):
    program = fuse(lambda x: consumer(PRODUCERS[producer](x)), ones(2, 4, 32, 32))
    assert ("recompute" in refusals(program)) == (producer not in worth.split())
    assert (len(program.groups) == 1) == (producer in worth.split())


def test_every_part_of_a_cat_is_computed_once():
    """The last one too: no guard of its own is around it."""
    program = fuse(lambda x, y: torch.cat([x.exp(), y.exp()], 1), ones(64, 64), ones(64, 64))
    assert len(program.groups) == 1


def test_what_is_stored_is_not_computed_again_at_gathered_places() -> None:
    """A stack of rolls picked from by a table was computed for each pick, all nine parts of it."""
    x, order = torch.randn(40, 50), torch.tensor([2, 0, 1, 5, 4, 3, 6])

    def function(x: torch.Tensor, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        stacked = torch.stack([x.roll(i, 0) for i in range(7)])
        return stacked, stacked[order] * 2

    torch._dynamo.reset()
    call = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(call(x, order), function(x, order))
    reasons = [each.reason for each in call.compilation.decisions if not each.accepted]
    assert any("would be computed 2 times over" in reason for reason in reasons)


def test_a_constant_that_two_read_one_after_the_other_is_in_no_memory() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        bump = torch.zeros_like(x)
        bump[20, 24] = 0.3
        return x * 2 + bump

    torch._dynamo.reset()
    x = torch.randn(48, 48)
    call = nbcompile.compile(function, options={"cache": False})
    torch.testing.assert_close(call(x), function(x))
    assert len(call.compilation.kernels) == 1


def test_what_a_chain_of_shifts_computes_again_is_counted_through_all_of_it() -> None:
    """Each step reads the one before at three places, rows of one loop: computed again at each, the text of
    the kernel of the gradients grew 2.6 times with every step."""

    def paths(scores: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        reached = scores[0]
        for row in scores[1:]:
            one = F.pad(reached[:-1], (1, 0), value=-1e30)
            two = F.pad(reached[:-2], (2, 0), value=-1e30).masked_fill(skip, -1e30)
            reached = torch.logsumexp(torch.stack([reached, one, two]), 0) + row
        return reached.sum()

    torch._dynamo.reset()
    call = nbcompile.compile(paths, options={"cache": False})
    scores, skip = torch.randn(7, 9, requires_grad=True), torch.arange(9) % 3 > 0
    (got,) = torch.autograd.grad(call(scores, skip), scores)
    (wanted,) = torch.autograd.grad(paths(scores, skip), scores)
    torch.testing.assert_close(got, wanted)
    assert max(len(kernel.sources["c"]) for kernel in call.compilation.kernels) < 6000

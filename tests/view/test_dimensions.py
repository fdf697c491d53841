"""Symbolic sizes in a headline: by what the program calls them."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.guard_words import dimensions
from nbcompile.record.provenance import Links
from nbcompile.view.facts.facts import facts


def test_a_symbol_is_the_extent_that_it_was_taken_from() -> None:
    lines = (
        "s77 = input L['x'].size()[0]    SymInt(s77)",
        "s5 = input L['self'].batches[0].size()[12]    SymInt(s5)",
        "s3 = input L['n']    SymInt(s3)",
        "l_x_ = input L['x']    f32[s77,4]",
        "",
    )
    assert dimensions(lines) == {"s77": "x.shape[0]", "s5": "self.batches[0].shape[12]", "s3": "n"}


@pytest.mark.parametrize(
    ("dynamic", "told"), [(True, "float32[x.shape[0], x.shape[1]]"), (False, "float32[6, 4]")]
)
def test_the_headline_names_extents_as_the_program_does(dynamic: bool, told: str) -> None:
    """It had ``float32[s77, s27]``."""
    torch._dynamo.reset()

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1)

    compiled = nbcompile.compile(f, dynamic=dynamic)
    compiled(torch.randn(6, 4))
    record = compiled.compilation
    assert facts(record, Links(record)).subtitle.endswith(told)
    source = next(iter(record.kernels[0].sources.values()))
    assert (" is x.shape[0], s" in source) is dynamic

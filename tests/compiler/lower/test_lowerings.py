"""Every registered lowering, on every one of its samples, through the interpreter."""

import pytest

from nbcompile.compiler.lower.registry import registry
from tests.compiler.lower.harness import check_sample

CASES = [
    pytest.param(entry, sample, id=f"{target}-{sample.name}")
    for target, entry in registry().lowerings.items()
    for sample in entry.samples
]


@pytest.mark.parametrize(("entry", "sample"), CASES)
def test_lowering_agrees_with_eager(entry, sample):
    check_sample(entry, sample)


@pytest.mark.parametrize("target", list(registry().lowerings), ids=str)
def test_every_lowering_has_samples(target):
    assert registry().lowerings[target].samples

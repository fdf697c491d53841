"""Every registered lowering, on all of its samples, as Triton kernels in the interpreter, each address
checked; and the first of the kernels that ran, compiled for a chip that is not here: of one operator in
three, and in the night of all for three chips."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from nbcompile.compiler.lower.registry import registry
from nbcompile.compiler.stages import KernelSource, KernelText
from tests.compiler.codegen.c.test_every_lowering import graph_of_samples
from tests.compiler.codegen.triton_running import (
    CHIPS,
    canonical,
    compiled,
    generated,
    launches_of,
    run_interpreted,
)
from tests.compiler.lower.harness import compare
from tests.nightly import few

SAMPLED = [target for target, entry in registry().lowerings.items() if entry.samples]


def representative(source: KernelSource) -> KernelText | None:
    """The kernel that stands for an operator: the first; None of a view, and where ATen does it."""
    return source.kernels[0] if source.kernels else None


@few(8)
@pytest.mark.parametrize("target", SAMPLED, ids=str)
def test_kernels_agree_with_eager_and_compile(target, nightly):
    entry = registry().lowerings[target]
    aten, inputs, eager, wide = graph_of_samples(entry)
    _, source = generated(aten)
    torch.manual_seed(7)
    compare(run_interpreted(source, aten, inputs), eager, wide)
    kernel = representative(source)
    turn, compiles = divmod(SAMPLED.index(target), 3)
    if kernel is None or (compiles and not nightly):
        return
    for chip in CHIPS if nightly else [CHIPS[turn % len(CHIPS)]]:
        launches = launches_of(source, kernel)
        built = compiled(source, chip, launches)
        assert built.keys() == {launch.function for launch in launches}
        assert all(item.binary for item in built.values())


def kernels_above() -> Iterator[str]:
    """What the test above runs and compiles, one operator after the other."""
    for target in SAMPLED:
        entry = registry().lowerings[target]
        kernel = representative(generated(graph_of_samples(entry)[0])[1])
        if kernel is not None:
            yield canonical(kernel)


@pytest.mark.nightly
def test_at_least_150_distinct_kernels_are_run_and_compiled_above():
    found: set[str] = set()
    for text in kernels_above():
        found.add(text)
        if len(found) >= 150:
            return
    pytest.fail(f"only {len(found)} kernels")

"""Every registered lowering, on every one of its samples, through the interpreter."""

import pytest

from nbcompile.compiler.lower.registry import registry
from tests.compiler.lower.harness import check_sample

LOWERINGS = registry().lowerings


@pytest.mark.parametrize("target", LOWERINGS, ids=str)
def test_lowering_agrees_with_eager(target):
    """One test an operator: five thousand samples as tests of their own are a minute of pytest's own time."""
    assert LOWERINGS[target].samples
    wrong = []
    for sample in LOWERINGS[target].samples:
        try:
            check_sample(LOWERINGS[target], sample)
        except Exception as error:
            error.add_note(f"sample {sample.name}")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} samples of {target}", wrong)

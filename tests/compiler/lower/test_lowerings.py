"""Every registered lowering, on every one of its samples, through the interpreter."""

import pytest

from nbcompile.compiler.lower.registry import registry
from tests.compiler.lower.harness import check_sample
from tests.nightly import few, spaced

LOWERINGS = registry().lowerings


@few(160)
@pytest.mark.parametrize("target", LOWERINGS, ids=str)
def test_lowering_agrees_with_eager(target, nightly):
    """One test an operator: thousands of samples as tests of their own are a minute of pytest's own time. By
    day some of them: all are compiled as C and as Triton, and compared with the same eager, beside this."""
    assert LOWERINGS[target].samples
    wrong = []
    samples = LOWERINGS[target].samples
    for sample in samples if nightly else spaced(samples, 6):
        try:
            check_sample(LOWERINGS[target], sample)
        except Exception as error:
            error.add_note(f"sample {sample.name}")
            wrong.append(error)
    if wrong:
        raise ExceptionGroup(f"{len(wrong)} samples of {target}", wrong)

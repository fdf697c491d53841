"""What playing needs of a GPU: the time of each kernel, forced and refused fusions, edited Triton kernels."""

from __future__ import annotations

import pytest
import torch

import nbcompile
from nbcompile.bench.measure.compare import compare
from nbcompile.compiler.attempt import Attempt
from nbcompile.errors import EditError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")


def program(x: torch.Tensor) -> torch.Tensor:
    return (torch.softmax(x, -1) * 2).sin() + 1


def inputs() -> torch.Tensor:
    return torch.randn(4096, 1024, device="cuda")


def test_each_kernel_is_timed_on_the_stream() -> None:
    record = compare(program, (inputs(),), ("eager", "nbcompile"), cold=False, budget=0.5)
    (kernel,) = record.kernels
    whole = next(m.median for m in record.measurements if m.contestant == "nbcompile")
    assert kernel.seconds is not None and whole is not None
    # 33.6 MB at no more than 5 TB/s, and no longer than a call of the whole.
    assert 2 * 4096 * 1024 * 4 / 5e12 < kernel.seconds < 1.5 * whole


def test_a_replayed_graph_has_no_times_of_kernels_and_no_errors() -> None:
    record = compare(program, (inputs(),), ("nbcompile:reduce-overhead",), cold=False, budget=0.5)
    assert record.measurements[0].median is not None, record.measurements[0].reason


def test_a_pair_kept_apart_is_two_kernels() -> None:
    x = inputs()
    compiled = nbcompile.compile(program, options={"no_fuse": "mul:sin"})
    torch.testing.assert_close(compiled(x), program(x))
    assert len(compiled.compilation.kernels) == 2


def edited(old: str, new: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = inputs()
    plain = nbcompile.compile(program)
    plain(x)
    (kernel,) = plain.compilation.kernels
    text = kernel.sources["triton"]
    assert old in text
    attempt = Attempt([(kernel.id, text.replace(old, new, 1))])
    changed = nbcompile.compile(program, compile_aten=attempt.compile_aten)
    got = changed(x)
    attempt.check()
    return got, program(x)


def test_an_edited_kernel_runs() -> None:
    torch.testing.assert_close(*edited("2.0", "(1.5 + 0.5)"))
    got, want = edited("2.0", "3.0")
    assert not torch.allclose(got, want)


def test_an_edit_that_is_no_triton_says_so() -> None:
    with pytest.raises(EditError, match="no_such_name is not defined") as caught:
        edited("2.0", "no_such_name")
    assert caught.value.line is not None and f"correct line {caught.value.line} of it" in caught.value.advice

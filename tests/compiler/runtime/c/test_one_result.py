"""Equal numbers have equal results, whichever SIMD version of a C function takes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.compiler.runtime.c import one_result
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from tests.nightly import few, one_in

UNARY = (
    "exp tanh erf log log1p sin cos expm1 exp2 log2 log10 erfc atan asin acos sinh cosh asinh atanh tan "
    "sigmoid"
).split()
BINARY = ("pow", "atan2", "hypot")
OPTIONS = {"cache": False}


def results(
    function: Callable[[torch.Tensor], torch.Tensor], number: float, dtype: torch.dtype
) -> set[float]:
    """What the compiled function makes of a number that stands once, or many times, in loops that are
    vectorized and that are not."""
    alone = nbcompile.compile(function, dynamic=True, options=OPTIONS)
    running = nbcompile.compile(lambda x: function(x).cummax(0).values, dynamic=True, options=OPTIONS)
    found: set[float] = set()
    for count in (2, 3, 5, 9, 16, 17, 31, 47, 100):
        x = torch.full((count,), number, dtype=dtype)
        found.update(alone(x).tolist(), running(x).tolist())
    found.update(
        nbcompile.compile(function, options=OPTIONS)(torch.tensor(number, dtype=dtype)).reshape(1).tolist()
    )
    assert alone.ran_compiled and running.ran_compiled
    return found


@few(2)
@pytest.mark.parametrize(
    ("name", "dtype"), one_in(3, (*UNARY, *BINARY), (torch.float32, torch.float64)), ids=str
)
def test_one_number_has_one_result(name: str, dtype: torch.dtype) -> None:
    function = getattr(torch, name)
    called = (lambda x: function(x, x * 0.5 + 1)) if name in BINARY else function
    found = results(called, 0.6180339, dtype)
    assert len(found) == 1, found
    wanted = called(torch.tensor(0.6180339, dtype=dtype)).item()
    assert found.pop() == pytest.approx(wanted, rel=4 * torch.finfo(dtype).eps)


@few(2)
@pytest.mark.parametrize("shape", ((1, 2, 4), (3, 5, 17), (2, 33)), ids=str)
@pytest.mark.parametrize("activation", (F.mish, F.gelu, torch.tanh, torch.sigmoid, F.softplus))
def test_some_element_is_the_largest(activation: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)

    def largest(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = activation(x)
        most = y.amax(1)
        return most.unflatten(0, (1, -1)), y == most.unsqueeze(1)

    run = nbcompile.compile(largest, options=OPTIONS)
    (most, where), (wanted, there) = run(x), largest(x)
    torch.testing.assert_close(most, wanted)
    assert torch.equal(where, there)
    mine, theirs = (torch.autograd.grad(item.sum(), x)[0] for item in (most, wanted))
    torch.testing.assert_close(mine, theirs)


def test_only_what_is_declared_is_sent() -> None:
    text = '__attribute__((simd("notinbranch"), const)) float powf(float, float);\n'
    assert one_result.with_one_result(text, "") == text
    assert one_result.with_one_result("float sqrtf(float);\n", "e") == "float sqrtf(float);\n"
    sent = one_result.with_one_result(text, "e")
    for symbol in ("powf:", "_ZGVbN4vv_powf:", "_ZGVdN8vv_powf:", "%xmm1, %zmm1", "jmp _ZGVeN16vv_powf@PLT"):
        assert symbol in sent
    assert "_ZGVeN16vv_powf:" not in sent


@pytest.mark.parametrize("isa", ("b", "d", "e"))
def test_each_width_assembles(isa: str, tmp_path: Path) -> None:
    toolchain = find_toolchain()
    if not toolchain.widest:
        pytest.skip("the C library of this machine has no SIMD functions")
    text = "".join(
        f'__attribute__((simd("notinbranch"), const)) {kind} {name};\n'
        for kind, name in (
            ("float", "expf(float)"),
            ("double", "exp(double)"),
            ("float", "powf(float, float)"),
        )
    )
    text += "double both(float x, double y) { return expf(x) + exp(y) + powf(x, x); }\n"
    out = tmp_path / "widths.so"
    dataclasses.replace(toolchain, widest=isa).compile(text, out)
    assert out.exists()

"""mode_diff: what a mode changes for one program, from the records of its compiles."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import nbcompile
from nbcompile.errors import MeasureError, OptionError
from nbcompile.record.compilation import (
    AutotuneChoice,
    Compilation,
    Graph,
    Kernel,
    Launched,
    Measurement,
    Node,
)
from nbcompile.record.mode_diff import ModeDiff, ModeResult, kernel_changes

X = torch.linspace(-1, 1, 64).reshape(8, 8)


def f(x):
    return torch.softmax(x @ x, -1) * 2


def kernel(name: str, source: str, **rest) -> Kernel:
    return Kernel(
        f"g0.fw.{name}", name, "g0.fw.fused", ("l0",), rest.pop("schedule", "rows"), {"c": source}, **rest
    )


def test_modes_on_the_cpu() -> None:
    found = nbcompile.mode_diff(f, X, ("default", "max-autotune"), budget=0.05)
    assert found.options() == {
        "search": {"max-autotune": "configs of kernels, and matrix products"},
        "replay": {"max-autotune": "CUDA graphs"},
    }
    assert found.kernels("max-autotune") == ()
    assert [result.record.mode for result in found.results] == ["default", "max-autotune"]
    assert all(result.seconds and result.told and result.record.kernels for result in found.results)
    if not torch.cuda.is_available():
        assert found["max-autotune"].replayed == "no: nothing of it runs on a GPU"
    assert "the same kernels" in str(found) and "all the same" in found._repr_html_()


def test_a_backend_that_tells_nothing_of_its_kernels() -> None:
    record = Compilation(id="a")
    found = ModeDiff("f", "other", (ModeResult("default", record), ModeResult("max-autotune", record)))
    assert "its kernels are not recorded" in str(found) and "not known" in str(found)
    half = ModeResult("max-autotune", Compilation(id="b", kernels=(kernel("k", "x"),)))
    assert half.told and ModeDiff("f", "other", (found.results[0], half)).kernels("max-autotune") == ()


def test_kernels_that_differ() -> None:
    launches = (Launched("k", (1,), {"XBLOCK": 64}, 4, 2),)
    wider = (Launched("k", (1,), {"XBLOCK": 128}, 8, 2),)
    call = Node("g0.fw.c0", "mm", "aten.mm", "library")
    before = Compilation(
        id="a",
        graphs=(Graph("g0.fw.fused", "fused", "", (call,)),),
        kernels=(
            kernel("same", "x"),
            kernel("source", "a\nb"),
            kernel("gone", "g"),
            kernel("launch", "l", launches=launches),
            kernel("twice", "one"),
            kernel("twice", "two"),
        ),
    )
    after = Compilation(
        id="b",
        graphs=(Graph("g0.fw.fused", "fused", ""),),
        kernels=(
            kernel("same", "x"),
            kernel("source", "a\nc"),
            kernel("launch", "l", launches=wider),
            kernel("twice", "one"),
            kernel("twice", "two", schedule="columns"),
            kernel("product", "p"),
        ),
        autotune=(
            AutotuneChoice("g0.fw.product", "BLOCK 64", 2e-5, True),
            AutotuneChoice("g0.fw.product", "BLOCK 32", 3e-5),
        ),
    )
    changes = kernel_changes(before, after)
    assert [(c.name, c.change) for c in changes] == [
        ("source", "other source"),
        ("gone", "removed"),
        ("launch", "other launch"),
        ("twice", "other schedule"),
        ("product", "added"),
        ("aten.mm ×1", "removed"),
    ]
    assert "-b" in changes[0].diff and "+c" in changes[0].diff
    assert changes[2].detail == "4 warps, 2 stages, XBLOCK 64 → 8 warps, 2 stages, XBLOCK 128"
    assert kernel_changes(after, after) == ()
    slow, fast = (Measurement("forward", "nbcompile", steady=(t, t)) for t in (2e-3, 1e-3))
    text = str(
        ModeDiff(
            "f",
            "nbcompile",
            (ModeResult("default", before, measurement=slow), ModeResult("max", after, measurement=fast)),
        )
    )
    assert "max: 6 kernels or calls differ, 2.0× as fast" in text
    assert "BLOCK 64" in text and "BLOCK 32" not in text, "what was chosen, of 2"


def test_what_inductors_modes_set_beside_what_holds_anyway() -> None:
    from nbcompile.bench.measure.modes import _settings

    sets = _settings(("default", "reduce-overhead"), "inductor")
    assert sets == {"default": {"triton.cudagraphs": False}, "reduce-overhead": {"triton.cudagraphs": True}}
    same = (
        ModeResult("a", Compilation(id="a"), {"x": False}),
        ModeResult("b", Compilation(id="b"), {"x": False}),
    )
    assert ModeDiff("f", "inductor", same).options() == {}


def test_what_ran_eagerly_has_no_time() -> None:
    failed = Measurement("forward", "x", steady=(1.0,), ran_compiled=False, reason="no C compiler")
    result = ModeResult("default", Compilation(id="a"), measurement=failed)
    assert result.seconds is None
    text = str(ModeDiff("f", "x", (result, dataclasses.replace(result, mode="other"))))
    assert "ran eager: no C compiler" in text and "as fast" not in text


def test_what_cannot_be_compared() -> None:
    with pytest.raises(MeasureError, match="at least two modes"):
        nbcompile.mode_diff(f, X, ("default",))
    with pytest.raises(OptionError, match="no mode 'quick'"):
        nbcompile.mode_diff(f, X, ("default", "quick"))
    found = ModeDiff("f", "x", (ModeResult("default", Compilation(id="a")),))
    with pytest.raises(MeasureError, match="'quick' was not compiled"):
        found["quick"]


def test_one_mode_as_a_text_is_refused() -> None:
    with pytest.raises(MeasureError, match="modes are a list, and this is 'default'"):
        nbcompile.mode_diff(lambda x: x + 1, (torch.ones(2),), "default")

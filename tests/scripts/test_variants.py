"""Programs given what they were not written for: the variants are what they say, and a difference is told."""

from __future__ import annotations

import math
import sys
import types
from typing import Any

import pytest
import torch

from tests.from_scripts import load
from tests.nightly import few

variants: Any = load("cpu.variants")


def changed(name: str, value: Any) -> Any:
    return variants.VARIANTS[name][0]((value, 3, torch.arange(4)))


def test_each_variant_is_what_it_says() -> None:
    x = torch.randn(6, 8)
    for name in variants.VARIANTS:
        made, number, places = changed(name, x)
        assert number == 3 and torch.equal(places, torch.arange(4)), "only floating numbers are changed"
        if name != "special":
            torch.testing.assert_close(made.detach().to(x.dtype), x, rtol=1e-2, atol=1e-2)
    assert changed("transposed", x)[0].stride() == (1, 6)
    assert changed("offset", x)[0].storage_offset() == 1
    assert changed("gradients", x)[0].requires_grad and changed("float64", x)[0].dtype == torch.float64
    special = changed("special", x)[0]
    assert special.isnan().any() and special.isinf().sum() == 2 and not torch.isnan(x).any()


@few(2)
@pytest.mark.parametrize("variant", variants.VARIANTS)
def test_a_program_agrees_in_each_variant(variant: str) -> None:
    name = next(iter(variants.import_module("snippets").PROGRAMS))
    row = variants.checked("snippets", name, variant)
    assert row["differs"] == [] and row["compared"], row


def test_a_difference_and_a_refusal_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * (1.0 if not torch.compiler.is_compiling() else 1.01)

    def refusing(x: torch.Tensor) -> torch.Tensor:
        return x.float() if x.dtype == torch.float32 else x.view(3, math.prod(x.shape))

    programs = {"off": (program, (torch.ones(4),)), "no": (refusing, (torch.ones(4),))}
    module = types.SimpleNamespace(build=programs.__getitem__)
    monkeypatch.setitem(sys.modules, "made_up", module)
    assert "error" in variants.checked("made_up", "off", "offset")["differs"][0]
    assert "refused" in variants.checked("made_up", "no", "float64")

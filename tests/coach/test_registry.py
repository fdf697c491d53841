"""Every reason in the registry of the installed torch has a line of ours."""

from __future__ import annotations

import json
from pathlib import Path

import torch._dynamo

from nbcompile.compiler.capture.graph_breaks import explain, family

_REGISTRY = Path(torch._dynamo.__file__).parent / "graph_break_registry.json"
KINDS = sorted(
    {entry["Gb_type"] for entries in json.loads(_REGISTRY.read_text()).values() for entry in entries}
)


def test_every_reason_has_a_line() -> None:
    assert len(KINDS) > 100
    told = {"Observed exception", "Observed exception (EXCEPT_HANDLER)"}  # the program's own error
    assert [kind for kind in KINDS if not all(family(kind)) and kind not in told] == []


def test_a_reason_of_nobodys_has_none() -> None:
    assert family("zzz") == ("", "")


def test_the_line_is_what_a_break_says() -> None:
    reason, hint = explain("Attempted to wrap sparse Tensor", "")
    assert reason.startswith("a nested or sparse tensor") and "strided" in hint

"""What a function of the API says of arguments that it cannot take: what is wrong, in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.errors import MeasureError, OptionError, RecordError, TraceError
from nbcompile.record.compilation import Compilation


def f(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def saved(folder: Path) -> Path:
    (folder / "p.json").write_text(Compilation("1").to_json())
    return folder / "p.json"


CALLS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "compile": (
        lambda _: nbcompile.compile(f, ful_graph=True),  # type: ignore[call-overload]
        TypeError,
        "compile() got an unexpected keyword argument 'ful_graph'. Did you mean fullgraph?",
    ),
    "check": (lambda _: nbcompile.check(f, nosuch=1), TypeError, "check() got an unexpected keyword"),
    "doctor": (
        lambda _: nbcompile.doctor(f, torch.ones(1), nosuch=1),
        TypeError,
        "doctor() got an unexpected keyword",
    ),
    "compare": (
        lambda _: nbcompile.compare(f, lambda rows=2: (torch.ones(rows),), {"row": [1]}),
        OptionError,
        "row: the function that makes the inputs has no such parameter. Its parameters: rows.",
    ),
    "captures": (
        lambda _: nbcompile.captures(3, torch.ones(1)),  # type: ignore[arg-type]
        MeasureError,
        "captures() takes a function, and 3 is none.",
    ),
    "plot": (
        lambda _: Compilation("1").plot(3),  # type: ignore[arg-type]
        MeasureError,
        "3 is no chart of a record.",
    ),
    "from_json": (
        lambda _: Compilation.from_json(None),  # type: ignore[arg-type]
        RecordError,
        "a record is text or bytes, and this is NoneType",
    ),
    "open": (
        lambda folder: nbcompile.open(saved(folder)),
        TraceError,
        "A saved record is read with nbcompile.Compilation.from_json(text).",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_told_of(name: str, tmp_path: Path) -> None:
    call, kind, told = CALLS[name]
    with pytest.raises(kind) as caught:
        call(tmp_path)
    assert type(caught.value) is kind and told in str(caught.value)


def test_check_takes_a_tuple_of_arguments_as_compare_and_doctor_do() -> None:
    report = nbcompile.check(f, (torch.linspace(0, 1, 8),), backend="eager")
    assert report.agrees


def test_inputs_of_a_sweep_come_from_a_function() -> None:
    with pytest.raises(OptionError, match="come from a function that makes them, not from Tensor"):
        nbcompile.compare(torch.sin, torch.ones(4), {"dtype": ["float32"]})

"""The value that says how a function is to be compiled."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.bench.measure.compare import Measuring
from nbcompile.errors import OptionError
from nbcompile.settings import CompileKeywords, CompileSettings, made_of


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (CompileSettings(options={"fusee": True}), "Did you mean fuse"),
        (CompileSettings(mode="fast"), "mode 'fast' is unknown"),
        (CompileSettings("inductor", "fast"), "no mode 'fast'"),
        (CompileSettings("inductor", options={"no_such_option": 1}), "no_such_option"),
        (CompileSettings("nowhere"), "backend 'nowhere' is unknown"),
    ],
)
def test_a_check_says_what_is_wrong(settings: CompileSettings, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        settings.check()


def test_only_ours_and_the_mode_are_in_the_options_of_a_record() -> None:
    CompileSettings("inductor", "max-autotune", {"fallback_random": True}).check()
    assert CompileSettings(options={"fuse": "no"}).own_options.fuse is False
    assert CompileSettings("inductor", "max-autotune", {"fuse": "no"}).own_options.fuse is True
    assert CompileSettings("inductor", "max-autotune").recorder().options.mode == "max-autotune"
    lite = CompileSettings("inductor", "lite").recorder()
    assert (lite.options.mode, lite.mode) == ("default", "lite")


def test_a_backend_is_called_by_its_name() -> None:
    def mine(module: object, inputs: object) -> object:
        return module

    assert CompileSettings().backend_name == "nbcompile"
    assert CompileSettings(mine).backend_name == "mine"
    assert CompileSettings(type("Callable", (), {"__call__": mine})()).backend_name == "custom"


def test_inductor_draws_as_eager_unless_told_otherwise() -> None:
    assert CompileSettings("inductor").drawing_as_eager().options == {"fallback_random": True}
    told = CompileSettings("inductor", options={"fallback_random": False})
    assert told.drawing_as_eager() == told
    assert CompileSettings(options={"fuse": False}).drawing_as_eager().options == {"fuse": False}


def test_it_travels_to_another_process() -> None:
    settings = CompileSettings("inductor", "max-autotune", {"fallback_random": True}, False, True)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert list(settings.keywords) == ["backend", "mode", "options", "dynamic", "fullgraph"]
    assert CompileSettings(recompile_limit=2).limits == {"recompile_limit": 2}


def test_the_keywords_of_a_signature_are_written_once() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(CompileSettings)}
    assert set(CompileKeywords.__annotations__) == set(fields)
    found = {name: each.default for name, each in inspect.signature(nbcompile.compile).parameters.items()}
    assert list(found)[:2] == ["fn", "backend"] and {**found, **fields} == found
    compare = inspect.signature(nbcompile.compare).parameters
    assert {"train", "mode", "dynamic", "budget"} <= compare.keys() and "backend" not in compare
    assert "settings" not in compare


def test_keywords_that_nobody_has_are_refused() -> None:
    one, two = made_of({"mode": "max-autotune", "train": True}, CompileSettings, Measuring)
    assert one == CompileSettings(mode="max-autotune") and two == Measuring(train=True)
    for name in ("budgett", "backend"):
        wrong: dict[str, Any] = {name: 1}
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            nbcompile.compare(torch.sin, (torch.ones(2),), **wrong)
    with pytest.raises(TypeError, match="budgett"):
        nbcompile.compile(torch.sin, budgett=1)  # type: ignore[call-overload]


def test_what_not_everybody_knows_is_handed_on_only_if_asked_for() -> None:
    plain = CompileSettings("inductor").keywords
    assert list(plain) == ["backend", "mode", "options", "dynamic", "fullgraph"]
    asked = CompileSettings("inductor", name="f", recompile_limit=2)
    assert asked.keywords == {**plain, "name": "f", "recompile_limit": 2}

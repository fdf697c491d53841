"""Options and modes of every backend: listed, described, and refused where there is no such one."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import torch._inductor

import nbcompile
from nbcompile.backends import registry
from nbcompile.backends.base import Backend, BackendSettings, of_inner
from nbcompile.backends.inductor.config_options import comments
from nbcompile.errors import OptionError
from nbcompile.options import Options


def test_our_options_are_all_described() -> None:
    table = nbcompile.list_options()
    assert [o.name for o in table] == [f.name for f in dataclasses.fields(Options) if f.name != "mode"]
    assert all(option.about and "``" not in option.about for option in table)
    assert table["fuse"].values == ("true", "false") and table["random"].values == ("auto", "eager", "philox")
    assert table["autotune_seconds"].default == "30.0" and "max-autotune" in table["autotune_seconds"].about


def test_inductors_options() -> None:
    table = nbcompile.list_options("inductor")
    assert {o.name for o in table} == set(torch._inductor.list_options())
    found = table["max_autotune"]
    assert found.about == "enable slow autotuning passes to select algorithms" and found.default == "False"
    assert found.modes == {"max-autotune": True, "max-autotune-no-cudagraphs": True}
    assert table["triton.cudagraphs"].modes["reduce-overhead"] is True
    assert sum(bool(option.about) for option in table) > len(table) / 2
    assert len(table.matching("triton.*")) > 10 and len(table.matching("nothing like it")) == 0
    assert all(o.name.startswith("triton.") for o in nbcompile.list_options("inductor", "triton.*"))
    with pytest.raises(OptionError, match="Did you mean max_autotune"):
        table["max_autotun"]


def test_comments_of_a_module() -> None:
    source = "# one\n# and more\na: int = 1\n\nb = 2  # beside\n"
    source += "class c:\n    # within\n    d = (3,\n      4)\ne = 5\n"
    assert comments(source) == {"a": "one and more", "b": "beside", "c.d": "within"}


def test_a_backend_that_declares_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def inner(module, inputs, **given):
        seen.update(given)
        return module.forward

    mine = Backend(
        "mine",
        "for this test",
        lambda s: of_inner(inner, BackendSettings(options=s.options)),
        options={"depth": "how deep"},
    )
    monkeypatch.setattr(registry, "backends", lambda: {"mine": mine})
    assert nbcompile.list_options("mine")["depth"].about == "how deep"
    nbcompile.compile(lambda x: x + 1, backend="mine", options={"depth": 3})(torch.ones(2))
    assert seen == {"options": {"depth": 3}}
    with pytest.raises(OptionError, match=r"'width' is unknown to mine\. .*Options: depth\."):
        nbcompile.compile(lambda x: x + 1, backend="mine", options={"width": 3})


@pytest.mark.parametrize(
    ("backend", "taken", "refused"),
    [
        ("tvm", "target", "targets"),
        ("openvino", "config", "xla_flag"),
        ("xla", "xla_cpu_enable_fast_math", "fast_math"),
        ("onnxrt", "graph_optimization_level", ""),
    ],
)
def test_what_the_engines_declare(backend: str, taken: str, refused: str) -> None:
    table = nbcompile.list_options(backend)
    table.check([taken])
    assert all(option.about for option in table)
    if refused:
        with pytest.raises(OptionError, match=f"{refused!r} is unknown to {backend}"):
            table.check([refused])


@pytest.mark.parametrize(
    ("backend", "typed", "says"),
    [
        ("inductor", "max_autotun", "Did you mean max_autotune"),
        ("inductor", "triton.cudagraph", "Did you mean triton.cudagraphs"),
        ("inductor", "max-autotun", "Did you mean max_autotune"),
        ("inductor", "colour", "is unknown to inductor. See %compile --list-options --backend inductor."),
        ("nbcompile", "no_fus", "Did you mean no_fuse"),
        ("nbcompile", "colour", "is unknown to nbcompile. Options: mode, fuse, no_fuse"),
        ("openvino", "devise", "Did you mean device"),
    ],
)
def test_a_misspelt_option_is_told_the_nearest(backend: str, typed: str, says: str) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino")
    with pytest.raises(OptionError, match=re.escape(says)):
        nbcompile.compile(lambda x: x + 1, backend=backend, options={typed: 1})


def test_modes() -> None:
    ours = nbcompile.list_mode_options()
    assert ours["default"] == {} and set(ours["max-autotune"]) == {"search", "replay"}
    theirs = nbcompile.list_mode_options("reduce-overhead", "inductor")
    assert theirs == torch._inductor.list_mode_options("reduce-overhead")
    assert set(nbcompile.list_mode_options(backend="inductor")) <= set(registry.backends()["inductor"].modes)
    lite = nbcompile.compile(lambda x: x + 1, backend="inductor", mode="lite")
    assert lite.compilation.mode == "lite"
    with pytest.raises(OptionError, match="'lite' is unknown"):
        nbcompile.compile(lambda x: x + 1, mode="lite")
    assert nbcompile.list_mode_options(backend="eager") == {"default": {}}
    with pytest.raises(OptionError, match="no mode 'quick'"):
        nbcompile.list_mode_options("quick", "inductor")
    with pytest.raises(OptionError, match="is unknown"):
        nbcompile.list_options("nowhere")


def test_as_text_and_html() -> None:
    table = nbcompile.list_options("inductor", "max_autotune")
    text = str(table)
    assert text.startswith(f"inductor: {len(table)} options") and "mode max-autotune sets True" in " ".join(
        text.split()
    )
    assert all(len(line) <= 140 for line in text.splitlines())
    assert "max_autotune_gemm" in table._repr_html_() and "<script" not in table._repr_html_()


def test_the_whole_signature_of_torch_compile() -> None:
    import inspect

    ours = set(inspect.signature(nbcompile.compile).parameters)
    known = {"model", "isolate_recompiles"}  # the first is fn here, and each compile is isolated
    theirs = set(inspect.signature(torch.compile).parameters) - known
    assert theirs <= ours


def test_disable_name_limit_and_decorator() -> None:
    @nbcompile.compile(backend="eager", name="region", recompile_limit=2, dynamic=False)
    def f(x):
        return x * 2

    assert f.recorder.name == "region"
    ran = []
    for size in (2, 3, 4, 5):
        assert f(torch.ones(size)).sum() == 2 * size
        ran.append(f.ran_compiled)
    assert ran == [True, True, False, False], "two graphs, then eager"
    assert len(f.compilation.graphs) == 2 and "stopped compiling" in f.eager_reason
    off = nbcompile.compile(lambda x: x + 1, backend="eager", disable=True)
    assert torch.equal(off(torch.ones(2)), torch.full((2,), 2.0))
    assert not off.ran_compiled and off.eager_reason == "disable=True was asked for"
    assert off.compilation.graphs == ()


def test_what_this_torch_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile import api

    monkeypatch.setattr(api, "_optimize_parameters", lambda: frozenset({"guard_fail_fn"}))
    with pytest.raises(OptionError, match=r"has no dynamic_shapes in torch\.compile"):
        nbcompile.compile(lambda x: x + 1, dynamic_shapes={"x": None})


def test_a_recompile_limit_where_torch_compile_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from nbcompile import api

    known = api._optimize_parameters() - {"recompile_limit"}
    monkeypatch.setattr(api, "_optimize_parameters", lambda: known)
    before = torch._dynamo.config.recompile_limit
    f = nbcompile.compile(lambda x: x * 2, backend="eager", recompile_limit=2, dynamic=False)
    ran = []
    for size in (2, 3, 4, 5):
        assert f(torch.ones(size)).sum() == 2 * size
        ran.append(f.ran_compiled)
    assert ran == [True, True, False, False], "two graphs, then eager"
    assert "recompile_limit (2) reached" in f.eager_reason
    assert torch._dynamo.config.recompile_limit == before


@pytest.mark.parametrize("asked", ["shapes_spec", "dynamic_shapes"])
@pytest.mark.parametrize("torchs", ["shapes_spec", "dynamic_shapes"])
def test_either_name_of_dynamic_shapes(asked: str, torchs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.15 renamed ``shapes_spec``."""
    from nbcompile import api

    handed: dict[str, object] = {}
    monkeypatch.setattr(api, "_optimize_parameters", lambda: frozenset({torchs}))
    monkeypatch.setattr(torch._dynamo, "optimize", lambda **given: handed.update(given) or (lambda fn: fn))
    nbcompile.compile(lambda x: x + 1, **{asked: {"x": 3}})
    assert handed[torchs] == {"x": 3} and not ({"shapes_spec", "dynamic_shapes"} - {torchs}) & handed.keys()
    with pytest.raises(OptionError, match="two names of one argument"):
        nbcompile.compile(lambda x: x + 1, shapes_spec=1, dynamic_shapes=2)

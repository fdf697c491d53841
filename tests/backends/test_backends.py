"""Backends by name, and ours as an ordinary torch.compile backend."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from nbcompile.api import compile as nb_compile
from nbcompile.backends.base import Backend, BackendSettings
from nbcompile.backends.nbcompile import nbcompile_backend, register
from nbcompile.backends.registry import backends, check, names, resolve
from nbcompile.errors import OptionError
from nbcompile.options import Options
from nbcompile.record.compilation import Graph
from nbcompile.record.recorder import Recorder


def f(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * 2) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_backends_are_recorded_and_run(backend: str) -> None:
    run = nb_compile(f, backend=backend)
    x = torch.randn(5)
    torch.testing.assert_close(run(x), f(x))
    assert run.ran_compiled
    record = run.compilation
    assert record.backend == backend
    assert [graph.id for graph in record.graphs] == ["g0.fx"]
    assert [item.name for item in record.passes] == ["capture", backend]


def test_a_users_own_backend() -> None:
    def mine(gm, inputs):
        assert [tuple(x.shape) for x in inputs] == [(5,)]
        return gm.forward

    run = nb_compile(f, backend=mine)
    run(torch.ones(5))
    assert run.ran_compiled and run.compilation.backend == "mine"


def test_a_backend_of_ones_own_is_a_value_too() -> None:
    def compiler(settings):
        def compile(graph, example_inputs, recorder):
            recorder.add(f"{len(graph.ids)} nodes in mode {settings.mode}")
            return graph.module.forward

        return compile

    mine = Backend("mine", "runs what was captured", compiler, modes=("default", "quick"))
    run = nb_compile(f, backend=mine, mode="quick")
    run(torch.ones(5))
    assert run.ran_compiled and run.compilation.backend == "mine"
    assert run.compilation.notes == ("5 nodes in mode quick",)
    with pytest.raises(OptionError, match="'mine' has no mode 'slow'"):
        nb_compile(f, backend=mine, mode="slow")


def test_mode_and_options_reach_the_backend() -> None:
    seen = {}

    def mine(gm, inputs, **given):
        seen.update(given)
        return gm.forward

    nb_compile(f, backend=mine, mode="max-autotune", options={"a": 1})(torch.ones(5))
    assert seen == {"mode": "max-autotune", "options": {"a": 1}}


def test_inductor_options_are_checked_before_compiling() -> None:
    with pytest.raises(OptionError, match="unknown to inductor"):
        resolve("inductor", options={"no_such_option": 1})
    with pytest.raises(OptionError, match="has no mode 'quick'"):
        resolve("inductor", mode="quick")


def test_names() -> None:
    known = names()
    assert known[0] == "nbcompile" and {"inductor", "eager", "aot_eager"} <= set(known)
    assert len(set(known)) == len(known)


def test_dotted_names_and_unknown_ones() -> None:
    compiler = resolve("torch._dynamo.backends.debugging.eager")
    assert callable(compiler)
    check("torch._dynamo.backends.debugging.eager")
    with pytest.raises(OptionError, match=r"'nowhere' is unknown\. There are nbcompile, inductor, aot_eager"):
        check("nowhere")
    with pytest.raises(OptionError, match="cannot be imported: No module named 'nowhere'"):
        check("nowhere.at_all")
    with pytest.raises(OptionError, match="is float, neither a function nor a Backend"):
        resolve("math.pi")


def test_every_backend_says_what_it_needs() -> None:
    for name, backend in backends().items():
        assert backend.name == name and backend.summary and backend.modes[0] == "default"
        assert not backend.modules or backend.install.startswith("pip install ")
    absent = Backend("absent", "not here", lambda settings: None, ("no_such_module",), ("no-such-package",))
    with pytest.raises(
        OptionError, match=r"needs no_such_module, which is not installed\. Run: pip install no-"
    ):
        absent.bound(BackendSettings())
    if not torch.cuda.is_available():
        with pytest.raises(OptionError, match="needs an NVIDIA GPU"):
            resolve("cudagraphs")


@pytest.mark.parametrize(
    ("name", "module", "packages"),
    [("tensorrt", "torch_tensorrt", "torch-tensorrt"), ("thunder", "thunder", "lightning-thunder")],
)
def test_what_is_not_here_is_listed_with_its_command(name: str, module: str, packages: str) -> None:
    backend = backends()[name]
    assert name in names() and backend.install == f"pip install {packages}"
    if importlib.util.find_spec(module) is None:
        with pytest.raises(OptionError, match=f"'{name}' needs {module}, .* Run: pip install {packages}"):
            resolve(name)


def test_torch_compile_with_our_backend() -> None:
    register()
    recorder = Recorder(Options())
    x = torch.randn(4, 5, requires_grad=True)
    y = torch.compile(f, backend="nbcompile", options={"recorder": recorder})(x)
    torch.testing.assert_close(y, f(x))
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * (1 - torch.tanh(2 * x.detach()) ** 2))
    assert {"g0.fx", "g0.joint", "g0.fw"} <= {graph.id for graph in recorder.parts(Graph)}


def test_break_is_recorded_without_a_session() -> None:
    recorder = Recorder(Options())

    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    torch.compile(broken, backend=nbcompile_backend, options={"recorder": recorder})(torch.ones(2))
    (found,) = recorder.compilation().breaks
    assert found.after_graph == "g0" and found.reason == "the code asks for a graph break here"


def test_unknown_option_is_an_error() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="option 'colour' is unknown"):
        torch.compile(f, backend=nbcompile_backend, options={"colour": 1})(torch.ones(2))

"""nbcompile.compile: isolation of one compile from another, honesty about what ran, and no leaks."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import traceback
import weakref

import pytest
import torch

import nbcompile
from nbcompile.errors import OptionError, SuiteError
from tests.compiler.capture.helpers import cell, compiled
from tests.nightly import few


class Small(torch.nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.inner(x))


def test_import_is_light() -> None:
    code = (
        "import sys, nbcompile; nbcompile.Compilation; nbcompile.Options; "
        "assert not {'torch', 'IPython', 'pydantic'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names() -> None:
    assert set(nbcompile.__all__) <= set(dir(nbcompile))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        nbcompile.nothing_like_it


@few(1)
@pytest.mark.parametrize("backend", ["nbcompile", "eager"])
def test_twenty_variants_of_one_function_all_compile(backend: str) -> None:
    def f(x, scale):
        return x * 2 + scale

    runs = [compiled(f, backend=backend) for _ in range(20)]
    for number, run in enumerate(runs):
        run(torch.ones(3), torch.full((3,), float(number)))
        assert run.ran_compiled, (number, run.eager_reason)
        assert len([g for g in run.compilation.graphs if g.stage == "fx"]) == 1
    for run in runs:  # and again, interleaved: still compiled, nothing recompiled
        run(torch.ones(3), torch.ones(3))
        assert run.ran_compiled
        assert run.compilation.recompiles == ()


@pytest.mark.nightly
def test_twenty_variants_of_one_module() -> None:
    model = Small()
    x = torch.randn(4, 8)
    for number in range(20):
        run = compiled(model)
        torch.testing.assert_close(run(x), model(x))
        assert run.ran_compiled, (number, run.eager_reason)
        assert run.compilation.recompiles == ()


def test_twenty_variants_of_one_module_where_dynamo_does_not_isolate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import nbcompile.api

    names = nbcompile.api._optimize_parameters() - {"isolate_recompiles"}
    monkeypatch.setattr(nbcompile.api, "_optimize_parameters", lambda: names)
    model = Small()
    for number in range(20):
        run = compiled(model)
        run(torch.ones(2, 8))
        assert run.ran_compiled, (number, run.eager_reason)
    spans = [span for node in run.compilation.graph("g0.fx").nodes for span in node.spans]
    assert {span.file for span in spans} == {__file__}, "our own frame does not show"


def test_compiled_in_compiled() -> None:
    inner = compiled(lambda x: x * 2)

    @torch.compiler.disable
    def aside(x):
        return inner(x)

    def f(x, depth):
        y = aside(x)
        return y + 1 if depth == 0 else outer(y, depth - 1)

    outer = compiled(f)
    torch.testing.assert_close(outer(torch.ones(2), 2), torch.full((2,), 9.0))
    assert inner.ran_compiled and outer.ran_compiled
    assert len(inner.compilation.breaks) == 0, "breaks go to whom they belong"
    assert outer.compilation.breaks

    from nbcompile.compiler.capture.listening import active_session

    assert active_session() is None


def test_two_threads_keep_their_records_apart() -> None:
    import threading

    runs = [compiled(lambda x: x + 1), compiled(lambda x: (x * 2, print(end=""), x * 3)[2])]
    threads = [threading.Thread(target=run, args=(torch.ones(3),)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(run.compilation.breaks) for run in runs] == [0, 1]
    assert all(run.ran_compiled for run in runs)


def test_editing_a_cell_starts_afresh() -> None:
    shapes = []
    for number, size in enumerate((4, 5, 6, 7)):
        # Same file name, line and function name every time, as when a cell is edited and run again.
        namespace: dict = {"torch": torch}
        exec(compile(f"def f(x):\n    return x * {number}", "<edited>", "exec"), namespace)
        run = compiled(namespace["f"])
        torch.testing.assert_close(run(torch.ones(size)), torch.full((size,), float(number)))
        (node,) = [n for n in run.compilation.graph("g0.fw").nodes if n.op == "aten.mul.Tensor"]
        shapes.append(node.shape)
    assert shapes == [(4,), (5,), (6,), (7,)], "a dynamic shape came over from an earlier edit"


def test_one_callable_sees_only_its_own_shapes() -> None:
    def f(x):
        return x + 1

    first, second = compiled(f), compiled(f)
    first(torch.ones(3))
    second(torch.ones(4))
    assert second.compilation.graph("g0.fw").nodes[0].shape == (4,)
    assert first.compilation.recompiles == () == second.compilation.recompiles


def test_dynamic_batch_recompiles_once() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 256), torch.nn.ReLU())
    run = compiled(model)
    for batch in (32, 64, 128, 256):
        x = torch.randn(batch, 512)
        torch.testing.assert_close(run(x), model(x))
        assert run.ran_compiled, run.eager_reason
    (found,) = run.compilation.recompiles
    assert "size mismatch at index 0. expected 32, actual 64" in found.reason
    assert "\n" not in found.reason
    assert found.graph == "g1"
    assert [g.id for g in run.compilation.graphs if g.stage == "fx"] == ["g0.fx", "g1.fx"]


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR], ids=["logged", "log silent"])
def test_recompile_limit_is_told(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """Also where the log level keeps Dynamo's warning back."""

    def f(x, n):
        return x * n

    run = compiled(f, dynamic=False)
    with caplog.at_level(level, "torch._dynamo"), torch._dynamo.config.patch(recompile_limit=2):
        for n in range(4):
            run(torch.ones(2), n)
        line = f.__code__.co_firstlineno
        told = f"Dynamo stopped compiling: recompile_limit (2) reached by 'f' ({__file__}:{line})"
        assert not run.ran_compiled
        assert run.eager_reason == told
        assert run.compilation.notes.count(told) == 1
        run(torch.ones(2), 0)  # an old graph fits
        assert run.ran_compiled
        run(torch.ones(2), 3)  # none does, and Dynamo does not even say so
        assert not run.ran_compiled


def test_a_recompile_limit_that_raises_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    run = compiled(lambda x, n: x * n, dynamic=False, fullgraph=True)
    with caplog.at_level(logging.ERROR, "torch._dynamo"), torch._dynamo.config.patch(recompile_limit=1):
        run(torch.ones(2), 0)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            run(torch.ones(2), 1)
    assert "recompile_limit (1) reached by '<lambda>'" in run.eager_reason


def test_a_number_in_a_guard_keeps_its_digits() -> None:
    run = compiled(lambda x, n: x * n)
    for n in (0.1234567890123, 2.5):
        run(torch.ones(2), n)
    assert any("n'] == 0.1234567890123" in line for guard in run.compilation.guards for line in guard.code)
    assert "n == 0.1234567890123" in run.compilation.recompiles[0].reason


def test_nothing_to_compile_is_told() -> None:
    run = compiled(lambda n: n + 1)
    assert run.eager_reason == "not called yet"
    assert run(1) == 2
    assert not run.ran_compiled
    assert "no tensor" in run.eager_reason


def test_graph_without_tensor_inputs() -> None:
    run = compiled(lambda: torch.arange(4) * 2)
    assert run().tolist() == [0, 2, 4, 6]
    assert run.ran_compiled


def test_suppressed_errors_are_told() -> None:
    def failing(gm, inputs):
        raise RuntimeError("this backend is broken")

    run = compiled(lambda x: x + 1, backend=failing)
    with torch._dynamo.config.patch(suppress_errors=True):
        torch.testing.assert_close(run(torch.ones(2)), torch.full((2,), 2.0))
    assert not run.ran_compiled
    assert "this backend is broken" in run.eager_reason


def test_module_attributes_are_the_modules() -> None:
    model = Small()
    run = compiled(model)
    assert run.inner is model.inner
    assert list(run.parameters()) == list(model.parameters())
    run.extra = 3
    assert model.extra == 3
    run.train(False)
    assert not model.training


def test_compiling_what_is_compiled_already() -> None:
    model = Small()
    for given in (compiled(model), torch.compile(model), compiled(torch.compile(model))):
        run = compiled(given)
        run(torch.ones(2, 8))
        assert run.__wrapped__ is model and run.ran_compiled

    def f(x):
        return x + 1

    assert compiled(torch.compile(f)).__wrapped__ is f


def test_what_was_skipped_once_is_told_again() -> None:
    class LoopBreak(torch.nn.Module):
        def forward(self, x):
            for _ in range(2):
                x = x + 1
                print(end="")
            return x

    model = LoopBreak()
    for _ in range(3):
        run = compiled(model)
        run(torch.ones(2))
        assert len(run.compilation.breaks) == 1
        assert "print" in run.eager_reason


def test_bound_method_and_defaults() -> None:
    class Thing:
        def scaled(self, x, by=3, *, plus=1):
            return x * by + plus

    run = compiled(Thing().scaled)
    assert run(torch.ones(1)).item() == 4
    assert run.ran_compiled
    assert run.__name__ == "scaled"


def test_traceback_points_at_the_cell() -> None:
    names, source = cell("def f(x):\n    y = x + 1\n    raise ValueError('mine')")
    run = compiled(names["f"], cell=source)
    with pytest.raises(ValueError, match="mine") as caught:
        run(torch.ones(2))
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.name) == (source.filename, 4, "f")


@pytest.mark.parametrize("what", ["function", "module"])
def test_dropping_it_frees_the_compiled_code(what: str) -> None:
    freed = []

    def backend(gm, inputs):
        def call(*args):
            return gm.forward(*args)

        weakref.finalize(call, freed.append, True)
        return call

    model = Small()
    run = compiled(model if what == "module" else lambda x: model(x), backend=backend)
    run(torch.ones(2, 8))
    recorder = weakref.ref(run.recorder)
    assert not freed
    del run
    gc.collect()
    assert freed == [True]
    assert recorder() is None
    assert not [b for b in torch._dynamo.eval_frame.cached_backends.values() if b is backend]


def test_module_stays_as_it_was() -> None:
    model = Small()
    before = set(vars(model))
    compiled(model)(torch.ones(2, 8))
    assert set(vars(model)) - before <= {"_is_torch_compile"}, "torch's own mark, and nothing else"
    assert "forward" not in vars(model)


def test_guards_are_recorded_with_code() -> None:
    run = compiled(lambda x: x + 1)
    run(torch.ones(3))
    guards = run.compilation.guards
    tensor = next(guard for guard in guards if guard.kind == "TENSOR_MATCH")
    assert tensor.graph == "g0" and tensor.name == "L['x']"
    assert any("size=[3]" in line for line in tensor.code)


def test_two_compiles_of_one_cell_give_equal_records_but_for_times() -> None:
    import dataclasses

    names, source = cell("def f(x):\n    return torch.tanh(x).sum()")

    def record():
        run = compiled(names["f"], cell=source)
        run(torch.ones(3, requires_grad=True)).backward()
        whole = run.compilation
        passes = tuple(dataclasses.replace(item, milliseconds=0.0) for item in whole.passes)
        return dataclasses.replace(whole, passes=passes, compile_seconds=0.0)

    assert record() == record()


def test_reset_in_between() -> None:
    run = compiled(lambda x: x + 1)
    run(torch.ones(2))
    torch._dynamo.reset()
    run(torch.ones(2))
    assert run.ran_compiled
    with_break = compiled(lambda x: print("") or x + 1)
    with_break(torch.ones(2))
    assert len(with_break.compilation.breaks) == 1, "our hooks come back after a reset"


def test_unknown_names_are_errors() -> None:
    with pytest.raises(OptionError, match="backend 'no_such' is unknown"):
        compiled(lambda x: x, backend="no_such")
    with pytest.raises(OptionError, match="mode 'fastest' is unknown"):
        compiled(lambda x: x, mode="fastest")
    with pytest.raises(OptionError, match="option 'colour' is unknown"):
        compiled(lambda x: x, options={"colour": 1})
    with pytest.raises(TypeError, match="function or a module"):
        compiled(3)  # type: ignore[arg-type]


def test_a_case_that_is_no_function_is_refused_with_what_to_write() -> None:
    with pytest.raises(SuiteError, match="a case is a function, and this is int") as caught:
        nbcompile.case(3)  # type: ignore[type-var]
    assert "@nbcompile.case above it" in caught.value.advice

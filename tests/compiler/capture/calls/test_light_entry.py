"""The light entry: taken by the usual call, never by another, and leaving all as it was."""

from __future__ import annotations

import threading

import pytest
import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback

from nbcompile.compiler.capture.calls import light_entry
from nbcompile.compiler.capture.listening import active
from tests.compiler.capture.helpers import compiled


def double(x):
    return x * 2 + 1


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call was the light entry's."""
    if torch.__version__ < (2, 13):
        pytest.skip("another torch's wrapper, which is called as it is")
    calls: list[bool] = []
    real = light_entry._entry

    def entry(*arguments):
        call = real(*arguments)

        def noted(*args, **kwargs):
            result = call(*args, **kwargs)
            calls.append(result is not light_entry.FULL)
            return result

        return noted

    monkeypatch.setattr(light_entry, "_entry", entry)
    return calls


def settled() -> None:
    assert get_eval_frame_callback() is None
    assert active.session is None
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


def test_the_first_call_compiles_in_full_and_the_next_are_light(taken: list[bool]) -> None:
    run, x = compiled(double), torch.ones(3)
    for _ in range(3):
        assert torch.equal(run(x), double(x))
        assert run.ran_compiled and run.graphs_run == ("g0",)
        settled()
    assert taken == [False, True, True]


def test_a_recompile_within_a_light_call_is_recorded(taken: list[bool]) -> None:
    run = compiled(double)
    run(torch.ones(3))
    run(torch.ones(3, dtype=torch.float64))
    assert taken == [False, True]
    assert run.graphs_run == ("g1",) and len(run.compilation.recompiles) == 1
    settled()


def test_a_module_with_keyword_arguments_and_its_hooks(taken: list[bool]) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.ones(2, 4)
    model.register_forward_hook(lambda module, inputs, result: result + 1)
    run = compiled(model)
    run(input=x)
    assert torch.equal(run(input=x), model(x)) and taken == [False, True]
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        before = len(taken)
        with pytest.warns(UserWarning, match="global hooks"):
            run(x)
        assert len(taken) == before
    finally:
        handle.remove()
    settled()


@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile", "fail_on_recompile"])
def test_a_stance_is_for_the_wrapper(taken: list[bool], stance: str) -> None:
    run = compiled(double)
    run(torch.ones(3)), run(torch.ones(3))
    with torch.compiler.set_stance(stance):
        run(torch.ones(3))
        assert taken == [False, True, False]
        if stance == "force_eager":
            assert "force_eager" in run.eager_reason
    if stance == "fail_on_recompile":
        with torch.compiler.set_stance(stance), pytest.raises(RuntimeError, match="recompile"):
            run(torch.ones(3, 3))
    run(torch.ones(3))
    assert taken[-1] and run.ran_compiled
    settled()


def test_traces_are_for_the_wrapper(taken: list[bool]) -> None:
    run, x = compiled(double), torch.ones(3)
    run(x), run(x)
    with pytest.raises(RuntimeError, match="FX to"):
        torch.jit.trace(lambda x: run(x), x)
    with pytest.raises(RuntimeError, match="symbolically trace"):
        torch.fx.symbolic_trace(lambda x: run(x))
    assert taken[2:] == [False] * len(taken[2:])
    assert torch.equal(torch.func.vmap(run)(torch.ones(2, 3)), torch.full((2, 3), 3.0))
    assert not taken[-1]
    settled()


def test_what_is_called_from_compiled_code_is_part_of_it() -> None:
    inner = compiled(double)
    outer = torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(outer(torch.ones(3)), torch.full((3,), 4.0))


def test_a_call_from_between_two_graphs_is_for_the_wrapper(taken: list[bool]) -> None:
    inner = compiled(double)
    inner(torch.ones(3)), inner(torch.ones(3))

    @torch.compiler.disable
    def apart(x):
        return inner(x)

    def breaks(x):
        return apart(x + 1) + 1

    outer = compiled(breaks)
    for _ in range(3):
        assert torch.equal(outer(torch.ones(3)), torch.full((3,), 6.0))
    assert outer.graphs_run == ("g0", "g1")
    settled()


def test_an_error_leaves_nothing_behind(taken: list[bool]) -> None:
    def fails(x, wrong):
        x = x + 1
        torch._dynamo.graph_break()
        if wrong:
            raise ValueError("the user's own")
        return x * 2

    run = compiled(fails)
    run(torch.ones(3), False), run(torch.ones(3), False)
    with pytest.raises(ValueError, match="the user's own"):
        run(torch.ones(3), True)
    assert taken[1:] == [True]  # the one that raised is not noted
    settled()
    assert torch.equal(run(torch.ones(3), False), torch.full((3,), 4.0))


def test_layers_and_keys_that_a_graph_left_are_taken_away(taken: list[bool]) -> None:
    def leaves(x):
        x = x + 1
        torch._dynamo.graph_break()
        torch._C._functorch._vmap_increment_nesting(2, "error")
        raise ValueError("left")

    def calm(x, wrong):
        if wrong:
            leaves(x)
        return x

    included = torch._C._dispatch_tls_local_include_set()
    run = compiled(calm)
    run(torch.ones(3), False)
    with pytest.raises(ValueError, match="left"):
        run(torch.ones(3), True)
    settled()
    assert torch._C._dispatch_tls_local_include_set() == included


def test_a_function_may_return_anything() -> None:
    run = compiled(lambda x: (x + 1, NotImplemented)[1])
    assert run(torch.ones(3)) is NotImplemented and run(torch.ones(3)) is NotImplemented


def test_after_a_reset_and_in_other_threads(taken: list[bool]) -> None:
    run = compiled(double)
    run(torch.ones(3)), run(torch.ones(3))
    torch._dynamo.reset()
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 3.0)) and run.graphs_run == ("g1",)
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(run(torch.ones(3)))) for _ in range(4)]
    [each.start() for each in threads], [each.join() for each in threads]
    assert len(results) == 4 and all(torch.equal(each, torch.full((3,), 3.0)) for each in results)


@pytest.mark.parametrize("asked", [{"fullgraph": True}, {"watch": True}, {"disable": True}])
def test_what_needs_the_wrapper_whole(asked: dict[str, bool]) -> None:
    run = compiled(double, **asked)
    assert run._light is None
    assert torch.equal(run(torch.ones(3)), torch.full((3,), 3.0))


def test_dynamic_sizes_are_asked_for_in_each_call(taken: list[bool]) -> None:
    run = compiled(double, dynamic=True)
    for length in (5, 6, 7, 8):
        run(torch.ones(length))
    assert taken == [False, True, True, True] and run.compilation.recompiles == ()


def test_another_torchs_wrapper_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(light_entry, "_KNOWN", light_entry._KNOWN - {"is_exporting"})
    run = compiled(double)
    assert run._light is None and torch.equal(run(torch.ones(3)), torch.full((3,), 3.0))

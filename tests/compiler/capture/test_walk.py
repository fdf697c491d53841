"""Dynamo's walk, watched: every node at its instruction, breaks and restarts said, nothing changed by it."""

from __future__ import annotations

import collections
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo import convert_frame, output_graph, symbolic_convert

from nbcompile.compiler.capture.walk import follow, rewritten
from nbcompile.compiler.capture.walk.words import MOST, word_of
from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import pack
from nbcompile.record.watched.walk import DynamoWalk, WalkStep, states
from tests.compiler.capture.helpers import cell, compiled
from tests.nightly import few


def straight(x):
    y = torch.sin(x)
    return y * 2 + x


def _scaled(y, by):
    return torch.relu(y) * by


def inlined(x):
    return _scaled(x + 1, 3)


def loop(x):
    for step in range(4):
        x = x * step
    return x


def prints(x):
    y = x.sin()
    print("y", len(y))
    return y.cos()


def item(x):
    y = x + 1
    if y.sum().item() > 0:
        return y * 2
    return y - 1


def breaks_in_a_call(x):
    def inner(y):
        z = y * 2
        torch._dynamo.graph_break()
        return z + 1

    return inner(x.sin()) - 1


def closure(x):
    def add(y):
        return y + x

    return add(torch.cos(x))


def generator(x):
    def each():
        for factor in range(3):
            yield x * factor

    total = 0
    for part in each():
        total = total + part
    return total


def caught(x):
    try:
        raise ValueError("no")
    except ValueError:
        return x + 1


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


# The program, how each of its attempts ends, and the functions that its first whole walk goes through.
PROGRAMS: dict[str, tuple[Callable[..., Any], list[str], list[str]]] = {
    "straight": (straight, ["returned"], ["straight"]),
    "inlined": (inlined, ["returned"], ["inlined", "_scaled"]),
    "loop": (loop, ["returned"], ["loop"]),
    "prints": (prints, ["restart", "break", "returned"], ["prints"]),
    "item": (item, ["restart", "break", "returned"], ["item"]),
    "breaks in a call": (
        breaks_in_a_call,
        ["restart", "break", "restart", "break", "returned", "returned"],
        ["breaks_in_a_call"],
    ),
    "closure": (closure, ["returned"], ["closure", "add"]),
    "generator": (generator, ["returned"], ["generator", "each"]),
    "caught": (caught, ["returned"], ["caught"]),
    "module": (Block(), ["returned"], ["forward", "forward"]),
}


@pytest.fixture(params=PROGRAMS)
def watched(request: pytest.FixtureRequest, capsys: Any) -> tuple[str, Compilation]:
    torch._dynamo.reset()
    run = compiled(PROGRAMS[request.param][0], watch=True)
    run(torch.ones(3, 4))
    return request.param, run.compilation


@few(4)
def test_every_node_of_the_graphs_was_made_at_one_instruction(watched: tuple[str, Compilation]) -> None:
    _, record = watched
    made = collections.Counter(id for walk in record.walks for step in walk.steps for id in step.made)
    assert made == collections.Counter(node.id for graph in record.of_stage("fx") for node in graph.nodes)
    for walk in record.walks:
        assert all(id.startswith(f"{walk.graph}.fx.") for step in walk.steps for id in step.made)
        assert walk.graph or not any(step.made for step in walk.steps)


@few(4)
def test_attempts_end_as_they_do(watched: tuple[str, Compilation]) -> None:
    name, record = watched
    assert len(record.of_stage("fx")) == len({walk.graph for walk in record.walks} - {""})
    assert [walk.ended for walk in record.walks] == PROGRAMS[name][1]
    assert [code.name for code in next(w for w in record.walks if w.graph).codes] == PROGRAMS[name][2]
    for walk in record.walks:
        assert walk.steps[-1].broke == (walk.ended != "returned")
        assert bool(walk.reason) == (walk.ended != "returned")
        assert not walk.cut


@few(4)
def test_what_is_played_is_a_stack(watched: tuple[str, Compilation]) -> None:
    _, record = watched
    for walk in record.walks:
        played = list(states(walk))
        assert len(played) == len(walk.steps)
        for step, state in zip(walk.steps, played):
            instruction = walk.instructions[step.at]
            assert all(len(word) <= MOST for word in state.stack)
            if instruction.name in ("LOAD_FAST", "LOAD_CONST"):
                assert state.stack
            if instruction.name == "STORE_FAST" and not step.broke:
                assert instruction.argument in state.locals


@few(4)
def test_a_place_is_the_place_in_the_source(watched: tuple[str, Compilation]) -> None:
    name, record = watched
    walk = next(w for w in record.walks if w.graph)
    seen = set()
    for step in walk.steps:
        at = walk.instructions[step.at]
        code = walk.codes[at.code]
        if at.column is None or at.end_column is None or at.line != at.end_line or not code.text:
            continue
        text = code.text.splitlines()[at.line - code.first_line][at.column : at.end_column]
        seen.add(text)
        if at.name == "LOAD_GLOBAL" or (at.name == "LOAD_FAST" and not at.argument.startswith(".")):
            assert text == at.argument, text
    assert seen - {""}, name


@few(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_watching_changes_nothing(name: str, capsys: Any) -> None:
    found = []
    for watch in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        run = compiled(PROGRAMS[name][0], watch=watch)
        result = run(torch.ones(3, 4))
        record = run.compilation
        graphs = [graph.text for graph in record.of_stage("fx")]
        found.append((result, graphs, [guard.code for guard in record.guards], record.breaks))
        assert bool(record.walks) == watch
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_dynamo_is_put_back_and_never_touched_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    step = vars(symbolic_convert.InstructionTranslatorBase)["step"]
    create = vars(output_graph.SubgraphTracer)["create_node"]
    hooks = dict(convert_frame._bytecode_hooks)
    seen = []

    def during(x):
        seen.append(symbolic_convert.InstructionTranslatorBase.step is step)
        return x + 1

    class Backend:
        def __call__(self, module: Any, inputs: Any) -> Any:
            seen.append(symbolic_convert.InstructionTranslatorBase.step is step)
            return module.forward

    for watch in (False, True):
        torch._dynamo.reset()
        compiled(straight, backend=Backend(), watch=watch)(torch.ones(3))
        assert vars(symbolic_convert.InstructionTranslatorBase)["step"] is step
        assert vars(output_graph.SubgraphTracer)["create_node"] is create
        assert convert_frame._bytecode_hooks == hooks
    assert seen == [True, False]


def test_the_break_and_the_restart_are_told_at_their_instruction(capsys: Any) -> None:
    run = compiled(prints, watch=True)
    run(torch.ones(3))
    first, second, _ = run.compilation.walks
    for walk in (first, second):
        at = walk.instructions[walk.steps[-1].at]
        assert at.name.startswith("CALL")
        text = walk.codes[at.code].text.splitlines()[at.line - walk.codes[at.code].first_line]
        assert text[at.column : at.end_column] == 'print("y", len(y))'
    assert "begins again" in first.steps[-1].said and "print()" in first.reason
    assert "graph ends here" in second.steps[-1].said and second.reason == first.reason
    assert first.rewritten is None and second.rewritten is not None
    assert any("cos" in n.text for g in run.compilation.of_stage("fx") for n in g.nodes)
    lost = {name for step in first.steps for name in step.dropped}
    assert "y" in lost and not first.graph


def test_a_break_inside_a_call_is_told_where_it_is() -> None:
    run = compiled(breaks_in_a_call, watch=True)
    run(torch.ones(3))
    first = run.compilation.walks[0]
    inner, outer = first.steps[-1], next(step for step in first.steps if step.broke)
    assert (inner.depth, outer.depth) == (1, 0)
    assert inner.said == "graph break: the code asks for a graph break here"
    assert outer.said == "inlines inner; Dynamo begins again from the top, to end the graph here"
    calls = [step for step in first.steps if step.said.startswith("inlines inner")]
    assert len(calls) == 1 and calls[0].depth == 0


def test_a_failing_program_leaves_its_walk() -> None:
    def fails(x):
        y = x + 1
        return y @ torch.ones(7, 7)

    run = compiled(fails, watch=True)
    with pytest.raises(Exception, match=r"mat|size|shape"):
        run(torch.ones(3, 4))
    walk = run.compilation.walks[0]
    assert walk.ended in ("raised", "stopped", "restart") and walk.reason
    assert walk.steps[-1].broke
    assert vars(symbolic_convert.InstructionTranslatorBase)["step"].__name__ == "step"
    assert not hasattr(vars(symbolic_convert.InstructionTranslatorBase)["step"], "__wrapped__")


def test_a_fullgraph_error_ends_the_walk() -> None:
    run = compiled(prints, watch=True, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        run(torch.ones(3))
    (walk,) = run.compilation.walks
    assert walk.ended == "stopped" and "print()" in walk.reason and walk.steps[-1].broke


def test_a_recompile_is_a_walk_of_its_own() -> None:
    run = compiled(straight, watch=True, dynamic=False)
    run(torch.ones(3))
    run(torch.ones(5))
    assert [(walk.attempt, walk.graph) for walk in run.compilation.walks] == [(1, "g0"), (1, "g1")]
    assert len({walk.frame for walk in run.compilation.walks}) == 2


def test_columns_count_characters() -> None:
    names, of = cell('def f(x):\n    return ("é" and x) + torch.sin(x)')
    run = compiled(names["f"], cell=of, watch=True)
    run(torch.ones(3))
    (walk,) = run.compilation.walks
    line = of.source.splitlines()[2]
    spans = {
        line[at.column : at.end_column] for at in walk.instructions if at.line == 3 and at.column is not None
    }
    assert "torch.sin(x)" in spans and walk.codes[0].file == ""


@pytest.mark.nightly
def test_a_long_walk_is_cut_with_a_sentence_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(x):
        held = []
        for step in range(1600):
            held = [step, str(step), held]
            if step % 400 == 0:
                x = torch.relu(x + step)
        return x

    run = compiled(long, watch=True, backend="eager")
    run(torch.ones(3))
    walks = run.compilation.walks
    assert sum(len(walk.steps) for walk in walks) == follow.MOST_STEPS
    assert "instructions more were followed" in walks[-1].cut
    alone = dataclasses.replace(run.compilation, graphs=(), guards=())
    size = len(json.dumps(pack(alone.to_dict())))
    assert size < 300_000, size
    again = Compilation.from_dict(pack(alone.to_dict()))
    assert again.walks == walks


def test_too_many_words_are_cut_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MOST_WORDS", 10)

    def counts(x):
        total = 0
        for step in range(40):
            total = total + step * 1000
        return x + total

    run = compiled(counts, watch=True)
    run(torch.ones(3))
    (walk,) = run.compilation.walks
    assert "no longer kept" in walk.cut and len(walk.words) < 40
    assert sum(len(step.made) for step in walk.steps) == len(run.compilation.graph("g0.fx").nodes)


def test_a_value_is_not_looked_at_for_its_word() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise AssertionError("asked")

        __str__ = __repr__

    held = Shy()

    def uses(x):
        other = held
        return x + (1 if other is not None else 2)

    run = compiled(uses, watch=True)
    run(torch.ones(3))
    words = {word for walk in run.compilation.walks for word in walk.words}
    assert any("Shy" in word for word in words)
    assert word_of(object()) == "object"


@pytest.mark.parametrize("part", ["_difference", "_place", "made"])
def test_a_torch_that_is_another_than_thought_compiles_all_the_same(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: Any) -> None:
        raise AttributeError("no such thing here")

    monkeypatch.setattr(follow._Attempt, part, raises)
    run = compiled(inlined, watch=True)
    torch.testing.assert_close(run(torch.ones(3)), torch.full((3,), 6.0))
    record = run.compilation
    assert any("could not be followed any further: AttributeError" in note for note in record.notes)
    assert len(record.of_stage("fx")) == 1 and not record.breaks
    assert all("could not be followed" in walk.cut for walk in record.walks)
    assert not hasattr(symbolic_convert.InstructionTranslatorBase.step, "__wrapped__")


def test_the_rewritten_code_is_listed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "depyf", None)
    monkeypatch.setitem(sys.modules, "depyf.decompiler", None)
    run = compiled(prints, watch=True)
    run(torch.ones(3))
    found = run.compilation.walks[1].rewritten
    assert found is not None and not found.python and found.why_not == rewritten.NOT_HERE
    assert "# the compiled graph g0" in found.listing
    assert "# the rest of the function" in found.listing
    calls = [line.split() for line in found.listing.splitlines() if " CALL " in f"{line} "]
    assert calls and all(call[2].isdigit() for call in calls)
    assert max(map(len, found.listing.splitlines())) < 140


def test_depyf_makes_python_of_it() -> None:
    pytest.importorskip("depyf")
    run = compiled(prints, watch=True)
    run(torch.ones(3))
    found = run.compilation.walks[1].rewritten
    assert found is not None and found.python.startswith("def prints(x):") and not found.why_not
    assert "__compiled_fn_" in found.python and "print" in found.python


def test_what_depyf_cannot_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Decompiler:
        def __init__(self, code: Any) -> None:
            pass

        def decompile(self) -> str:
            raise NotImplementedError("CALL_KW")

    import types

    module = types.ModuleType("depyf.decompiler")
    module.Decompiler = Decompiler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "depyf", types.ModuleType("depyf"))
    monkeypatch.setitem(sys.modules, "depyf.decompiler", module)
    made = rewritten.rewritten(straight.__code__)
    assert made.why_not == "depyf could not make Python of it (NotImplementedError)." and made.listing


def test_a_frame_at_a_depth_is_forgotten_when_its_call_is_over() -> None:
    walk = DynamoWalk(
        "0/0", 1, "returned", (), words=("a", "b", "int 1", "int 2"),
        steps=(
            WalkStep(0, 0, 0, (2,), (0, 2)),
            WalkStep(0, 1, 0, (3,), (1, 3)),
            WalkStep(0, 0, 1, (3,)),
            WalkStep(0, 1, 0, ()),
            WalkStep(0, 0, 0, (), (0, -1)),
        ),
    )  # fmt: skip
    played = [(state.stack, state.locals) for state in states(walk)]
    assert played == [
        (("int 1",), {"a": "int 1"}),
        (("int 2",), {"b": "int 2"}),
        (("int 1", "int 2"), {"a": "int 1"}),
        ((), {}),
        ((), {}),
    ]

"""Notebook 03: what becomes graph, which guards hold it, what breaks it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import nbcompile
from nbcompile.record.compilation import Compilation
from nbcompile.units import count_text
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, captured, function, keyed, like, one_of

Function = Callable[..., Any]
KINDS = ("input", "baked in")


def record_of_calls(fn: Function, calls: Sequence[Sequence[Any]]) -> Compilation:
    """The record of ``fn`` compiled and called with each of ``calls`` in turn, silently."""
    compiled = nbcompile.compile(fn)
    with contextlib.redirect_stdout(io.StringIO()):
        for args in calls:
            compiled(*args)
    return compiled.compilation


@exercise("capture.baked")
def baked(answer: Mapping[str, str], fn: Function, args: Sequence[Any]) -> str:
    """Of each guarded name in ``fn``, whether it is an input of the graph or baked in. One call with ``args``
    is recorded, and its graphs are asked."""
    record = record_of_calls(fn, [args])
    inputs = [node.text for graph in captured(record) for node in graph.nodes if node.kind == "input"]
    names = [*fn.__code__.co_varnames[: fn.__code__.co_argcount], *fn.__code__.co_names]
    guarded = {name for name in names if any(f"['{name}']" in guard.name for guard in record.guards)}
    truth = {
        name: KINDS[0] if any(f"['{name}']" in text for text in inputs) else KINDS[1]
        for name in sorted(guarded - {"torch"})
    }
    one_of(answer, truth, KINDS)
    wrong = [name for name in truth if answer[name] != truth[name]]
    if wrong:
        of_each = [(guard.kind, guard.name) for guard in record.guards if f"['{wrong[0]}']" in guard.name]
        told = ", ".join(f"{kind} on {name}" for kind, name in of_each)
        raise WrongAnswerError(
            f"{count_text(len(wrong), 'name')} in the wrong place, among them {wrong[0]}, "
            f"whose guards are: {told}. Is there one that checks a stand-in for a tensor?"
        )
    kinds = [node.kind for graph in captured(record) for node in graph.nodes]
    operations = sum(kind not in ("input", "output") for kind in kinds)
    return (
        f"the graph has {count_text(len(inputs), 'input')}, all of them tensors, those of the list too; of "
        f"the other {sum(word == KINDS[1] for word in truth.values())} names only values are left, and the "
        f"loops are unrolled into {count_text(operations, 'operation')}."
    )


def _differences(one: Any, other: Any) -> list[str]:
    """The properties checked by guards in which two arguments differ."""
    if type(one) is not type(other):
        return ["type"]
    if not isinstance(one, torch.Tensor):
        return [] if one == other else ["value"]
    checked: dict[str, Callable[[torch.Tensor], Any]] = {
        "device": lambda t: t.device,
        "dtype": lambda t: t.dtype,
        "requires_grad": lambda t: t.requires_grad,
        "strides": lambda t: t.stride(),
    }
    return [name for name, of in checked.items() if of(one) != of(other)]


def _looks_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return not isinstance(one, torch.Tensor) and isinstance(other, int | float) and bool(one == other)
    return one.shape == other.shape and bool((one.detach().cpu() == other.detach().cpu()).all())


@exercise("capture.disguise")
def disguise(answer: Sequence[Any], fn: Function, first_call: Sequence[Any]) -> str:
    """Arguments with the shapes, elements and numbers of the first call for which ``fn`` is compiled again.
    They may differ from it in one property only."""
    if not isinstance(answer, tuple) or len(answer) != len(first_call):
        raise WrongAnswerError(f"I want a tuple of {len(first_call)} arguments.")
    if not all(_looks_equal(one, other) for one, other in zip(first_call, answer, strict=True)):
        raise WrongAnswerError(
            "A person would see the difference: shapes, elements and numbers must equal the first call's."
        )
    found = [
        f"{name} of argument {place + 1}"
        for place, (one, other) in enumerate(zip(first_call, answer, strict=True))
        for name in _differences(one, other)
    ]
    recompiles = record_of_calls(fn, [first_call, answer]).recompiles
    if not recompiles:
        raise WrongAnswerError("No guard failed: the compiled code of the first call took this one as well.")
    if len(found) != 1:
        raise WrongAnswerError(
            f"It recompiles, but {len(found)} things differ: {', '.join(found)}. One will do."
        )
    return f"one thing differs, the {found[0]}, and Dynamo says: {recompiles[0].reason}."


@exercise("capture.recompiles")
def recompiles(answer: Sequence[torch.Tensor], fn: Function) -> str:
    """One to five tensors for which ``fn(tensor, 2)``, called with each in turn, recompiles exactly three
    times. All are float32, on one device, without ``requires_grad``."""
    wanted, allowed = 3, 5
    if not isinstance(answer, list | tuple) or not all(isinstance(t, torch.Tensor) for t in answer):
        raise WrongAnswerError("I want a list of tensors.")
    if not 1 <= len(answer) <= allowed:
        raise WrongAnswerError(f"One to {allowed} calls, and you have {len(answer)}.")
    if any(t.dtype != torch.float32 or t.requires_grad or t.device != answer[0].device for t in answer):
        raise WrongAnswerError("All of them float32, on one device, without requires_grad: sizes must do it.")
    found = record_of_calls(fn, [(t, 2) for t in answer]).recompiles
    if len(found) != wanted:
        told = "; ".join(item.reason for item in found) or "every guard held"
        raise WrongAnswerError(f"{count_text(len(found), 'recompile')} in {len(answer)} calls: {told}.")
    return f"{wanted} recompiles in {len(answer)} calls: " + "; ".join(item.reason for item in found) + "."


@exercise("capture.graphs")
def graphs(answer: Mapping[str, tuple[int, int]], functions: Mapping[str, Function], x: torch.Tensor) -> str:
    """The pair (graphs, breaks) of each function, as the record of one call with ``x`` has them."""
    records = {name: record_of_calls(fn, [(x,)]) for name, fn in functions.items()}
    truth = {name: (len(captured(record)), len(record.breaks)) for name, record in records.items()}
    keyed(answer, truth, "a pair (graphs, breaks)")
    for name, record in records.items():
        given = answer[name]
        pair = isinstance(given, tuple | list) and len(given) == 2
        if not pair or not all(type(part) is int for part in given):
            raise WrongAnswerError(f"For {name} I want a pair: (graphs, breaks).")
        if tuple(given) != truth[name]:
            right = [
                part for part, a, b in zip(("graphs", "breaks"), given, truth[name], strict=True) if a == b
            ]
            line = min((item.spans[0].line for item in record.breaks if item.spans), default=0)
            raise WrongAnswerError(
                f"Of {name}, {f'the number of {right[0]} is right' if right else 'neither number is right'}. "
                f"Its first break is at line {line} of its cell: what does Dynamo do next?"
            )
    reasons = "; ".join(
        f"{name}, line {item.spans[0].line}: {item.reason}"
        for name, record in records.items()
        for item in record.breaks
    )
    return f"the breaks are {reasons}."


@exercise("capture.mend")
def mend(answer: Function, original: Function) -> str:
    """A function with the results of ``original`` that is one graph without a break for three inputs
    together: of a mean above 0, of one below 0, and all negative."""
    function(answer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(32, 16, generator=generator).to(device)
    inputs = {"mean above 0": noise + 0.5, "mean below 0": noise - 0.5, "negative": -noise.abs() - 0.1}
    for what, x in inputs.items():
        with contextlib.redirect_stdout(io.StringIO()):
            wanted, got = original(x.clone()), called(answer, "Your function", x.clone())
        got = like(got, wanted, "Your function")
        if not torch.allclose(got, wanted, rtol=1e-4, atol=1e-4):
            raise WrongAnswerError(f"The result differs from the original's for an input ({what}).")
    record = record_of_calls(answer, [(x,) for x in inputs.values()])
    if record.breaks or len(captured(record)) != 1:
        item = record.breaks[0] if record.breaks else None
        told = f"The first: {item.reason}. {item.hint}" if item else "Look at its recompiles."
        raise WrongAnswerError(
            f"The results agree, but it has {count_text(len(record.breaks), 'break')} and "
            f"{count_text(len(captured(record)), 'graph')}. {told}"
        )
    old = record_of_calls(original, [(x,) for x in inputs.values()])
    return (
        f"one graph and no break, for data that takes either branch; the original needed "
        f"{count_text(len(captured(old)), 'graph')}, {count_text(len(old.breaks), 'break')} and "
        f"{count_text(len(old.recompiles), 'recompile')} for the same three calls."
    )

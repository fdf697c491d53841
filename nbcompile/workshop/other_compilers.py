"""Notebook 15, the other compilers: when they capture again, what they fuse, what they copy.

XLA and ONNX Runtime are seen through the backends of those names. Where one is not installed, what shows it
says what to install instead, and so does the judge of an exercise about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.backends.registry import backends
from nbcompile.backends.xla.hlo import parse
from nbcompile.bench.captures.frameworks import JAX
from nbcompile.record.compilation import Compilation
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import (
    called,
    equal,
    function,
    keyed,
    like,
    one_of,
    record_of,
    traffic,
    whole_numbers,
)

Function = Callable[..., Any]
Calls = Sequence[tuple[Any, ...]]
COMPARED = ("nbcompile", "xla", "onnxrt")


def absent(backend: str) -> str:
    """Why a backend is not here and what to install, in a sentence; empty if it is here."""
    found = backends()[backend]
    return f"{backend} {found.missing()}: {found.install}" if found.missing() else ""


def _needs(*names: str) -> None:
    if missing := [absent(name) for name in names if absent(name)]:
        raise WrongAnswerError(
            f"Your answer was not judged, because the compiler to ask is not here. {'; '.join(missing)}"
        )


def counted_captures(fn: Function, calls: Calls) -> dict[str, int]:
    """How often ``fn`` is captured in the course of these calls, by ``torch.compile`` and by ``jax.jit``."""
    compiled = nbcompile.compile(fn)
    for args in calls:
        compiled(*args)
    found = {"torch.compile": len(compiled.compilation.of_stage("fx"))}
    if not JAX.missing:
        import jax

        traces = []

        def traced(*args: Any) -> Any:
            traces.append(len(args))  # Python runs only while jax traces
            return fn(*args)

        jitted = jax.jit(traced)
        for args in calls:
            jitted(*JAX.arguments(args))
        found["jax.jit"] = len(traces)
    return found


def hlo(fn: Function, *inputs: torch.Tensor) -> str:
    """XLA's optimised HLO of ``fn``, without what only XLA's own tools read; or what to install."""
    if absent("xla"):
        return absent("xla")
    text = _hlo(record_of(fn, *inputs, backend="xla"))
    return re.sub(
        r", (metadata|sharding|frontend_attributes|backend_config)=\{.*", "", text[text.index("\n%") :]
    ).strip()


def _hlo(record: Compilation) -> str:
    return record.of_stage("fused")[0].text


def steps_of(fn: Function, *inputs: torch.Tensor, backend: str = "nbcompile") -> list[str]:
    """What one call of ``fn`` runs, one after the other: kernels and calls, in the backend's words."""
    record = record_of(fn, *inputs, backend=backend)
    return [
        node.op
        if backend == "onnxrt"
        else node.name
        for node in record.fused_nodes if node.kind in ("kernel", "library", "fallback")
    ]  # fmt: skip


def copied(fn: Function, x: torch.Tensor, backend: str) -> int:
    """Bytes of ``x`` that are copied on the way into ``fn`` compiled by ``backend``, in a call once all is
    compiled."""
    from torch.autograd.profiler_legacy import profile  # the newer one writes lines of its own to stderr

    compiled = nbcompile.compile(fn, backend=backend, dynamic=False)
    compiled(x)
    with profile() as seen:  # type: ignore[no-untyped-call]
        compiled(x)
    clones = sum(event.name == "aten::clone" for event in seen.function_events)
    return int(clones * x.numel() * x.element_size())


# The judges ----------------------------------------------------------------------------------------------


@exercise("others.retrace")
def retrace(answer: Mapping[str, Any], fn: Function, stories: Mapping[str, Calls]) -> str:
    """How often ``fn`` is captured in each story, by ``torch.compile`` and by ``jax.jit``. The calls are made
    with both and counted."""
    _needs("xla")
    keyed(answer, stories, "two whole numbers")
    told = []
    for name, calls in stories.items():
        given = answer[name]
        if not isinstance(given, Mapping) or not all(type(count) is int for count in given.values()):
            raise WrongAnswerError(f"{name}: write two whole numbers, as in {{'torch.compile': 1, ...}}.")
        truth = counted_captures(fn, calls)
        if unknown := [way for way in given if way not in truth]:
            raise WrongAnswerError(f"{name}: {unknown[0]!r} is none of {', '.join(truth)}.")
        for way, count in truth.items():
            if given.get(way) != count:
                asked = (
                    "Which of these does a trace of arrays depend on: sizes, dtypes, strides, values?"
                    if way == "jax.jit"
                    else "What would a guard have asked at the second call? And what does Dynamo do when the "
                    "same guard has failed once?"
                )
                raise WrongAnswerError(f"{name}: {way} does not capture {given.get(way)} times. {asked}")
        told.append(f"{name}: {', '.join(f'{way} {count}' for way, count in truth.items())}")
    return (
        f"{'; '.join(told)}. Dynamo makes a symbol of what has changed once, jax.jit takes sizes as they are "
        "and numbers as arrays."
    )


@exercise("others.fusions")
def fusions(answer: Mapping[str, Any], fn: Function, x: torch.Tensor) -> str:
    """How many fusions XLA runs for ``fn``, how many of them write as many elements as ``x`` has, and how
    many kernels are ours. XLA's entry computation and our record are counted."""
    _needs("xla")
    whole_numbers(answer, ("fusions", "whole", "kernels"))
    module = parse(_hlo(record_of(fn, x, backend="xla")))
    made = [item for item in module.entry.instructions if item.opcode == "fusion"]
    truth = {
        "fusions": len(made),
        "whole": sum(item.elements == x.numel() for item in made),
        "kernels": len(record_of(fn, x).kernels),
    }
    where = {
        "fusions": "Only the ENTRY computation runs by itself. Which of its lines call another computation?",
        "whole": f"Look at the shape to the right of the =: which fusions have a result of {list(x.shape)}?",
        "kernels": "That one is ours: steps_of(...) says it, or an account.",
    }
    equal(answer, truth, where)
    moved = {name: traffic(record_of(fn, x, backend=name)) / 1e6 for name in COMPARED[:2]}
    return (
        f"{truth['fusions']} fusions, of which {truth['whole']} write a whole tensor, against "
        f"{truth['kernels']} kernel: {moved['xla']:.1f} MB through memory a call, and "
        f"{moved['nbcompile']:.1f} MB."
    )


def _rows() -> tuple[torch.Tensor, ...]:
    return (torch.randn(512, 256),)


def _sum_of_all(*tensors: torch.Tensor) -> torch.Tensor:
    result = tensors[0]
    for each in tensors[1:]:
        result = result + each
    return result


PROGRAMS: dict[str, tuple[Function, Callable[[], tuple[torch.Tensor, ...]]]] = {
    "torch.relu(x * 2 + 1) - x": (lambda x: torch.relu(x * 2 + 1) - x, _rows),
    "torch.relu(x), torch.exp(x.T)": (lambda x: (torch.relu(x), torch.exp(x.T)), _rows),
    "torch.cat([x * 2, x + 1], -1) * 3": (lambda x: torch.cat([x * 2, x + 1], -1) * 3, _rows),
    "torch.cumsum(x, -1) * 2": (lambda x: torch.cumsum(x, -1) * 2, _rows),
    "the sum of 80 tensors": (_sum_of_all, lambda: tuple(torch.randn(4096) for _ in range(80))),
}


@cache
def _steps(name: str) -> tuple[int, int]:
    """Steps of one of the programs: ours, XLA's."""
    fn, inputs = PROGRAMS[name]
    ours, theirs = (len(steps_of(fn, *inputs(), backend=backend)) for backend in ("nbcompile", "xla"))
    return ours, theirs


@exercise("others.fewer")
def fewer(answer: Mapping[str, Any]) -> str:
    """Which compiler runs each of ``PROGRAMS`` in fewer steps: ``nbcompile``, ``xla``, or ``same``. Steps
    are those of :func:`steps_of`."""
    _needs("xla")
    said = ("same", "nbcompile", "xla")
    one_of(answer, PROGRAMS, said)
    for name in PROGRAMS:
        ours, theirs = _steps(name)
        truth = "same" if ours == theirs else "nbcompile" if ours < theirs else "xla"
        if answer[name] != truth:
            raise WrongAnswerError(
                f"{name}: not {answer[name]}. Write its loops down. Does each find what it reads where the "
                "one before it is just now, and how many tensors would the kernel walk through?"
            )
    told = ((name, *_steps(name)) for name in PROGRAMS)
    return "; ".join(f"{name}: {ours} of ours, {theirs} of XLA's" for name, ours, theirs in told)


@exercise("others.copies")
def copies(answer: Mapping[str, Any], fn: Function, layouts: Mapping[str, torch.Tensor]) -> str:
    """For each layout the set of the backends, of ``COMPARED``, that copy such an input of ``fn``. A call
    through each is watched."""
    _needs("xla", "onnxrt")
    keyed(answer, layouts, "a set")
    told = []
    for name, x in layouts.items():
        given = answer[name]
        if not isinstance(given, set | frozenset | list | tuple) or not all(
            isinstance(n, str) for n in given
        ):
            raise WrongAnswerError(f"{name}: write the set of those that copy it; set() if none does.")
        moved = {backend: copied(fn, x, backend) for backend in COMPARED}
        truth = {backend for backend, count in moved.items() if count}
        if set(given) != truth:
            which = sorted(set(given) ^ truth)[0]
            rule = {
                "nbcompile": "Our kernels have the strides of their inputs in them.",
                "xla": "It takes any memory without gaps, in any order of the axes.",
                "onnxrt": "It takes memory in the order of the axes, and nothing else.",
            }
            raise WrongAnswerError(f"{name}: not so for {which}. {rule.get(which, 'There is no such one.')}")
        if truth:
            told.append(f"{name}: {' and '.join(sorted(truth))}, {max(moved.values()) / 1e6:.1f} MB a call")
    return f"{'; '.join(told)}. What reads by strides copies nothing."


def unusual(x: torch.Tensor) -> torch.Tensor:
    """GELU, multiplied out by somebody."""
    return x * (0.5 + 0.5 * torch.erf(x / 2**0.5))


@exercise("others.pattern")
def pattern(answer: Function) -> str:
    """A function with the values of GELU, to 1e-5 between -4 and 4, that ONNX Runtime runs as one
    operator."""
    _needs("onnxrt")
    x = torch.linspace(-4, 4, 4096).reshape(16, 256)
    function(answer, "known(x)")
    got = like(called(answer, "known", x), x, "known")
    worst = float((got - F.gelu(x)).abs().max())
    if not worst <= 1e-5:
        raise WrongAnswerError(
            f"It is not the same function: somewhere between -4 and 4 it is off by {worst:.2g}. The formula "
            "with tanh is an approximation."
        )
    before, after = (steps_of(each, x, backend="onnxrt") for each in (unusual, answer))
    if len(after) != 1:
        raise WrongAnswerError(
            f"The values are right, and ONNX Runtime still runs {len(after)} operators: {', '.join(after)}. "
            "Which form would its authors have looked for? The one in papers and in model files."
        )
    ours = [len(steps_of(each, x)) for each in (unusual, answer)]
    return (
        f"one operator, {after[0]}, instead of {len(before)} ({', '.join(before)}). For a compiler that "
        f"fuses loops the form makes no difference: {ours[0]} kernel of ours before, {ours[1]} after."
    )

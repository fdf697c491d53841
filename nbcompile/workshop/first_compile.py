"""Notebook 01, a first compile: reading the record of a cell that the reader has just compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import nbcompile
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import (
    called,
    function,
    keyed,
    like,
    number,
    one_of,
    record_of,
    shown,
    traffic,
    whole_number,
)

BECAME = ("kernels", "library call", "graph break")


def _calls(record: Compilation) -> list[str]:
    """Names of the calls into PyTorch's library, between the kernels."""
    return [node.name for node in record.library_calls]


def _filled_in(answer: Any, keys: Sequence[str]) -> None:
    keyed(answer, keys, "something")
    if missing := [key for key in keys if answer[key] is ...]:
        raise WrongAnswerError(f"Write something in place of the dots: {missing[0]!r} has none yet.")


@exercise("first.read")
def read(answer: Mapping[str, Any], record: Compilation) -> str:
    """Four numbers of ``record``: the loops of its first kernel, the megabytes that this kernel reads and
    writes, the guards on tensors, and the refused decisions. The megabytes may be off by 2%."""
    kernel = record.kernels[0]
    moved = (kernel.bytes_read + kernel.bytes_written) / 1e6
    guarded = [guard.name for guard in record.guards if guard.kind == "TENSOR_MATCH"]
    refused = [decision for decision in record.decisions if not decision.accepted]
    truth = {
        "loops": len(kernel.loops),
        "megabytes": moved,
        "guarded": len(guarded),
        "refused": len(refused),
    }
    _filled_in(answer, tuple(truth))
    where = {
        "loops": f"Count those of {kernel.name} only, not those of the whole cell.",
        "megabytes": "A kernel reads and it writes, and each name that the cell binds is a result of it.",
        "guarded": "Look at the kinds of the guards: which of them ask about a tensor?",
        "refused": "Each decision says whether it was accepted.",
    }
    for name, true in truth.items():
        off = 0.02 * true if name == "megabytes" else 0  # the others are counted
        if abs(number(answer[name], f"{name!r}") - true) > off:
            raise WrongAnswerError(f"{name!r} is not {answer[name]:g}. {where[name]}")
    return (
        f"{kernel.name} runs {truth['loops']} loops in one pass and writes {' and '.join(kernel.writes)}, "
        f"because the cell binds both. {' and '.join(sorted(guarded))} are checked before each call. "
        f"Refused was what would cross the library call ({refused[0].reason})."
    )


@exercise("first.lines")
def lines(answer: Mapping[str, Any], record: Compilation) -> str:
    """The numbers of the source lines that each kernel of ``record`` serves: those that its links have, all
    of them and no other."""
    links = Links(record)
    truth = {kernel.name: set(links.lines(kernel.id)) for kernel in record.kernels}
    _filled_in(answer, tuple(truth))
    for name, wanted in truth.items():
        if not isinstance(answer[name], list | tuple | set):
            raise WrongAnswerError(f"{name}: write a list of line numbers, not {shown(answer[name])}.")
        given = {whole_number(line, f"{name}: each line") for line in answer[name]}
        if extra := given - wanted:
            raise WrongAnswerError(
                f"{name}: line {min(extra)} is not among its lines. The magic line is line 1. Is what that "
                "line computes made by this kernel, by another, by a call, or does nobody read it?"
            )
        if wanted - given:
            raise WrongAnswerError(
                f"{name}: right as far as it goes, but of {len(wanted)} lines you have {len(given)}. A line "
                "can be divided: part of it in a kernel, part in a library call."
            )
    served = set().union(*truth.values())
    calls = (node.id for node in record.library_calls if node.kind == "library")
    shared = {line for node in calls for line in links.lines(node)} & served
    return (
        f"the same as the record's links say. Line {min(shared)} is divided: its quotient ends a kernel, and "
        "its product is a call. No kernel serves the line whose name is bound again before it is read."
    )


@exercise("first.one")
def one(
    answer: Callable[..., Any], before: Compilation, inputs: Sequence[torch.Tensor], wanted: torch.Tensor
) -> str:
    """A function with the result ``wanted``, in one kernel and no call; ``before`` is the cell's record."""
    function(answer, "one(x, weights)")
    got = like(called(answer, "one", *inputs), wanted, "one")
    if not torch.allclose(got, wanted, rtol=1e-4, atol=1e-5):
        raise WrongAnswerError(
            "The result is not that of the cell. Write each product down for a matrix of 2 × 2: what does "
            "one element of its result consist of, and along which axis?"
        )
    record = record_of(answer, *inputs)
    if record.breaks:
        raise WrongAnswerError(f"The result is right, but the graph breaks: {record.breaks[0].reason}.")
    if calls := _calls(record):
        raise WrongAnswerError(
            f"The result is right. What is left between the kernels is {', '.join(calls)}, and no kernel "
            "reaches across a call. What does that product compute, and can it be said without a product?"
        )
    if len(record.kernels) != 1:
        raise WrongAnswerError(
            f"The result is right and there is no call, but there are {len(record.kernels)} kernels. Look "
            "at the reasons of the refused pairs: nbcompile.compile(one), call it, and read .compilation."
        )
    return (
        f"one kernel of {len(record.kernels[0].loops)} loops instead of {len(before.kernels)} kernels and "
        f"{len(_calls(before))} library calls. Kernels move {traffic(record) / 1e6:.1f} MB instead of "
        f"{traffic(before) / 1e6:.1f} MB, and the products' own traffic and arithmetic are gone too."
    )


@exercise("first.cannot")
def cannot(
    answer: Mapping[str, Any], programs: Mapping[str, Callable[..., torch.Tensor]], x: torch.Tensor
) -> str:
    """What each program becomes, one of ``BECAME``: kernels only, a library call among them, or a graph
    break. Each is compiled and called with ``x``, and its record is asked."""
    _filled_in(answer, tuple(programs))
    said = []
    one_of(answer, programs, BECAME)
    for name, program in programs.items():
        compiled = nbcompile.compile(program, dynamic=False)
        got, record = compiled(x), compiled.compilation
        torch.testing.assert_close(got, program(x), rtol=1e-4, atol=1e-4)
        calls = _calls(record)
        truth = BECAME[2] if record.breaks else BECAME[1] if calls else BECAME[0]
        if answer[name] != truth:
            questions = {
                BECAME[0]: "It is all loops over elements or rows. What the compiler knows while it "
                "compiles, a shape for instance, stops nothing.",
                BECAME[1]: "It stays in one graph. Is each of its operations a loop over elements or rows, "
                "or is one of them an algorithm?",
                BECAME[2]: "Does Python need a number, or a shape, that only the data can tell?",
            }
            raise WrongAnswerError(f"{name}: not {answer[name]!r}. {questions[truth]}")
        if truth != BECAME[0]:
            said.append(f"{name}: {record.breaks[0].reason if record.breaks else ', '.join(calls)}")
    return f"and all {len(programs)} gave what eager gives. {'; '.join(said)}."

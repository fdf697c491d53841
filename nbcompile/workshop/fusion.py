"""The judges of notebook 06, fusion, and what that notebook measures with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.bench.measure.timing import quiet
from nbcompile.compiler.attempt import Attempt, assembly_of, find_toolchain
from nbcompile.errors import NbcompileError
from nbcompile.record.compilation import Compilation, Decision
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import keyed, milliseconds, number, one_of, record_of, traffic

Function = Callable[..., Any]


def inductor_record_of(fn: Function, *inputs: torch.Tensor) -> Compilation:
    """The record of Inductor compiling ``fn``. Its cache of graphs is left out: from there it would come
    without its stages where something else than this version of nbcompile has filled it."""
    return record_of(fn, *inputs, backend="inductor", fx_graph_cache=False)


def with_options(
    fn: Function,
    inputs: tuple[torch.Tensor, ...],
    variants: Mapping[str, Mapping[str, Any]],
    seconds: float = 1.0,
) -> tuple[dict[str, float], dict[str, Compilation]]:
    """``fn`` compiled by us with each of these options: the time in milliseconds, and the record."""
    compiled = {
        name: nbcompile.compile(fn, dynamic=False, options=options) for name, options in variants.items()
    }
    for each in compiled.values():
        each(*inputs)
    calls = {name: lambda each=each: each(*inputs) for name, each in compiled.items()}
    return milliseconds(calls, seconds), {name: each.compilation for name, each in compiled.items()}


def pair_of(record: Compilation, decision: Decision) -> str:
    """The two that a decision is about, by name: ``"max → exp"``."""
    names = {node.id: node.name for graph in record.graphs for node in graph.nodes}
    return f"{names[decision.producer]} → {names[decision.consumer]}"


def told(record: Compilation, decision: Decision) -> str:
    """A decision as one line."""
    verdict = "fused" if decision.accepted else "refused"
    saved = decision.bytes_saved / 1e6
    return f"{pair_of(record, decision):17} {verdict:8} {saved:6.2f} MB  {decision.code:15} {decision.reason}"


def groups_of(record: Compilation) -> int:
    """How many groups of loops are left when each accepted pair is put together. (Inductor's CPU backend may
    print several of them into one function, so its functions are not the ones to count.)"""
    loops = {
        node.id: node.id
        for graph in record.graphs if graph.stage == "loops"
        for node in graph.nodes if node.kind in ("pointwise", "reduction", "scan", "scatter")
    }  # fmt: skip

    def root(id: str) -> str:
        while loops[id] != id:
            id = loops[id]
        return id

    for decision in record.decisions:
        if decision.accepted and decision.producer in loops and decision.consumer in loops:
            loops[root(decision.producer)] = root(decision.consumer)
    return sum(1 for id in loops if root(id) == id)


def stack_moves(fn: Function, *inputs: torch.Tensor) -> int:
    """How many instructions of the compiled kernels move a vector register to or from the stack: values for
    which there was no register left."""
    record = record_of(fn, *inputs)
    moves = 0
    for kernel in record.kernels:
        attempt = Attempt(watch=kernel.id)
        compiled = nbcompile.compile(fn, dynamic=False, compile_aten=attempt.compile_aten)
        compiled(*inputs)
        text = assembly_of(attempt.calls[0].source, kernel.id, find_toolchain())
        vector = [line for line in text.splitlines() if re.search(r"%[xyz]mm\d", line)]
        moves += sum(1 for line in vector if "(%rsp)" in line or "(%rbp)" in line)
    return moves


# The judges ----------------------------------------------------------------------------------------------


def chain(x: torch.Tensor) -> torch.Tensor:
    """Five pointwise operations, each a loop of its own if it is not fused."""
    return torch.relu(x * 2 + 1) * 0.5 - x


@exercise("fusion.speedup")
def speedup(answer: float) -> str:
    """How many times as fast :func:`chain` is fused as it is with a kernel for each loop. Both are measured;
    within a factor of 2 is right."""
    number(answer, "How many times as fast it is")
    x = torch.randn(4096, 4096)
    times, records = with_options(chain, (x,), {"apart": {"fuse": False}, "fused": {}})
    measured = times["apart"] / times["fused"]
    expected = traffic(records["apart"]) / traffic(records["fused"])
    if not measured / 2 <= answer <= measured * 2:
        raise WrongAnswerError(
            f"measured just now, fused is {measured:.1f} times as fast, more than a factor of 2 away from "
            f"{answer:g}. Count the tensors that each of the {len(records['apart'].kernels)} loops reads "
            "and writes, and those that the one fused kernel does."
        )
    return (
        f"{times['apart']:.0f} ms apart, {times['fused']:.0f} ms fused: {measured:.1f} times as fast. The "
        f"bytes go down by a factor of {expected:.1f}, from {traffic(records['apart']) / 1e6:.0f} MB to "
        f"{traffic(records['fused']) / 1e6:.0f} MB."
    )


_ASKED = (
    *("aten.mm → relu", "relu → sum", "mean → sub", "abs_1 → sum_1"),
    *("sum_1 → add", "sub → div", "add → div"),
)


@exercise("fusion.pairs")
def pairs(answer: Mapping[str, Any], program: Function) -> str:
    """Of each pair that is asked for, named as :func:`pair_of` does, whether the compiler fuses it: the
    decisions in the record of ``program`` say."""
    if not isinstance(answer, Mapping):
        raise WrongAnswerError("The answer is a dict with True or False for each of the pairs.")
    record = record_of(program, torch.randn(512, 1024), torch.randn(1024, 1024))
    truth = {pair_of(record, decision): decision for decision in record.decisions}
    if open_ones := [pair for pair in answer if not isinstance(answer[pair], bool)]:
        raise WrongAnswerError(f"{open_ones[0]} is not decided yet: True for fused, False for not.")
    if unknown := [pair for pair in answer if pair not in truth]:
        raise WrongAnswerError(f"{unknown[0]} is not a pair of this program.")
    if missing := [pair for pair in _ASKED if pair not in answer]:
        raise WrongAnswerError(f"{missing[0]} is missing.")
    wrong = [pair for pair in answer if truth[pair].accepted != answer[pair]]
    if wrong:
        clue = (
            "the compiler fuses it. Do both go over the same rows?"
            if truth[wrong[0]].accepted
            else "the compiler does not fuse it. Is everything that the second needs there when it starts?"
        )
        raise WrongAnswerError(
            f"{len(answer) - len(wrong)} of {len(answer)} as the compiler. {wrong[0]}: {clue}"
        )
    refused = "; ".join(f"{pair}: {truth[pair].reason}" for pair in answer if not truth[pair].accepted)
    saved = sum(truth[pair].bytes_saved for pair in answer if truth[pair].accepted)
    return (
        f"as the compiler decides: {len(record.kernels)} kernels, and these pairs save {saved / 1e6:.1f} MB "
        f"a call. Refused are {refused}."
    )


def _rows(count: int = 512) -> torch.Tensor:
    return torch.randn(count, 1024)


REFUSED: dict[str, tuple[Function, Callable[[], tuple[torch.Tensor, ...]]]] = {
    "torch.relu(x @ w)": (lambda x, w: torch.relu(x @ w), lambda: (_rows(), _rows(1024))),
    "x * torch.exp(v)": (lambda x, v: x * torch.exp(v), lambda: (_rows(), torch.randn(1024))),
    "x / x.sum()": (lambda x: x / x.sum(), lambda: (_rows(),)),
    "torch.softmax(x - x.mean(0), 1)": (lambda x: torch.softmax(x - x.mean(0), 1), lambda: (_rows(),)),
    "table.index_add(0, i, x) * 2": (
        lambda table, i, x: table.index_add(0, i, x) * 2,
        lambda: (_rows(64), torch.randint(64, (512,)), _rows()),
    ),
}


CODES = ("library-call", "different-axes", "cycle", "scatter", "recompute", "few-rows", "too-many-buffers")
"""Those of the notebook's table."""


@cache
def _refusals(name: str) -> dict[str, str]:
    """The reason of each refusal of one of these programs, by its code."""
    fn, inputs = REFUSED[name]
    record = record_of(fn, *inputs())
    return {
        each.code: f"{pair_of(record, each)}: {each.reason}" for each in record.decisions if not each.accepted
    }


@exercise("fusion.reasons")
def reasons(answer: Mapping[str, Any]) -> str:
    """A code for each program of ``REFUSED``. Right is each with which its record refuses a pair."""
    keyed(answer, REFUSED, "a code")
    if missing := [name for name in REFUSED if not isinstance(answer[name], str)]:
        raise WrongAnswerError(f"there is no reason yet for {missing[0]}.")
    wrong = [name for name in REFUSED if answer[name] not in _refusals(name)]
    if wrong:
        if answer[wrong[0]] not in CODES:
            raise WrongAnswerError(f"{answer[wrong[0]]!r} is none of {', '.join(CODES)}.")
        raise WrongAnswerError(
            f"{len(REFUSED) - len(wrong)} of {len(REFUSED)} are right. {wrong[0]}: the record gives another "
            f"reason than {answer[wrong[0]]}. Write down its loops: is there a pair that cannot be one "
            "kernel, or one that could be and would be slow?"
        )
    said = (f"{name} has {_refusals(name)[answer[name]]}" for name in REFUSED)
    return f"the records say the same. {'; '.join(said)}."


COMPARED: dict[str, tuple[Function, tuple[int, int]]] = {
    "torch.softmax(x, 1)": (lambda x: torch.softmax(x, 1), (512, 1024)),
    "x.sum(0), x.amax(1)": (lambda x: (x.sum(0), x.amax(1)), (512, 1024)),
    "torch.softmax(x, 1) of 4 rows": (lambda x: torch.softmax(x, 1), (4, 1 << 18)),
}


@cache
def _groups(name: str) -> tuple[int, int]:
    """Groups of loops of one of these programs: ours for eight threads, Inductor's."""
    fn, shape = COMPARED[name]
    x = torch.randn(shape)
    return groups_of(record_of(fn, x, threads=8)), groups_of(inductor_record_of(fn, x))


@exercise("fusion.inductor")
def inductor(answer: Mapping[str, Any]) -> str:
    """Which compiler ends with fewer groups of loops for each program of ``COMPARED``: ``nbcompile``,
    ``inductor``, or ``same``. They are counted in the records of both."""
    said = ("same", "nbcompile", "inductor")
    one_of(answer, COMPARED, said)
    for name in COMPARED:
        ours, theirs = _groups(name)
        truth = "same" if ours == theirs else "nbcompile" if ours < theirs else "inductor"
        if answer[name] != truth:
            raise WrongAnswerError(
                f"{name}: not {answer[name]}. Look at which axes the loops reduce over, and at how many "
                "rows there are for the cores to share."
            )
    return "; ".join(
        f"{name}: {_groups(name)[0]} of ours, {_groups(name)[1]} of Inductor's" for name in COMPARED
    )


def blurred(x: torch.Tensor) -> torch.Tensor:
    """The ``tanh`` of half of each number in an image, averaged over windows of 5 × 5 and cut off below."""
    return torch.relu(F.avg_pool2d(torch.tanh(x * 0.5)[None], 5, stride=1) - 0.1)


FUSED_WINDOW = {"force_fuse": "tanh:avg_pool2d"}
"""One kernel, also by a compiler that knows better than to make it."""


def kept_apart(yours: Compilation, fused: Compilation) -> list[str]:
    """The pairs that ``fused`` has in one kernel and that the options of ``yours`` keep apart."""
    together = {pair_of(fused, decision) for decision in fused.decisions if decision.accepted}
    asked = (d for d in yours.decisions if not d.accepted and d.code in ("user", "fusion-off"))
    return [pair for pair in (pair_of(yours, decision) for decision in asked) if pair in together]


@exercise("fusion.overrule")
def overrule(answer: Mapping[str, Any]) -> str:
    """Options that keep a pair of :func:`blurred` apart which ``FUSED_WINDOW`` fuses. With them it has at
    most two kernels and is at least 1.3 times as fast, measured on one thread."""
    if not isinstance(answer, Mapping) or not all(isinstance(name, str) for name in answer):
        raise WrongAnswerError('The answer is a dict of options, as {"no_fuse": "a:b"}.')
    x = torch.randn(1024, 1024)
    fused, yours = "all in one", "yours"
    with quiet(threads=1):  # the work itself, without how well a busy machine shares it out
        try:
            times, records = with_options(blurred, (x,), {fused: FUSED_WINDOW, yours: dict(answer)})
        except NbcompileError as error:
            raise WrongAnswerError(error.message) from error
    if not any(decision.overruled for decision in records[yours].decisions):
        raise WrongAnswerError(
            "Your options overrule no decision: what is measured is the compiler's own choice. Name a pair, "
            "and what is to become of it."
        )
    gain, kernels = times[fused] / times[yours], len(records[yours].kernels)
    if kernels > 2:
        raise WrongAnswerError(
            f"yours has {kernels} kernels, and takes {times[yours]:.1f} ms where one kernel takes "
            f"{times[fused]:.1f} ms. Two are enough: keep only that pair apart which repeats the work."
        )
    if gain < 1.3:
        raise WrongAnswerError(
            f"yours takes {times[yours]:.1f} ms, one kernel {times[fused]:.1f} ms: hardly better. Which "
            "value is costly, and read at many points? Its loop has to write to memory, so that it is made "
            "once."
        )
    if not kept_apart(records[yours], records[fused]):
        raise WrongAnswerError(
            "It is faster, but not because of the pair that you name: the compiler by itself keeps another "
            "one apart. Which value is costly, and read at many points? Name that pair."
        )
    more = traffic(records[yours]) / traffic(records[fused])
    return (
        f"{times[yours]:.1f} ms instead of {times[fused]:.1f} ms, {gain:.1f} times as fast, although it "
        f"moves {more:.1f} times the bytes."
    )

"""Notebook 04: what backward keeps, what it computes again, and what becomes of writing in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import nbcompile
from nbcompile.record.compilation import Compilation, Graph, Node
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, like, record_of, tensor, whole_numbers

Function = Callable[..., Any]
_PRODUCTS = ("aten.mm.", "aten.bmm.", "aten.addmm.")


@dataclass(frozen=True)
class Saved:
    """A tensor that forward hands to backward. ``new``: it is no input and no view of one, so that its memory
    is taken for backward's sake (or is that of a result)."""

    name: str
    shape: tuple[int | str, ...]
    bytes: int
    new: bool


def trained(fn: Function, *inputs: Any) -> Compilation:
    """The record of ``fn`` compiled, called, and its sum differentiated. Gradients of the inputs stay as they
    were."""
    compiled = nbcompile.compile(fn)
    wanted = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.autograd.grad(tensor(compiled(*inputs), "The function").sum(), wanted, allow_unused=True)
    return compiled.compilation


def saved(record: Compilation, graph: str = "g0") -> list[Saved]:
    """What the forward graph hands to backward, the largest first."""
    forward = record.graph(f"{graph}.fw")
    nodes = {node.id: node for node in forward.nodes}

    def of_input(node: Node) -> bool:
        while node.kind == "view" and node.inputs:
            node = nodes[node.inputs[0]]
        return node.kind == "input"

    kept = [nodes[id] for id in forward.saved]
    found = [Saved(node.name, node.shape or (), node.bytes, not of_input(node)) for node in kept]
    return sorted(found, key=lambda tensor: -tensor.bytes)


def new_bytes(record: Compilation) -> int:
    """The bytes that are saved and are no input's."""
    return sum(tensor.bytes for tensor in saved(record) if tensor.new)


def computing(graph: Graph) -> list[Node]:
    """The nodes that compute something: neither inputs nor views."""
    return [node for node in graph.nodes if node.kind in ("compute", "library", "fallback")]


def recomputed(record: Compilation, graph: str = "g0") -> list[str]:
    """Names of the operations that forward does and backward does again: both come from one node of the joint
    graph."""
    forward, backward = record.graph(f"{graph}.fw"), record.graph(f"{graph}.bw")
    done = {origin for node in computing(forward) for origin in node.origins}
    return [node.name for node in computing(backward) if done.intersection(node.origins)]


def products(graph: Graph) -> int:
    """How many matrix products a graph has."""
    return sum(node.op.startswith(_PRODUCTS) for node in graph.nodes)


def kilobytes(number: float) -> str:
    """A number of bytes as text, in thousands of them: ``"131.1 kB"``."""
    return f"{number / 1e3:,.1f} kB"


@exercise("autograd.saved")
def count_saved(answer: Mapping[str, int], fn: Function, inputs: Sequence[Any]) -> str:
    """How many tensors ``fn`` saves for backward that are neither inputs nor views of them, and their bytes.
    The record of ``fn`` is asked."""
    record = trained(fn, *inputs)
    new = [tensor for tensor in saved(record) if tensor.new]
    truth = {"tensors": len(new), "bytes": new_bytes(record)}
    whole_numbers(answer, truth)
    if answer["tensors"] != truth["tensors"]:
        more = "fewer" if answer["tensors"] > truth["tensors"] else "more"
        raise WrongAnswerError(
            f"It is {more}. Go through the derivatives: which value does each need, and which of these can "
            "backward get from another by a pointwise operation? Inputs do not count."
        )
    if answer["bytes"] != truth["bytes"]:
        raise WrongAnswerError(
            f"The number of tensors is right, their size is not: {answer['bytes'] / truth['bytes']:.2f} of "
            "what is saved. A float32 has 4 bytes; which shape has each?"
        )
    named = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in new)
    again = ", ".join(recomputed(record)) or "nothing"
    return f"saved, beside inputs: {named}, {kilobytes(truth['bytes'])}. Done again in backward: {again}."


@exercise("autograd.products")
def count_products(
    answer: Mapping[str, int],
    fn: Function,
    inputs: Sequence[torch.Tensor],
    cases: Mapping[str, Sequence[bool]],
) -> str:
    """How many matrix products the backward graph of ``fn`` has in each case. A case says for each input
    whether it requires a gradient; ``fn`` is compiled for it, and the products are counted."""
    truth = {}
    for name, wanted in cases.items():
        given = [t.detach().requires_grad_(flag) for t, flag in zip(inputs, wanted, strict=True)]
        truth[name] = products(trained(fn, *given).graph("g0.bw"))
    whole_numbers(answer, truth)
    for name, number in truth.items():
        if answer[name] != number:
            more = "fewer" if answer[name] > number else "more"
            raise WrongAnswerError(
                f"{name!r}: backward has {more} products. A product a @ b has two gradients, each a product; "
                "which of them does anybody ask for, also on the way to another?"
            )
    return f"matrix products in backward: {truth}. A gradient that nobody needs is not in the graph."


@exercise("autograd.recomputed")
def which_recomputed(answer: Collection[str], fn: Function, inputs: Sequence[Any]) -> str:
    """Names of the operations of forward that backward computes again: all of them, and no other."""
    if not isinstance(answer, set | frozenset | list | tuple) or not all(isinstance(n, str) for n in answer):
        raise WrongAnswerError('I want a set of names, for example {"mm", "cos"}.')
    record = trained(fn, *inputs)
    truth = set(recomputed(record))
    forward = {node.name for node in computing(record.graph("g0.fw"))}
    if unknown := set(answer) - forward:
        raise WrongAnswerError(
            f"Forward has no operation {sorted(unknown)[0]!r}. It has: {', '.join(sorted(forward))}."
        )
    if set(answer) != truth:
        many, few = len(set(answer) - truth), len(truth - set(answer))
        raise WrongAnswerError(
            f"{many} of yours {'is' if many == 1 else 'are'} not computed again, and {few} more "
            f"{'is' if few == 1 else 'are'}. Two questions for each: does backward need its value at all, "
            "and is it cheap to get from something that is saved?"
        )
    kept = [f"{tensor.name} ({kilobytes(tensor.bytes)})" for tensor in saved(record)]
    return f"backward receives {', '.join(kept)} and gets the rest from these by pointwise operations."


def _gradients(fn: Function, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The result and the gradients of a weighted sum of it (None where there is none, as zeros)."""
    given = [t.detach().clone().requires_grad_() for t in inputs]
    out = tensor(called(fn, "Your function", *given), "Your function")
    weights = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
    if not out.requires_grad:
        raise WrongAnswerError("The result has no gradient at all.")
    found = torch.autograd.grad((out * weights).sum(), given, allow_unused=True)
    gradients = (torch.zeros_like(t) if g is None else g for t, g in zip(given, found, strict=True))
    return (out.detach(), *gradients)


@exercise("autograd.fewer")
def fewer(answer: Function, original: Function, inputs: Sequence[torch.Tensor]) -> str:
    """A function with the result and the gradients of ``original`` that saves at most a tenth of its bytes
    for backward, inputs not counted, and does no more matrix products. Both are compiled, and their records
    compared."""
    function(answer)
    names = ["result", *(f"gradient of argument {place + 1}" for place in range(len(inputs)))]
    for name, got, wanted in zip(
        names, _gradients(answer, inputs), _gradients(original, inputs), strict=True
    ):
        like(got, wanted, "Your function")
        if not float((got - wanted).norm()) <= 1e-3 * float(wanted.norm()):
            raise WrongAnswerError(f"The {name} is not the original's.")
    old, new = trained(original, *inputs), trained(answer, *inputs)
    before, after = new_bytes(old), new_bytes(new)
    if after * 10 > before:
        raise WrongAnswerError(
            f"Result and gradients are right, and {kilobytes(after)} are saved of the original's "
            f"{kilobytes(before)}. At most a tenth is wanted. Which intermediate is the large one?"
        )
    done = [sum(products(record.graph(f"g0.{part}")) for part in ("fw", "bw")) for record in (old, new)]
    if done[1] > done[0]:
        raise WrongAnswerError(
            f"Only {kilobytes(after)} are saved, but {done[1]} matrix products are done in place of "
            f"{done[0]}: you have bought memory with time. There is a way that costs neither."
        )
    return (
        f"{kilobytes(after)} saved in place of {kilobytes(before)}, with {done[1]} matrix products in all "
        f"(it was {done[0]}). No compiler may do this by itself: it changes the rounding, and with other "
        "shapes it is slower."
    )


@exercise("autograd.writes")
def writes(answer: Mapping[str, int], fn: Function, inputs: Sequence[torch.Tensor]) -> str:
    """How many operations change a tensor in the FX graph of ``fn``, and how many in its ATen graph."""
    record = record_of(fn, *(t.clone() for t in inputs))
    truth = {"fx": _in_place(record.graph("g0.fx")), "aten": _in_place(record.graph("g0.fw"))}
    whole_numbers(answer, truth)
    if answer["fx"] != truth["fx"]:
        raise WrongAnswerError(
            "'fx' is not right: count the operations in the source that change a tensor. Their names end in "
            "an underscore, or they assign to an index."
        )
    if answer["aten"] != truth["aten"]:
        more = "fewer" if answer["aten"] > truth["aten"] else "more"
        raise WrongAnswerError(
            f"'aten': it is {more}. Which of the changes can the caller see, once the function has returned? "
            "One write a tensor is enough, however often it was changed."
        )
    return (
        f"{truth['fx']} writes in the FX graph, {truth['aten']} in the ATen graph, at its end, one for each "
        f"argument that was changed; all of it in {len(record.kernels)} kernels."
    )


def _in_place(graph: Graph) -> int:
    """Operations of a graph that change a tensor: ``Tensor.mul_``, ``aten.copy_.default``, an assignment."""
    return sum(bool(re.search(r"\.(\w+_|setitem)(\.|$)", node.op)) for node in graph.nodes)

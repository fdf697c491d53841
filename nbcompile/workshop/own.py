"""Exercises of notebook 16: a lowering, a fusion rule and a backend of the reader's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import nbcompile
from nbcompile.compiler.fuse.rules import fusion_rule
from nbcompile.compiler.lower.registry import Lowering, registry
from nbcompile.errors import LoweringError
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, like, number, record_of, sentence, why

RULE = "workshop-one-reduction"


@exercise("own.saved")
def saved(answer: Any, squareplus: Callable[..., Any]) -> str:
    """How many megabytes would be saved by the pairs that are refused because of the library call, in a
    program around ``squareplus`` while that has no lowering. Within 5% is right."""
    number(answer, "What they would save, in millions of bytes,")
    lowerings, target = registry().lowerings, torch.ops.workshop.squareplus.default
    known = lowerings.pop(target, None)  # the question is about the time before it had one
    try:
        record = record_of(
            lambda x: torch.exp(-squareplus(torch.sigmoid(x) * 3, 4.0)) + 1, torch.randn(2048, 512)
        )
    finally:
        lowerings.update({} if known is None else {target: known})
    walls = [item for item in record.decisions if item.code == "library-call"]
    total = sum(item.bytes_saved for item in walls) / 1e6
    if not math.isclose(answer, total, rel_tol=0.05):
        raise WrongAnswerError(
            "Another number: there is a refused pair on each side of the operator, and at each a whole "
            "tensor is both written and read."
        )
    return f"{len(walls)} pairs are refused, and together they would save {total:.1f} MB."


@exercise("own.lowering")
def lowering(lower: Callable[..., Any], peak_scale: Callable[..., Any]) -> str:
    """A lowering of ``peak_scale``. A program with it must compile to one kernel without a call, and agree
    with eager, for NaN and negative peaks too. The registry is put back afterwards."""
    function(lower, "lower_peak_scale(build, x)")
    target: Any = torch.ops.workshop.peak_scale.default
    nothing = []

    def asked(*args: Any) -> Any:
        made = lower(*args)
        if made is None:
            nothing.append(True)
            raise LoweringError("nothing was returned")
        return made

    asked.__module__ = __name__ + ".of_the_reader"
    lowerings = registry().lowerings
    known = lowerings.pop(target, None)
    lowerings[target] = Lowering(target, asked)
    x = torch.linspace(-9, 3, 48 * 40).reshape(48, 40).sin() * torch.arange(1, 49)[:, None]
    x[3] = -x[3].abs() - 1
    x[5, 7] = torch.nan
    try:
        compiled = nbcompile.compile(lambda x: peak_scale(x) * 2, options={"cache": False})
        result = compiled(x)
    except Exception as error:
        raise WrongAnswerError(f"It does not compile: {why(error)}") from error
    finally:
        lowerings.pop(target)
        lowerings.update({} if known is None else {target: known})
    if nothing:
        raise WrongAnswerError(
            "Your function returns nothing yet: return the view that build.pointwise makes."
        )
    like(result, x, "The compiled program")
    record = compiled.compilation
    if not compiled.ran_compiled:
        raise WrongAnswerError(f"It does not compile: {compiled.eager_reason}.")
    if any(node.kind in ("fallback", "library") for graph in record.graphs[1:] for node in graph.nodes):
        raise WrongAnswerError(
            "The operator is still called: say what each element is, with build's other moves."
        )
    differs = ~torch.isclose(result, peak_scale(x) * 2, rtol=1e-5, atol=1e-6, equal_nan=True)
    if differs.any():
        row, column = differs.nonzero()[0].tolist()
        raise WrongAnswerError(
            f"Element [{row}, {column}] is wrong: the largest absolute value of its row is "
            f"{float(x[row].abs().max()):.4g}, and it was divided by "
            f"{float(2 * x[row, column] / result[row, column]):.4g}."
        )
    if len(record.kernels) != 1:
        raise WrongAnswerError(
            f"Right, but in {len(record.kernels)} kernels: the row's result can stay with its row."
        )
    return f"right, NaN and negative peaks too, and {len(record.kernels[0].loops)} loops are one kernel."


@exercise("own.rule")
def rule(one_reduction: Callable[..., Any]) -> str:
    """A fusion rule that keeps two reductions out of one kernel. Three programs compiled with it must
    be right, no kernel of theirs may have two reductions, and the two with at most one must be a single
    kernel."""
    function(one_reduction, "one_reduction(candidate)")
    asked: list[Any] = []

    @fusion_rule(RULE)
    def judged(candidate: Any) -> str | None:
        asked.append(candidate)
        return sentence(one_reduction(candidate), "one_reduction")

    programs: dict[str, Callable[[Any], Any]] = {
        "softmax(x * 2)": lambda x: torch.softmax(x * 2, -1),
        "exp(x * 2) + 1": lambda x: torch.exp(x * 2) + 1,
        "sum(exp(x * 2))": lambda x: torch.exp(x * 2).sum(-1),
    }
    x, kernels = torch.randn(256, 256), {}
    for name, fn in programs.items():
        compiled = nbcompile.compile(fn, options={"rules": [RULE]})
        try:
            torch.testing.assert_close(compiled(x), fn(x))
        except Exception as error:
            raise WrongAnswerError(f"The compiler stopped: {why(error)}") from error
        if not compiled.ran_compiled:
            raise WrongAnswerError(f"The compiler stopped: {compiled.eager_reason}.")
        record = compiled.compilation
        reductions = {n.id for graph in record.graphs for n in graph.nodes if n.kind == "reduction"}
        kernels[name] = len(record.kernels)
        most = max(len(reductions.intersection(kernel.loops)) for kernel in record.kernels)
        if most > 1:
            raise WrongAnswerError(
                f"In {name} there is still a kernel of {most} reductions: look at the whole kernel, not only "
                "at the pair."
            )
    for name in list(programs)[1:]:
        if kernels[name] > 1:
            raise WrongAnswerError(
                f"{name} fell into {kernels[name]} kernels, and it has one reduction at most."
            )
    found = ", ".join(f"{name}: {count}" for name, count in kernels.items())
    return f"it was asked {len(asked)} times. Kernels of {found}."


@exercise("own.backend")
def backend(counting: Callable[..., Any]) -> str:
    """A function of a counter that returns a backend. What this compiles must give eager's result and add the
    graph's operators to ``counts["operators"]`` in each of three calls."""

    def program(x: Any) -> Any:
        return torch.sin(x) * 2 + torch.cos(x)

    function(counting, "counting(counts)")
    counts: Counter[str] = Counter()
    made = called(counting, "counting", counts)
    if not callable(made):
        raise WrongAnswerError(
            "counting(counts) has to return the backend, a function of a graph and inputs."
        )
    returned = []

    def watched(gm: Any, inputs: Any) -> Any:
        run = made(gm, inputs)
        returned.append(callable(run))
        return run if callable(run) else gm.forward

    x = torch.randn(64)
    compiled = nbcompile.compile(program, backend=watched)
    seen: list[int] = []
    for _ in range(3):
        try:
            result = compiled(x)
        except Exception as error:
            raise WrongAnswerError(f"Call {len(seen) + 1} of what is compiled stops: {why(error)}") from error
        seen.append(counts["operators"])
    if not all(returned):
        raise WrongAnswerError("Your backend returns nothing that can be called yet.")
    (graph,) = compiled.compilation.graphs
    operators = sum(node.kind == "compute" for node in graph.nodes)
    like(result, x, "The compiled program")
    if not torch.allclose(result, program(x)):
        raise WrongAnswerError("The results have changed: what is returned has to run the graph.")
    if seen[2] == seen[0]:
        raise WrongAnswerError(
            f"After one call and after three it says {seen[0]}: what runs only once, and what each time?"
        )
    if seen != [operators, 2 * operators, 3 * operators]:
        raise WrongAnswerError(
            f"Three calls counted {seen}, and the graph has {operators} operators: which nodes call one?"
        )
    return f"{operators} operators a call, {seen[2]} after three calls."

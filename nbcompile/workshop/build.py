"""Exercises of notebook 17, in which the reader's own compiler is what the judges ask.

It comes as a mapping: ``backend`` for torch.compile, the ``log`` of compiled graphs, the tables of
``lowerings`` and fusion ``rules``, ``graph`` which compiles one ATen graph, and the ``table`` of
decompositions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nbcompile.api import fresh_identity
from nbcompile.bench.measure.timing import quiet
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, like, returned, sentence, shown, why

Compiler = Mapping[str, Any]
FASTER = 1.3


def _run(compiler: Compiler, fn: Callable[..., Any], *inputs: Any) -> tuple[Any, list[Any]]:
    """The result of a function compiled anew by the reader's compiler, and what is in its log of that."""
    before = len(compiler["log"])
    try:
        result = torch.compile(fresh_identity(fn), backend=compiler["backend"], dynamic=False)(*inputs)
    except Exception as error:
        raise WrongAnswerError(f"The compiler stopped: {why(error)}") from error
    return result, compiler["log"][before:]


@exercise("build.kernels")
def kernels(answer: Any, compiler: Compiler) -> str:
    """The pair (kernels, calls into ATen) of the forward and of the backward pass of a GELU MLP. The reader's
    compiler compiles both, and its log is asked."""
    keyed(answer, ("forward", "backward"), "a pair (kernels, calls)")
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    before = len(compiler["log"])
    result, _ = _run(compiler, lambda x: mlp(x), torch.randn(32, 64, requires_grad=True))
    result.sum().backward()
    made = dict(zip(("forward", "backward"), compiler["log"][before:], strict=True))
    for part, graph in made.items():
        given = answer[part]
        if given is ...:
            raise WrongAnswerError(f"The {part} pass is still to be answered: two numbers, (kernels, calls).")
        if not (isinstance(given, tuple) and len(given) == 2 and all(type(each) is int for each in given)):
            raise WrongAnswerError(f"Give the {part} pass as a pair of numbers, (kernels, calls).")
        if given[0] != len(graph.kernels):
            raise WrongAnswerError(
                f"Count the kernels of the {part} pass again: each pointwise loop becomes one or joins one; "
                "those that follow each other over the same points join."
            )
        if given[1] != len(graph.calls):
            raise WrongAnswerError(
                f"Count the calls of the {part} pass again: products, and sums that do not go along rows."
            )
    loops = {part: len(graph.loops) for part, graph in made.items()}
    names = ", ".join(str(call.target).removesuffix(".default") for call in made["backward"].calls)
    return f"{loops['forward']} and {loops['backward']} loops became one kernel each; backward calls {names}."


@exercise("build.operator")
def operator(lowering: Callable[..., Any], compiler: Compiler) -> str:
    """A lowering of ``aten.sigmoid``. With it, neither sigmoid nor ``silu(x) * 2`` has a call left, and
    sigmoid agrees with eager, at large numbers, infinities and NaN too. The compiler's table is put back
    afterwards."""
    function(lowering, "sigmoid(b, x)")
    target = torch.ops.aten.sigmoid.default
    table, nothing = compiler["lowerings"], []

    def asked(*args: Any, **kwargs: Any) -> Any:
        made = lowering(*args, **kwargs)
        if made is None:
            nothing.append(True)
        return NotImplemented if made is None else made

    known = table.pop(target, None)
    table[target] = asked
    try:
        x = torch.cat(
            [torch.linspace(-9, 9, 58), torch.tensor([100, -100, torch.inf, -torch.inf, torch.nan, 0])]
        )
        x = x.repeat(8, 1)
        sigmoid, graphs = _run(compiler, lambda x: torch.sigmoid(x), x)
        twice, of_silu = _run(compiler, lambda x: torch.nn.functional.silu(x) * 2, x)
    finally:
        table.pop(target)
        table.update({} if known is None else {target: known})
    if nothing:
        raise WrongAnswerError("Your function returns nothing yet: return the view that b.pointwise makes.")
    if graphs[0].calls or of_silu[0].calls:
        raise WrongAnswerError("The operator is still a call into ATen: a lowering has to return a view.")
    like(sigmoid, x, "The compiled sigmoid")
    differs = ~torch.isclose(sigmoid, torch.sigmoid(x), rtol=1e-5, atol=1e-7, equal_nan=True)
    if differs.any():
        place = int(differs[0].nonzero()[0])
        raise WrongAnswerError(
            f"At x = {float(x[0, place]):g} it gives {float(sigmoid[0, place]):g}, and the sigmoid is "
            f"{float(torch.sigmoid(x)[0, place]):g}."
        )
    if not torch.allclose(twice, torch.nn.functional.silu(x) * 2, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise WrongAnswerError("Sigmoid by itself is right, and silu(x) * 2 with it is not.")
    loops, made = len(of_silu[0].loops), len(of_silu[0].kernels)
    return f"it holds at all edges, and the {loops} loops of silu(x) * 2 are {made} kernel with no call left."


@exercise("build.rule")
def rule(few_rows: Callable[..., Any], compiler: Compiler) -> str:
    """A fusion rule. With it, softmax over 2 long rows is more than one kernel; softmax over many rows or
    over short ones and a chain without a reduction stay one. Each result is compared with eager's."""
    function(few_rows, "few_rows(kernel)")

    def softmax(x: Any) -> Any:
        return torch.softmax(x, -1)

    def chain(x: Any) -> Any:
        return (x * 2 + 1).exp()

    cases = [
        (
            softmax,
            (2, 1 << 16),
            True,
            "softmax over 2 rows of 65,536 is still one kernel: the rule lets it pass.",
        ),
        (
            softmax,
            (512, 1 << 12),
            False,
            "softmax over 512 rows fell apart: there are rows enough to share out.",
        ),
        (
            softmax,
            (2, 64),
            False,
            "softmax over 2 rows of 64 fell apart: that is too little work to share out.",
        ),
        (chain, (2, 1 << 16), False, "a pointwise chain fell apart: without a reduction there are no rows."),
    ]
    rules, found = compiler["rules"], []
    for fn, shape, apart, otherwise in cases:
        x = torch.randn(shape)
        rules.append(lambda kernel: sentence(few_rows(kernel), "few_rows"))
        try:
            result, graphs = _run(compiler, fn, x)
        finally:
            rules.pop()
        if not torch.allclose(result, fn(x), rtol=1e-4, atol=1e-6):
            raise WrongAnswerError(f"With this rule the result for {shape} is wrong.")
        if (len(graphs[0].kernels) > 1) != apart:
            raise WrongAnswerError(otherwise[0].upper() + otherwise[1:])
        found.append(len(graphs[0].kernels))
    return f"{found[0]} kernels for 2 long rows, and one each where there are many rows, short ones, or none."


@exercise("build.vector")
def vector(pragma: Callable[..., Any], compiler: Compiler) -> str:
    """A function from the reductions of a walk to a line of C before its loop. Softmax compiled with these
    lines must be right, and ``FASTER`` times as fast as without them, on one thread."""
    from torch._dynamo.backends.common import aot_autograd

    function(pragma, "simd_pragma(reductions)")

    def line_of(reductions: Any) -> str:
        line = returned(called(pragma, "simd_pragma", reductions), "simd_pragma")
        if not isinstance(line, str):
            raise WrongAnswerError(f"simd_pragma is to return a line of text, and returns {shown(line)}.")
        return line

    line_of([("amax", "max"), ("sum_1", "sum")])
    x = torch.randn(2048, 1024)
    calls = []
    with quiet(threads=1):  # the instructions, without how well a busy machine shares out the rows
        for hint in (lambda reductions: "", line_of):

            def graph(gm: Any, inputs: Any, hint: Any = hint) -> Any:
                return compiler["graph"](gm, inputs, hint)

            def backend(gm: Any, inputs: Any, graph: Any = graph) -> Any:
                return aot_autograd(fw_compiler=graph, decompositions=compiler["table"])(gm, inputs)

            try:
                call, _ = _compiled(backend, x)
            except Exception as error:
                raise WrongAnswerError(f"It does not compile: {why(error)}") from error
            calls.append(call)
        if not torch.allclose(calls[1](x), torch.softmax(x, -1), rtol=1e-4, atol=1e-7):
            raise WrongAnswerError(
                "Softmax is wrong with this pragma: does it say of each variable how it combines?"
            )
        plain, hinted = (min(times) for times in zip(*(_times(calls, x) for _ in range(25)), strict=True))
    if plain < FASTER * hinted:
        raise WrongAnswerError(
            f"Right, but not faster: {plain * 1e3:.2f} ms without, {hinted * 1e3:.2f} ms with it. Does the "
            "line say which variables are reductions?"
        )
    times = f"{hinted * 1e3:.2f} ms instead of {plain * 1e3:.2f}"
    return f"softmax takes {times}: {plain / hinted:.1f} times as fast."


def _compiled(backend: Any, x: Any) -> tuple[Callable[..., Any], Any]:
    """Softmax by a backend, and its first result."""

    def softmax(x: Any) -> Any:
        return torch.softmax(x, -1)

    call = torch.compile(fresh_identity(softmax), backend=backend, dynamic=False)
    return call, call(x)


def _times(calls: list[Callable[..., Any]], x: Any) -> list[float]:
    """Seconds of one call of each, in turns."""
    found = []
    for call in calls:
        start = time.perf_counter()
        call(x)
        found.append(time.perf_counter() - start)
    return found

"""Checkers of notebook 13: when compiling pays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch

import nbcompile
from nbcompile.bench.measure.timing import break_even
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.units import seconds_text
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, captured, function, number, whole_number, yes_or_no

WORTH = 2 / 3
"""Compiling is worth it where all calls and the compile take at most this part of eager's time."""


def chain(x: torch.Tensor) -> torch.Tensor:
    """Eight pointwise operations: eager mode walks over memory eight times."""
    return torch.sin(x) * torch.exp(-x * x) + torch.tanh(x) * 0.5


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One large matrix product, and a little after it."""
    return torch.relu(x @ w)


def nudge(x: torch.Tensor) -> torch.Tensor:
    """One operation: of a tiny tensor next to no work."""
    return x + 1


@dataclass(frozen=True)
class Workload:
    """A function, what it is called with, and how often in the life of its process."""

    fn: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    calls: int


def workloads() -> dict[str, Workload]:
    """The four of the exercise."""
    torch.manual_seed(0)
    large = torch.randn(1 << 20)
    square = torch.randn(768, 768)
    return {
        "chain in a server": Workload(chain, (large,), 100_000),
        "chain in a script": Workload(chain, (large,), 3),
        "product": Workload(product, (square, square), 1_000),
        "tiny": Workload(nudge, (torch.randn(16),), 100_000),
    }


def figures(record: Compilation) -> tuple[float, float, float]:
    """Seconds: eager's call, the compiled call, the compile with empty caches. Of calls the shortest: what
    other programs take of the machine meanwhile is no part of it."""
    eager, ours = (_shortest(item) for item in (record.measurements[0], record.measurements[-1]))
    return eager, ours, max(0.0, (record.measurements[-1].cold or 0.0) - ours)


def _shortest(item: Measurement) -> float:
    if not item.steady:
        raise WrongAnswerError(f"{item.contestant} could not be measured: {item.reason}")
    return min(item.steady)


@exercise("worth.break_even")
def break_even_of(answer: float, record: Compilation) -> str:
    """``record``: of the calls that are to earn the compile. Eager's time for large tensors depends on what
    the process has allocated before, so the calls are the reader's own; the compile is measured again."""
    if number(answer, "The number of calls") <= 0:
        raise WrongAnswerError("The answer is a number of calls.")
    eager, ours, _ = figures(record)
    small = (torch.randn(1 << 14),)
    compiling = min(
        figures(nbcompile.compare(chain, small, ("eager", "nbcompile"), budget=0.1, accuracy=False))[2]
        for _ in range(2)
    )
    expected = break_even(compiling, eager, ours) or float("inf")
    if not 0.5 <= answer / expected <= 2:
        far = "many" if answer > expected else "few"
        raise WrongAnswerError(
            f"You say {answer:,.0f}, over twice too {far}. "
            "Which of the three numbers in the formula depend on the size, and how?"
        )
    return (
        f"{expected:,.0f} calls, with a compile that took {seconds_text(compiling)} just now; "
        f"a call is {seconds_text(eager - ours)} shorter."
    )


@exercise("worth.choose")
def choose(answer: Mapping[str, bool]) -> str:
    """Of each workload, whether compiling is worth it, in the sense of ``WORTH``. Calls and compiles are
    measured, once in a process."""
    names = workloads()
    yes_or_no(answer, names)
    wrong = {}
    told = []
    for name, (eager, compiled) in _totals().items():
        told.append(f"{name}: {seconds_text(eager)} eager, {seconds_text(compiled)} compiled")
        if answer[name] != (compiled <= WORTH * eager):
            wrong[name] = compiled / eager
    if wrong:
        name, ratio = next(iter(wrong.items()))
        raise WrongAnswerError(
            f"{len(names) - len(wrong)} of {len(names)} are right. Look at {name!r}: with the compile, all "
            f"its calls together take {ratio:.2g} times as long as eager. What does it spend its time on?"
        )
    return f"all calls together, {'; '.join(told)}."


@cache
def _totals() -> dict[str, tuple[float, float]]:
    """Seconds of all calls of each workload, eager and compiled, the compile included."""
    found = {}
    for name, work in workloads().items():
        record = nbcompile.compare(work.fn, work.inputs, ("eager", "nbcompile"), budget=0.5, accuracy=False)
        eager, ours, compiling = figures(record)
        found[name] = work.calls * eager, compiling + work.calls * ours
    return found


def report(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The function of the exercise that looks for a bottleneck."""
    h = torch.tanh(x @ w)
    p = torch.softmax(h * 4, -1)
    ordered = torch.sort(p, -1).values
    below = torch.cumsum(ordered, -1)
    return (below < 0.9).sum(-1)


def report_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """What :func:`report` is called with, the same each time. Seeds torch's generator."""
    torch.manual_seed(0)
    return torch.randn(512, 64), torch.randn(64, 2048)


def time_of_calls(record: Compilation) -> dict[str, float]:
    """Seconds of each kernel and library call of the record, by name, the longest first."""
    found = {node.name: node.seconds for node in record.fused_nodes if node.seconds is not None}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


@exercise("worth.bottleneck")
def bottleneck(answer: str) -> str:
    """The operation in which the compiled :func:`report` spends most time. Its kernels and library calls are
    measured, and the name of the longest must have the answer in it."""
    operations = ("matmul", "tanh", "softmax", "sort", "cumsum", "sum")
    if not isinstance(answer, str) or answer not in operations:
        raise WrongAnswerError(f"Name one of {', '.join(operations)}.")
    record = nbcompile.compare(report, report_inputs(), ("eager", "nbcompile"), cold=False, budget=1.0)
    times = time_of_calls(record)
    longest = next(iter(times))
    names = {"matmul": "mm"}.get(answer, answer)
    if names not in re.split(r"[._]", longest):
        raise WrongAnswerError(
            f"It is not {answer}. Count no operations: measure. `compare` writes the time of each kernel and "
            "library call into the nodes of the fused graph."
        )
    share = times[longest] / sum(times.values())
    eager, ours, _ = figures(record)
    return (
        f"{longest} takes {share:.0%} of the compiled call. It is a library call in both, which is why the "
        f"whole function is only {eager / ours:.2f} times as fast."
    )


MOST_PADDED = 100
"""Times a length beyond which a size is not tried: it might be more than there is memory."""


@exercise("worth.lengths")
def lengths(size_for: Callable[[int], int]) -> str:
    """A function from a length to the size that it is padded to. Twelve lengths may cost at most four
    compiles with ``dynamic=False``, and none may be padded to more than twice itself."""
    function(size_for, "size_for(length)")
    asked = [16, 19, 25, 31, 40, 47, 58, 66, 81, 97, 110, 128]

    def score(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).square().sum(-1)

    compiled = nbcompile.compile(score, dynamic=False)
    waste = 0.0
    for length in asked:
        size = whole_number(called(size_for, "size_for", length), f"What size_for({length}) returns")
        if size < length:
            raise WrongAnswerError(f"{length} numbers do not fit into {size}.")
        if size > MOST_PADDED * length:
            raise WrongAnswerError(f"{length} numbers padded to {size}: work, and memory, thrown away.")
        waste = max(waste, size / length)
        compiled(torch.full((4, size), -torch.inf).index_fill_(1, torch.arange(length), 0.0))
    graphs = len(captured(compiled.compilation))
    if graphs > 4:
        late = "" if compiled.ran_compiled else " At the limit Dynamo stopped, and further sizes ran eagerly."
        raise WrongAnswerError(
            f"{len(asked)} lengths took {graphs} compiles.{late} Several lengths must share one size."
        )
    if waste > 2:
        raise WrongAnswerError(
            f"Some length is padded to {waste:.1f} times itself: work thrown away. At most twice, please."
        )
    return (
        f"{len(asked)} lengths, {graphs} compiles, and none is padded to more than {waste:.2f} times itself."
    )

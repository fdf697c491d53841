"""Notebook 02, why eager is slow: its clock, and the judges of its exercises."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.units import seconds_text
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, number, one_of, record_of, returned, traffic

Call = Callable[[], object]
Bound = Literal["overhead", "memory", "arithmetic"]

_SAMPLE = 2e-4  # seconds: far above the clock's own cost
_LEAST = 7


def in_turns(calls: Mapping[str, Call], *, budget: float = 0.2) -> dict[str, float]:
    """Median seconds of one call of each, in turns, for about ``budget`` seconds each.

    With a GPU here, by the wall clock, which stops when the GPU is done. Else, while torch is held to one
    thread, by the time that this thread has run, which leaves out what else the machine does.
    """
    one_thread = not torch.cuda.is_available() and torch.get_num_threads() == 1
    clock = time.thread_time if one_thread else time.perf_counter
    with quiet():
        samples = interleaved(
            calls, budget=budget * len(calls), min_rounds=_LEAST, sample_seconds=_SAMPLE, clock=clock
        )
    return {name: statistics.median(values) for name, values in samples.items()}


def seconds(call: Call, *, budget: float = 0.2) -> float:
    """Median seconds of one call: :func:`in_turns` with one contestant."""
    return in_turns({"": call}, budget=budget)[""]


def device() -> str:
    """Where the notebook's tensors are: on a GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def bound_of(fn: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> tuple[Bound, float, float]:
    """What bounds one call of one operation, with its measured seconds and those of its higher ceiling.

    ``overhead``: it takes three times what its bytes and its arithmetic explain, or more."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = fn(*inputs)
    tensors = (*inputs, result)
    moved = sum(tensor.nbytes for tensor in tensors)
    operations = counter.get_total_flops() or max(tensor.numel() for tensor in tensors)
    bandwidth, rate = _ceilings(result.device)
    by_memory, by_arithmetic = moved / bandwidth, operations / rate
    limit = max(by_memory, by_arithmetic)
    took = seconds(lambda: fn(*inputs))
    if took > 3 * limit and took < 10 * _floor(result.device):
        return "overhead", took, limit
    return ("memory" if by_memory >= by_arithmetic else "arithmetic"), took, limit


def _floor(place: torch.device) -> float:
    small = torch.zeros(16, device=place)
    return seconds(lambda: small + 1, budget=0.05)


def _ceilings(place: torch.device) -> tuple[float, float]:
    """Bytes and float32 operations a second, by this module's clock."""
    big = place.type == "cuda"
    source = torch.ones(2**28 if big else 2**22, device=place)
    target = torch.empty_like(source)
    square = torch.randn(4096 if big else 768, 4096 if big else 768, device=place)
    out = torch.empty_like(square)
    took = in_turns(
        {"copy": lambda: target.copy_(source), "mm": lambda: torch.mm(square, square, out=out)}, budget=0.1
    )
    return 2 * source.nbytes / took["copy"], 2 * len(square) ** 3 / took["mm"]


def _within(said: float, measured: float, factor: float) -> bool:
    return measured / factor <= said <= measured * factor


@exercise("eager.overhead")
def overhead(answer: float) -> str:
    """Seconds of 400 operations on 16 elements each."""
    said = number(answer, "The time in seconds")
    x = torch.full((16,), 0.5, device=device())

    def small() -> torch.Tensor:
        y = x
        for _ in range(200):
            y = y * 0.5
            y = y + 0.25
        return y

    measured = seconds(small)
    if not _within(said, measured, 2):
        size = "short" if said < measured else "long"
        raise WrongAnswerError(
            f"{seconds_text(said)} is too {size}, by more than a factor of 2. What does one operation cost "
            "at the left end of the chart, and is your answer in seconds?"
        )
    return (
        f"400 operations took {seconds_text(measured)}, {measured / 400 * 1e6:.1f} µs each. The 16 elements "
        "themselves do not show."
    )


@exercise("eager.intensity")
def intensity(answer: Callable[[int, int, int], Any]) -> str:
    """Operations a byte of an m × k by k × n product in float32."""
    from torch.utils.flop_counter import FlopCounterMode

    function(answer, "intensity(m, k, n)")
    told = []
    for m, k, n in [(64, 64, 64), (1, 256, 512), *[tuple(random.choices(range(2, 200), k=3)) for _ in "ab"]]:
        a, b = torch.ones(m, k), torch.ones(k, n)
        with FlopCounterMode(display=False) as counter:
            c = a @ b
        truth = counter.get_total_flops() / (a.nbytes + b.nbytes + c.nbytes)
        said = number(returned(called(answer, "intensity", m, k, n), "intensity"), "What intensity returns")
        told.append(f"{truth:.3g}")
        if not _within(said, truth, 1.001):
            raise WrongAnswerError(
                f"For m={m}, k={k}, n={n} you have {said:.3g}. Torch's own counter of operations, over the "
                f"bytes of the three matrices, gives another number. {_slip(said / truth)}"
            )
    return (
        f"a product of two 64 × 64 matrices has {told[0]} operations a byte: each element is used 64 times. "
        f"One row times a matrix has {told[1]}: each element of the matrix is used once."
    )


def _slip(ratio: float) -> str:
    if _within(ratio, 0.5, 1.01):
        return "You have half: each term of a sum is a multiplication and an addition."
    if _within(ratio, 4, 1.01):
        return "You have four times as much: an element is not a byte."
    if ratio > 1:
        return "You have more: is the result written to memory too?"
    return "You have less: count one multiplication and one addition for each term of each sum."


@exercise("eager.bound")
def bound(
    answer: Mapping[str, str], programs: Mapping[str, tuple[Callable[..., Any], tuple[Any, ...]]]
) -> str:
    """Which of the three bounds each program."""
    one_of(answer, programs, ("overhead", "memory", "arithmetic"))
    told = []
    for name, (fn, inputs) in programs.items():
        truth, took, limit = bound_of(fn, inputs)
        if answer[name] != truth:
            raise WrongAnswerError(
                f"{name} is bound by something else. It takes {took * 1e6:,.1f} µs, and the ceiling that it "
                f"meets first would let it take {limit * 1e6:,.1f} µs. Which is that, and are the two close?"
            )
        told.append(f"{name} {took * 1e6:,.0f} µs of which its ceiling explains {limit * 1e6:,.0f}")
    return "; ".join(told) + "."


def scaled(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The program of the exercise on bytes."""
    y = x * scale
    y = y + bias
    y = torch.relu(y)
    return y.sum(-1)


@exercise("eager.bytes")
def moved(answer: Mapping[str, float]) -> str:
    """Bytes that ``scaled`` moves, one kernel an operation, and fused."""
    keyed(answer, ("eager", "fused"), "a number of bytes")
    x, scale, bias = torch.randn(2048, 1024), torch.randn(1024), torch.randn(1024)
    truth = {
        name: traffic(record_of(scaled, x, scale, bias, fuse=fuse))
        for name, fuse in (("eager", False), ("fused", True))
    }
    hints = {
        "eager": "Go line by line: what does this line read, what does it write? The sum writes little.",
        "fused": "What has to be read from memory at least once, and what has to be there at the end?",
    }
    for name, measured in truth.items():
        said = number(answer[name], f"What is moved for {name!r}")
        if not _within(said, measured, 1.02):
            more = "more" if said > measured else "less"
            raise WrongAnswerError(f"{name}: {said / 1e6:,.1f} MB is {more} than is moved. {hints[name]}")
    return (
        f"{truth['eager'] / 1e6:.1f} MB one operation at a time, {truth['fused'] / 1e6:.1f} MB fused: "
        f"{truth['eager'] / truth['fused']:.1f} times less."
    )


def pointwise_chain(ops: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """``ops`` pointwise operations, each on the result of the one before."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        for step in range(ops):
            x = x * 0.9 if step % 2 == 0 else x + 0.1
        return x

    return chain


@exercise("eager.predict")
def predict(answer: Callable[[int, int, float], Any]) -> str:
    """Seconds of a chain of pointwise operations, eager and fused."""
    import nbcompile

    function(answer, "predict(ops, n, bandwidth)")
    told = []
    for ops in (4, 8):
        place = device()
        x = torch.rand(2**26 if place == "cuda" else 2**21, device=place)
        chain = pointwise_chain(ops)
        compiled = nbcompile.compile(chain)

        def measured(x: torch.Tensor = x, chain: Any = chain, compiled: Any = compiled) -> dict[str, float]:
            return in_turns({"one": lambda: x * 2, "eager": lambda: chain(x), "fused": lambda: compiled(x)})

        for attempt in range(3):  # a machine that is busy with something else may need another look
            times = measured()
            bandwidth = 2 * x.nbytes / times["one"]
            said = returned(called(answer, "predict", ops, x.numel(), bandwidth), "predict")
            if not isinstance(said, Mapping) or set(said) != {"eager", "fused"}:
                raise WrongAnswerError("predict returns a dict with the keys 'eager' and 'fused'.")
            wrong = [n for n in ("eager", "fused") if not _within(number(said[n], n), times[n], 3)]
            if not wrong:
                break
            if attempt == 2:
                name = wrong[0]
                raise WrongAnswerError(
                    f"{ops} operations on {x.numel():,} elements, {name}: you predict "
                    f"{seconds_text(said[name])}, and it took {seconds_text(times[name])}. How often does "
                    "each element cross the memory bus, and how many bytes is it?"
                )
        told.append(
            f"{ops} operations: eager {seconds_text(said['eager'])} predicted and "
            f"{seconds_text(times['eager'])} measured, fused {seconds_text(said['fused'])} and "
            f"{seconds_text(times['fused'])}"
        )
    return "; ".join(told) + "."

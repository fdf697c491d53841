"""Notebook 10: what the modes of torch.compile switch on, what that asks for, and when it pays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nbcompile
from nbcompile.errors import OptionError
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, equal, function, number, returned, shown, whole_numbers

FIGURES: dict[str, dict[str, tuple[float, float]]] = {
    "softmax bf16 8k×8k": {
        "eager": (332.3, 0.0),
        "nbcompile:default": (70.0, 0.23),
        "nbcompile:reduce-overhead": (68.0, 0.10),
        "nbcompile:max-autotune": (68.2, 0.11),
        "inductor:default": (169.7, 1.33),
        "inductor:reduce-overhead": (297.7, 0.77),
        "inductor:max-autotune": (269.0, 4.73),
        "inductor:max-autotune-no-cudagraphs": (152.0, 5.54),
    },
    "8 × (linear, layer_norm, gelu) f32 32×128": {
        "eager": (442.4, 0.0),
        "nbcompile:default": (299.0, 0.50),
        "nbcompile:reduce-overhead": (129.4, 0.44),
        "nbcompile:max-autotune": (104.7, 0.36),
        "inductor:default": (336.2, 2.70),
        "inductor:reduce-overhead": (170.3, 1.97),
        "inductor:max-autotune": (87.7, 7.87),
        "inductor:max-autotune-no-cudagraphs": (219.7, 18.30),
    },
    "TransformerLayer bf16 8×512×768, forward": {
        "eager": (366.3, 0.0),
        "nbcompile:default": (246.9, 0.73),
        "nbcompile:reduce-overhead": (221.8, 0.44),
        "nbcompile:max-autotune": (254.4, 0.45),
        "inductor:default": (294.5, 2.58),
        "inductor:reduce-overhead": (210.4, 1.43),
        "inductor:max-autotune": (205.1, 42.97),
        "inductor:max-autotune-no-cudagraphs": (303.9, 51.72),
    },
}
"""Of docs/gpu-backends.md (one H200, torch 2.11, 2026-11-21), by program and contestant: microseconds of a
call, and seconds of a cold compile. A test holds them to that file."""


def launches(fn: Callable[..., Any], *inputs: Any, chip: str = "cuda:90") -> dict[str, int]:
    """What one call of ``fn`` would launch on a GPU: eagerly (operators that are no views), and compiled by
    nbcompile (its kernels' functions and library calls). Runs on the CPU."""

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if not func.is_view:
                Counting.count += 1
            return func(*args, **(kwargs or {}))

    compiled = nbcompile.compile(fn, options={"target": chip})
    with torch.no_grad():
        compiled(*inputs)
        with Counting():  # type: ignore[no-untyped-call]
            fn(*inputs)
    record = compiled.compilation
    ours = sum(max(len(kernel.launches), 1) for kernel in record.kernels)
    return {"eager": Counting.count, "default": ours + len(record.library_calls)}


@exercise("modes.option")
def option(answer: Mapping[str, Any]) -> str:
    """The options of Inductor that ``reduce-overhead`` sets, with their values: these and no other."""
    wanted = nbcompile.list_mode_options("reduce-overhead", "inductor")
    if not isinstance(answer, Mapping) or not all(isinstance(name, str) for name in answer):
        raise WrongAnswerError("The answer is a dict, as torch.compile's options= takes it.")
    known = nbcompile.list_options("inductor")
    try:
        known.check(answer)
    except OptionError as error:
        raise WrongAnswerError(str(error)) from error
    extra = [name for name in answer if name not in wanted]
    if extra:
        raise WrongAnswerError(f"{extra[0]} is an option of Inductor's, but reduce-overhead does not set it.")
    if dict(answer) != wanted or any(type(answer[name]) is not type(wanted[name]) for name in wanted):
        raise WrongAnswerError("reduce-overhead sets that to something else.")
    return f"that is the whole mode: of Inductor's {len(known)} options it sets {len(wanted)}."


@exercise("modes.launches")
def count(answer: Mapping[str, int], fn: Callable[..., Any], *inputs: Any) -> str:
    """How many launches one call of ``fn`` is eagerly, compiled, and replayed as a graph. The first two are
    what :func:`launches` counts."""
    whole_numbers(answer, ("eager", "default", "replayed"))
    found = {**launches(fn, *inputs), "replayed": 1}
    hints = {
        "eager": "Eagerly, each operator is a launch; one that only views its input is none.",
        "default": "Matrix products are library calls, and stay. Between two of them, fusion is at work.",
        "replayed": "A captured graph is handed to the driver whole.",
    }
    equal(answer, found, hints)
    return (
        f"{found['eager']} launches, {found['default']} after fusion, 1 with a graph: fusion makes launches "
        "fewer, a graph makes them cheap."
    )


@exercise("modes.replay")
def replay(answer: list[Any], story: Callable[[], list[Any]]) -> str:
    """The lists that ``story`` returns when it is run."""
    truth = story()
    if not isinstance(answer, list | tuple) or len(answer) != len(truth):
        raise WrongAnswerError(f"The answer is a list of {len(truth)} lists.")
    for place, (mine, true) in enumerate(zip(answer, truth, strict=True)):
        if mine is ...:
            raise WrongAnswerError("Each value of the answer is a list: write it in place of the dots.")
        if not isinstance(mine, list | tuple) or not all(type(each) in (int, float) for each in mine):
            raise WrongAnswerError(f"Number {place + 1} is to be a list of numbers, not {shown(mine)}.")
        if list(mine) != true:
            raise WrongAnswerError(
                f"Number {place + 1} is not {list(mine)}. Which memory does a replay read, which does it "
                "write, and who else looks at that memory when the list is made?"
            )
    return "all three names stand for one piece of memory, and what it holds was written by the last replay."


@exercise("modes.copy")
def copy(answer: float, rows: int, columns: int) -> str:
    """How many megabytes move when a bfloat16 matrix of this size is copied, to within about 5%."""
    held = torch.empty(rows, columns, dtype=torch.bfloat16, device="meta")
    moved = 2 * held.numel() * held.element_size() / 1e6
    number(answer, "The number of megabytes")
    if abs(answer - moved / 2) < 0.02 * moved:
        raise WrongAnswerError(
            f"{answer:.0f} MB is the size of the input. What does a copy do with each byte?"
        )
    if not 0.95 * moved < answer < 1.06 * moved:
        raise WrongAnswerError(
            f"Not {answer:g} MB: {rows} × {columns} elements of bfloat16, and every byte of them is moved."
        )
    program = FIGURES["softmax bf16 8k×8k"]
    extra = program["inductor:reduce-overhead"][0] - program["inductor:default"][0]
    return (
        f"{moved:.0f} MB in the {extra:.0f} µs that reduce-overhead takes longer: {moved / extra:.1f} TB/s. "
        "The softmax itself moves as many bytes, so the copy is no detail."
    )


@exercise("modes.payback")
def payback(fn: Callable[..., Any]) -> str:
    """A function of the seconds of a compile and of a call, of one mode and then of another: after how many
    calls the other has caught up, ``math.inf`` if it never does. It is asked about ``FIGURES``, except where
    the other mode compiles no slower and runs no faster."""
    function(fn, "calls_to_pay(cold, call, other_cold, other_call)")
    longest = tried = 0
    for program, rows in FIGURES.items():
        for other in rows:
            plain = f"{other.partition(':')[0]}:default"
            if other in ("eager", plain):
                continue
            (call, cold), (other_call, other_cold) = rows[plain], rows[other]
            expected = _calls_to_pay(cold, call, other_cold, other_call)
            if expected is None:
                continue
            found = called(fn, "calls_to_pay", cold, call * 1e-6, other_cold, other_call * 1e-6)
            returned(found, "calls_to_pay", "return a number, or math.inf")
            if isinstance(found, bool) or not isinstance(found, int | float):
                raise WrongAnswerError(
                    f"calls_to_pay is to return a number, or math.inf, not {shown(found)}."
                )
            if not math.isclose(found, expected, rel_tol=1e-3, abs_tol=0.99):
                raise WrongAnswerError(
                    f"{other} instead of {plain}, {program}: {found:,.0f} calls is not it. It costs "
                    f"{other_cold:g} s once, not {cold:g}, and then {other_call:g} µs a call, not {call:g}."
                )
            tried += 1
            longest = max(longest, round(expected) if expected < math.inf else 0)
    return f"right for {tried} pairs of figures. The longest that pays at all takes {longest:,} calls."


def _calls_to_pay(cold: float, call: float, other_cold: float, other_call: float) -> float | None:
    """Of seconds to compile and microseconds a call; None where the other is made sooner and runs slower."""
    if other_call >= call:
        return math.inf if other_cold > cold else None
    return max((other_cold - cold) / ((call - other_call) * 1e-6), 0.0)

"""Times on a GPU that one can trust.

CUDA events around several calls; contestants take turns (A B C A B C); every sample is kept. Two ways
to count: ``kernels=True`` holds the GPU back until the host has queued the whole sample, so that only
the GPU's own time is seen (what a kernel is judged by); without it, the host's launches count as they
fall (what a model is judged by). On a CPU the same functions use the host's clock, for trying things.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

Call = Callable[[], object]
SAMPLE_SECONDS = 4e-3
MAX_REPEATS = 64  # the driver's queue holds about a thousand launches
MAX_ROUNDS = 60
HOST_CYCLES = 4_000_000  # some 2 ms: a forward and a backward pass take the host half a millisecond
FLUSHED_BYTES = 300 << 20
_CYCLES_A_SECOND = 1.98e9  # of an H100 or H200 at full clock; slower chips only wait a little longer


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def interleaved(
    calls: Mapping[str, Call],
    device: str,
    *,
    budget: float = 1.0,
    kernels: bool = False,
    min_rounds: int = 7,
    warm_up: int = 3,
) -> dict[str, list[float]]:
    """Seconds a call, of every contestant, taken in turns until ``budget`` seconds are spent.

    At least ``min_rounds`` rounds are taken, unless that takes four times the budget (then three).
    """
    plans: dict[str, tuple[int, float]] = {}
    for name, call in calls.items():
        for _ in range(warm_up):
            call()
        synchronize(device)
        plans[name] = _plan(call, device)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    for taken in range(MAX_ROUNDS):
        spent = time.perf_counter() - begun
        if (taken >= min_rounds and spent > budget) or (taken >= 3 and spent > 4 * budget):
            break
        for name, call in calls.items():
            repeats, host = plans[name]
            samples[name].append(_sample(call, device, repeats, host if kernels else 0.0))
    return samples


def cold_by_turns(calls: Sequence[Call], rounds: int) -> list[float]:
    """Median seconds of one call of each, with nothing in the L2 cache: events around it, behind a kernel
    that keeps the GPU waiting until all is enqueued, after a write of 300 MB."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, samples, strict=True):
            flushed.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(HOST_CYCLES)
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) * 1e-3)
    return [statistics.median(each) for each in samples]


def _plan(call: Call, device: str) -> tuple[int, float]:
    """Calls a sample, and the seconds the host takes to queue them."""
    begun = time.perf_counter()
    call()
    host = time.perf_counter() - begun
    synchronize(device)
    whole = time.perf_counter() - begun
    repeats = min(max(round(SAMPLE_SECONDS / max(whole, 1e-9)), 1), MAX_REPEATS)
    return repeats, repeats * host


def _sample(call: Call, device: str, repeats: int, hold: float) -> float:
    if device != "cuda":
        begun = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - begun) / repeats
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    if hold:
        torch.cuda._sleep(int(min(1.5 * hold + 5e-5, 0.1) * _CYCLES_A_SECOND))
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / 1e3 / repeats


def copy_bandwidth(device: str, size: int = 1 << 31) -> float:
    """Bytes a second of a device-to-device copy of ``size`` bytes, counting those read and written."""
    source = torch.empty(size, dtype=torch.uint8, device=device).fill_(7)
    target = torch.empty_like(source)
    samples = interleaved({"copy": lambda: target.copy_(source)}, device, budget=0.3, kernels=True)
    return 2 * size / statistics.median(samples["copy"])


def launch_floor(device: str) -> float:
    """Seconds from one kernel to the next when each has next to nothing to do."""
    small = torch.zeros(32, device=device)
    samples = interleaved({"add": lambda: small.add_(1.0)}, device, budget=0.1, kernels=True)
    return statistics.median(samples["add"])


def input_sets(make: Callable[[int], Any], device: str, *, most: int = 8) -> list[Any]:
    """Enough sets of inputs, ``make(seed)`` each, that together they exceed four times the L2: called
    in turn, none finds its inputs there."""
    first = make(0)
    l2 = torch.cuda.get_device_properties(0).L2_cache_size if device == "cuda" else 0
    count = min(max(-(-4 * l2 // max(nbytes(first), 1)), 1), most)
    return [first, *(make(seed) for seed in range(1, count))]


def in_turn(calls: Sequence[Call]) -> Call:
    """One call that goes round ``calls``."""
    place = 0

    def run() -> object:
        nonlocal place
        place = (place + 1) % len(calls)
        return calls[place]()

    return run


def _leaves(value: Any) -> list[torch.Tensor]:
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def tensors(value: Any) -> list[torch.Tensor]:
    """Every distinct tensor in a nest of tuples, lists and dicts."""
    return list({id(leaf): leaf for leaf in _leaves(value)}.values())


def nbytes(value: Any) -> int:
    """Bytes of the distinct tensors in a nest; an expanded tensor counts the memory it covers."""
    return sum(covered(leaf) for leaf in tensors(value))


def covered(tensor: torch.Tensor) -> int:
    """Bytes of memory that a tensor's elements are in, each counted once."""
    numel = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        numel *= size if stride != 0 else min(size, 1)
    return numel * tensor.element_size()


def relative_error(got: Any, reference: Any) -> float:
    """The largest ``|got - reference| / |reference|`` (Frobenius) of any tensor; NaN where one of them
    is. Integer outputs that differ count as infinite."""
    worst = 0.0
    for one, two in zip(_leaves(got), _leaves(reference), strict=True):
        if one.numel() == 0 or not two.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(one, two.to(one.dtype)) else float("inf"))
            continue
        wanted = two.to(torch.float64)
        norm = float(torch.linalg.vector_norm(wanted))
        off = float(torch.linalg.vector_norm(one.to(torch.float64) - wanted))
        error = off / norm if norm else off
        worst = error if error != error else max(worst, error)
        if worst != worst:
            return worst
    return worst


def summary(samples: Iterable[float]) -> dict[str, float]:
    """Median and the 10th and 90th percentile, in seconds, and how many samples there were."""
    ordered = sorted(samples)
    count = len(ordered)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[int(0.1 * (count - 1))],
        "p90": ordered[-(-9 * (count - 1) // 10)],
        "samples": count,
    }

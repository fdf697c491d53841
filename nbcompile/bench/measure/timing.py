"""Times one can trust: contestants take turns, each sample is long enough, and the spread is kept.

All times are wall-clock seconds of one call. Naive timing goes wrong in five ways, each met here: the
compile is counted (warm-up calls are not timed), the machine drifts (contestants are interleaved,
A B C B A C), the clock is too coarse (a sample repeats the call until it lasts about a millisecond),
the garbage collector strikes (it is off while the clock runs), and one number hides the spread (all
samples are kept).
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree

Call = Callable[[], object]

SAMPLE_SECONDS = 1e-3
_MAX_ROUNDS = 200
_ENOUGH = 25  # rounds, before it is asked whether there are enough: they must have seen the machine's moods
_NARROW = 0.01
_LOOK = 0.5  # seconds
_PATIENCE = 4.0


class Step:
    """One call of a program: forward and, with ``train``, backward as well.

    ``fn(*args, **kwargs)`` may return any nest of containers. With ``train`` every floating output
    that requires grad is given a fixed cotangent (drawn once, from its own generator, so that no
    one's random state moves) and the gradients of ``leaves`` are cleared before each call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        train: bool = False,
        leaves: tuple[torch.Tensor, ...] = (),
    ) -> None:
        self.fn, self.args, self.kwargs = fn, args, dict(kwargs or {})
        self.train, self.leaves = train, leaves
        self.went_back = False  # whether the last call had anything to go back through
        self._cotangents: dict[int, torch.Tensor] = {}

    def with_function(self, fn: Callable[..., Any]) -> Step:
        """The same call of another function, e.g. of a compiled one, with the same cotangents."""
        other = Step(fn, self.args, self.kwargs, train=self.train, leaves=self.leaves)
        other.share_cotangents(self)
        return other

    def share_cotangents(self, other: Step) -> None:
        """Give outputs the cotangents that ``other`` gives them."""
        self._cotangents = other._cotangents

    def __call__(self) -> Any:
        if not self.train:
            return self.fn(*self.args, **self.kwargs)
        for leaf in self.leaves:
            leaf.grad = None
        outputs = self.fn(*self.args, **self.kwargs)
        roots = [
            leaf
            for leaf in _pytree.tree_leaves(outputs)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None
        ]
        self.went_back = bool(roots)
        if roots:
            torch.autograd.backward(roots, [self._cotangent(i, root) for i, root in enumerate(roots)])
        return outputs

    def _cotangent(self, place: int, root: torch.Tensor) -> torch.Tensor:
        known = self._cotangents.get(place)
        if known is None or known.shape != root.shape:
            generator = torch.Generator().manual_seed(place)
            drawn = torch.randn(root.shape, generator=generator, dtype=torch.float32)
            known = self._cotangents[place] = drawn.to(device=root.device, dtype=root.dtype)
        return known if known.dtype == root.dtype else known.to(root.dtype)


@contextlib.contextmanager
def quiet(threads: int | None = None, *, silent: bool = False) -> Iterator[int]:
    """No garbage collection, a fixed number of threads, and with ``silent`` nothing that is :func:`unheard`.
    Yields the number of threads in use. Everything is put back, also on an interrupt."""
    collecting, before = gc.isenabled(), torch.get_num_threads()
    freeze = gc.get_freeze_count() == 0  # else unfreezing would thaw someone else's objects
    with contextlib.ExitStack() as stack:
        if silent:
            stack.enter_context(unheard())
        gc.collect()
        gc.disable()
        if freeze:
            gc.freeze()
        try:
            if threads is not None and threads != before:
                torch.set_num_threads(threads)
            yield torch.get_num_threads()
        finally:
            if freeze:
                gc.unfreeze()
            if collecting:
                gc.enable()
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What a program prints and logs is not told again and again: nothing goes to stdout and stderr, and no
    handler is given a record. What torch and nbcompile log is heard, since records are made of it."""
    hand_on = logging.Logger.callHandlers

    def of_libraries(logger: logging.Logger, record: logging.LogRecord) -> None:
        if logger.name.partition(".")[0] in ("torch", "nbcompile"):
            hand_on(logger, record)

    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(logging.Logger, "callHandlers", of_libraries),
    ):
        yield


def synchronize() -> None:
    """Wait for the GPU, where one is in use."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def timed(call: Call) -> tuple[float, Any]:
    """Seconds that one call took, and its result."""
    synchronize()
    start = time.perf_counter()
    result = call()
    synchronize()
    return time.perf_counter() - start, result


def interleaved(
    calls: Mapping[str, Call],
    *,
    budget: float = 2.0,
    warm_up: int = 2,
    min_rounds: int = 5,
    sample_seconds: float = SAMPLE_SECONDS,
    reset: Callable[[], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    look: Callable[[dict[str, tuple[float, ...]]], object] | None = None,
) -> dict[str, tuple[float, ...]]:
    """Steady-state samples, in seconds a call, of every contestant, taken in turns.

    Each round is in another order (random, but the same in each run): what a call leaves in the caches is
    felt by the next ones, and must not always be the same one's gain or loss.

    ``budget`` bounds the timed part in seconds, for all contestants together; at least ``min_rounds``
    rounds are taken, unless all of it, resets included, takes four times the budget; none is taken once
    every median is known well enough (:func:`is_narrow`). Each contestant's call is repeated within a sample
    until the sample lasts ``sample_seconds``. ``reset`` runs untimed before each sample, for programs that
    change their inputs. ``warm_up`` calls go before, untimed (0: the calls are known to be warm and slow).
    ``clock`` gives seconds. ``look`` is given the samples so far, twice a second. Call within :func:`quiet`.
    """
    repeats: dict[str, int] = {}
    begun = time.perf_counter()
    for name, call in calls.items():
        fastest = float("inf") if warm_up else sample_seconds
        for _ in range(warm_up):
            if reset is not None:
                reset()
            fastest = min(fastest, timed(call)[0])
        repeats[name] = max(1, round(sample_seconds / max(fastest, 1e-9)))
        if repeats[name] > 1:  # one call is close to the clock's own cost: measure again, together
            repeats[name] = max(
                1, round(sample_seconds / max(_sample(call, repeats[name], reset, clock), 1e-9))
            )
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    spent, rounds, looked = 0.0, 0, begun
    while rounds < _MAX_ROUNDS and (rounds < min_rounds or spent < budget):
        if rounds and time.perf_counter() - begun > _PATIENCE * budget:
            break  # resets, or calls longer than the budget
        if rounds >= _ENOUGH and all(map(is_narrow, samples.values())):
            break
        if look is not None and rounds and time.perf_counter() - looked > _LOOK:
            look({name: tuple(values) for name, values in samples.items()})
            for call in calls.values():  # what was done meanwhile has the caches
                if reset is not None:
                    reset()
                call()
            looked = time.perf_counter()
        for name, call in order.sample(list(calls.items()), len(calls)):
            seconds = _sample(call, repeats[name], reset, clock)
            samples[name].append(seconds)
            spent += seconds * repeats[name]
        rounds += 1
    return {name: tuple(values) for name, values in samples.items()}


def is_narrow(samples: Sequence[float]) -> bool:
    """Whether the median of these is known to 1%: half the width of its 95% confidence interval, from the
    order of the samples, so that no distribution is assumed (e.g. Conover, Practical Nonparametric
    Statistics, 3.2)."""
    ordered, count = sorted(samples), len(samples)
    away = 0.98 * count**0.5
    low, high = int(count / 2 - away), math.ceil(count / 2 + away)
    if low < 0 or high >= count:
        return False
    return bool(ordered[high] - ordered[low] <= 2 * _NARROW * ordered[count // 2])


def _sample(
    call: Call, repeats: int, reset: Callable[[], object] | None, clock: Callable[[], float]
) -> float:
    if reset is not None:
        reset()
    synchronize()
    start = clock()
    for _ in range(repeats):
        call()
    synchronize()
    return (clock() - start) / repeats


def break_even(extra: float | None, eager: float | None, compiled: float | None) -> float | None:
    """Calls after which ``extra`` seconds of compiling have paid for themselves; ``None`` if never,
    or if one of the times is not known. ``eager`` and ``compiled`` are seconds a call."""
    if extra is None or eager is None or compiled is None or compiled >= eager:
        return None
    return extra / (eager - compiled)

"""On every rank at once: the calls of a cell made again and timed, with everything they change put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree

from nbcompile.bench.measure.timing import Step, quiet, timed
from nbcompile.bench.ranks.communication import profiled
from nbcompile.bench.ranks.parallel import CellCall
from nbcompile.record.compilation import Compilation, Measurement
from nbcompile.record.ranks import Communication

_SECONDS = 0.5
_ROUNDS = (3, 20)


@dataclass(frozen=True)
class Measured:
    """Seconds of a step, compiled and not; ``reason`` where there are none, or why they do not count."""

    steady: tuple[float, ...] = ()
    eager: tuple[float, ...] = ()
    communication: Communication | None = None
    reason: str = ""
    what: str = ""

    def into(self, compilation: Compilation) -> Compilation:
        """The rank's record with these times."""
        if not self.what:
            return compilation
        threads = torch.get_num_threads()
        mine = Measurement(self.what, compilation.backend, compilation.mode, steady=self.steady,
                           ran_compiled=not self.reason, reason=self.reason, threads=threads)  # fmt: skip
        eager = Measurement(self.what, "eager", steady=self.eager, threads=threads)
        return dataclasses.replace(compilation, measurements=(eager, mine))


def measure(calls: Sequence[CellCall], device: torch.device) -> Measured:
    """Time one call each of what the cell called, with backward where the cell could have one. Collective:
    every rank calls it, and all take the same number of rounds."""
    made = [call for call in calls if call.arguments is not None]
    shapes = [(call.name, call.trains) for call in made]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, shapes)
    if any(other != shapes for other in everyone):
        return Measured(reason="the ranks called different modules, so no step is common to all")
    if not made:
        return Measured(reason="the cell called nothing that was compiled")
    steps = [_step(call) for call in made]

    def run(plain: bool) -> Callable[[], None]:
        def once() -> None:
            for call, step in zip(made, steps):
                call.plain = plain
                try:
                    step()
                finally:
                    call.plain = False

        return once

    with _kept(made), quiet():
        for plain in (False, True):
            run(plain)()
        run(False)()
        why = next((call.compiled.eager_reason for call in made if not call.compiled.ran_compiled), "")
        communication = profiled(run(False), device)
        steady, eager = _timed(run(False), run(True))
    what = "forward+backward" if any(call.trains for call in made) else "forward"
    return Measured(() if why else steady, eager, communication, why, f"{what} on {len(everyone)} ranks")


def _step(call: CellCall) -> Step:
    assert call.arguments is not None
    args, kwargs = _pytree.tree_map(_detached, call.arguments)
    return Step(call.target, args, kwargs, train=call.trains, leaves=call.leaves)


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value.detach().requires_grad_()
    return value


def _timed(*calls: Callable[[], None]) -> list[tuple[float, ...]]:
    """Samples in seconds of each, taken in turns, all ranks starting each together."""
    slowest = torch.tensor([sum(timed(call)[0] for call in calls)])
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    rounds = int(min(max(_SECONDS / float(slowest), _ROUNDS[0]), _ROUNDS[1]))
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, samples):
            dist.barrier()
            taken.append(timed(call)[0])
    return [tuple(taken) for taken in samples]


@contextmanager
def _kept(calls: Sequence[CellCall]) -> Iterator[None]:
    """Gradients, buffers and random numbers as they were, after."""
    leaves = [leaf for call in calls for leaf in call.leaves]
    gradients = [leaf.grad for leaf in leaves]
    buffers = [buffer for call in calls for buffer in call.buffers]
    held = [buffer.detach().clone() for buffer in buffers]
    with torch.random.fork_rng():
        try:
            for leaf in leaves:
                leaf.grad = None
            yield
        finally:
            for leaf, gradient in zip(leaves, gradients):
                leaf.grad = gradient
            with torch.no_grad():
                for buffer, value in zip(buffers, held):
                    buffer.copy_(value)

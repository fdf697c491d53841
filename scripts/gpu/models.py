"""Whole models in bf16, forward and training step: times beside Inductor and eager, compile times, errors.

    python scripts/gpu/models.py [--unseen] [--only NAMES] [--contestants NAMES] [--budget SECONDS] [--quick]
    bash scripts/gpu/models.sh JOBS SECONDS …      # many side by side

The host's launches count here, as they do for whoever runs a model. A training step is the loss and all
gradients. The small net is for launch overhead: default mode and CUDA graphs, against eager. Compile
times are of the first call, with cache folders that are empty and Inductor's memory cleared, in this one
process, after a first compile of something else. Several of these may run side by side (``--together``): each
takes an item that nobody has, and the GPU is one's alone while samples are taken and float64 is run.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cold
import runner
import torch
from contestants import OURS, PEER, Contestant, compile_with, empty_caches, reset, warm_up
from gpu_timing import interleaved, summary, synchronize
from runner import Run, say
from torch import nn
from unseen import UNSEEN
from zoo import MODELS, Model

CONTESTANTS = ("eager", OURS, PEER)
SMALL = ("nbcompile-graphs", "inductor-graphs")
FORWARD, TRAIN = "forward", "training step"
DRAWS_NUMBERS = 0.03
BY_NAME = {model.name: model for model in (*MODELS, *UNSEEN)}


class Step:
    """One call of a model: its output, or with ``train`` its loss and then every gradient."""

    def __init__(self, call: Any, module: nn.Module, args: tuple[Any, ...], train: bool) -> None:
        self.call, self.args, self.train = call, args if train else args[:-1], train
        self.parameters = [each for each in module.parameters() if each.requires_grad]

    def __call__(self) -> list[torch.Tensor]:
        if not self.train:
            with torch.no_grad():
                return [self.call(*self.args)]
        for each in self.parameters:
            each.grad = None
        loss = self.call(*self.args)
        loss.backward()
        return [loss, *(each.grad for each in self.parameters if each.grad is not None)]


def split(item: str) -> tuple[str, bool]:
    name, _, part = item.rpartition(", ")
    return name, part == TRAIN


def build(item: str, device: str, tiny: bool) -> tuple[nn.Module, tuple[Any, ...], bool]:
    name, train = split(item)
    torch.manual_seed(0)
    with torch.device(device):  # a billion parameters are drawn where they will be
        module, inputs = BY_NAME[name].build(tiny)
    module = module.to(device=device, dtype=torch.bfloat16).train(train)
    return module, inputs(device), train


def program(item: str, device: str, tiny: bool) -> tuple[Any, Any]:
    """What cold.py asks for."""
    module, args, train = build(item, device, tiny)
    return module, lambda compiled: Step(compiled, module, args, train)()


def total_error(got: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """``|got - reference| / |reference|`` over all tensors together: many gradients are next to zero."""
    with torch.no_grad():
        off = sum(float((one.double() - two).square().sum()) for one, two in zip(got, reference, strict=True))
        size = sum(float(two.square().sum()) for two in reference)
    return float((off / size) ** 0.5) if size else off**0.5


def reference_of(module: nn.Module, args: tuple[Any, ...], train: bool) -> list[torch.Tensor] | None:
    """The results of a step in float64, or ``None`` where two eager steps differ by more than the order
    of a sum can explain: the model draws random numbers."""
    state = copy.deepcopy(module)
    first, second = (Step(module, module, args, train)() for _ in range(2))
    if total_error(first, [each.double() for each in second]) > DRAWS_NUMBERS:
        return None
    del first, second
    wide = state.to(torch.float64)
    widened = tuple(each.double() if each.is_floating_point() else each for each in args)
    return Step(wide, wide, widened, train)()


def measure(model: Model, item: str, run: Run) -> None:
    """Compile for everyone, check everyone, then time everyone in turns; one record."""
    tiny = run.arguments.tiny
    module, args, train = build(item, run.device, tiny)
    reference = None
    if not run.arguments.no_errors:
        with alone(run.arguments.together):
            reference = run.attempt(item, "float64", lambda: reference_of(module, args, train))
            torch.cuda.empty_cache()
    calls: dict[str, Step] = {}
    compiled: dict[str, float] = {}
    errors: dict[str, float] = {}
    notes: dict[str, Any] = {}
    names = list(run.arguments.contestants)
    if model.small:
        names += [name for name in SMALL if name not in names and name.partition("-")[0] in names]
    for name in names:
        contestant, step = prepared(name, module, args, train)
        made = run.attempt(item, name, lambda step=step: first_result(step, run.device))
        if made is None:
            continue
        if reason := contestant.why_eager():
            run.failed(item, name, reason)
            continue
        seconds, results = made
        if reference is not None:
            errors[name] = total_error(results, reference)
        calls[name], notes[name] = step, contestant.facts()
        if name != "eager":
            compiled[name] = seconds
            run.write("cold", item=item, contestant=name, seconds=seconds, process="warm")
        del made, results
    budget = 0.4 if run.arguments.quick else 1.2
    with alone(run.arguments.together):
        samples = interleaved(dict(calls), run.device, budget=budget)
    times = {name: summary(values) for name, values in samples.items()}
    run.write(
        "steady", item=item, times=times, compile=compiled, errors=errors, small=model.small, notes=notes,
        train=train,
    )  # fmt: skip
    said = [
        f"{name} {each['median'] * 1e3:.3f} ms"
        + (f" (compiled in {compiled[name]:.1f} s)" if name in compiled else "")
        + (f", error {errors[name]:.1e}" if name in errors else "")
        for name, each in times.items()
    ]
    say(f"{item}: {'; '.join(said)}")


@contextlib.contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """While nobody else of those that share the folder is alone with this GPU."""
    if folder is None:
        yield
        return
    with (folder / f"gpu{os.environ.get('CUDA_VISIBLE_DEVICES', '0')}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def taken(folder: Path | None, item: str) -> bool:
    """Whether somebody has the item; from here on this process has, if not."""
    if folder is None:
        return False
    try:
        (folder / f"{item.replace('/', '-')}.taken").touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


def prepared(name: str, module: nn.Module, args: tuple[Any, ...], train: bool) -> tuple[Contestant, Step]:
    if name != "eager":
        empty_caches()
    contestant = compile_with(name, module)
    return contestant, Step(contestant.fn, module, args, train)


def first_result(step: Step, device: str) -> tuple[float, list[torch.Tensor]]:
    synchronize(device)
    begun = time.perf_counter()
    results = step()
    synchronize(device)
    seconds = time.perf_counter() - begun
    return seconds, [each.detach().clone() for each in results]


def main(argv: Sequence[str] | None = None) -> int:
    def extra(parser: Any) -> None:
        parser.add_argument("--no-errors", action="store_true", help="no comparison with float64")
        parser.add_argument("--cold", action="store_true", help="also compile each in a fresh process (slow)")
        parser.add_argument("--unseen", action="store_true", help="the models that nothing was tuned on")
        parser.add_argument("--together", type=Path, help="the folder of those that run side by side")

    run = runner.start("models", __doc__ or "", argv, CONTESTANTS, extra=extra)
    models = UNSEEN if run.arguments.unseen else MODELS
    items = [f"{model.name}, {part}" for part in (TRAIN, FORWARD) for model in models if not model.small]
    items[2:2] = [f"{model.name}, {FORWARD}" for model in models if model.small]
    if run.arguments.list:
        say("\n".join(items))
        return 0
    runner.describe_machine(run)
    warm_up([name for name in run.arguments.contestants if name != "eager"], run.device)
    for item in run.items(items):
        if taken(run.arguments.together, item):
            continue
        model = BY_NAME[split(item)[0]]
        run.attempt(item, "all", lambda item=item, model=model: measure(model, item, run))
        reset()
    if run.arguments.cold:
        cold.measure(run, "models", items)
    return runner.finish(run)


if __name__ == "__main__":
    sys.exit(main())

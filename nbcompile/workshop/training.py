"""Checkers of notebook 12: what training adds to a compile."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

import nbcompile
from nbcompile.record.compilation import Compilation
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, function, keyed, whole_number, whole_numbers

Batch = tuple[torch.Tensor, torch.Tensor]


def kept_by_compiled(record: Compilation) -> list[int]:
    """Bytes of each tensor that the compiled forward hands to backward."""
    graph = next(graph for graph in record.graphs if graph.stage == "forward")
    sizes = {node.id: node.bytes for node in graph.nodes}
    return [sizes[saved] for saved in graph.saved]


def kept_by_eager(fn: Callable[..., Any], *inputs: torch.Tensor) -> list[int]:
    """Bytes of each tensor that autograd keeps when ``fn`` runs eagerly, memory that is shared told once."""
    found: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    # What is kept stays alive in ``out``: its memory is not handed out again meanwhile.
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = fn(*inputs)
    del out
    return list(found.values())


@exercise("training.saved")
def saved(answer: Mapping[str, int]) -> str:
    """How many tensors eager keeps for the backward pass of a chain of four operations, and how many the
    compiled forward hands over. Both are run and counted."""

    def chain(x: torch.Tensor) -> torch.Tensor:
        return (torch.sigmoid(x) * torch.cos(x)).exp()

    x = torch.randn(256, 1024, requires_grad=True)
    compiled = nbcompile.compile(chain)
    compiled(x).sum().backward()
    truth = {"eager": len(kept_by_eager(chain, x)), "compiled": len(kept_by_compiled(compiled.compilation))}
    whole_numbers(answer, truth)
    if answer["eager"] != truth["eager"]:
        raise WrongAnswerError(
            "Eager's number is another. Write down the derivative of each of the four operations, and mark "
            "the tensors in it; one that two derivatives want is kept once."
        )
    if answer["compiled"] != truth["compiled"]:
        raise WrongAnswerError(
            "Eager's number is right, the compiler's is another. Ask of each tensor whether backward could "
            "compute it again from one that is kept anyway, without leaving the kernel."
        )
    size = x.numel() * 4 / 1e6
    return (
        f"eager keeps {truth['eager']} tensors ({truth['eager'] * size:.1f} MB), the compiled forward "
        f"{truth['compiled']} ({truth['compiled'] * size:.1f} MB). Sigmoid, cosine and their product are "
        "made again from x inside the backward kernel."
    )


@exercise("training.schedule")
def schedule(make_optimizer: Callable[[Any], torch.optim.Optimizer]) -> str:
    """A function of parameters that returns an AdamW. Its compiled step must go through four learning rates
    without a recompile, and leave the parameters that eager AdamW leaves."""
    function(make_optimizer, "make_optimizer(parameters)")
    rates = (1e-3, 8e-4, 5e-4, 1e-4)
    torch.manual_seed(0)
    model = nn.Linear(16, 16)
    own = copy.deepcopy(model)
    reference = torch.optim.AdamW(own.parameters(), lr=rates[0])
    optimizer = called(make_optimizer, "make_optimizer", list(model.parameters()))
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise WrongAnswerError("make_optimizer is to return an optimiser of torch.optim.")
    if not isinstance(optimizer, torch.optim.AdamW):
        raise WrongAnswerError("It is to be AdamW still; only what it is given may change.")
    # Its state as it is after a first step: making that is a change of its own.
    for each, net in ((optimizer, model), (reference, own)):
        _set_rate(each, rates[0])
        _give_gradients(net)
        each.step()
    step = nbcompile.compile(optimizer.step)
    for rate in rates:
        for each, net, take in ((optimizer, model, step), (reference, own, reference.step)):
            _set_rate(each, rate)
            _give_gradients(net)
            take()
    record = step.compilation
    if not step.ran_compiled:
        raise WrongAnswerError(f"The compiled step did not run: {step.eager_reason}.")
    if record.recompiles:
        raise WrongAnswerError(
            f"Over {len(rates)} learning rates it compiled {1 + len(record.recompiles)} times. The "
            f"guard that failed: {record.recompiles[0].reason}. Of what is the value not guarded?"
        )
    for ours, theirs in zip(model.parameters(), own.parameters()):
        if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6):
            raise WrongAnswerError(
                "It compiles once, but the parameters come out otherwise than with AdamW at these rates."
            )
    return (
        f"{len(rates)} learning rates, one compile, and the parameters of AdamW. A tensor's value is read in "
        "the kernel; a Python number is part of the program."
    )


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """As a schedule does it: in place where the rate is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _give_gradients(module: nn.Module) -> None:
    for place, parameter in enumerate(module.parameters()):
        drawn = torch.Generator().manual_seed(place)
        parameter.grad = torch.randn(parameter.shape, generator=drawn)


@exercise("training.casts")
def casts(answer: Mapping[str, str]) -> str:
    """The dtype of five results under ``torch.autocast`` to bfloat16 on the CPU, as this torch has them."""
    truth = _types_under_autocast()
    keyed(answer, truth, "a dtype")
    if unknown := [name for name in truth if not isinstance(answer[name], str | torch.dtype)]:
        raise WrongAnswerError(f"{unknown[0]}: write a dtype, as torch.float32 or 'float32'.")
    given = {name: str(kind).removeprefix("torch.") for name, kind in answer.items()}
    wrong = [name for name in truth if given[name] != truth[name]]
    if wrong:
        raise WrongAnswerError(
            f"{len(truth) - len(wrong)} of {len(truth)} are right; {wrong[0]} is not. Autocast has one list "
            "of operations that it runs in bfloat16 and one that it runs in float32. What is on neither list "
            "follows its inputs, and the wider of two wins."
        )
    return (
        "matrix products come out in bfloat16, and what is pointwise follows its input. On the CPU a "
        f"softmax follows it too ({truth['softmax']}); the loss is on the list of float32."
    )


def _types_under_autocast() -> dict[str, str]:
    """What kind of number each leaves, asked of this torch."""
    torch.manual_seed(0)
    x = torch.randn(8, 16)
    linear = nn.Linear(16, 16)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        h = linear(x)
        found = {
            "linear": h,
            "gelu": nn.functional.gelu(h),
            "x + linear": x + h,
            "softmax": torch.softmax(h, -1),
            "cross_entropy": nn.functional.cross_entropy(h, torch.arange(8)),
        }
    return {name: str(value.dtype).removeprefix("torch.") for name, value in found.items()}


@exercise("training.accumulate")
def accumulate(
    answer: Callable[[nn.Module, Sequence[Batch], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]], Any],
) -> str:
    """A function of a model, its batches and a loss that leaves in ``.grad`` the gradient of the whole batch,
    for batches of equal size and for uneven ones, to 1e-4 of its length."""
    function(answer, "accumulate(model, batches, loss_of)")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5))
    x, y = torch.randn(28, 12), torch.randint(5, (28,))
    for sizes in ([7, 7, 7, 7], [8, 8, 8, 4]):
        model.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
        whole = _gradient(model)
        model.zero_grad()
        batches = list(zip(torch.split(x, sizes), torch.split(y, sizes)))
        called(answer, "accumulate", model, batches, nn.functional.cross_entropy)
        if any(parameter.grad is None for parameter in model.parameters()):
            raise WrongAnswerError(
                "Afterwards some parameters have no gradient: each batch needs its backward."
            )
        ratio = float((_gradient(model) @ whole) / (whole @ whole))
        distance = float((_gradient(model) - whole).norm() / whole.norm())
        if not distance <= 1e-4:
            equal = "of equal size" if len(set(sizes)) == 1 else f"of sizes {', '.join(map(str, sizes))}"
            raise WrongAnswerError(
                f"With batches {equal} the gradient is {distance:.1%} away from that of the whole batch, and "
                f"{ratio:.2f} times as long. How much does one row count in its batch's mean, and how much "
                "in the mean over all?"
            )
    return f"equal batches and uneven ones give the whole batch's gradient, to {distance:.0e}."


def _gradient(module: nn.Module) -> torch.Tensor:
    grads = [parameter.grad for parameter in module.parameters()]
    return torch.cat([grad.flatten().clone() for grad in grads if grad is not None])


@exercise("training.buckets")
def buckets(answer: int) -> str:
    """Into how many graphs DDPOptimizer cuts six layers of 1 MiB with buckets of 2 MiB. One rank is run to
    see."""
    whole_number(answer, "The number of graphs")
    graphs, sizes = _buckets(layers=6, bucket_mb=2.0)
    if answer != graphs:
        hint = (
            "That would be a bucket a layer, or more; a bucket is closed only once it is full."
            if answer >= 6
            else "Fill the buckets from the last layer on. The first is full at 1 MiB, any other at 2 MiB."
        )
        raise WrongAnswerError(f"It is another number. {hint}")
    told = ", ".join(f"{size / 2**20:.0f} MiB" for size in reversed(sizes))
    return f"{graphs} graphs: in the order in which they are sent, {told}."


@cache
def _buckets(layers: int, bucket_mb: float) -> tuple[int, tuple[int, ...]]:
    """Graphs and bytes of each bucket, as DDPOptimizer cuts a chain of layers of 1 MiB. One rank is enough:
    the rule looks at sizes only."""
    model = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(layers)))
    names = {"model": model, "x": torch.randn(4, 512)}
    with nbcompile.Ranks(1, device="cpu") as ranks:
        result = ranks.run("model(x).sum().backward()", names, bucket_mb=bucket_mb, measure=False)
    (record,) = result.ranks
    sizes = tuple(bucket.bytes for bucket in record.buckets)
    assert math.isclose(sum(sizes), layers * 2**20)
    return record.graphs, sizes

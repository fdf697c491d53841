"""Arguments that share no memory in a program's first call, and do in its second.

AOTAutograd reads and writes where they lay when it compiled the graph, so its numbers excuse none of ours
there (:func:`tests.fuzz.check.check`).
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.execute import Runner
from tests.fuzz.program import Program


def meeting(program: Program, device: str) -> Program:
    """The program with arguments that come to share memory in its second call, in two of three where it
    overwrites one of some that can, and eager takes them."""
    choose = random.Random(f"{program.seed} meets")
    calls = [Runner(program, device).arguments(call) for call in range(len(program.sizes))]
    places = {item.name: place for place, item in enumerate(program.inputs)}
    shown = {item.base for item in program.inputs}
    written = {step.writes for step in program.steps}
    # a norm overwrites two of its arguments, in an order of its own
    norms = {name for step in program.steps if step.op.startswith("batch_norm") for name in step.operands}
    alone = [
        item
        for item in program.inputs
        if not (item.base or item.grad or item.name in shown | norms)
        and all(_lies_plainly(arguments[places[item.name]]) for arguments in calls)
    ]
    pairs = [
        (one.name, other.name)
        for one in alone
        for other in alone
        if one is not other and one.dtype == other.dtype and one.name in written
    ]
    if not pairs or choose.random() < 0.33:
        return program
    sizes = program.sizes if len(program.sizes) > 1 else program.sizes * 2
    made = replace(program, sizes=sizes, meets=choose.choice(pairs))
    with _Copies() as copies:
        outcomes = [Runner(made, device).run(call) for call in range(len(sizes))]
    return program if copies.within or any(outcome.error is not None for outcome in outcomes) else made


class _Copies(TorchDispatchMode):
    """Whether a tensor was copied to others that share its memory. Which elements such a copy reads before it
    overwrites them is nobody's promise; of other operators eager refuses that."""

    within = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.copy_.default:
            new, old = args[:2]
            places = {(each.storage_offset(), each.shape, each.stride(), each.dtype) for each in (new, old)}
            self.within |= torch._C._is_alias_of(new, old) and len(places) > 1
        return func(*args, **(kwargs or {}))


def _lies_plainly(tensor: torch.Tensor) -> bool:
    """Whether no two elements of a tensor lie in one place, and there is one."""
    held = 1
    for step, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent != 1 and step < held:
            return False
        held += (extent - 1) * step
    return tensor.numel() > 0

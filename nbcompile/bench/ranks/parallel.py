"""On a rank: the modules that a cell names, made parallel and compiled, each still the object it was.

``model`` stays the user's module, of its own class: what changes is what a call of it does. DDP wraps it from
outside (the wrapper is called instead, and calls the compiled module), FSDP2 shards it in place.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from nbcompile.api import Compiled
from nbcompile.bench.ranks.task import RankTask
from nbcompile.errors import RanksError
from nbcompile.record.compilation import Compilation
from nbcompile.record.ranks import Bucket

_OF_HOOKS = (
    "These are FSDP2's hooks, which gather and reduce around each sharded module and may not be compiled: "
    "each is a graph of its own, and nothing is fused across them. There is nothing to mend in the cell."
)
_DISABLE = "disable is left to Python"
"""How the reason of a break at torch._dynamo.disable begins."""
Make = Callable[[Callable[..., Any]], Compiled]


class CellCall:
    """What a name stands for when the cell calls it: compiled, and inside its wrapper where it has one.

    The latest arguments are kept, so that the call can be made again to be measured; with
    ``plain`` it is made without compiling.
    """

    def __init__(self, name: str, inner: Callable[..., Any], make: Make, cell: str) -> None:
        self.name = name
        self.cell = cell  # file name of the cell
        self.lines: dict[str, int] = {}  # graph → line of the cell whose call had it compiled
        self.called: set[int] = set()  # lines of the cell that call it
        self.inner = inner
        self.target: Callable[..., Any] = self  # what the cell calls: the module, or this
        self.compiled = make(inner)
        self.outer: Callable[..., Any] | None = None  # DDP
        self.leaves: tuple[torch.Tensor, ...] = ()
        self.buffers: tuple[torch.Tensor, ...] = ()
        self.plain = False
        self.arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self.trains = False
        self._inside = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled = self.inner if self.plain else self.compiled
        if self._inside:
            return compiled(*args, **kwargs)
        self.arguments = args, kwargs
        self.trains = torch.is_grad_enabled() and any(leaf.requires_grad for leaf in self.leaves)
        first = self.compiled.recorder.graph_count
        self._inside = True
        try:
            return (self.outer or compiled)(*args, **kwargs)
        finally:
            self._inside = False
            if line := self._line():
                self.called.add(line)
                made = range(first, self.compiled.recorder.graph_count)
                self.lines.update(dict.fromkeys((f"g{number}" for number in made), line))

    def _line(self) -> int:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.cell:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def compile_names(
    names: dict[str, Any],
    called: frozenset[str],
    task: RankTask,
    device: torch.device,
    mesh: Any,
    make: Make,
    notes: list[str],
) -> tuple[list[CellCall], dict[str, nn.parallel.DistributedDataParallel], tuple[Bucket, ...]]:
    """Wrap and compile the modules among ``names``; where there are none, the notebook's functions that the
    cell calls (``called``), which are replaced in ``names``. Returns the calls, DDP's wrappers, and the units
    of FSDP2."""
    parallel = task.parallel
    modules = _outermost({n: v for n, v in names.items() if isinstance(v, nn.Module)})
    calls: list[CellCall] = []
    wrappers: dict[str, nn.parallel.DistributedDataParallel] = {}
    units: list[Bucket] = []
    for name, module in modules.items():
        trainable = any(p.requires_grad for p in module.parameters())
        if parallel == "fsdp2" and trainable:
            if any(p.grad is not None for p in module.parameters()):
                notes.append(
                    f"{name} had gradients, to which FSDP2 does not add: those of this cell replace them"
                )
            units += _shard(name, module, mesh, names, len(units))
            _expose(module, called_alone=True)
        call = CellCall(name, _past_itself(module), make, task.cell.filename)
        call.target = module
        call.leaves, call.buffers = tuple(module.parameters()), tuple(module.buffers())
        if parallel == "ddp" and trainable:
            call.outer = wrappers[name] = _distribute(name, module, device, task.bucket_mb)
        elif parallel != "none" and not trainable:
            notes.append(f"{name} has no parameters to train: it is compiled, and the same on every rank")
        module._compiled_call_impl = call  # what Module.compile() sets
        calls.append(call)
    if not modules:
        if parallel != "none":
            notes.append("the cell names no module, so there was nothing to distribute")
        for name in sorted(called):
            function = names.get(name)
            if isinstance(function, types.FunctionType) and function.__module__ == "__main__":
                call = CellCall(name, function, make, task.cell.filename)
                names[name] = functools.wraps(function)(functools.partial(call))
                calls.append(call)
    return calls, wrappers, tuple(units)


def _past_itself(self: nn.Module) -> Callable[..., Any]:
    """What a call of the module was before it was replaced, hooks included.

    Dynamo captures the user's ``forward`` within it, under the names of its parameters. One of torch.nn's own
    modules it captures only as part of a function that is not torch's.
    """
    if not _is_torchs(self):
        return self._call_impl

    def call(*args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    return call


def _is_torchs(module: nn.Module) -> bool:
    return type(module).forward.__module__.startswith("torch.")


def _expose(module: nn.Module, called_alone: bool) -> None:
    """Let Dynamo capture torch.nn's own modules where FSDP2's hooks, which it may not look into, part them
    from the function that calls them: each is called through a function that is not torch's. What is inside
    a module that is captured whole is left as it is."""
    parted = any(_is_unit(part) for part in module.modules() if part is not module)
    if _is_torchs(module) and not parted:
        if called_alone or _is_unit(module):
            module.forward = functools.partial(_forward, module)
        return
    for child in module.children():
        _expose(child, called_alone=_is_torchs(module))


def _is_unit(module: nn.Module) -> bool:
    from torch.distributed.fsdp import FSDPModule

    return isinstance(module, FSDPModule)


def _forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return type(module).forward(module, *args, **kwargs)


def hooks_told(compilation: Compilation) -> Compilation:
    """A record of what ran under FSDP2: the break at its hooks is said to be that, nobody's to mend."""
    breaks = tuple(
        dataclasses.replace(item, hint=_OF_HOOKS) if item.reason.startswith(_DISABLE) else item
        for item in compilation.breaks
    )
    return dataclasses.replace(compilation, breaks=breaks)


def _outermost(modules: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """Without those that are part of another one, or another one's second name."""
    kept: dict[str, nn.Module] = {}
    for name, module in modules.items():
        inside = {id(part) for other in modules.values() if other is not module for part in other.modules()}
        if id(module) not in inside and all(module is not other for other in kept.values()):
            kept[name] = module
    return kept


def _distribute(
    name: str, module: nn.Module, device: torch.device, bucket_mb: float | None
) -> nn.parallel.DistributedDataParallel:
    options: dict[str, Any] = {"device_ids": [device.index]} if device.type == "cuda" else {}
    if bucket_mb is not None:
        options["bucket_cap_mb"] = bucket_mb
    _check_place(name, module, device)
    return nn.parallel.DistributedDataParallel(module, **options)


def _check_place(name: str, module: nn.Module, device: torch.device) -> None:
    elsewhere = {str(p.device) for p in module.parameters() if p.device.type != device.type}
    if elsewhere:
        raise RanksError(
            f"{name} is on {', '.join(sorted(elsewhere))} and the ranks work on {device.type}.",
            advice=f"Move it there first: {name}.to({device.type!r}).",
        )


def _shard(name: str, module: nn.Module, mesh: Any, names: Mapping[str, Any], first: int) -> list[Bucket]:
    """``fully_shard`` each block of each ModuleList (of a Sequential: each child), then what is left. The
    optimizers among ``names`` go over to the new parameters."""
    from torch.distributed.fsdp import fully_shard

    _check_place(name, module, torch.device(mesh.device_type))
    before = dict(module.named_parameters())
    blocks = _blocks(module)
    taken: set[str] = set()
    units: list[tuple[str, list[str]]] = []
    for path, block in blocks:
        own = [full for full, _ in _named(path, block) if full not in taken]
        taken.update(own)
        units.append((path, own))
        fully_shard(block, mesh=mesh)
    units.append(("", [full for full in before if full not in taken]))
    fully_shard(module, mesh=mesh)
    after = dict(module.named_parameters())
    moved = {id(before[path]): after[path] for path in before}
    for value in names.values():
        if isinstance(value, torch.optim.Optimizer):
            _move_optimizer(value, moved, mesh)
    return [
        Bucket(
            first + place,
            tuple(own),
            sum(before[full].numel() * before[full].element_size() for full in own),
            "all-gather and reduce-scatter",
            module=f"{name}.{path}".rstrip("."),
        )
        for place, (path, own) in enumerate(unit for unit in units if unit[1])
    ]


def _named(path: str, block: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(f"{path}.{inner}", parameter) for inner, parameter in block.named_parameters()]


def _blocks(module: nn.Module) -> list[tuple[str, nn.Module]]:
    lists = [(path, part) for path, part in module.named_modules() if isinstance(part, nn.ModuleList)]
    if not lists and isinstance(module, nn.Sequential):
        lists = [("", module)]  # type: ignore[list-item]
    found = []
    for path, part in lists:
        for inner, child in part.named_children():
            if any(True for _ in child.parameters()) and not isinstance(child, nn.ModuleList | nn.ModuleDict):
                found.append((f"{path}.{inner}".lstrip("."), child))
    # Of nested lists the inner blocks come first: what is sharded inside is left alone outside.
    return sorted(found, key=lambda item: -item[0].count("."))


def _move_optimizer(optimizer: torch.optim.Optimizer, moved: Mapping[int, nn.Parameter], mesh: Any) -> None:
    from torch.distributed.tensor import distribute_tensor

    for group in optimizer.param_groups:
        group["params"] = [moved.get(id(p), p) for p in group["params"]]
    for old in list(optimizer.state):
        new: Any = moved.get(id(old))
        if new is not None:
            held = optimizer.state.pop(old)
            optimizer.state[new] = {
                key: distribute_tensor(value, mesh, new.placements)
                if isinstance(value, torch.Tensor) and value.shape == old.shape
                else value
                for key, value in held.items()
            }

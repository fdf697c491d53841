"""The program that the doctor examines: how it gets to another process, and how it is changed there."""

from __future__ import annotations

import functools
import gc
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree

from nbcompile import api, tf32
from nbcompile.api import Compiled
from nbcompile.bench.doctor.switches import Combination
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.bench.sweep.point import SweepProgram
from nbcompile.bench.sweep.workers import packed
from nbcompile.errors import MeasureError
from nbcompile.settings import CompileSettings

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Surroundings:
    """What of a process a program's time depends on, as it is in the user's."""

    threads: int
    products: str
    grad: bool

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        return cls(torch.get_num_threads(), tf32.products(), torch.is_grad_enabled())


@dataclass(frozen=True)
class Patient:
    """A call, ``fn(*args, **kwargs)``, with its backward pass if ``train``, and the step of ``optimizer``
    after that, if there is one. ``names`` are those of ``args`` in the program, as
    far as they are known."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    train: bool = False
    optimizer: torch.optim.Optimizer | None = None
    names: tuple[str, ...] = ()

    def packed(self) -> bytes:
        """As bytes, by value. MeasureError for what cannot be pickled."""
        given = (self.args, dict(self.kwargs), self.train, self.optimizer)
        return packed(SweepProgram(self.fn, functools.partial(_same, given)))

    @classmethod
    def unpacked(cls, data: bytes) -> Patient:
        """Another copy of what was packed: no two share anything."""
        fn, given = pickle.loads(data)
        _own_globals()
        return cls(fn, *given())

    def roots(self) -> dict[str, Any]:
        """Where everything starts that a run may reach, by name."""
        found: dict[str, Any] = {"fn": self.fn, "inputs": self.args, "keywords": dict(self.kwargs)}
        return found | ({"optimizer": self.optimizer} if self.optimizer is not None else {})

    def with_each(self, call: str, images: bool = False) -> tuple[str, ...]:
        """Lines that convert the modules and floating tensors that it is given, those of images alone if
        asked, by their names: ``+ x = x.to(...)``."""
        own = [("model", self.fn)] if isinstance(self.fn, torch.nn.Module) else []
        lines = []
        for name, value in (*own, *zip(self.names, self.args, strict=False)):
            floating = isinstance(value, torch.Tensor) and value.is_floating_point()
            if isinstance(value, torch.nn.Module) or (floating and (value.dim() == 4 or not images)):
                lines.append(f"+ {name} = {name}{call}")
        return tuple(lines) or (f"+ convert modules and inputs: {call}",)

    def changed(self, on: Combination) -> Patient:
        """This one, as the switches have the program; its tensors are converted where they are, so it must be
        a copy. MeasureError where that cannot be done."""
        made = self
        for switch in on.switches:
            if switch.program:
                made = Patient.unpacked(switch.program)
        for switch in on.switches:
            if switch.dtype:
                _convert(made, getattr(torch, switch.dtype))
            if switch.channels_last:
                _to_channels_last(made)
            if switch.batch > 1:
                made = _larger(made, switch.batch)
        made.settle()  # of the types that it has now: an optimizer chooses those of its state
        return made

    def settle(self) -> None:
        """Give an optimizer the state that its first step makes, as if it had been taken on a copy: each
        measured step starts from there, and not with making it."""
        if self.optimizer is None or self.optimizer.state:
            return
        other = Patient.unpacked(self.packed())
        leaves = Snapshot(other.roots(), copies=False).tensors.values()
        with torch.random.fork_rng():
            other.step(t for t in leaves if t.is_leaf and t.requires_grad)()
        assert other.optimizer is not None
        self.optimizer.load_state_dict(other.optimizer.state_dict())

    def step(self, leaves: Iterable[torch.Tensor]) -> TrainingStep:
        """The call as it is measured, uncompiled."""
        made = TrainingStep(self.fn, self.args, self.kwargs, train=self.train, leaves=tuple(leaves))
        if self.optimizer is not None:
            made.after = functools.partial(optimize, self.optimizer)
        return made


class TrainingStep(Step):
    """A step with what comes ``after`` its backward pass: an optimizer's."""

    after: Callable[[], object] | None = None

    def __call__(self) -> Any:
        outputs = super().__call__()
        if self.after is not None:
            self.after()
        return outputs


def optimize(optimizer: torch.optim.Optimizer) -> None:
    """A function of its own, to be compiled."""
    optimizer.step()


def compiled_step(
    patient: Patient, eager: TrainingStep, settings: CompileSettings, whole: bool
) -> tuple[TrainingStep, tuple[Compiled, ...]]:
    """The step with its function compiled, and if ``whole`` the optimizer's too; and what was compiled."""
    compiles = settings.backend != "eager"
    made: list[Compiled] = [api.compile(patient.fn, **settings.keywords)] if compiles else []
    function = made[0] if made else patient.fn
    step = TrainingStep(function, patient.args, patient.kwargs, train=patient.train, leaves=eager.leaves)
    step.share_cotangents(eager)
    step.after = eager.after
    if compiles and whole and patient.optimizer is not None:
        made.append(api.compile(optimize, **settings.keywords))
        step.after = functools.partial(made[1], patient.optimizer)
    return step, tuple(made)


def batch_of(patient: Patient) -> int:
    """The extent that the tensor arguments have in front, if all that have one agree on it, weights excepted;
    0 where it cannot be told."""
    tensors = [leaf for leaf in _pytree.tree_leaves((patient.args, dict(patient.kwargs))) if _is_plain(leaf)]
    fronts = {tensor.shape[0] for tensor in tensors if tensor.dim() > 0}
    has_module = any(
        isinstance(each, torch.nn.Module) for each in (patient.fn, *patient.args, *patient.kwargs.values())
    )
    # Weights that are plain arguments look like inputs: then one tensor is as much as can be told apart.
    return fronts.pop() if len(fronts) == 1 and (has_module or len(tensors) == 1) else 0


def _own_globals() -> None:
    """Have Dynamo read the globals of the user's own functions where they are. By the name ``__main__`` it
    would look for them in the program that this process is."""
    main = vars(sys.modules["__main__"])
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__globals__ is not main:
            if each.__globals__.get("__name__") == "__main__":
                del each.__globals__["__name__"]


def _same(given: Any) -> Any:
    return given


def _is_plain(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)


def _convert(patient: Patient, kind: torch.dtype) -> None:
    """Every floating tensor within reach, in place: parameters, buffers, inputs, what closures hold."""
    tensors = Snapshot(patient.roots(), copies=False).tensors.values()
    floating = [tensor for tensor in tensors if tensor.dtype in _FLOATS]
    memories = [tensor.untyped_storage()._cdata for tensor in floating]
    if len(set(memories)) < len(memories):
        raise MeasureError("tensors share memory: converted, they would not.")
    for tensor in floating:
        tensor.grad = None
        tensor.data = tensor.data.to(kind)


def _to_channels_last(patient: Patient) -> None:
    for tensor in Snapshot(patient.roots(), copies=False).tensors.values():
        if tensor.dim() == 4 and tensor.dtype in _FLOATS:
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def _larger(patient: Patient, times: int) -> Patient:
    extent = batch_of(patient)
    if not extent:
        raise MeasureError("which extent is the batch cannot be told.")

    def repeated(leaf: Any) -> Any:
        if not _is_plain(leaf) or leaf.dim() == 0:
            return leaf
        made = torch.cat([leaf.detach()] * times)
        return made.requires_grad_() if leaf.requires_grad else made

    args, kwargs = _pytree.tree_map(repeated, (patient.args, dict(patient.kwargs)))
    return Patient(patient.fn, args, kwargs, patient.train, patient.optimizer)

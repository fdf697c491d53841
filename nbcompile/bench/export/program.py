"""What ``torch.export`` wants: a module, inputs bound to parameter names, and dynamic dimensions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from nbcompile.errors import OptionError

DynamicDim = str | tuple[str, int | None, int | None]
"""The name of a dimension, or its name with the least and the largest size it may have."""


@dataclass(frozen=True)
class NamedDim:
    """One dimension of an input that may have other sizes; ``low`` and ``high``: ``None`` where unbounded."""

    parameter: str
    axis: int
    name: str
    size: int
    low: int | None = None
    high: int | None = None

    def other_size(self) -> int:
        """A size that differs from the one exported with, and keeps its factors where it may."""
        for size in (2 * self.size, 3 * self.size, self.size // 2, self.size + 1, self.size - 1):
            if size > 1 and (self.low or 0) <= size and (self.high is None or size <= self.high):
                return size
        return self.size


@dataclass(frozen=True)
class ExportedFunction:
    """A program to export. ``arguments`` are the inputs by parameter name, ``dims`` what is dynamic."""

    fn: Callable[..., Any]
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    arguments: Mapping[str, Any]
    dims: tuple[NamedDim, ...]

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        dynamic: Mapping[str, Mapping[int, DynamicDim]],
    ) -> ExportedFunction:
        """TypeError if ``fn`` does not take these inputs, OptionError for a dimension that there is not."""
        signature = signature_of(fn)
        arguments = signature.bind(*args, **kwargs).arguments
        module = fn if isinstance(fn, torch.nn.Module) else _module(fn, signature)
        return cls(fn, module, args, kwargs, arguments, _dims(arguments, dynamic))

    def export(self) -> torch.export.ExportedProgram:
        """``torch.export.export``; raises what that raises."""
        return torch.export.export(
            self.module, self.args, dict(self.kwargs), dynamic_shapes=self.dynamic_shapes(), strict=False
        )

    def dynamic_shapes(self) -> dict[str, Any] | None:
        """The dimensions in torch.export's form, every parameter named."""
        if not self.dims:
            return None
        # Two dimensions of one name are one Dim.
        made: dict[str, Any] = {}
        for dim in self.dims:
            made.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.low, max=dim.high))
        return {
            parameter: {dim.axis: made[dim.name] for dim in self.dims if dim.parameter == parameter}
            or _pytree.tree_map(lambda _: None, value)
            for parameter, value in self.arguments.items()
        }

    def resized(self) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, int]]:
        """Inputs at another size of each dynamic dimension, made by repeating what is there; these sizes."""
        sizes: dict[str, int] = {}
        for dim in self.dims:
            sizes.setdefault(dim.name, dim.other_size())
        other = dict(self.arguments)
        for dim in self.dims:
            value = other[dim.parameter]
            place = torch.arange(sizes[dim.name], device=value.device) % dim.size
            other[dim.parameter] = value.detach().index_select(dim.axis, place)
        given = {id(self.arguments[name]): value for name, value in other.items()}

        def swapped(value: Any) -> Any:
            return given.get(id(value), value)

        return tuple(map(swapped, self.args)), {name: swapped(v) for name, v in self.kwargs.items()}, sizes


def parse_dim(text: str) -> tuple[str, int, DynamicDim]:
    """``x[0]=batch`` or ``x[0]=batch:2:64``: parameter, axis, and name with its bounds. OptionError for
    anything else."""
    left, equals, right = text.partition("=")
    parameter, bracket, axis = left.strip().rstrip("]").partition("[")
    name, *bounds = right.strip().split(":")
    if not (
        equals and bracket and parameter.isidentifier() and name.isidentifier() and len(bounds) in (0, 2)
    ):
        raise OptionError(
            f"{text!r} is no dynamic dimension.",
            advice="Write x[0]=batch, or x[0]=batch:2:64 with its bounds.",
        )
    try:
        numbers = [int(bound) if bound else None for bound in bounds]
        return parameter, int(axis), (name, numbers[0], numbers[1]) if numbers else name
    except ValueError as error:
        raise OptionError(f"{text!r}: axis and bounds are whole numbers.") from error


def _dims(
    arguments: Mapping[str, Any], dynamic: Mapping[str, Mapping[int, DynamicDim]]
) -> tuple[NamedDim, ...]:
    out: list[NamedDim] = []
    for parameter, axes in dynamic.items():
        value = arguments.get(parameter)
        if not isinstance(value, torch.Tensor):
            tensors = ", ".join(name for name, each in arguments.items() if isinstance(each, torch.Tensor))
            raise OptionError(
                f"there is no tensor {parameter!r} among the inputs.", advice=f"There are {tensors}."
            )
        for axis, given in axes.items():
            if not -value.dim() <= axis < value.dim():
                raise OptionError(f"{parameter} has {value.dim()} dimensions, and no dimension {axis}.")
            name, low, high = (given, None, None) if isinstance(given, str) else given
            size = value.shape[axis]
            if (low is not None and size < low) or (high is not None and size > high):
                raise OptionError(f"{parameter}[{axis}] is {size}, outside of {name}'s {low} to {high}.")
            if size < 2:
                raise OptionError(
                    f"{parameter}[{axis}] is {size}: torch.export takes sizes 0 and 1 for constants.",
                    advice="Export with an input that has at least 2 there.",
                )
            out.append(NamedDim(parameter, axis % value.dim(), name, size, low, high))
    for dim in out:
        other = next((each for each in out if each.name == dim.name and each.size != dim.size), None)
        if other is not None:
            raise OptionError(
                f"{dim.name} is {dim.size} in {dim.parameter} and {other.size} in {other.parameter}."
            )
    return tuple(out)


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function, or of a module's ``forward``."""
    try:
        return inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except ValueError:  # torch's own functions do not tell
        return inspect.signature(lambda *args, **kwargs: None)


def _module(fn: Callable[..., Any], signature: inspect.Signature) -> torch.nn.Module:
    """A module that calls ``fn``, under the parameter names of ``fn``."""

    class _Calling(torch.nn.Module):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [p for p in signature.parameters.values() if p.name != "self"]
    _Calling.forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own.replace(kind=inspect.Parameter.POSITIONAL_ONLY) if _only(named) else own, *named]
    )
    return _Calling()


def _only(parameters: list[inspect.Parameter]) -> bool:
    """Whether the first may only be given by position, so that what stands before it may too."""
    return bool(parameters) and parameters[0].kind is inspect.Parameter.POSITIONAL_ONLY

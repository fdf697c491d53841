"""The registry of operators: each is one decorated function, with its samples and its reference.

::

    @lowering(aten.leaky_relu.default, samples=unary(FLOATS, negative_slope=[0.01, -0.5]))
    def leaky_relu(b, x, negative_slope=0.01):
        return b.pointwise(lambda x: where(x > 0, x, x * negative_slope), x)

A lowering takes the builder and the node's arguments: a :class:`~nbcompile.compiler.loop_ir.nodes.View` for a
tensor, an ``IndexExpr`` for a symbolic int, plain values for the rest. It returns a view, a tuple of
views (``None`` for an output nobody may read), or a number. It raises ``LoweringError`` for a case it
does not handle: the node is then called in ATen, with that message as the reason.

What torch rewrites before it comes here (:mod:`nbcompile.compiler.capture.decompositions`) has no lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Sample:
    """Arguments of one call to test a lowering with. ``make`` is called anew for each use and gives
    ``(args, kwargs)``; it draws from the generator it is given only, so samples are repeatable."""

    name: str
    make: Callable[[torch.Generator], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Lowering:
    """How one ATen overload becomes loops. ``reference`` computes the same from the same arguments
    (default: the overload itself); tests call it in float64."""

    target: Any
    lower: Callable[..., Any]
    samples: tuple[Sample, ...] = ()
    reference: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Registry:
    """The lowerings by overload, those of operators that torch defines late by name, and the overloads that
    are called in ATen with the reason."""

    lowerings: dict[Any, Lowering] = field(default_factory=dict)
    named: dict[str, Lowering] = field(default_factory=dict)
    library: dict[Any, str] = field(default_factory=dict)

    def find(self, target: Any) -> Lowering | None:
        """The lowering of an overload, or None."""
        return self.lowerings.get(target) or self.named.get(str(target).removesuffix(".default"))

    def add(self, entry: Lowering) -> None:
        if isinstance(entry.target, str):
            self.named[entry.target] = entry
            return
        known = self.lowerings.get(entry.target)
        # a family whose import failed half-way registers again when it is imported again
        if known is not None and known.lower.__module__ != entry.lower.__module__:
            raise ValueError(f"{entry.target} has two lowerings")
        self.lowerings[entry.target] = entry


_registry = Registry()

FAMILIES = (
    "arithmetic", "elementary", "activations", "comparison", "creation", "random", "reductions", "softmax",
    "norms", "batch_norm", "scans", "shape", "joining", "overwrite", "gather", "scatter", "scatter_slices",
    "pooling", "max_pooling", "padding", "view_gradients", "library",
)  # fmt: skip
APART = ("nbcompile.compiler.linear_cross_entropy.lowering",)


def lowering(
    *targets: Any, samples: Iterable[Sample] = (), reference: Callable[..., Any] | None = None
) -> Callable[[Function], Function]:
    """Register the decorated function as the lowering of ATen overloads; ``None`` (an overload that
    this torch does not have, see :func:`overload`) is skipped. A string names an operator that torch
    defines only when it first uses it."""

    def register(function: Function) -> Function:
        for target in filter(None, targets):
            _registry.add(Lowering(target, function, tuple(samples), reference))
        return function

    return register


def lowered(target: Any) -> Lowering:
    """The entry of an overload that has been registered already."""
    return _registry.lowerings[target]


def library(reason: str, *targets: Any) -> None:
    """Declare overloads that are called in ATen as themselves, and why that is right; ``None`` is
    skipped."""
    for target in filter(None, targets):
        _registry.library[target] = reason


@cache
def registry() -> Registry:
    """The registry with every family loaded."""
    for name in (*(f"nbcompile.compiler.lower.operators.{family}" for family in FAMILIES), *APART):
        import_module(name)
    return _registry


def from_outside(target: Any) -> bool:
    """Whether an operator has a lowering that is not of this package, so that its code may change."""
    entry = registry().find(target)
    return entry is not None and _is_outside(entry)


def any_from_outside() -> bool:
    """Whether any operator has a lowering that is not of this package, without loading this package's."""
    entries = (*_registry.lowerings.values(), *_registry.named.values())
    return any(_is_outside(entry) for entry in entries)


def _is_outside(entry: Lowering) -> bool:
    return entry.lower.__module__.partition(".")[0] != __package__.partition(".")[0]


def overload(name: str) -> Any:
    """The overload ``aten.<name>`` if this torch has it, else None (older or newer versions)."""
    packet, _, variant = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return getattr(found, variant or "default", None) if found is not None else None

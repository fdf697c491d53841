"""The operators that XLA is given: one function of jax arrays each, found by ATen overload.

A lowering takes what is known of its result (:class:`Traced`) and the node's arguments: a jax array for a
tensor, a Python number for a symbolic size, all else as itself. It returns an array, or a tuple of them, of
the recorded shape; what runs it casts them to the recorded dtypes. It raises LoweringError for arguments that
it has no form for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import torch

from nbcompile.errors import LoweringError

Function = TypeVar("Function", bound=Callable[..., Any])

FAMILIES = ("pointwise", "reductions", "shapes", "indexing", "creation", "products", "pooling")

# By name: ml_dtypes, which numpy needs for bfloat16, is jax's.
DTYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.uint16: "uint16",
    torch.uint32: "uint32",
    torch.uint64: "uint64",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@dataclass(frozen=True)
class Traced:
    """What the capture recorded of a node: the fake tensor (or tuple) of its result, and of its arguments."""

    value: Any
    args: Sequence[Any] = field(default=())

    @property
    def tensor(self) -> Any:
        """The fake tensor of its result, or of the first of them."""
        return self.value if isinstance(self.value, torch.Tensor) else self.value[0]

    @property
    def dtype(self) -> str:
        """Its dtype, as jax calls it."""
        return dtype_name(self.tensor.dtype)

    @property
    def compute(self) -> str:
        """The dtype that ATen computes in: float32 for half types; of a comparison, what it compares as."""
        found = self.tensor.dtype
        if found == torch.bool:
            values = [v for v in self.args if isinstance(v, torch.Tensor | int | float | complex)]
            return dtype_name(torch.result_type(values[0], values[-1])) if values else "bool"
        return dtype_name(_WIDER.get(found, found))


def dtype_name(dtype: torch.dtype) -> str:
    """jax's name of a torch dtype. LoweringError for those that it has not."""
    if dtype not in DTYPES:
        raise LoweringError(f"jax has no dtype like {str(dtype).removeprefix('torch.')}")
    return DTYPES[dtype]


_lowerings: dict[Any, Callable[..., Any]] = {}


def lowers(*names: str) -> Callable[[Function], Function]:
    """Register the decorated function for ``aten.<name>`` each (``add.Tensor``; ``default`` may be left out,
    and ``prims.iota`` is one of the prims); what this torch does not have is skipped."""

    def register(function: Function) -> Function:
        for name in names:
            target = overload(name)
            if target is not None:
                _lowerings[target] = function
        return function

    return register


def lower_each(table: Mapping[str, Callable[..., Any]]) -> None:
    """Register a table of operators that are one expression each: their names, as :func:`lowers` has them,
    between spaces, to the function."""
    for names, function in table.items():
        lowers(*names.split())(function)


def overload(name: str) -> Any:
    """``torch.ops.aten.<name>`` (or ``prims.<name>``), or None where this torch has no such overload."""
    space = torch.ops.prims if name.startswith("prims.") else torch.ops.aten
    packet, _, variant = name.removeprefix("prims.").partition(".")
    found = getattr(space, packet, None)
    return getattr(found, variant or "default", None) if found is not None else None


@cache
def lowerings() -> dict[Any, Callable[..., Any]]:
    """Every lowering by its overload. Imports jax."""
    for family in FAMILIES:
        import_module(f"nbcompile.backends.xla.operators.{family}")
    return _lowerings

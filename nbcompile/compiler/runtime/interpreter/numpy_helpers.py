"""What generated Triton files call, in numpy and torch, for Triton's interpreter.

- :data:`libdevice` stands for ``triton.language.extra.libdevice``, whose functions the interpreter refuses,
  :data:`cuda` for ``triton.language.extra.cuda``;
- :data:`HELPERS` replace functions of a generated file, by name, that reduce with a combine function of
  their own: one numpy call instead of some for each halving.

Executed by :mod:`nbcompile.compiler.runtime.interpreter.interpret` against its own copy of Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

Array = np.ndarray[Any, Any]


def _wrap(data: Array, dtype: Any, scalar: bool) -> Any:
    """A numpy array as a tensor of the interpreter, which keeps a scalar as an array of one element."""
    kind = dtype if scalar else tl.block_type(dtype, list(data.shape))
    data = data.reshape(1) if scalar else data
    return tl.core.tensor(triton_interpreter.TensorHandle(data, dtype), kind)


def _elementwise(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        arrays = [torch.from_numpy(np.array(arg.handle.data)) for arg in args]
        scalar = not any(arg.type.is_block() for arg in args)
        return _wrap(function(*arrays).numpy(), args[0].type.scalar, scalar)

    return call


libdevice = SimpleNamespace(
    **{
        name: _elementwise(getattr(torch, name))
        for name in "exp exp2 expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc "
        "erfinv lgamma trunc pow atan2 hypot copysign nextafter".split()
    },
    # torch's gives NaN where the quotient overflows
    fmod=_elementwise(lambda a, b: torch.from_numpy(np.fmod(a.numpy(), b.numpy()))),
    nearbyint=_elementwise(torch.round),
    fast_dividef=_elementwise(torch.div),
    erfcx=_elementwise(torch.special.erfcx),
    ldexp=_elementwise(lambda a, b: torch.from_numpy(np.asarray(np.ldexp(a.numpy(), b.numpy())))),
)
"""The functions of libdevice that generated code calls, on tensors of the interpreter."""

cuda = SimpleNamespace(gdc_wait=lambda: None)
"""What generated code takes from ``triton.language.extra.cuda``: here launches never overlap."""


def _reduction(reduce: np.ufunc) -> Callable[..., Any]:
    def call(x: Any, axis: Any) -> Any:
        data = reduce.reduce(x.handle.data, axis=int(axis), dtype=x.handle.data.dtype)
        return _wrap(np.asarray(data), x.type.scalar, data.ndim == 0)

    return call


def _arg_reduction(best_of: Callable[..., Array]) -> Callable[..., Any]:
    def call(value: Any, position: Any, axis: Any) -> tuple[Any, Any]:
        data, places, axis = value.handle.data, position.handle.data, int(axis)
        places = np.broadcast_to(places, data.shape)
        # numpy's argmax takes the first NaN if there is one; equals are told apart by their position
        best = np.take_along_axis(data, np.expand_dims(best_of(data, axis=axis), axis), axis)
        equal = (data == best) | ((data != data) & (best != best))
        first = np.where(equal, places, np.iinfo(places.dtype).max).min(axis=axis)
        best = np.squeeze(best, axis)
        scalar = best.ndim == 0
        return _wrap(best, value.type.scalar, scalar), _wrap(first, position.type.scalar, scalar)

    return call


HELPERS: dict[str, Callable[..., Any]] = {
    "max_nan": _reduction(np.maximum),
    "min_nan": _reduction(np.minimum),
    "prod": _reduction(np.multiply),
    "any_true": _reduction(np.logical_or),
    "all_true": _reduction(np.logical_and),
    "arg_max": _arg_reduction(np.argmax),
    "arg_min": _arg_reduction(np.argmin),
}
"""Reductions of a generated file by the name of its function; same parameters, same result."""

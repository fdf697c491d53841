"""What Triton's interpreter lacks to run generated kernels on the CPU, in numpy and torch.

- :data:`libdevice` stands for ``triton.language.extra.libdevice``, whose functions the interpreter refuses;
- :data:`HELPERS` replace functions of a generated file, by name, that reduce with a combine function of
  their own, which the interpreter does element by element in Python;
- :func:`interpreting` mends the interpreter: bfloat16 is rounded to nearest even (it truncates), integers
  wrap around (it raises), ``tl.maximum`` drops NaN as the hardware does, functions of ``triton.language``
  that are written in Triton can be called whenever Triton was imported, and all is as before afterwards.

Used between :func:`interpreting`'s start and end only. Needs triton; import this module inside functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.jit import JITFunction

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
    erfcx=_elementwise(torch.special.erfcx),
)
"""The functions of libdevice that generated code calls, on tensors of the interpreter."""


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


def _convert(source: Any, target: Any) -> Any:
    """The interpreter's conversion of a handle to another element type, rounding to nearest even."""
    dtype, data = target.scalar, source.data
    if source.dtype.scalar == tl.bfloat16:
        data = (data.astype(np.uint32) << 16).view(np.float32)
    if dtype == tl.bfloat16:
        rounded = torch.from_numpy(np.array(data)).to(torch.bfloat16)
        return triton_interpreter.TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), dtype)
    return triton_interpreter.TensorHandle(data.astype(triton_interpreter._get_np_dtype(target)), dtype)


@contextlib.contextmanager
def interpreting() -> Iterator[None]:
    """Within it a generated file can be executed (its functions become interpreted ones) and its kernels
    called on CPU tensors. Not for two threads at once: the interpreter itself is one for the process."""
    builder = triton_interpreter.interpreter_builder
    owners = (tl, tl.core, tl.math, tl.standard, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)
    before = [dict(vars(owner)) for owner in owners]
    own = dict(vars(builder))
    rewritten: list[Callable[..., Any]] = []
    builder.cast_impl = _convert
    builder.create_maxnumf = lambda a, b: builder.binary_op(a, b, np.fmax)
    builder.create_minnumf = lambda a, b: builder.binary_op(a, b, np.fmin)
    builder.options = triton_interpreter.InterpreterOptions(sanitize_overflow=False)
    try:
        with triton.knobs.runtime.scope(), np.errstate(all="ignore"):
            triton.knobs.runtime.interpret = True
            for owner in (tl.standard, tl):
                for name, value in list(vars(owner).items()):
                    if isinstance(value, JITFunction):
                        setattr(owner, name, triton_interpreter.InterpretedFunction(value.fn))
                        rewritten.append(value.fn)
            yield
    finally:
        for function in rewritten:  # a rewritten function needs globals that are removed below
            triton_interpreter.InterpretedFunction.rewritten_fn.pop(function, None)
        # the interpreter leaves what it patches for a called function as it is
        for owner, saved in zip(owners, before, strict=True):
            for name, value in list(vars(owner).items()):
                if name not in saved:
                    delattr(owner, name)
                elif value is not saved[name]:
                    setattr(owner, name, saved[name])
        vars(builder).clear()
        vars(builder).update(own)

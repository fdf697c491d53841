"""A jaxpr evaluated one primitive at a time: what jax computes where nothing is jitted, also in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbcompile.backends.xla.exchange import wide_types
from nbcompile.backends.xla.jaxpr import inner_jaxpr

_HALVES = ("float16", "bfloat16", "float32")
_PREPARED = ("random_bits", "bitcast_convert_type", "reduce_precision")
"""What makes a float of bits, or says how many it has: as it is, its result widened."""


def one_by_one(closed: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of a ``ClosedJaxpr``, each primitive dispatched by itself; of functions that it calls too,
    but for what a mesh of devices runs, loops and branches. No line of the user's Python runs."""
    import jax

    with jax.disable_jit():
        return _evaluate(closed.jaxpr, closed.consts, arrays, _bound)


def in_float64(closed: Any, arrays: Sequence[Any]) -> list[Any]:
    """The same with every float an IEEE double, so that results can be held against it. Raises whatever jax
    raises where a primitive has no such form."""
    import jax

    with wide_types(), jax.disable_jit():
        return _evaluate(
            closed.jaxpr, [_wide(each) for each in closed.consts], map(_wide, arrays), _wide_bound
        )


Bind = Callable[[Any, list[Any]], list[Any]]


def _evaluate(jaxpr: Any, constants: Sequence[Any], arrays: Any, bind: Bind) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arrays, strict=True))
    last = _last_uses(jaxpr)

    def read(var: Any) -> Any:
        return var.val if hasattr(var, "val") else values[var]

    for place, equation in enumerate(jaxpr.eqns):
        operands = [read(var) for var in equation.invars]
        key = inner_jaxpr(equation)
        if key and str(equation.primitive) != "shard_map":
            called = equation.params[key]
            inner = getattr(called, "jaxpr", called)
            made = _evaluate(inner, getattr(called, "consts", ()), operands, bind)
        else:
            made = bind(equation, operands)
        values.update(zip(equation.outvars, made, strict=True))
        for var in last.get(place, ()):
            del values[var]
    return [read(var) for var in jaxpr.outvars]


@functools.lru_cache(maxsize=256)
def _last_uses(jaxpr: Any) -> Mapping[int, list[Any]]:
    """The variables that nothing reads after an equation, so that their memory can go."""
    last: dict[Any, int] = {}
    for place, equation in enumerate(jaxpr.eqns):
        used = (*equation.invars, *equation.outvars)
        last.update((var, place) for var in used if not hasattr(var, "val"))
    for var in jaxpr.outvars:
        if not hasattr(var, "val"):
            last.pop(var, None)
    found: dict[int, list[Any]] = {}
    for var, place in last.items():
        found.setdefault(place, []).append(var)
    return found


def _bound(equation: Any, operands: list[Any], params: Mapping[str, Any] | None = None) -> list[Any]:
    found = equation.primitive.get_bind_params(equation.params if params is None else params)
    functions, given = found if isinstance(found, tuple) else ((), found)  # a pair before jax 0.10
    with equation.ctx.manager:
        made = equation.primitive.bind(*functions, *operands, **given)
    return list(made) if equation.primitive.multiple_results else [made]


def _wide_bound(equation: Any, operands: list[Any]) -> list[Any]:
    if str(equation.primitive) == "shard_map":
        raise NotImplementedError("what a mesh of devices runs is not widened")
    if str(equation.primitive) in _PREPARED:
        narrow = [
            _as(operand, var.aval.dtype) for operand, var in zip(operands, equation.invars, strict=True)
        ]
        return [_wide(each) for each in _bound(equation, narrow)]
    params = {key: _wide_param(value) for key, value in equation.params.items()}
    return _bound(equation, [_wide(each) for each in operands], params)


def _wide(value: Any) -> Any:
    import jax.numpy as jnp

    name = str(getattr(value, "dtype", ""))
    if name == "complex64":
        return jnp.asarray(value, "complex128")
    return jnp.asarray(value, "float64") if name in _HALVES else value


def _as(value: Any, dtype: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(value, dtype) if str(dtype) in _HALVES else value


def _wide_param(value: Any) -> Any:
    """A parameter of a primitive for operands that are doubles: dtypes, and the jaxprs of loops and
    branches."""
    import jax
    import numpy as np
    from jax.extend import core

    if isinstance(value, core.ClosedJaxpr):
        given = [_wide_struct(var.aval) for var in value.jaxpr.invars]
        return jax.make_jaxpr(lambda *arrays: in_float64(value, arrays))(*given)
    if isinstance(value, tuple):
        made = [_wide_param(each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = str(np.dtype(value))
        return np.dtype("float64") if name in _HALVES else value
    return value


def _wide_struct(aval: Any) -> Any:
    import jax

    name = str(aval.dtype)
    dtype = "float64" if name in _HALVES else aval.dtype
    return jax.ShapeDtypeStruct(aval.shape, dtype)  # type: ignore[no-untyped-call]

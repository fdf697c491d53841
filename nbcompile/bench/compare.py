"""``nbcompile.compare``: one program through several compilers, at one point or at every point of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

from nbcompile.bench.measure.compare import DEFAULT_CONTESTANTS, Measuring
from nbcompile.bench.measure.compare import compare as compare_once
from nbcompile.bench.measure.contestant import Named
from nbcompile.bench.measure.roofline import ceilings_of
from nbcompile.bench.sweep.result import Sweep
from nbcompile.bench.sweep.running import sweep
from nbcompile.record.compilation import Compilation
from nbcompile.settings import CompileSettings, keywords_of


@overload
def compare(
    fn: Callable[..., Any],
    inputs: Any = (),
    contestants: Sequence[Named] = ...,
    **settings: Any,
) -> Compilation: ...
@overload
def compare(
    fn: Callable[..., Any] | None,
    inputs: Callable[..., Any],
    contestants: Mapping[str, Any],
    **settings: Any,
) -> Sweep: ...
@overload
def compare(
    fn: Callable[..., Any] | None,
    inputs: Callable[..., Any],
    *,
    grid: Mapping[str, Any],
    **settings: Any,
) -> Sweep: ...


@keywords_of(CompileSettings, Measuring, without=("backend",))
def compare(
    fn: Any,
    inputs: Any = (),
    contestants: Any = DEFAULT_CONTESTANTS,
    *,
    grid: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Compilation | Sweep:
    """Hold several compilers' versions of ``fn`` beside each other.

    ``compare(fn, inputs, ("eager", "inductor"))`` compares them on these inputs and returns a record:
    :func:`nbcompile.bench.measure.compare.compare` has the settings.

    ``compare(fn, make_inputs, {"backend": [...], "dtype": [...], "B": [1, 8, 64]})`` does so at every
    combination, with inputs of ``make_inputs(B=...)``, and returns a Sweep:
    :func:`nbcompile.bench.sweep.running.sweep` has the settings.
    """
    if grid is None and isinstance(contestants, Mapping):
        grid = contestants
    if grid is not None:
        return sweep(fn, inputs, grid, **settings)
    return _with_ceilings(compare_once(fn, inputs, contestants, **settings))


def _with_ceilings(record: Compilation) -> Compilation:
    """With what this chip can do at most, so that ``plot("roofline")`` can hold the kernels against it."""
    if record.ceilings or record.execution != "compiled" or all(k.seconds is None for k in record.kernels):
        return record
    return replace(record, ceilings=ceilings_of(record))

"""Samples to test lowerings with: the awkward inputs first (NaN, infinity, empty, 0-d, strided,
overlapping, broadcast, integer, bool and half types)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from nbcompile.compiler.lower.registry import Sample

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.uint8)

Call = tuple[tuple[Any, ...], dict[str, Any]]
Draw = Callable[..., torch.Tensor]


def tensor(
    generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32, special: bool = False,
    low: float = -4, high: float = 4,
) -> torch.Tensor:  # fmt: skip
    """Random values in [low, high); ``special`` puts NaN, infinities, zeros of both signs and huge and
    tiny values in front (floating types)."""
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if special and dtype.is_floating_point:
        corner = torch.tensor(
            [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e30, -1e30, 1e-30, 1.0, -1.0],
            dtype=torch.float64,
        )
        flat = values.reshape(-1)
        count = min(len(corner), flat.numel())
        flat[:count] = corner[:count]
    if dtype == torch.bool:
        return values > (low + high) / 2
    if not dtype.is_floating_point and not dtype.is_signed:
        values = values.abs()
    return values.to(dtype)


def unary(
    dtypes: Sequence[torch.dtype] = FLOATS, low: float = -4, high: float = 4, **options: Iterable[Any]
) -> list[Sample]:
    """Samples of ``f(x, **options)`` for each dtype and combination of options."""
    samples = []
    for dtype in dtypes:
        for values in itertools.product(*options.values()):
            kwargs = dict(zip(options, values, strict=True))
            samples.append(_sample(f"{dtype}-{kwargs}", dtype, low, high, kwargs, lambda x: x))
    first = dtypes[0]
    kwargs = {name: next(iter(values)) for name, values in options.items()}
    shapes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "transposed": lambda x: x.t(),
        "strided": lambda x: x[::2, 1::2],
        "0-d": lambda x: x[3, 3],
        "empty": lambda x: x[:, :0],
        "expanded": lambda x: x[:1].expand(5, -1),
    }
    for name, view in shapes.items():
        samples.append(_sample(name, first, low, high, kwargs, view))
    return samples


def calls(**makers: Callable[[Draw], Call]) -> list[Sample]:
    """Samples by name: each maker gets ``draw(*shape, dtype=..., special=..., low=..., high=...)``
    (see :func:`tensor`) and returns ``call(...)``."""
    return [Sample(name.replace("_", "-"), partial(_drawn, make)) for name, make in makers.items()]


def _drawn(make: Callable[[Draw], Call], generator: torch.Generator) -> Call:
    return make(partial(tensor, generator))


def call(*args: Any, **kwargs: Any) -> Call:
    """The arguments of one call of an operator."""
    return args, kwargs


def of_view(*items: tuple[Any, ...], shape: tuple[int, ...] = (4, 6, 5)) -> list[Sample]:
    """One sample per ``(view, argument, ...)``: the operator on ``view(x)`` and the arguments."""

    def make(item: tuple[Any, ...]) -> Callable[[torch.Generator], Call]:
        return lambda g: ((item[0](tensor(g, *shape)), *item[1:]), {})

    return [Sample(f"{n}-{item[1:]}".replace(" ", ""), make(item)) for n, item in enumerate(items)]


def with_numbers(
    *numbers: Any, dtypes: Sequence[torch.dtype] = (*FLOATS, *INTS), low: float = -4, high: float = 4,
    swap: bool = False, **options: Iterable[Any],
) -> list[Sample]:  # fmt: skip
    """Samples of ``f(x, number, **options)``, or ``f(number, x)`` if ``swap``; 0-d and empty x too."""

    def make(dtype: torch.dtype, number: Any, kwargs: dict[str, Any], *shape: int) -> Callable[..., Call]:
        def call_with(g: torch.Generator) -> Call:
            special = low < -1 and high > 1
            x = tensor(g, *shape, dtype=dtype, special=special and len(shape) > 1, low=low, high=high)
            return ((number, x) if swap else (x, number)), kwargs

        return call_with

    samples = []
    for values in itertools.product(*options.values()):
        kwargs = dict(zip(options, values, strict=True))
        for number in numbers:
            samples += [
                Sample(f"{dtype}-{number}-{kwargs}", make(dtype, number, kwargs, 7, 34)) for dtype in dtypes
            ]
        samples.append(Sample(f"0-d-{kwargs}", make(dtypes[0], numbers[0], kwargs)))
        samples.append(Sample(f"empty-{kwargs}", make(dtypes[0], numbers[0], kwargs, 3, 0)))
    return samples


def _sample(
    name: str, dtype: torch.dtype, low: float, high: float, kwargs: dict[str, Any],
    view: Callable[[torch.Tensor], torch.Tensor],
) -> Sample:  # fmt: skip
    def make(generator: torch.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
        special = low < -1 and high > 1
        return (view(tensor(generator, 7, 34, dtype=dtype, special=special, low=low, high=high)),), kwargs

    return Sample(name, make)


def binary(
    dtypes: Sequence[torch.dtype] = (*FLOATS, *INTS), low: float = -4, high: float = 4,
    **options: Iterable[Any],
) -> list[Sample]:  # fmt: skip
    """Samples of ``f(x, y, **options)``: each dtype and option, then broadcasting and mixed types."""
    samples = []

    def add(
        name: str, make_pair: Callable[[torch.Generator], tuple[Any, Any]], kwargs: dict[str, Any]
    ) -> None:
        samples.append(Sample(name, lambda generator: (make_pair(generator), kwargs)))

    for dtype in dtypes:
        for values in itertools.product(*options.values()):
            kwargs = dict(zip(options, values, strict=True))

            def pair(g: torch.Generator, dtype: torch.dtype = dtype) -> tuple[Any, Any]:
                special = low < -1 and high > 1
                return (
                    tensor(g, 7, 34, dtype=dtype, special=special, low=low, high=high),
                    tensor(g, 7, 34, dtype=dtype, low=low, high=high),
                )

            add(f"{dtype}-{kwargs}", pair, kwargs)
    first = dtypes[0]
    kwargs = {name: next(iter(values)) for name, values in options.items()}

    def make(g: torch.Generator, *shape: int) -> torch.Tensor:
        return tensor(g, *shape, dtype=first, low=low, high=high)

    add("broadcast", lambda g: (make(g, 7, 1, 5), make(g, 3, 1)), kwargs)
    add("0-d", lambda g: (make(g, 7, 5), make(g)), kwargs)
    add("transposed", lambda g: (make(g, 7, 9).t(), make(g, 9, 7)), kwargs)
    add("empty", lambda g: (make(g, 0, 5), make(g, 5)), kwargs)
    return samples

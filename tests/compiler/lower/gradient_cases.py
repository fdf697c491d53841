"""Cases for the contest (contest.py): torch's operator database and our registry's own samples, in every
dtype and layout that eager takes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from nbcompile.compiler.lower.registry import Lowering
from tests.compiler.lower.contest import Case, differentiable, tensors

FIRST = torch.float32
DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.uint8,
    torch.bool,
)  # fmt: skip
COTANGENTS = ("contiguous", "expanded", "transposed")
LARGEST = 3000  # elements of a case's tensors together


# -- layouts ------------------------------------------------------------------------------------


def transposed(x: torch.Tensor) -> torch.Tensor | None:
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else None


def strided(x: torch.Tensor) -> torch.Tensor | None:
    """Every second element of each row, from the second row on."""
    if not x.dim():
        return torch.stack([x, x])[1]
    wide = x.new_zeros([x.shape[0] + 1, *x.shape[1:-1], *([2 * x.shape[-1]] if x.dim() > 1 else [])])
    view = wide[1:, ..., ::2] if x.dim() > 1 else wide[1:]
    return view.copy_(x)


def expanded(x: torch.Tensor) -> torch.Tensor | None:
    return x[:1].clone().expand(x.shape) if x.dim() and x.shape[0] > 1 else None


def channels_last(x: torch.Tensor) -> torch.Tensor | None:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else None


def empty(x: torch.Tensor) -> torch.Tensor | None:
    return x[:0] if x.dim() else None


LAYOUTS: tuple[Callable[[torch.Tensor], torch.Tensor | None], ...] = (
    transposed, strided, expanded, channels_last, empty,
)  # fmt: skip


def in_layout(case: Case, layout: Callable[[torch.Tensor], torch.Tensor | None]) -> Case | None:
    """The case with the tensors that can have it in this layout; None if none can."""
    changed = False

    def change(leaf: Any) -> Any:
        nonlocal changed
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = layout(leaf)
        changed = changed or made is not None
        return leaf if made is None else made

    with torch.no_grad():
        args, kwargs = pytree.tree_map(change, (case.args, case.kwargs))
    return replace(case, name=f"{case.name} {layout.__name__}", args=args, kwargs=kwargs) if changed else None


# -- torch's database ---------------------------------------------------------------------------


@functools.cache
def database() -> dict[str, Any]:
    """torch's own operators by name, but for those whose results are uninitialised, and pdist: in eager its
    gradient ends the process."""
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}
    return {
        name: op
        for name, op in named.items()
        if not name.startswith(("empty", "new_empty", "nn.functional.pdist"))
    }


def samples(op: Any, dtype: torch.dtype) -> list[Case]:
    """Every sample of moderate size."""
    torch.manual_seed(0)
    found = []
    try:
        listed = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 400))
    except Exception:
        return []
    for place, sample in enumerate(listed):
        args = pytree.tree_map(detached, (sample.input, *sample.args))
        kwargs = pytree.tree_map(detached, dict(sample.kwargs))
        given = list(tensors((args, kwargs)))
        if sum(item.numel() for item in given) <= LARGEST and all(map(plain, given)):
            name = f"{str(dtype).removeprefix('torch.')} sample {place}"
            found.append(Case(name, op.op, args, kwargs))
    return found


def plain(x: torch.Tensor) -> bool:
    return x.layout is torch.strided and not x.is_nested


def detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def spread(cases: list[Case], count: int) -> list[Case]:
    """``count`` of the cases, those that differ most in their arguments' kinds first."""
    groups: dict[Any, list[Case]] = {}
    for case in cases:
        groups.setdefault(_signature(case), []).append(case)
    turns: Iterable[Any] = itertools.chain.from_iterable(itertools.zip_longest(*groups.values()))
    return list(itertools.islice((case for case in turns if case is not None), count))


def _signature(case: Case) -> Any:
    def of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.dtype, leaf.dim(), leaf.numel() == 0
        return leaf if isinstance(leaf, bool | str) else type(leaf)

    leaves, shape = pytree.tree_flatten((case.args, case.kwargs))
    return str(shape), tuple(map(of, leaves))


def cases_of(op: Any, count: int = 8) -> list[Case]:
    """The cases of one operator of the database: samples, dtypes, layouts, cotangents, twice, in place."""
    first = spread(samples(op, FIRST), count) if FIRST in op.dtypes else []
    made = list(first)
    more = {dtype: spread(samples(op, dtype), 2) for dtype in DTYPES if dtype in op.dtypes}
    made += itertools.chain.from_iterable(more.values())
    for case in (first or next(iter(more.values()), []))[:2]:
        made += filter(None, (in_layout(case, layout) for layout in LAYOUTS))
        if any(map(differentiable, tensors((case.args, case.kwargs)))):
            made.append(replace(case, name=f"{case.name} twice", twice=True))
    if op.inplace_variant is not None:
        for listed in (first, *more.values()):
            made += [
                replace(case, name=f"{case.name} in place", function=op.inplace_variant, graded=False)
                for case in listed[:1]
                if not any(item.is_complex() for item in tensors((case.args, case.kwargs)))
            ]
    return [replace(case, cotangent=COTANGENTS[place % len(COTANGENTS)]) for place, case in enumerate(made)]


# -- the registry's own -------------------------------------------------------------------------


def cases_of_lowering(entry: Lowering, count: int = 24) -> list[Case]:
    """The samples beside a lowering, through the ATen operator, with its gradient where it has one."""
    made = []
    for sample in entry.samples:
        args, kwargs = sample.make(torch.Generator().manual_seed(0))
        made.append(Case(sample.name, entry.target, tuple(args), kwargs))
    chosen = list(_few(made, count))
    chosen += [
        replace(case, name=f"{case.name} twice", twice=True)
        for case in chosen[:1]
        if any(map(differentiable, tensors((case.args, case.kwargs))))
    ]
    return [replace(case, cotangent=COTANGENTS[place % len(COTANGENTS)]) for place, case in enumerate(chosen)]


def _few(cases: list[Case], count: int) -> Iterator[Case]:
    step = max(1, -(-len(cases) // count))
    yield from cases[::step]

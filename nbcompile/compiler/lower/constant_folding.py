"""Index tensors that depend on no input: their elements are known when the graph is compiled.

Nearest upsampling, flips, strided picks and padding by reflection are written in PyTorch as an index by a
tensor made of ``arange`` and some arithmetic. It is evaluated here, by ATen itself, and told again as a
formula of the position where there is one: then the gather is a plain view, and the scatter of its gradient
can be turned round (:mod:`nbcompile.compiler.lower.scatter_to_gather`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree
from torch.utils._python_dispatch import _disable_current_modes

from nbcompile.compiler.loop_ir.expr import Expr, index_value, op
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, floordiv, index
from nbcompile.compiler.loop_ir.nodes import View

MOST_FOLDED = 1 << 16
"""Elements of a tensor that is evaluated at compile time, at most."""
MOST_PARTS = 256
"""Divisors that a formula may have: what is slower than a shift is still faster than a gathered load."""

# Exact on every device: what is rounded down is the same everywhere.
_EXACT = frozenset(
    "arange iota full zeros ones full_like zeros_like ones_like scalar_tensor add sub rsub mul div "
    "neg abs sign floor ceil trunc round clamp clamp_min clamp_max minimum maximum where remainder "
    "fmod floor_divide _to_copy convert_element_type clone alias lift_fresh_copy unsqueeze squeeze "
    "view _unsafe_view reshape expand permute transpose t slice select flip cat stack repeat "
    "constant_pad_nd eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or "
    "bitwise_not".split()
)  # fmt: skip

_QUOTIENTS = frozenset(("div", "floor_divide", "remainder", "fmod"))


class FoldedTensors:
    """The tensors of one graph that depend on no input, evaluated when somebody asks."""

    def __init__(self) -> None:
        self._nodes: dict[str, fx.Node] = {}
        self._found: dict[fx.Node, torch.Tensor | None] = {}

    def made(self, node: fx.Node, lowered: Any) -> None:
        """``lowered`` is what became of ``node``."""
        if isinstance(lowered, View) and lowered.is_whole():
            self._nodes.setdefault(lowered.buffer.name, node)

    def buffer(self, name: str) -> torch.Tensor | None:
        """The elements of a buffer."""
        node = self._nodes.get(name)
        if node is None:
            return None
        with _disable_current_modes():
            return self._evaluate(node)

    def elements(self, view: View) -> torch.Tensor | None:
        """The elements of a view, or None if they are not known."""
        whole = self.buffer(view.buffer.name)
        extents = [axis.extent.constant for axis in view.axes]
        if whole is None or any(extent is None for extent in extents):
            return None
        shape = [extent for extent in extents if extent is not None]
        if torch.Size(shape).numel() > MOST_FOLDED:
            return None
        with _disable_current_modes():
            grids = torch.meshgrid(*map(torch.arange, shape), indexing="ij") if shape else ()
            at = dict(zip(view.axes, grids, strict=True))
            places = [_everywhere(place, at, shape) for place in view.index]
            return whole[tuple(places)] if places else whole.expand(shape)

    def _evaluate(self, node: fx.Node) -> torch.Tensor | None:
        if node not in self._found:
            self._found[node] = self._computed(node) if is_exact(node) else None
        return self._found[node]

    def _computed(self, node: fx.Node) -> torch.Tensor | None:
        given = {each: self._evaluate(each) for each in node.all_input_nodes}
        if any(value is None for value in given.values()):
            return None

        def here(value: Any) -> Any:
            if isinstance(value, fx.Node):
                return given[value]
            return torch.device("cpu") if isinstance(value, torch.device) else value

        args, kwargs = _pytree.tree_map(here, (tuple(node.args), dict(node.kwargs)))
        if kwargs.get("pin_memory"):
            return None
        target: Any = node.target  # an operator: the node is exact
        result = target(*args, **kwargs)
        return result if isinstance(result, torch.Tensor) else None


def is_exact(node: fx.Node) -> bool:
    """Whether the node itself is one of the operators evaluated here, with a small result of static size."""
    fake = node.meta.get("val")
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.split("::")[-1]
    if name not in _EXACT or not isinstance(fake, torch.Tensor):
        return False
    if not all(isinstance(extent, int) for extent in fake.shape) or fake.numel() > MOST_FOLDED:
        return False
    return not fake.dtype.is_floating_point or _same_everywhere(node, name, fake.dtype)


def _same_everywhere(node: fx.Node, name: str, dtype: torch.dtype) -> bool:
    """Whether an operator gives the same floating-point numbers on a GPU as here: quotients may be products
    with a reciprocal there, and steps are added up in another type."""
    if dtype not in (torch.float32, torch.float64) or name in _QUOTIENTS:
        return False
    numbers = [item for item in (*node.args, *node.kwargs.values()) if isinstance(item, float)]
    return name not in ("arange", "iota") or all(item.is_integer() for item in numbers)


def _everywhere(place: IndexExpr, at: dict[Any, torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
    def value_of(atom: Any) -> Any:
        return at[atom] if atom in at else _refuse(atom)

    found: Any = place.evaluate(value_of)
    return found.expand(shape) if isinstance(found, torch.Tensor) else torch.full(tuple(shape), found)


def _refuse(atom: Any) -> int:
    raise AssertionError(f"{atom} in the place of a folded tensor")


# -- formulas --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuasiAffine:
    """``(scale*i + shift) // divisor``, kept within ``clamp`` (least, most) if that is given. ``lift``: what
    to add to the quotient, and take off again, so that its numerator is never negative."""

    scale: int
    shift: int
    divisor: int = 1
    clamp: tuple[int, int] | None = None
    lift: int = 0

    def at(self, i: IndexExpr) -> IndexExpr:
        """The formula as an index: it must not be clamped."""
        return floordiv(i * self.scale + self.shift, index(self.divisor))

    def value(self, i: IndexExpr) -> Expr:
        """The formula as a scalar."""
        lifted = i * self.scale + (self.shift + self.lift * self.divisor)
        made = index_value(floordiv(lifted, index(self.divisor)) - self.lift)
        if self.clamp is None:
            return made
        return op("minimum", op("maximum", made, self.clamp[0]), self.clamp[1])


@dataclass(frozen=True)
class Formula:
    """The elements of a tensor: ``constant`` and a step along each axis where they change."""

    constant: int
    steps: tuple[QuasiAffine | None, ...]

    @property
    def clamped(self) -> bool:
        return any(step is not None and step.clamp is not None for step in self.steps)

    def at(self, where: Sequence[IndexExpr]) -> IndexExpr:
        total = index(self.constant)
        for step, i in zip(self.steps, where, strict=True):
            total = total + (ZERO if step is None else step.at(i))
        return total

    def value(self, where: Sequence[IndexExpr]) -> Expr:
        """The same as a scalar, which may be clamped along one axis."""
        if not self.clamped:
            return index_value(self.at(where))
        ((step, i),) = [(step, i) for step, i in zip(self.steps, where, strict=True) if step is not None]
        return step.value(i)


def formula_of(values: torch.Tensor) -> Formula | None:
    """What gives each element from its place, if the axes have their say one by one."""
    if not values.numel():
        return None
    with _disable_current_modes():
        values = values.to(torch.int64)
        first = int(values[(0,) * values.dim()])
        lines = []
        rebuilt = torch.full_like(values, first)
        for dim in range(values.dim()):
            line = values[tuple(slice(None) if n == dim else 0 for n in range(values.dim()))]
            lines.append(line.tolist())
            rebuilt += (line - first).reshape([-1 if n == dim else 1 for n in range(values.dim())])
        if not torch.equal(rebuilt, values):
            return None
    changing = [dim for dim, line in enumerate(lines) if any(item != first for item in line)]
    if not changing:
        return Formula(first, (None,) * len(lines))
    steps: list[QuasiAffine | None] = [None] * len(lines)
    for dim in changing:
        # all but the first axis count from 0, so each is a formula of its own that is not negative
        lowest = 0 if dim == changing[0] else min(lines[dim])
        steps[dim] = quasi_affine_of([item - lowest for item in lines[dim]], clamps=len(changing) == 1)
        if steps[dim] is None:
            return None
    constant = sum(min(lines[dim]) - first for dim in changing[1:])
    return Formula(constant, tuple(steps))


def quasi_affine_of(line: Sequence[int], *, clamps: bool = False) -> QuasiAffine | None:
    """The step with the smallest divisor that gives ``line``, a list of numbers that are not negative."""
    if min(line) < 0:
        return None
    if len(line) == 1:
        return QuasiAffine(0, line[0])
    rises = {(after > before) - (after < before) for before, after in pairwise(line)}
    if {1, -1} <= rises:
        return None
    plain = plain_quasi_affine(line)
    if plain is not None or not clamps:
        return plain
    # where the line rests at either end, it may be clamped there
    ends = line[0], line[-1]
    start = next(n for n, item in enumerate(line) if item != ends[0])
    stop = len(line) - next(n for n, item in enumerate(reversed(line)) if item != ends[1])
    if stop - start < 2:
        return None
    inner = plain_quasi_affine(line[start:stop], start)
    if inner is None:
        return None
    low, high = min(ends), max(ends)
    made = [(inner.scale * n + inner.shift) // inner.divisor for n in range(len(line))]
    if [min(max(item, low), high) for item in made] != list(line):
        return None
    return QuasiAffine(inner.scale, inner.shift, inner.divisor, (low, high), max(0, -min(made)))


def plain_quasi_affine(line: Sequence[int], start: int = 0) -> QuasiAffine | None:
    """The step whose elements from ``start`` on are ``line``."""
    span, rise = len(line) - 1, line[-1] - line[0]
    if not span:
        return QuasiAffine(0, line[0])
    with _disable_current_modes():
        values = torch.tensor(line)
        places = torch.arange(start, start + len(line))
        for divisor in range(1, min(MOST_PARTS, len(line)) + 1):
            for scale in _scales(rise, span, divisor):
                rest = divisor * values - scale * places
                least, most = int(rest.max()), int(rest.min()) + divisor - 1
                if least <= most:  # any shift between them gives these elements: a simple one
                    return QuasiAffine(scale, min(max(0, least), most), divisor)
    return None


def _scales(rise: int, span: int, divisor: int) -> Iterator[int]:
    """Slopes, in parts of ``divisor``, of lines that may rise by ``rise`` over ``span`` steps."""
    least, most = (rise * divisor - divisor) // span, -(-(rise * divisor + divisor) // span)
    middle = round(rise * divisor / span)
    return iter(sorted(range(least, most + 1), key=lambda scale: abs(scale - middle)))

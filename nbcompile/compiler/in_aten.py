"""A graph of ATen operators run as it is, one operator after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.autograd import forward_ad

from nbcompile.errors import LaunchError

aten = torch.ops.aten


def in_aten(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """``module`` as a function of one list of inputs, which it empties: ATen's operators, in order.

    A graph is traced with fake tensors, whose strides are not always those of ATen's results (``roll`` of a
    transposed tensor). Whoever reads the results goes by the traced ones, the graph's own views included, so
    each result is laid out as traced.
    """

    @functools.cache
    def laid_out() -> Callable[..., Any]:
        return _laid_out_as_traced(module).forward

    def call(inputs: list[Any]) -> Any:
        taken = tuple(inputs)
        inputs.clear()
        return laid_out()(*taken)

    return call


def carry_tangents(args: Sequence[Any]) -> bool:
    """Whether forward-mode AD follows what a graph is given: kernels would compute the values alone."""
    if forward_ad._current_level < 0:
        return False
    tensors = (arg for arg in args if isinstance(arg, torch.Tensor))
    return any(forward_ad.unpack_dual(each).tangent is not None for each in tensors)  # type: ignore[no-untyped-call]


def as_traced(
    tensor: torch.Tensor | None, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor | None:
    """What a library call gave, as the kernels that read it take it to be: fake tensors are at times told
    another dtype or other strides than a real call gives. Raises LaunchError where its shape is another."""
    if tensor is None:  # attention in inference leaves out what only a gradient needs
        return None
    if tensor.shape != shape:
        raise LaunchError(f"a library call gave {list(tensor.shape)}, and was traced as {list(shape)}")
    return restride(tensor if tensor.dtype is dtype else tensor.to(dtype), strides)


def handed_on(tensor: torch.Tensor | None, strides: tuple[int, ...]) -> torch.Tensor | None:
    """What a library call gives besides its result, for its own gradient alone: of whatever type and size it
    is (the sums of an attention in float64 are traced as float32), with the strides it was traced with."""
    return tensor if tensor is None or tensor.dim() != len(strides) else restride(tensor, strides)


def restride(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """``tensor`` with the strides its graph was compiled for; copied only if a library call laid it
    out otherwise (the stride of an extent of 1 does not matter)."""
    if tensor.stride() == strides or all(
        have == want or extent <= 1
        for extent, have, want in zip(tensor.shape, tensor.stride(), strides, strict=True)
    ):
        return tensor
    shape = tuple(tensor.shape)
    for axis, stride in enumerate(strides):
        if stride == 0 and shape[axis] > 1:  # one element is all of them, and copy_ writes to none twice
            tensor = tensor.narrow(axis, 0, 1)
    out = torch.empty_strided(tuple(tensor.shape), strides, dtype=tensor.dtype, device=tensor.device)
    out.copy_(tensor)
    return out if tensor.shape == shape else out.expand(shape)


def shares_elements(fake: torch.Tensor) -> bool:
    """Whether two elements of a traced tensor may lie at one address, by the sizes that are at hand."""
    pairs = [(_hint(stride), _hint(extent)) for extent, stride in zip(fake.shape, fake.stride(), strict=True)]
    if any(extent == 0 for _, extent in pairs):
        return False
    reach = 0
    for stride, extent in sorted(pair for pair in pairs if pair[1] > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def _hint(value: Any) -> int:
    hint = value.node.hint if isinstance(value, torch.SymInt) else value
    return 1 if hint is None else int(hint)


def shows_an_argument(target: torch._ops.OpOverload) -> bool:
    """Whether an operator returns memory that it was given: views, and updates in place."""
    return any(item.alias_info is not None for item in target._schema.returns)


def _laid_out_as_traced(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    renamed: dict[fx.Node, fx.Node] = {}
    sizes: dict[sympy.Symbol, fx.Node] = {}
    for node in module.graph.nodes:
        made = renamed[node] = graph.node_copy(node, lambda item: renamed[item])
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            sizes[value.node.expr] = made
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target is aten.view.default:
            made.target = aten.reshape.default
        if node.target is aten.view_as_complex.default:
            made.target = _as_complex
        if node.target is aten.gather.default and str(node.meta.get("original_aten")) in _LOSSES_OF_CLASSES:
            made.target = _of_classes
        values = value if isinstance(value, tuple | list) else [value]
        wanted = [_strides(item, sizes) for item in values]
        if shows_an_argument(node.target) or not any(wanted):
            continue
        symbols = tuple({symbol for each in wanted for n in each or () for symbol in n.free_symbols})
        laid_out = _restriding(wanted, symbols)
        renamed[node] = graph.call_function(laid_out, (made, *(sizes[symbol] for symbol in symbols)))
    return fx.GraphModule(module, graph)


# by name: a copy of a graph has copies of the operators that its nodes' meta tells of
_LOSSES_OF_CLASSES = ("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")


def _of_classes(scores: torch.Tensor, dim: int, classes: torch.Tensor) -> torch.Tensor:
    """The ``gather`` that torch makes of a loss, which has other words than the loss for a class that is
    none, and another type of error."""
    try:
        return scores.gather(dim, classes)
    except RuntimeError:
        outside = (classes < 0) | (classes >= scores.shape[dim])
        if not outside.any():
            raise
        raise IndexError(f"Target {int(classes[outside][0])} is out of bounds.") from None


def _as_complex(pair: torch.Tensor) -> torch.Tensor:
    """``view_as_complex`` that is no view of ``pair`` to autograd: of an input that shows in a result,
    AOTAutograd makes that result again by the views that lead to it, from their first tensor on."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return torch.view_as_complex(pair)


def _strides(fake: Any, sizes: dict[sympy.Symbol, fx.Node]) -> tuple[sympy.Expr, ...] | None:
    """The strides that a result was traced with; None where there is nothing to hold it to: no tensor, sizes
    that depend on data, and strides by which elements share memory, which no operator's result has."""
    if not isinstance(fake, torch.Tensor) or fake.layout != torch.strided:
        return None
    strides = tuple(_expression(n) for n in fake.stride())
    if any(symbol not in sizes for n in strides for symbol in n.free_symbols):
        return None
    return None if shares_elements(fake) else strides


def _expression(value: Any) -> sympy.Expr:
    return value.node.expr if isinstance(value, torch.SymInt) else sympy.Integer(value)


def _restriding(
    wanted: Sequence[tuple[sympy.Expr, ...] | None], symbols: Sequence[sympy.Symbol]
) -> Callable[..., Any]:
    """A function of an operator's results and of what ``symbols`` are at a call: the results with the strides
    ``wanted`` (None: as they are)."""

    @functools.lru_cache(maxsize=64)
    def numbers(*sizes: int) -> list[tuple[int, ...] | None]:
        known = dict(zip(symbols, sizes, strict=True))
        return [each and tuple(int(n.subs(known)) for n in each) for each in wanted]

    def laid_out(result: Any, *sizes: Any) -> Any:
        results = result if isinstance(result, tuple | list) else [result]
        pairs = zip(results, numbers(*map(int, sizes)), strict=True)
        made = [
            item if item is None or strides is None else restride(item, strides) for item, strides in pairs
        ]
        return made if isinstance(result, tuple | list) else made[0]

    return laid_out

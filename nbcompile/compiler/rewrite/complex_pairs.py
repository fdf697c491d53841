"""Complex numbers as pairs: operators on them become operators on real tensors with a last dimension of two,
as ``view_as_real`` shows them, which are lowered and fused like all others.

Done for parts of a graph where that saves more memory traffic than it costs: a complex tensor that a library
makes or takes (a Fourier transform), or that the graph is given or returns, is copied on its way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert, replace
from nbcompile.compiler.stages import SHOWS_A_MARK, STEP_OF

aten = torch.ops.aten


class _Steps:
    """Makes the nodes that stand for one node."""

    def __init__(self, node: fx.Node, pairs: dict[fx.Node, fx.Node]) -> None:
        self.node, self.pairs = node, pairs
        self.count = 0

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = insert(self.node, target, args, f"{self.node.name}_pair{self.count or ''}", **kwargs)
        made.meta[STEP_OF] = _name(self.node)
        self.count += 1
        return made

    def pair(self, item: fx.Node) -> fx.Node:
        """The pair that stands for a complex node."""
        if item not in self.pairs:
            with item.graph.inserting_after(_last_beside(item)):
                shown = insert(item, aten.view_as_real.default, (item,), f"{item.name}_pair")
            self.pairs[item] = shown
        return self.pairs[item]

    def parts(self, item: Any) -> tuple[Any, Any]:
        """Real and imaginary part of an operand: nodes, or numbers."""
        if isinstance(item, complex):
            return item.real, item.imag
        if not isinstance(item, fx.Node):
            return float(item), 0.0
        if not _is_complex(item):
            return item, 0.0
        pair = self.pair(item)
        last = _value(pair).dim() - 1
        return self(aten.select.int, pair, last, 0), self(aten.select.int, pair, last, 1)

    def joined(self, real: Any, imaginary: Any) -> fx.Node:
        """A pair of two real tensors, or of one and a number, laid out as the complex result is."""
        if not isinstance(imaginary, fx.Node):
            imaginary = self(aten.full_like.default, real, imaginary)
        if not isinstance(real, fx.Node):
            real = self(aten.full_like.default, imaginary, real)
        shape, rank = _value(self.node).shape, _value(self.node).dim()
        columns = []
        for part in (real, imaginary):
            if _value(part).shape != shape:  # of symbolic sizes none has another
                part = self(aten.expand.default, part, list(shape))
            columns.append(self(aten.unsqueeze.default, part, rank))
        made = self(aten.cat.default, columns, rank)
        result = _value(self.node)
        want = torch.view_as_real(result.conj() if result.is_conj() else result).stride()
        if _value(made).stride() == want:
            return made
        memory = self(aten.new_empty_strided.default, made, list(_value(made).shape), list(want))
        return self(aten.copy.default, memory, made)


Rule = Callable[..., fx.Node]


def pairs_of_complex_numbers(module: fx.GraphModule) -> int:
    """Rewrite a graph, in place; returns how many operators became operators on pairs."""
    graph = module.graph
    _conjugate_numbers(graph)
    pairs: dict[fx.Node, fx.Node] = {}
    with fake_tensors(fake_mode(graph)):
        changed = _norms_of_sizes(graph)
        chosen = _chosen(graph)
        for node in list(graph.nodes):
            if node not in chosen:
                continue
            with graph.inserting_before(node):
                steps = _Steps(node, pairs)
                made = _RULES[node.target](steps, *node.args, **node.kwargs)
                if _is_complex(node):
                    pair, made = made, steps(aten.view_as_complex.default, made)
                    pairs[made] = pair
            if _value(node).is_conj() or _value(node).is_neg():  # of a number, not of what is shown
                node.replace_all_uses_with(made)
            else:
                replace(node, made)
    if chosen or changed:
        graph.eliminate_dead_code()
        graph.lint()
        module.recompile()
    return len(chosen)


def _norms_of_sizes(graph: fx.Graph) -> bool:
    """Take the norm of complex numbers of their sizes, which are computed once: the gradient of a largest one
    goes where a size equals it, and sizes that another kernel computes may differ in the last bit. Whether
    there was any."""
    sizes: dict[fx.Node, fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=aten.linalg_vector_norm.default):
        of = node.args[0]
        if not _is_complex(of):
            continue
        if of not in sizes:
            with graph.inserting_before(node):
                sizes[of] = insert(node, aten.abs.default, (of,), f"{node.name}_sizes")
        node.update_arg(0, sizes[of])
        if node.kwargs.get("dtype") is not None:
            node.update_kwarg("dtype", node.kwargs["dtype"].to_real())
    for node in graph.find_nodes(op="call_function", target=aten.abs.default):
        first = sizes.get(node.args[0])
        if first is not None and first is not node and first < node:
            node.replace_all_uses_with(first)
    return bool(sizes)


# -- which operators -----------------------------------------------------------------------------------


def _chosen(graph: fx.Graph) -> set[fx.Node]:
    """The operators to rewrite: groups of them between which complex values go, if what is copied at their
    edges is no more than what they themselves make."""
    able: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if _is_able(node, able):
            able[node] = None
    group = {node: node for node in able}

    def root(node: fx.Node) -> fx.Node:
        while group[node] is not node:
            node = group[node]
        return node

    for node in able:
        for other in node.all_input_nodes:
            if other in group and _is_complex(other):
                group[root(node)] = root(other)
    gained: dict[fx.Node, float] = {}
    for node in able:
        own = 0.0 if node.target in _FREE else _elements(node)
        edges = {i for i in node.all_input_nodes if _is_complex(i) and i not in group}
        lost = sum(map(_elements, edges))
        if _is_complex(node) and any(user not in group for user in node.users):
            # what a library or the caller takes is made by a copy, which lies in order
            lost += _elements(node) if _value(node).is_contiguous() else math.inf
        gained[root(node)] = gained.get(root(node), 0.0) + own - lost
    working = {root(node) for node in able if node.target not in _FREE}
    return {node for node in able if root(node) in working and gained[root(node)] >= 0}


def _conjugate_numbers(graph: fx.Graph) -> None:
    """A gradient asks for the conjugate of a factor that is a number: take that number."""
    for node in list(graph.nodes):
        if node.target is _CONJ and not isinstance(node.args[0], fx.Node):
            number = node.args[0].conjugate()
            for user in list(node.users):
                user.args = tuple(number if item is node else item for item in user.args)
            if not node.users:
                graph.erase_node(node)


def _is_able(node: fx.Node, able: Mapping[fx.Node, None]) -> bool:
    """Whether there is a rule for it, given which of the nodes before it are ``able``."""
    if node.op != "call_function" or node.target not in _RULES or SHOWS_A_MARK in node.meta:
        return False
    near = (node, *node.all_input_nodes)
    tensors = [item for item in near if isinstance(item.meta.get("val"), torch.Tensor)]
    if not any(map(_is_complex, tensors)):
        return False
    if any(_value(item).dtype == torch.complex32 for item in tensors):
        return False
    others = [item for item in tensors if item is not node and item not in able]
    lazy = any(_value(item).is_conj() or _value(item).is_neg() for item in others)
    shown = any(user.op == "output" for user in node.users)
    if node.target not in _MAKERS and not isinstance(node.args[0], fx.Node):
        return False
    if node.target not in _FREE and not _is_static(node) and not _is_plain(node, tensors):
        return False
    if isinstance(node.kwargs.get("alpha"), complex):
        return False
    if node.target is aten.cat.default and not _alike(node.args[0]):
        return False
    if node.target is aten.pow.Tensor_Scalar and node.args[1] != 2:
        return False
    if node.target is aten.roll.default and len(node.args) < 3:
        return False  # of all numbers in a row
    if node.target is aten.index.Tensor and not _names_places(node.args[1]):
        return False
    if node.target in _FILLED and isinstance(node.args[_FILLED[node.target]], fx.Node):
        return False
    if node.target is aten._to_copy.default and not _is_complex(node):
        return False
    if node.target is aten.sum.dim_IntList and not _is_complex(node.args[0]):
        return False
    # A view that is returned shows what the caller knows; a conjugate of what is made here is a number.
    source: Any = node.args[0] if node.target is _CONJ else None
    made = source in able and source.target not in _FREE
    return not lazy and not (shown and not made and (node.target in _FREE or _value(node).is_conj()))


def _alike(tensors: Any) -> bool:
    """Whether ``cat`` takes complex tensors of one type and as many dimensions: eager converts others, and
    leaves out those of shape (0,)."""
    return len({(_value(each).dtype, _value(each).dim()) for each in tensors}) == 1 and _is_complex(
        tensors[0]
    )


def _names_places(indices: Any) -> bool:
    """Whether they are numbers, and no masks."""
    kinds = {_value(each).dtype for each in indices if each is not None}
    return torch.bool not in kinds and torch.uint8 not in kinds


def _is_static(node: fx.Node) -> bool:
    value = _value(node)
    return all(isinstance(extent, int) for extent in (*value.shape, *value.stride()))


def _is_plain(node: fx.Node, tensors: Sequence[fx.Node]) -> bool:
    """Whether nothing is broadcast or laid out anew, for which symbolic sizes would have to be at hand."""
    if node.target is aten.sum.dim_IntList:
        return True
    return _value(node).is_contiguous() and all(_value(item).shape == _value(node).shape for item in tensors)


def _is_complex(node: Any) -> bool:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.is_complex()


def _elements(node: fx.Node) -> float:
    return float(math.prod(_hint(extent) for extent in _value(node).shape))


def _hint(extent: Any) -> int:
    hint = extent.node.hint if isinstance(extent, torch.SymInt) else extent
    return 1 if hint is None else int(hint)


def _value(node: fx.Node) -> torch.Tensor:
    value: torch.Tensor = node.meta["val"]
    return value


def _name(node: fx.Node) -> str:
    return str(node.target._schema.name).rpartition("::")[2]  # type: ignore[union-attr]


def _last_beside(node: fx.Node) -> fx.Node:
    """The last of the inputs that stand beside this one; a node that is none itself. (Of a joint graph with
    effects, an input follows much later.)"""
    while node.op == "placeholder" and node.next.op == "placeholder":
        node = node.next
    return node


# -- one operator at a time ------------------------------------------------------------------------------


# As in eager mode a real operand has an imaginary part of 0, also where that makes NaN of infinity; and a
# difference is a sum with ``-alpha`` times the other, also in the sign of nothing.


def _mul(s: _Steps, a: Any, b: Any) -> fx.Node:
    return s.joined(*_product(s, s.parts(a), s.parts(b)))


def _product(s: _Steps, a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    (ar, ai), (br, bi) = a, b
    real = _added(s, aten.sub.Tensor, _times(s, ar, br), _times(s, ai, bi))
    return real, _added(s, aten.add.Tensor, _times(s, ar, bi), _times(s, ai, br))


def _added(s: _Steps, sign: Any, a: Any, b: Any) -> Any:
    """The sum or difference of real nodes or numbers."""
    if isinstance(a, fx.Node):
        return s(sign, a, b)
    if isinstance(b, fx.Node):  # of addition either may come first
        return s(sign, b, a) if sign is aten.add.Tensor else s(sign, s(aten.full_like.default, b, a), b)
    return a + b if sign is aten.add.Tensor else a - b


def _times(s: _Steps, a: Any, b: Any) -> Any:
    """The product of real nodes or numbers."""
    if not isinstance(a, fx.Node) and not isinstance(b, fx.Node):
        return a * b
    first, second = (a, b) if isinstance(a, fx.Node) else (b, a)
    return s(aten.mul.Tensor, first, second)


def _sign(s: _Steps, x: fx.Node) -> fx.Node:
    """``x / |x|``, and nothing of nothing."""
    real, imaginary = s.parts(x)
    size = s(aten.hypot.default, real, imaginary)
    nothing = s(aten.eq.Scalar, size, 0)
    none = s(aten.full_like.default, size, 0.0)
    parts = (s(aten.div.Tensor, part, size) for part in (real, imaginary))
    return s.joined(*(s(aten.where.self, nothing, none, part) for part in parts))


def _converted(s: _Steps, x: fx.Node, **kwargs: Any) -> fx.Node:
    dtype = _value(s.node).dtype.to_real()
    if _is_complex(x):
        return s(aten._to_copy.default, s.pair(x), dtype=dtype)
    return s.joined(s(aten._to_copy.default, x, dtype=dtype), 0.0)


def _cloned(s: _Steps, x: fx.Node, *, memory_format: Any = None) -> fx.Node:
    kept = {"memory_format": memory_format} if memory_format is torch.contiguous_format else {}
    return s(aten.clone.default, s.pair(x), **kept)


def _sum(sign: int) -> Rule:
    def rule(s: _Steps, a: Any, b: Any, *, alpha: Any = 1) -> fx.Node:
        scaled = _product(s, (float(sign * alpha), 0.0), s.parts(b))
        parts = zip(s.parts(a), scaled, strict=True)
        return s.joined(*(_added(s, aten.add.Tensor, one, other) for one, other in parts))

    return rule


def _negative(s: _Steps, x: fx.Node) -> fx.Node:
    pair = s.pair(x)
    return s(aten.sub.Tensor, s(aten.full_like.default, pair, 0.0), pair)


def _each(target: Any) -> Rule:
    """An operator that does the same to both parts."""
    return lambda s, x, *args, **kwargs: s(target, s.pair(x), *args, **kwargs)


def _conjugate(s: _Steps, x: fx.Node) -> fx.Node:
    real, imaginary = s.parts(x)
    return s.joined(real, s(aten.neg.default, imaginary))


def _abs(s: _Steps, x: fx.Node) -> fx.Node:
    return s(aten.hypot.default, *s.parts(x))


def _angle(s: _Steps, x: fx.Node) -> fx.Node:
    real, imaginary = s.parts(x)
    return s(aten.atan2.default, imaginary, real)


def _square(s: _Steps, x: fx.Node, power: Any) -> fx.Node:
    """As eager has it, whatever type the two is of."""
    return _mul(s, x, x)


def _turned(s: _Steps, x: fx.Node, *numbers: Any) -> fx.Node:
    """``flip`` and ``roll``, whose dimensions are the last argument."""
    *shifts, dims = numbers
    return s(s.node.target, s.pair(x), *shifts, [dim % _value(x).dim() for dim in dims])


def _polar(s: _Steps, size: fx.Node, angle: fx.Node) -> fx.Node:
    real = s(aten.mul.Tensor, size, s(aten.cos.default, angle))
    return s.joined(real, s(aten.mul.Tensor, size, s(aten.sin.default, angle)))


def _where(s: _Steps, test: fx.Node, a: fx.Node, b: fx.Node) -> fx.Node:
    def part(one: Any, other: Any) -> Any:
        nodes = [each if isinstance(each, fx.Node) else None for each in (one, other)]
        like = next(each for each in nodes if each is not None)
        given = (each or s(aten.full_like.default, like, number) for each, number in zip(nodes, (one, other)))
        return s(aten.where.self, test, *given)

    return s.joined(*(part(one, other) for one, other in zip(s.parts(a), s.parts(b), strict=True)))


def _filled(s: _Steps, like: Any, number: complex, **kwargs: Any) -> fx.Node:
    """``full`` and ``full_like``: one number in each part."""
    kept = {"dtype": _value(s.node).dtype.to_real(), "device": _value(s.node).device}
    first = s.parts(like)[0] if isinstance(like, fx.Node) else like
    return s.joined(*(s(s.node.target, first, part, **kept) for part in s.parts(complex(number))))


def _number(s: _Steps, number: complex, **_: Any) -> fx.Node:
    kept = {"dtype": _value(s.node).dtype.to_real(), "device": _value(s.node).device}
    return s.joined(*(s(aten.full.default, [], part, **kept) for part in s.parts(complex(number))))


def _cat(s: _Steps, tensors: Sequence[fx.Node], dim: int = 0) -> fx.Node:
    return s(aten.cat.default, [s.pair(each) for each in tensors], dim % _value(s.node).dim())


def _shape(*extra: int) -> Rule:
    """Views by a list of extents: the pair's own comes last."""
    return lambda s, x, shape, **kwargs: s(s.node.target, s.pair(x), [*shape, *extra], **kwargs)


def _permute(s: _Steps, x: fx.Node, dims: Iterable[int]) -> fx.Node:
    rank = _value(x).dim()
    return s(aten.permute.default, s.pair(x), [*(dim % rank for dim in dims), rank])


def _along(s: _Steps, x: fx.Node, dim: int = 0, *args: Any, **kwargs: Any) -> fx.Node:
    """Views along one dimension, counted from the front."""
    rank = _value(s.node).dim() if s.node.target is aten.unsqueeze.default else _value(x).dim()
    return s(s.node.target, s.pair(x), dim % max(rank, 1), *args, **kwargs)


def _reduced(s: _Steps, x: fx.Node, dims: Any = None, *args: Any, **kwargs: Any) -> fx.Node:
    rank = _value(x).dim()
    every = [dim % rank for dim in dims] if dims else list(range(rank))
    if kwargs.get("dtype") is not None:
        kwargs = kwargs | {"dtype": kwargs["dtype"].to_real()}
    return s(s.node.target, s.pair(x), every, *args, **kwargs)


_CONJ = aten._conj.default
_MAKERS = frozenset(
    {
        aten.complex.default, aten.polar.default, aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor,
        aten.full.default, aten.scalar_tensor.default, aten.cat.default,
    }
)  # fmt: skip
_RULES: dict[Any, Rule] = {
    aten.view_as_complex.default: lambda s, x: s(aten.alias.default, x),
    aten.view_as_real.default: lambda s, x: s(aten.alias.default, s.pair(x)),
    aten.complex.default: lambda s, real, imaginary: s.joined(real, imaginary),
    aten.polar.default: _polar,
    aten.abs.default: _abs,
    aten.angle.default: _angle,
    aten.mul.Tensor: _mul,
    aten.add.Tensor: _sum(1),
    aten.sub.Tensor: _sum(-1),
    aten.neg.default: _negative,
    _CONJ: _conjugate,
    aten.conj_physical.default: _conjugate,
    aten.mul.Scalar: _mul,
    aten.pow.Tensor_Scalar: _square,
    aten.flip.default: _turned,
    aten.roll.default: _turned,
    aten.index.Tensor: _each(aten.index.Tensor),
    aten.where.self: _where,
    aten.full.default: _filled,
    aten.full_like.default: _filled,
    aten.scalar_tensor.default: _number,
    aten.cat.default: _cat,
    aten.sgn.default: _sign,
    aten._to_copy.default: _converted,
    aten.clone.default: _cloned,
    aten.view.default: _shape(2),
    aten._unsafe_view.default: _shape(2),
    aten.expand.default: _shape(2),
    aten.permute.default: _permute,
    aten.slice.Tensor: _along,
    aten.select.int: _along,
    aten.unsqueeze.default: _along,
    aten.squeeze.dim: _along,
    aten.alias.default: _each(aten.alias.default),
    aten.sum.dim_IntList: _reduced,
}
_FILLED = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
"""What makes a tensor of one number, and the place of that among the arguments."""
_FREE = frozenset({
    aten.view_as_complex.default, aten.view_as_real.default, aten.view.default, aten._unsafe_view.default,
    aten.expand.default, aten.permute.default, aten.slice.Tensor, aten.select.int, aten.unsqueeze.default,
    aten.squeeze.dim, aten.alias.default,
})  # fmt: skip

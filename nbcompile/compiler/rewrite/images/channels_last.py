"""ATen graph → ATen graph: convolutions of images and volumes run channels-last, and what is between follows.

cuDNN's kernels for the matrix units want the channels innermost; given another layout it converts its
operands and its result at every call, and so does oneDNN on a CPU. Here operands are converted once, where
they come in, each result after them takes the strides that ATen gives it, and what leaves the graph has the
strides it was traced with. Our kernels take their memory order from strides, so a conversion beside one of
them costs nothing.

Of a training step the joint graph is rewritten, before it is split: so both halves agree on the strides
of what one saves for the other.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from nbcompile.compiler.fx_values import dim, hint
from nbcompile.compiler.passes import Setting
from nbcompile.compiler.rewrite.images.convolutions import (
    OPERANDS,
    is_convolution,
    is_image,
    to_be_channels_last,
)
from nbcompile.compiler.rewrite.new_nodes import fake_mode, fake_tensors, insert, run, set_result
from nbcompile.options import Options

aten = torch.ops.aten

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_BY_STRIDES = frozenset(
    "as_strided as_strided_ as_strided_copy as_strided_scatter _reshape_alias sym_stride sym_storage_offset "
    "stride storage_offset set_ resize resize_as _resize_output".split()
)
"""Operators whose result depends on where their argument's elements lie, not only on what they are."""

_CARRIERS = frozenset(
    "cat constant_pad_nd reflection_pad2d replication_pad2d native_group_norm native_group_norm_backward "
    "_unsafe_index index upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_nearest3d "
    "_adaptive_avg_pool2d avg_pool2d avg_pool2d_backward max_pool2d_with_indices native_batch_norm "
    "max_pool2d_with_indices_backward native_batch_norm_backward _native_batch_norm_legit "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training batch_norm_backward".split()
)
"""Beside those that work element by element: operators whose result is an image if their argument is."""

_LIKE = {
    "native_batch_norm": 0, "_native_batch_norm_legit": 0, "_native_batch_norm_legit_functional": 0,
    "_native_batch_norm_legit_no_training": 0, "native_batch_norm_backward": 1, "native_group_norm": 0,
}  # fmt: skip
"""Operators whose first result lies as this argument does, if that is an image, and whose others are none.
Fake tensors know that too, at 20 ms a call: they do each step of the norm. Those of torch 2.14 have it wrong
for group_norm (channels-first, where the operator itself answers channels-last)."""

_RERUN_ERRORS = (RuntimeError, ValueError, TypeError, AssertionError, IndexError, KeyError)
"""What running an operator on fake tensors raises where it cannot be done with these strides."""


def run_channels_last(module: fx.GraphModule, setting: Setting) -> fx.GraphModule:
    """Rewrite, in place, a flat ATen graph so that the convolutions that gain by it have inputs, weights and
    results channels-last; a note says so. Returns the module.

    ``options.channels_last`` decides: ``"auto"`` those that are worth it, ``"always"`` every one, ``"never"``
    none. Results of the graph keep the strides in their ``meta["val"]``.
    """
    options = setting.options
    convolutions = [node for node in module.graph.nodes if is_convolution(node)]
    chosen = to_be_channels_last(module.graph, convolutions, options.channels_last, options.chip.kind)
    mode = fake_mode(module.graph) if chosen else None
    if mode is None:
        return module
    rewrite = _Rewrite(module, options, chosen, mode)
    if not rewrite.run():
        return module
    module.graph.lint()
    module.recompile()
    forward = [node for node in convolutions if node.target is aten.convolution.default]
    count, of = sum(node in rewrite.done for node in forward), len(forward)
    which = f"{count} of {of}" if count < of else str(count)
    note = f"{which} convolution{'s' if of != 1 else ''} {'run' if of != 1 else 'runs'} channels-last"
    setting.recorder.add(note)
    setting.said.append(note)
    return module


class _Rewrite:
    """One graph being rewritten, in its order. A node is *renewed* if its fake result is another one, and
    *moved* if that has other strides than the graph was traced with."""

    def __init__(
        self, module: fx.GraphModule, options: Options, chosen: frozenset[fx.Node], mode: Any
    ) -> None:
        self.graph = module.graph
        self.chosen = chosen
        self.mode = mode
        self.keeps_random = options.eager_random
        self.prefers_copies = not options.chip.is_gpu
        self.done: set[fx.Node] = set()
        self.traced: dict[fx.Node, Any] = {}  # of renewed nodes: their results as traced
        self.moved: set[fx.Node] = set()
        self.targets: dict[fx.Node, Any] = {}  # of views that became reshapes: what they were
        self.inserted: list[fx.Node] = []
        self.last: dict[fx.Node, fx.Node] = {}  # node → the same channels-last
        self.copied: dict[fx.Node, fx.Node] = {}  # ... and the other way
        self.kept: dict[fx.Node, fx.Node] = {}  # node → the same with the strides it was traced with

    def run(self) -> bool:
        """Whether anything changed."""
        with fake_tensors(self.mode):
            for node in list(self.graph.nodes):
                if node.op == "output":
                    node.args = map_arg(node.args, lambda item: self._as_traced(item, node))  # noqa: B023
                elif node.op != "call_function":
                    continue
                elif node in self.chosen:
                    self._convolution(node)
                    continue
                self._read_copies(node)
                if any(item in self.traced for item in node.all_input_nodes):
                    self._follow(node)
        for node in reversed(self.inserted):
            if not node.users:
                self.graph.erase_node(node)
        return bool(self.traced)

    # -- convolutions ------------------------------------------------------------------------------

    def _convolution(self, node: fx.Node) -> None:
        """Convert the operands. Where ATen's answer to that is no channels-last result (its backend for
        this convolution has none), all stays as it is."""
        before = node.args
        count = OPERANDS[node.target]
        for place in range(count):
            node.update_arg(place, self._channels_last(node.args[place], node))
        result = self._rerun(node)
        if result is not None and not _leads(result):
            # Where both could be either (one channel, or one pixel), ATen takes them to be channels-first.
            node.update_arg(count - 1, self._channels_last(node.args[count - 1], node, force=True))
            result = self._rerun(node)
        if result is None or not _leads(result):
            node.args = before
            self._keep_operands(node)
            return
        self.done.add(node)
        self._renew(node, result)

    def _channels_last(self, node: Any, user: fx.Node, force: bool = False) -> fx.Node:
        """``node`` channels-last, converted in front of ``user`` if it is not."""
        if node not in self.last:
            if _is_channels_last(node.meta["val"]) and not force:
                return node  # type: ignore[no-any-return]
            source = node
            while source.target is aten.clone.default and not _is_input(source.args[0]):
                source = source.args[0]
                if _is_channels_last(source.meta["val"]):
                    return source  # type: ignore[no-any-return]
            self.last[node] = self._convert(node, user)
        return self.last[node]

    def _convert(self, node: fx.Node, user: fx.Node) -> fx.Node:
        with self.graph.inserting_before(user):
            memory_format = _FORMATS[node.meta["val"].dim()]
            name = f"{node.name}_channels_last"
            copy = self._insert(user, aten.clone.default, (node,), name, memory_format=memory_format)
        self.copied[copy] = node
        return copy

    # -- everything else ---------------------------------------------------------------------------

    def _read_copies(self, node: fx.Node) -> None:
        """Let what walks windows of an image read the channels-last copy that a convolution has of it: on a
        CPU a walk in two orders of memory takes as long as several in one."""
        if self.prefers_copies and _name(node.target) in _CARRIERS:
            for item in node.all_input_nodes:
                if item in self.last:
                    node.replace_input_with(item, self.last[item])

    def _follow(self, node: fx.Node) -> None:
        """Give a node that reads something renewed the result that it now has."""
        target = node.target
        if target is operator.getitem:
            self._renew(node, node.args[0].meta["val"][node.args[1]])  # type: ignore[union-attr]
            self._prefer(node, node.args[0])  # type: ignore[arg-type]
            return
        if target is aten.copy_.default:
            return  # it overwrites an input, whose strides nobody changes
        invents = bool(node.meta.get("unbacked_bindings"))  # a size: another one each time it is run
        if invents or is_convolution(node) or self._depends_on_strides(target):
            self._keep_operands(node)
            return
        if not _is_view(target) and not any(item in self.moved for item in node.all_input_nodes):
            return
        result = self._rerun(node)
        if result is None and target in (aten.view.default, aten._unsafe_view.default):
            self.targets[node] = target
            node.target = aten.reshape.default
            result = self._rerun(node)
        if result is None:
            node.target = target
            self._keep_operands(node)
            result = self._rerun(node)
            if result is None:
                return
        self._renew(node, result)
        if target is aten.clone.default and self._is_idle(node):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            self.inserted.append(node)
        elif not _is_view(target):
            self._prefer(node, node)

    def _depends_on_strides(self, target: Any) -> bool:
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
            return True
        if _name(target) in _BY_STRIDES:
            return True
        return self.keeps_random and torch.Tag.nondeterministic_seeded in target.tags

    def _prefer(self, node: fx.Node, reader: fx.Node) -> None:
        """An image made of channels-last ones that came out channels-first (another operand was, and came
        before) is converted for those who read it, by whatever kernel makes it."""
        value = node.meta["val"]
        if not (is_image(value) and value.is_floating_point()) or _is_channels_last(value):
            return
        target: Any = reader.target
        carries = torch.Tag.pointwise in target.tags or _name(target) in _CARRIERS
        if not carries or not any(
            item in self.moved and _is_channels_last(item.meta["val"]) for item in reader.all_input_nodes
        ):
            return
        users = [user for user in node.users if user.op != "output" and user.target is not aten.copy_.default]
        if users:
            copy = self._convert(node, node.next)
            self.last[node] = copy
            for user in users:
                user.replace_input_with(node, copy)

    def _is_idle(self, clone: fx.Node) -> bool:
        """Whether a copy to another layout copies to the layout that is there already, and nobody can tell
        whether it is a copy."""
        source: fx.Node = clone.args[0]  # type: ignore[assignment]
        if clone.kwargs.get("memory_format") in (None, torch.preserve_format) or _is_input(source):
            return False
        if not _same_strides(source.meta["val"], clone.meta["val"]):
            return False
        reached = [clone]
        for node in reached:
            for user in node.users:
                if user.op == "output" or self._depends_on_strides(user.target):
                    return False
                if _is_view(user.target):
                    reached.append(user)
        return True

    # -- strides as traced -------------------------------------------------------------------------

    def _keep_operands(self, node: fx.Node) -> None:
        """Let ``node`` read everything with the strides that it was traced with."""
        node.args = map_arg(node.args, lambda item: self._as_traced(item, node))
        node.kwargs = map_arg(node.kwargs, lambda item: self._as_traced(item, node))

    def _as_traced(self, node: fx.Node, user: fx.Node) -> fx.Node:
        """``node`` with the strides that it was traced with, put in front of ``user`` if it has others: a
        view as the same view of its base, so that what shared memory still does."""
        node = self.copied.get(node, node)
        if node not in self.traced or _lie_alike(self.traced[node], node.meta["val"]):
            return node
        if node not in self.kept:
            target: Any = self.targets.get(node, node.target)
            base: Any = node.args[0]
            name = f"{node.name}_as_traced"
            with self.graph.inserting_before(user):
                if _is_view(base.target if target is operator.getitem else target):
                    args = map_arg(node.args, lambda item: self._as_traced(item, user))
                    self.kept[node] = self._insert(node, target, args, name, **node.kwargs)
                elif _same_memory(self.traced[node], node.meta["val"]):
                    self.kept[node] = self._without_ones(node, name)
                else:
                    self.kept[node] = self._in_order_of(node, self.traced[node], name)
        return self.kept[node]

    def _without_ones(self, node: fx.Node, name: str) -> fx.Node:
        """A view of ``node`` whose dimensions of extent 1 have the strides that torch gives to new ones. It
        costs nothing, and optimizers look at the strides of gradients."""
        ones = [place for place, extent in enumerate(node.meta["val"].shape) if dim(extent) == 1]
        view = self._insert(node, aten.squeeze.dims, (node, ones), f"{name}_squeezed")
        for place in ones:
            view = self._insert(node, aten.unsqueeze.default, (view, place), name)
        return view

    def _in_order_of(self, node: fx.Node, like: torch.Tensor, name: str) -> fx.Node:
        """A copy of ``node`` whose dimensions lie in memory in the order of ``like``'s."""
        rank = like.dim()
        order = sorted(range(rank), key=lambda place: -hint(like.stride(place)))
        packed = torch.contiguous_format
        if order == list(range(rank)):
            return self._insert(node, aten.clone.default, (node,), name, memory_format=packed)
        outer_first = self._insert(node, aten.permute.default, (node, order), f"{name}_order")
        copy = self._insert(node, aten.clone.default, (outer_first,), f"{name}_copy", memory_format=packed)
        back = [order.index(place) for place in range(rank)]
        return self._insert(node, aten.permute.default, (copy, back), name)

    # -- nodes and their results -------------------------------------------------------------------

    def _insert(self, origin: fx.Node, target: Any, args: Any, name: str, **kwargs: Any) -> fx.Node:
        """A new node, which came from wherever ``origin`` did. It counts as moved: whoever reads it reads
        other strides than were traced."""
        node = insert(origin, target, args, name, **kwargs)
        self.inserted.append(node)
        self.moved.add(node)
        self.traced[node] = node.meta["val"]
        return node

    def _renew(self, node: fx.Node, result: Any) -> None:
        traced = self.traced.setdefault(node, node.meta["val"])
        set_result(node, result, "tensor_meta" in node.meta)
        if not _lie_alike(traced, result):
            self.moved.add(node)

    def _rerun(self, node: fx.Node) -> Any:
        """:func:`run`; None if it cannot be done, or gives something else than other strides."""
        name = _name(node.target)
        try:
            like: Any = node.args[_LIKE[name]] if name in _LIKE else None
            if like is not None and is_image(like.meta["val"]) and isinstance(node.meta["val"], tuple):
                first, *others = node.meta["val"]
                return (torch.empty_like(like.meta["val"], dtype=first.dtype), *others)
            result = run(node)
        except _RERUN_ERRORS:
            return None
        return result if _alike(result, node.meta["val"]) else None


# -- fake tensors ----------------------------------------------------------------------------------


def _name(target: Any) -> str:
    """An operator's name without its overload; empty for a Python function."""
    return target._schema.name.rpartition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""


def _tensors(value: Any) -> list[torch.Tensor]:
    items: Sequence[Any] = value if isinstance(value, tuple | list) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _alike(result: Any, traced: Any) -> bool:
    """Whether two results differ in no more than strides and the names of their sizes."""
    if isinstance(traced, tuple | list):
        return (
            isinstance(result, tuple | list)
            and len(result) == len(traced)
            and all(map(_alike, result, traced))
        )
    if not isinstance(traced, torch.Tensor):
        return type(result) is type(traced)
    if not isinstance(result, torch.Tensor) or result.dtype != traced.dtype:
        return False
    return [hint(extent) for extent in result.shape] == [hint(extent) for extent in traced.shape]


def _lie_alike(left: Any, right: Any) -> bool:
    """Whether two results have the same strides."""
    return all(map(_same_strides, _tensors(left), _tensors(right)))


def _same_strides(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compared as expressions: to compare symbolic sizes by value would guard on them."""
    return [dim(stride) for stride in left.stride()] == [dim(stride) for stride in right.stride()]


def _same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape have the same strides but for dimensions of extent 1."""
    extents = map(dim, left.shape)
    pairs = zip(extents, map(dim, left.stride()), map(dim, right.stride()), strict=True)
    return all(extent == 1 or have == want for extent, have, want in pairs)


def _is_channels_last(value: Any) -> bool:
    """Whether a tensor is dense, with its second dimension innermost. Dimensions of extent 1 have no say, as
    in ``is_contiguous(memory_format=...)``, which would guard on symbolic sizes."""
    if not is_image(value):
        return False
    order = [1, *range(value.dim() - 1, 1, -1), 0]
    expected: Any = 1
    for place in order:
        extent = value.shape[place]
        if dim(extent) == 1:
            continue
        if dim(value.stride(place)) != dim(expected):
            return False
        expected = expected * extent
    return True


def _leads(result: Any) -> bool:
    """Whether all images among a convolution's results are channels-last."""
    images = [item for item in _tensors(result) if is_image(item)]
    return all(map(_is_channels_last, images))


def _is_view(target: Any) -> bool:
    if target is operator.getitem:
        return True
    returns = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
    return any(item.alias_info is not None for item in returns)


def _is_input(node: Any) -> bool:
    """Whether a node is an input of the graph, or a view of one: memory that may be overwritten."""
    while node.op == "call_function" and _is_view(node.target):
        node = node.args[0]
    return bool(node.op != "call_function")

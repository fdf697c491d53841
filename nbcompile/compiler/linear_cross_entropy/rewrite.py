"""FX graph → FX graph: a linear layer and the cross_entropy of its result become one chunked operator.

``cross_entropy(linear(x, w).view(-1, V).float(), target.view(-1))`` and its like: whatever stands between
the two is replayed on ``x``, whose rows are the logits' rows. A pair is taken only if nothing else reads
the logits and nothing in between can change a tensor; else the graph stays as it is.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.fx_values import hint, nbytes, node_value
from nbcompile.compiler.linear_cross_entropy import operator as operators
from nbcompile.compiler.passes import Setting
from nbcompile.compiler.rewrite.mutation import may_mutate
from nbcompile.compiler.stages import FxGraph
from nbcompile.options import Options

LEAST_BYTES = 256 << 20
"""Logits smaller than this stay whole by default; larger ones are cut to chunks of about this size."""
MOST_CHUNKS = 8
"""Of a training step. Each chunk reads, rounds and writes the weight's gradient once more: eight roundings
to bfloat16 rather than one, and products of an eighth of the rows each."""
MOST_CHUNKS_WITHOUT_GRADIENT = 64
LEAST_ROWS = 512
"""Chunks of fewer rows make slow matrix products."""

_PARAMETERS = (
    "input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"
)  # fmt: skip
_LINEAR = (torch._C._nn.linear, torch.nn.functional.linear)
_PRODUCTS = ("matmul", "mm")


class _LeftError(Exception):
    """Why a linear + cross_entropy stays as it is."""


@dataclass(frozen=True)
class _Match:
    """One pair that can be rewritten. ``between`` are the nodes from the logits to the loss, in order."""

    loss: fx.Node
    linear: fx.Node
    between: tuple[fx.Node, ...]
    x: fx.Node
    weight: fx.Node
    transposed: bool  # weight is [hidden, classes]
    bias: fx.Node | None
    target: fx.Node
    classes: int
    ignore_index: int
    mean: bool
    label_smoothing: float

    @property
    def logits(self) -> torch.Tensor:
        return node_value(self.linear)  # type: ignore[no-any-return]

    @property
    def wanted(self) -> list[bool]:
        """Whether the gradients by x, weight and bias will be asked for."""
        inputs = (self.x, self.weight, self.bias)
        return [self.trains and item is not None and node_value(item).requires_grad for item in inputs]

    @property
    def trains(self) -> bool:
        return bool(node_value(self.loss).requires_grad)


def chunk_linear_cross_entropy(graph: FxGraph, setting: Setting) -> FxGraph:
    """Replace, in place, each linear + cross_entropy of ``graph.module`` that the options ask for; a note
    says so. Returns ``graph`` itself where there is nothing to do."""
    options, recorder = setting.options, setting.recorder
    if options.linear_cross_entropy == "never":
        return graph
    replaced = 0
    for node in list(graph.module.graph.nodes):
        if node.op != "call_function" or node.target is not torch.nn.functional.cross_entropy:
            continue
        linear = _linear_above(node)
        if linear is None or not (options.linear_cross_entropy == "always" or _is_big(linear, options)):
            continue
        what = f"linear + cross_entropy{_place(graph, node)}"
        size = _size_text(nbytes(node_value(linear)))
        try:
            match = _match(node, linear)
        except _LeftError as reason:
            recorder.add(f"{what} left as it is, with {size} of logits: {reason}")
            continue
        chunks = _chunks(match)
        graph = _rewrite(graph, match, chunks, site=replaced)
        replaced += 1
        recorder.add(f"{what} run in {chunks} chunks: the logits ({size}) never exist whole")
    if replaced:
        graph.module.graph.lint()
        graph.module.recompile()
        setting.said.append("in chunks")
    return graph


def _is_big(linear: fx.Node, options: Options) -> bool:
    return options.chip.is_gpu and nbytes(node_value(linear)) > LEAST_BYTES


def _chunks(match: _Match) -> int:
    """In how many parts the rows are done; at least two, or the logits exist whole."""
    rows = hint(match.logits.numel()) // match.classes
    most = MOST_CHUNKS if match.trains else MOST_CHUNKS_WITHOUT_GRADIENT
    wanted = -(-nbytes(match.logits) // LEAST_BYTES)
    return max(2, min(wanted, most, rows // LEAST_ROWS))


# -- matching --------------------------------------------------------------------------------------


def _linear_above(loss: fx.Node) -> fx.Node | None:
    """The linear layer that the logits come from, by way of whatever may be replayed; None if another
    operation stands between."""
    node = _arguments(loss).get("input")
    for _ in range(64):
        if not isinstance(node, fx.Node) or not isinstance(node_value(node), torch.Tensor):
            return None
        if _operands(node) is not None:
            return node
        if _name(node) not in _REPLAYED and _name(node) not in _CASTS | _TRANSPOSES:
            return None
        node = node.args[0] if node.args else None
    return None


def _operands(node: fx.Node) -> tuple[Any, Any, bool, Any] | None:
    """(x, weight, whether weight is [hidden, classes], bias) of a linear layer or product; else None."""
    if node.op == "call_function" and node.target in _LINEAR:
        given = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | dict(node.kwargs)
        return given.get("input"), given.get("weight"), False, given.get("bias")
    if _name(node) in _PRODUCTS and len(node.args) == 2 and not node.kwargs:
        return node.args[0], node.args[1], True, None
    return None


def _match(loss: fx.Node, linear: fx.Node) -> _Match:
    given = _arguments(loss)
    for name in ("weight", "size_average", "reduce"):
        if given.get(name) is not None:
            raise _LeftError(f"cross_entropy has {name}")
    reduction, smoothing = given.get("reduction", "mean"), given.get("label_smoothing", 0.0)
    ignored = given.get("ignore_index", -100)
    if reduction not in ("mean", "sum"):
        raise _LeftError(f"reduction is {reduction}")
    if not isinstance(smoothing, int | float) or not 0 <= smoothing <= 1 or not isinstance(ignored, int):
        raise _LeftError("label_smoothing and ignore_index are not plain numbers")
    operands: Any = _operands(linear)
    x, weight, transposed, bias = operands
    target: Any = given.get("target")
    logits = node_value(linear)
    if not all(isinstance(item, fx.Node) for item in (x, weight, target)):
        raise _LeftError("its inputs are not plain tensors")
    _check_tensors(logits, node_value(x), node_value(weight), transposed)
    if bias is not None:
        _check_bias(logits, node_value(bias) if isinstance(bias, fx.Node) else None)
    between = _between(linear, loss)
    _check_target(node_value(target), node_value(between[-1] if between else linear), _ends_turned(between))
    if node_value(loss).requires_grad and logits.dtype == torch.float16:
        raise _LeftError("float16 gradients are only in range once the loss is scaled")
    _check_order(linear, loss)
    return _Match(
        loss, linear, between, x, weight, transposed, bias, target, int(logits.shape[-1]),
        ignored, reduction == "mean", float(smoothing),
    )  # fmt: skip


def _check_tensors(logits: torch.Tensor, x: Any, weight: Any, transposed: bool) -> None:
    if not all(map(_is_plain, (logits, x, weight))) or x.device != weight.device:
        raise _LeftError("its inputs are not plain tensors on one device")
    if logits.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise _LeftError(f"the logits are {logits.dtype}")
    hidden, classes = x.shape[-1], logits.shape[-1]
    if not all(type(size) is int for size in (hidden, classes, *weight.shape)):
        raise _LeftError("the size of its weight is symbolic")  # comparing it would add a guard
    wanted = (hidden, classes) if transposed else (classes, hidden)
    if x.dim() < 2 or tuple(weight.shape) != wanted:
        raise _LeftError("it is no product of rows with one matrix")


def _check_bias(logits: torch.Tensor, bias: Any) -> None:
    if not _is_plain(bias) or bias.device != logits.device or bias.dim() != 1:
        raise _LeftError("its bias is no plain vector")
    if type(bias.shape[0]) is not int or bias.shape[0] != logits.shape[-1]:
        raise _LeftError("its bias is no vector of the classes")


def _is_plain(value: Any) -> bool:
    """A dense tensor of numbers, no subclass that means something else."""
    return (
        isinstance(value, torch.Tensor)
        and type(value).__name__ in ("FakeTensor", "Tensor", "Parameter")
        and value.layout == torch.strided
        and not value.is_quantized
    )


def _between(linear: fx.Node, loss: fx.Node) -> tuple[fx.Node, ...]:
    """The nodes between the logits and the loss, each read by the next alone."""
    found: list[fx.Node] = []
    node = linear
    classes = node_value(linear).shape[-1]
    while True:
        if len(node.users) != 1:
            raise _LeftError("the logits are read elsewhere too")
        (reader,) = node.users
        if reader is loss:
            return tuple(found)
        if not reader.args or reader.args[0] is not node or node in _inside([reader.args[1:], reader.kwargs]):
            raise _LeftError(f"{_name(reader)} stands between")
        _check_step(reader, node_value(node), node_value(reader), classes, last=loss in reader.users)
        found.append(reader)
        node = reader


def _check_step(step: fx.Node, before: Any, after: Any, classes: int, last: bool) -> None:
    """Whether a step between logits and loss does the same to x as to the logits."""
    name = _name(step)
    if not _is_plain(after):
        raise _LeftError(f"{name} stands between")
    if name in _CASTS:
        if after.device != before.device or after.dtype not in (before.dtype, torch.float32):
            raise _LeftError(f"{name} rounds the logits")
    elif name in _TRANSPOSES:
        if not (last and _turns(step, before.dim())):
            raise _LeftError(f"{name} moves the classes")
    elif name not in _REPLAYED or not _REPLAYED[name](step):
        raise _LeftError(f"{name} stands between")
    elif after.dim() < 2 or type(after.shape[-1]) is not int or after.shape[-1] != classes:
        raise _LeftError(f"{name} regroups the classes")


def _check_target(target: Any, logits: torch.Tensor, turned: bool) -> None:
    if not _is_plain(target) or target.dtype != torch.int64 or target.device != logits.device:
        raise _LeftError("its targets are not class numbers")
    if logits.dim() != (3 if turned else 2) or target.dim() != logits.dim() - 1:
        raise _LeftError("the classes are not the last axis of the logits")


def _check_order(linear: fx.Node, loss: fx.Node) -> None:
    """The operator stands where the loss was: nothing on the way may change what the linear layer read."""
    node = linear.next
    while node is not loss:
        if node.op == "root":
            raise _LeftError("the loss stands before the logits")
        if may_mutate(node):
            raise _LeftError(f"{_name(node)} stands between, and may change a tensor")
        node = node.next


# -- what may stand between ----------------------------------------------------------------------------

_CASTS = frozenset(("float", "to", "type", "contiguous"))
_TRANSPOSES = frozenset(("transpose", "permute", "swapaxes", "movedim"))


def _reshapes(step: fx.Node) -> bool:
    return not step.kwargs and len(_sizes(step)) >= 2


def _flattens(step: fx.Node) -> bool:
    return not set(step.kwargs) - {"start_dim", "end_dim"}


def _slices(step: fx.Node) -> bool:
    """Slices, and whole numbers, of all axes but the classes."""
    place = step.args[1] if len(step.args) == 2 else None
    items = list(place) if isinstance(place, tuple) else [place]
    if not all(item is Ellipsis or type(item) in (slice, int) for item in items):
        return False
    rank = node_value(step.args[0]).dim() if isinstance(step.args[0], fx.Node) else 0
    taken = [item for item in items if item is not Ellipsis]
    reaches_classes = len(taken) == rank or (Ellipsis in items and items[-1] is not Ellipsis)
    return not reaches_classes or items[-1] == slice(None)


_REPLAYED = {"view": _reshapes, "reshape": _reshapes, "flatten": _flattens, "getitem": _slices}
"""Steps that are done to x instead, if the check says so: they only regroup or choose rows."""


def _sizes(step: fx.Node) -> list[Any]:
    """The shape that a view or reshape asks for."""
    rest = list(step.args[1:])
    return list(rest[0]) if len(rest) == 1 and isinstance(rest[0], list | tuple) else rest


def _turns(step: fx.Node, rank: int) -> bool:
    """Whether a step makes [batch, rows, classes] into [batch, classes, rows]."""
    if rank != 3 or step.kwargs:
        return False
    axes = _sizes(step)
    if not all(type(axis) is int for axis in axes):
        return False
    wrapped = [axis % 3 for axis in axes]
    if _name(step) == "permute":
        return wrapped == [0, 2, 1]
    return len(wrapped) == 2 and set(wrapped) == {1, 2}


def _ends_turned(between: Sequence[fx.Node]) -> bool:
    return bool(between) and _name(between[-1]) in _TRANSPOSES


def _arguments(loss: fx.Node) -> Mapping[str, Any]:
    return dict(zip(_PARAMETERS, loss.args, strict=False)) | dict(loss.kwargs)


def _inside(values: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg(values, found.append)
    return found


def _name(node: fx.Node) -> str:
    """``view``, ``matmul``, ``getitem``: of a method or of a function of torch's or Python's own."""
    if node.op == "call_method":
        return str(node.target)
    module = str(getattr(node.target, "__module__", "") or "")
    if node.op != "call_function" or isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    if module.partition(".")[0] not in ("torch", "_operator", "builtins", ""):
        return f"{module}.{getattr(node.target, '__name__', node.target)}"
    return str(getattr(node.target, "__name__", node.target))


# -- rewriting -----------------------------------------------------------------------------------------

_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack")


class _Writer:
    """Puts new nodes before the loss, each standing for a node of the record that it replaces."""

    def __init__(self, graph: FxGraph, match: _Match) -> None:
        self.known = graph.ids
        self.ids = dict(graph.ids)
        self.graph = graph.module.graph
        self.before = match.loss

    def put(self, like: fx.Node, op: str, target: Any, *args: Any, name: str | None = None) -> fx.Node:
        with self.graph.inserting_before(self.before):
            node = self.graph.create_node(op, target, args, {}, name=name)
        node.meta = {key: like.meta[key] for key in _KEPT_META if key in like.meta}
        self.ids[node.name] = self.known[like.name]
        return node

    def cast(self, like: fx.Node, item: fx.Node, have: torch.dtype, want: torch.dtype) -> fx.Node:
        return item if have == want else self.put(like, "call_method", "to", item, want)

    def replayed(self, step: fx.Node, x: fx.Node, hidden: Any) -> fx.Node:
        """What ``step`` did to the logits, done to x."""
        name = _name(step)
        if name in ("view", "reshape"):
            return self.put(step, "call_method", "reshape", x, *_sizes(step)[:-1], hidden)
        if name == "flatten":
            given = dict(zip(("start_dim", "end_dim"), step.args[1:], strict=False)) | dict(step.kwargs)
            ends = given.get("start_dim", 0), given.get("end_dim", -1)
            return self.put(step, "call_method", "flatten", x, *ends)
        if name == "getitem":
            return self.put(step, "call_function", operator.getitem, x, step.args[1])
        return x  # a cast, or the classes moved: the operator takes rows, and computes in float32


def _rewrite(graph: FxGraph, match: _Match, chunks: int, site: int) -> FxGraph:
    """The operator in the place of the loss."""
    new = _Writer(graph, match)
    layer, loss = match.linear, match.loss
    x, weight, bias = match.x, match.weight, match.bias
    dtype, hidden = match.logits.dtype, node_value(x).shape[-1]
    for step in match.between:
        x = new.replayed(step, x, hidden)
    x = new.put(loss, "call_method", "reshape", x, -1, hidden)
    x = new.cast(layer, x, node_value(match.x).dtype, dtype)
    weight = new.cast(layer, weight, node_value(weight).dtype, dtype)
    if match.transposed:
        weight = new.put(layer, "call_method", "t", weight)
    if bias is not None:
        bias = new.cast(layer, bias, node_value(bias).dtype, dtype)
    target = new.put(loss, "call_method", "reshape", match.target, -1)
    fused = new.put(
        loss, "call_function", operators.linear_cross_entropy(), x, weight, bias, target,
        match.ignore_index, match.mean, match.label_smoothing, chunks, match.wanted, site,
        name="linear_cross_entropy",
    )  # fmt: skip
    result = new.put(loss, "call_function", operator.getitem, fused, 0)
    result = new.cast(loss, result, torch.float32, node_value(loss).dtype)
    old = (layer, *match.between, loss)
    merged = {**graph.merged, fused.name: tuple(dict.fromkeys(graph.ids[node.name] for node in old))}
    loss.replace_all_uses_with(result)
    for node in reversed(old):
        graph.module.graph.erase_node(node)
    return replace(graph, ids=new.ids, merged=merged)


# -- words -----------------------------------------------------------------------------------------------


def _place(graph: FxGraph, loss: fx.Node) -> str:
    spans = graph.spans.get(loss.name, ())
    if not spans:
        return ""
    span = spans[0]
    return f" at {os.path.basename(span.file)}:{span.line}" if span.file else f" at line {span.line}"


def _size_text(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"

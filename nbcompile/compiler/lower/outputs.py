"""What a graph returns, and whose memory it shows."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.in_aten import shows_an_argument
from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber, base_sizes
from nbcompile.compiler.loop_ir.index import ONE, ZERO, IndexExpr, index
from nbcompile.compiler.loop_ir.known_sizes import sizes_told
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, Output, View, ViewCall, ViewCalls
from nbcompile.compiler.lower.as_itself import LIE_AS_THEIR_SOURCE
from nbcompile.compiler.lower.builder import NATIVE_DTYPES, Builder
from nbcompile.compiler.lower.strides import has_own_places
from nbcompile.compiler.marked import marked
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import LoweringError

aten = torch.ops.aten
SET = aten.set_.source_Tensor
_REAL = ViewCall(aten.view_as_real.default, (), {})


class Outputs:
    """What a graph returns. Results share memory with each other and with inputs where the graph's own do,
    and nowhere else: a lowering may show the memory of another value, for values never change, but who gets a
    result may write to it."""

    def __init__(
        self, builder: Builder, graph: AtenGraph, values: Mapping[fx.Node, Any], inputs: Sequence[Any]
    ) -> None:
        self.given = {item.name: item for item in inputs if isinstance(item, Buffer)}
        arguments = graph.module.graph.find_nodes(op="placeholder")
        self.arguments = dict(zip(arguments, inputs, strict=True))
        self.told = sizes_told(inputs)
        self.builder, self.values, self.saved = builder, values, graph.saved
        self.differentiable = graph.differentiable
        self.owners: dict[str, Any] = {}  # buffer → the storage, in the graph, of what it holds
        self.inputs: set[Any] = set()  # the storages of inputs
        self.copies: dict[tuple[str, Any], Buffer] = {}  # of a buffer, for what has a storage of its own
        self.returned: set[str] = set()  # buffers that the caller gets, and may write to
        self.marked: set[Any] = set()  # the storages of what is marked as a conjugate or a negative
        self.complex: dict[fx.Node, fx.Node] = {}  # pairs → the complex numbers of them that are returned
        for node in graph.module.graph.nodes:
            if node.op in ("placeholder", "get_attr") and isinstance(values.get(node), View):
                buffer = values[node].buffer  # of an input that is overwritten, its new value's
                is_a_copy = buffer.role == "temporary" and node.meta["val"].is_neg()
                if not is_a_copy:
                    self.owners[buffer.name] = storage_of(node)
                self.inputs.add(storage_of(node))
            elif node.target is marked():
                self.marked.add(storage_of(node))
        writes = [node for node in graph.module.graph.nodes if node.target is aten.copy_.default]
        self.wholes = {*writes, *(node.args[1] for node in writes)}  # inputs as they are to be
        self.overwriting = {storage_of(node) for node in self.wholes}
        # by what AOTAutograd traced, though guards have since made numbers of its symbols
        given = (node.meta.get("val") for node in arguments)
        self.moving = any(isinstance(value, torch.SymInt) for value in given)
        self.anew, self.again = made_anew(graph.module.graph), made_again(graph.module.graph)

    def of(self, items: Sequence[Any], becoming: Sequence[fx.Node] = ()) -> tuple[Output, ...]:
        """What is returned for each of the graph's own results, and the tensors that inputs become
        (:func:`set_last`)."""
        first = len(items) - self._saved_after(items)
        for item in items[:first]:
            if not isinstance(item, fx.Node) or item.target is not aten.view_as_complex.default:
                continue
            pairs = item.args[0]
            assert isinstance(pairs, fx.Node)
            if item not in self.again and not _is_view(pairs) and storage_of(item) not in self.inputs:
                self.complex.setdefault(pairs, item)
        found = [self._output(item, place >= first) for place, item in enumerate(items)]
        found += map(self._become, becoming)
        saved, items = range(first, len(items)), [*items, *becoming]
        shown: dict[Any, dict[int, View]] = {}  # storage in the graph → the results that show it, by place
        for place, value in enumerate(found):
            if place not in saved and isinstance(value, View) and storage_of(items[place]) not in self.inputs:
                shown.setdefault(storage_of(items[place]), {})[place] = value
        for results in shown.values():
            if len({value.buffer.name for value in results.values()}) < 2:
                continue
            for place in results:
                what = f"{items[place].name} shares memory with another result, in another type or layout"
                found[place] = self._as_eager_does(items[place], LoweringError(what))
        return tuple(found)

    def _become(self, item: fx.Node) -> Output:
        """A tensor whose memory an input is to show when all has run: just as it would be in the graph, with
        that memory, the strides and the place in it. LoweringError where it would be another."""
        fake = item.meta["val"]
        error = LoweringError(f"an input is given the memory of {item.name}, which kernels lay out otherwise")
        if fake.is_neg() or fake.is_conj() or storage_of(item) in self.marked:
            raise error
        if storage_of(item) in self.inputs:
            return self._as_eager_does(item, error)
        made = self._output(item, saved=False)
        if isinstance(made, ViewCalls):
            return made
        if not isinstance(made, View) or not made.is_whole() or fake.storage_offset() != 0:
            return self._as_eager_does(item, error)
        if made.buffer.role != "temporary" or made.buffer.strides != self.builder.sizes.strides(fake):
            raise error
        return made

    def _saved_after(self, items: Sequence[Any]) -> int:
        """How many of the last items are there for backward alone."""
        names, count = list(self.saved), 0
        while names:
            count += 1
            if getattr(items[-count], "name", None) == names[-1]:
                names.pop()
        return count

    def _output(self, item: Any, saved: bool) -> Output:
        if not isinstance(item, fx.Node):
            if item is None or isinstance(item, int | float | bool):
                return item
            raise LoweringError(f"the graph returns {item!r}")
        value = self.values[item]
        if not isinstance(value, View):
            if value is None and item.meta.get("val") is None:
                return None
            if isinstance(value, IndexExpr | PythonNumber | int | float | bool):
                return value
            raise LoweringError(f"the graph returns {value!r}")
        # our memory holds what is shown; backward's operators read numbers, not how they are kept
        fake = item.meta["val"]
        flagged = not saved and (fake.is_neg() or fake.is_conj())
        if item.target is not marked() and (flagged or storage_of(item) in self.marked):
            what = f"the memory of {item.name} is not what it holds (Tensor.resolve_conj)"
            return self._as_eager_does(item, LoweringError(what))
        try:
            made = self._shown(item, value, saved)
        except LoweringError as error:
            return self._as_eager_does(item, error)
        if saved or made.is_whole():
            return made
        return replace(made, traced=self._traced(item, made.shape))

    def _traced(self, item: fx.Node, shape: tuple[IndexExpr, ...]) -> tuple[IndexExpr | None, ...]:
        """The strides of a result as they were traced: those that are numbers and, of extents of 1, what else
        the arguments tell."""
        fake = item.meta["val"]
        if item.target is aten.expand.default and not item.all_input_nodes[0].meta["val"].dim():
            return (ZERO,) * len(shape)  # so ATen has it: torch's tracing has 1 at extents of 1
        pairs = zip(shape, self.builder.sizes.strides(fake), strict=True)
        return tuple(
            stride if stride.constant is not None or (extent == ONE and self._is_told(stride)) else None
            for extent, stride in pairs
        )

    def _is_told(self, stride: IndexExpr) -> bool:
        return base_sizes([stride]) <= self.told

    def _shown(self, item: fx.Node, value: View, saved: bool) -> View:
        """A result as loops make it. LoweringError where its place in memory would be another."""
        if not saved:
            self._check_places(item, value)
        base = self.arguments.get(self.anew[item]) if item in self.anew else None
        shown = isinstance(base, Buffer) and self.builder.updates.get(base.name) == value.buffer.name
        if shown and self._laid_out(item, value):
            return value  # in the memory of the input itself
        if not self._laid_out(item, value):
            made = self._copied(item, value)
            if not saved:
                self._check_offset(item, made)
            return made
        if not saved:
            self._check_offset(item, value)
        if self._may_show(item, value.buffer, saved):
            return value
        if value.buffer.dtype not in NATIVE_DTYPES:
            raise LoweringError(f"{item.name} shares memory with what it is a copy of")
        key = value.buffer.name, storage_of(item)
        if key not in self.copies:
            self.builder.begin(f"{item.name}_out", "copy", (), item.meta["val"])
            self.copies[key] = self.builder.laid_out_like(value.buffer, View.whole(value.buffer))
        return replace(value, buffer=self.copies[key])

    def _as_eager_does(self, item: fx.Node, error: LoweringError) -> View:
        """A result that ATen's own views make of the tensor that they lead to, when all has run: it lies
        where eager's lies, and shares memory with what eager's does. Raises ``error`` where there is none."""
        calls: list[ViewCall] = []
        node = item
        while node.op == "call_function" and node.target is not aten.copy_.default:
            target, source = node.target, node.args[0] if node.args else None
            if not isinstance(source, fx.Node) or not (_is_view(node) or _is_view_of_several(node)):
                break
            more = tuple(self._plain(each, error) for each in node.args[1:])
            calls.append(ViewCall(target, more, {k: self._plain(v, error) for k, v in node.kwargs.items()}))
            node = source
        calls.reverse()
        # a pair that our own rewrite made is nothing that AOTAutograd's result is a view of
        paired = any(call.target is aten.view_as_complex.default for call in calls)
        if numbers := self.complex.get(node):
            node, paired = numbers, False
            calls = (
                calls[1:] if calls and calls[0].target is aten.view_as_complex.default else [_REAL, *calls]
            )
        root = self._root(node)
        if root is None or (paired and node.op != "placeholder"):
            raise error
        whole = View.whole(root)
        return ViewCalls(root, whole.axes, whole.index, tuple(calls))

    def _plain(self, value: Any, error: LoweringError) -> Any:
        """An argument of a view: a number, or sizes."""
        if isinstance(value, list | tuple):
            return [self._plain(each, error) for each in value]
        made = self.values[value] if isinstance(value, fx.Node) else value
        if isinstance(made, View):
            raise error
        return made

    def _root(self, node: fx.Node) -> Buffer | None:
        """The memory of a node that is no view, just as it is in the graph; None if there is none such."""
        value, fake = self.values[node], node.meta.get("val")
        if not isinstance(value, View) or not isinstance(fake, torch.Tensor):
            return None
        buffer = value.buffer
        if node.target is marked():
            return buffer
        if node.op == "placeholder" and fake.is_neg():
            own_memory = self.arguments[node]
            return own_memory if isinstance(own_memory, Buffer) else None
        if node.op == "placeholder":
            own = value.is_whole() and buffer.role == "input" and buffer.name not in self.builder.updates
            return buffer if own else None
        if node.op != "call_function" or storage_of(node) in self.inputs:
            return None
        if storage_of(node) in self.overwriting and node.target in LIE_AS_THEIR_SOURCE:
            return self._called(node)
        if fake.storage_offset() != 0:
            return None
        key = buffer.name, ("root", storage_of(node))
        if key not in self.copies:
            native = fake.dtype in NATIVE_DTYPES
            if value.dtype != fake.dtype or not (native or _is_plain(value, fake)):
                return None
            overwrites = buffer.name in self.builder.updates.values()
            own = value.is_whole() and buffer.role == "temporary" and not overwrites
            own = own and self._laid_out(node, value) and self._may_show(node, buffer, saved=False)
            self.copies[key] = buffer if own else self._copied(node, value).buffer
        return self.copies[key]

    def _called(self, node: fx.Node) -> Buffer | None:
        """What ATen makes of a node that lies in its storage as its source does, wherever that is at a call;
        None if its source is none of an input."""
        key = node.name, ("called", storage_of(node))
        if key not in self.copies:
            base = self._source(node.args[0])
            if base is None:
                return None
            args = [base, *(self._given(each) for each in node.args[1:])]
            kwargs = {name: self._given(each) for name, each in node.kwargs.items()}
            self.builder.begin(f"{node.name}_out", str(node.target), (), node.meta["val"])
            why = "a result shows where in its storage it lies"
            self.copies[key] = self.builder.call(
                node.target, args, kwargs, result=node.meta["val"], fallback=True, reason=why
            ).buffer
        return self.copies[key]

    def _source(self, source: Any) -> View | None:
        """What such a node copies, where its place in its storage is that of the graph's: an input, what such
        a node makes, or what any other does, which begins where its storage does."""
        if not isinstance(source, fx.Node) or _is_view(source) or _is_view_of_several(source):
            return None
        if source.target in LIE_AS_THEIR_SOURCE:
            made = self._called(source)
            return View.whole(made) if made is not None else None
        value = self._given(source)
        if not isinstance(value, View) or value.buffer.name in self.builder.updates.values():
            return None
        return value

    def _given(self, value: Any) -> Any:
        """What a node is given: of an input that is overwritten its old value."""
        if isinstance(value, list | tuple):
            return type(value)(self._given(each) for each in value)
        if not isinstance(value, fx.Node):
            return value
        made = self.values[value]
        if value.op == "placeholder" and isinstance(made, View):
            old = (name for name, new in self.builder.updates.items() if new == made.buffer.name)
            name = next(old, made.buffer.name)
            return View.whole(self.given[name]) if name in self.given else made
        return made

    def _copied(self, item: fx.Node, value: View) -> View:
        """``value`` in memory of its own with the strides that the graph says, gaps between its elements
        included: backward reads what was saved for it by these."""
        b, fake = self.builder, item.meta["val"]
        b.begin(f"{item.name}_out", "copy", (), fake)
        strides = b.sizes.strides(fake)
        held = tuple(
            ONE if stride == ZERO else extent for extent, stride in zip(value.shape, strides, strict=True)
        )
        native = value.buffer.dtype in NATIVE_DTYPES
        if not native or not has_own_places(held, strides):
            shared = "the elements of its result may share memory, by the strides it is to have"
            why = shared if native else "loops over scalars do not write this type"
            made = b.call(aten.clone.default, (value,), {}, result=fake, fallback=True, reason=why)
            assert isinstance(made, View)
            return made
        one = b.view(value, held, lambda *where: where)
        made = View.whole(b.laid_out_like(Buffer("", held, strides, value.dtype), one))
        if held == value.shape:
            return made

        def first(*where: IndexExpr) -> list[IndexExpr]:
            return [ZERO if stride == ZERO else at for at, stride in zip(where, strides, strict=True)]

        return b.view(made, value.shape, first)

    def _check_offset(self, item: fx.Node, value: View) -> None:
        """A result that shows part of an input is made anew from that input by AOTAutograd, which asks the
        graph's result where in the storage it lies: ATen's copy of a part of a storage lies as its source.
        Where sizes are symbols, so may that place be, at the next call."""
        of_an_input = self.builder.updates or storage_of(item) in self.inputs
        if not of_an_input or value.buffer.role != "temporary":
            return
        if item in self.wholes or ZERO in value.shape:  # what nobody makes anew, or where nothing lies
            return
        strided, offset = value.strided(), self.builder.size(item.meta["val"].storage_offset())
        moves = self.moving and storage_of(item) in self.overwriting
        if moves or (strided is not None and offset != strided[1]):
            raise LoweringError(f"{item.name} shows a part of an input, and is known by its place in that")

    def _check_places(self, item: fx.Node, value: View) -> None:
        """AOTAutograd makes a result that shows an input anew from that input: by the views that autograd
        knows of the graph's result, where it knows any, else by strides. The gradient of the latter is
        another where elements of the input share memory; ATen's result knows its views."""
        buffer, storage = value.buffer, storage_of(item)
        if not self.differentiable or storage not in self.inputs:
            return
        if self.owners.get(buffer.name) != storage:  # nor is one of several views of one operator made anew
            raise LoweringError(f"{item.name} shows an input, and would be a copy of it")
        if buffer.role != "input":
            return
        # by the sizes at hand: strides that are symbols of their own prove nothing
        shape, strides = ([index(each.hint()) for each in of] for of in (buffer.shape, buffer.strides))
        if not has_own_places(shape, strides):
            raise LoweringError(f"{item.name} shows an input whose elements share memory")

    def _laid_out(self, item: fx.Node, value: View) -> bool:
        """Whether the memory that ``value`` shows has the strides that the graph says."""
        strided = value.strided()
        if strided is None:
            return False
        wanted = self.builder.sizes.strides(item.meta["val"])
        return _same_strides(value.shape, strided[0], wanted)

    def _may_show(self, item: fx.Node, buffer: Buffer, saved: bool) -> bool:
        """Whether a result may show this memory: it still holds the value by then, and in the graph the two
        share theirs, or nothing shows it that the caller may write to."""
        if buffer.name in self.builder.updates:
            return False
        storage = storage_of(item)
        owner = self.owners.setdefault(buffer.name, storage)
        may = owner == storage or (saved and buffer.name not in self.returned)
        if may and not saved:
            self.returned.add(buffer.name)
        return may


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and shows_an_argument(node.target)


def _is_plain(value: View, fake: torch.Tensor) -> bool:
    """Whether ATen can be given a value of a type that loops do not write, and holds what its memory does."""
    return value.strided() is not None and not (fake.is_conj() or fake.is_neg())


def _is_view_of_several(node: fx.Node) -> bool:
    return node.target is operator.getitem and isinstance(node.args[0], fx.Node) and _is_view(node.args[0])


def as_it_stands(builder: Builder, node: fx.Node, values: Mapping[fx.Node, Any]) -> View | None:
    """The new value of the input that a node overwrites (``copy_``), where one loop makes it point by point
    (or a scatter into that very input), laid out as the input is, and the caller gets no tensor of its own
    that shows it; None elsewhere."""
    if node.target is not aten.copy_.default:
        return None
    target, source = node.args[:2]
    if not isinstance(target, fx.Node) or not isinstance(source, fx.Node):
        return None
    old, new = values[target], values[source]
    if not isinstance(old, View) or not isinstance(new, View) or not (old.is_whole() and new.is_whole()):
        return None
    into, made = old.buffer, new.buffer
    alike = (into.shape, into.strides, into.dtype) == (made.shape, made.strides, made.dtype)
    if into.role != "input" or made.role != "temporary" or not alike or into.meets_itself():
        return None
    if made.name in builder.updates.values() or into.name in builder.updates:
        return None
    anew = made_anew(node.graph)
    for item in filter(lambda item: isinstance(item, fx.Node), tree_leaves(node.graph.output_node().args)):
        value = values.get(item)
        shows = isinstance(value, View) and value.buffer.name == made.name
        if (shows or storage_of(item) == storage_of(source)) and anew.get(item) is not target:
            return None
    for place, loop in enumerate(builder.statements):
        if isinstance(loop, Loop) and loop.outputs == (made,):
            pointwise = loop.kind == "pointwise" and not loop.reduced
            if not pointwise and (loop.kind != "scatter" or loop.base != into.name):
                return None
            builder.statements[place] = replace(
                loop, origins=tuple(dict.fromkeys((*loop.origins, *builder.origins)))
            )
            builder.updates[into.name] = made.name
            return new
    return None


def set_last(graph: fx.Graph, away: Set[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Inputs that are given another tensor's memory (``x.data = y``), each with that tensor, where nothing of
    the graph would notice that all else has run by then. LoweringError elsewhere; ``away``: what is on
    another device than the kernels."""
    calls = graph.find_nodes(op="call_function", target=SET)
    if not calls:
        return {}
    found: dict[fx.Node, fx.Node] = dict(node.args for node in calls)
    copies = graph.find_nodes(op="call_function", target=aten.copy_.default)
    written = {storage_of(item) for node in copies for item in node.all_input_nodes}
    taking_part = [*found, *found.values()]
    later = [node for node in graph.nodes if node > calls[0] and node.op != "output"]
    if (
        len(found) < len(calls)
        or any(node.target not in (SET, aten.copy_.default) for node in later)
        or any(node.users for node in calls)
        or any(item.op != "placeholder" for item in found)
        or any(item in away or storage_of(item) in written for item in taking_part)
    ):
        raise LoweringError(f"an input is given the memory of another tensor ({SET}) amid what reads it")
    return found


def made_anew(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Results that AOTAutograd takes for views of an input of the graph (or that input), as it is in the end:
    it makes them anew from that input, by where the graph's result lies."""
    inputs = {
        each.meta["desc"].idx: each
        for each in graph.find_nodes(op="placeholder")
        if type(each.meta.get("desc")).__name__ == "PlainAOTInput"
    }
    found: dict[fx.Node, set[fx.Node | None]] = {}
    for item, info in _told(graph):
        shown = info is not None and info.output_type.name in ("alias_of_input", "is_input")
        found.setdefault(item, set()).add(inputs.get(info.base_idx) if shown else None)
    return {item: base for item, (base, *more) in found.items() if base is not None and not more}


def made_again(graph: fx.Graph) -> frozenset[fx.Node]:
    """Results that AOTAutograd makes again, by their views, from another result that is their base: of the
    graph's own it reads no more than shape, strides and place."""
    anew, as_they_are = set[fx.Node](), set[fx.Node]()
    for item, info in _told(graph):
        is_view = info is not None and info.output_type.name.startswith("alias_of_intermediate")
        (anew if is_view else as_they_are).add(item)
    return frozenset(anew - as_they_are)


def _told(graph: fx.Graph) -> Iterator[tuple[fx.Node, Any]]:
    """A graph's results with what AOTAutograd knows of them as results of the program's; None of others."""
    context = torch._guards.TracingContext.try_get()
    told = graph.output_node().meta.get("desc")
    if context is None or context.fw_metadata is None or not told:
        return
    for item, desc in zip(tree_leaves(graph.output_node().args), told, strict=False):
        if isinstance(item, fx.Node):
            plain = type(desc).__name__ == "PlainAOTOutput"
            yield item, context.fw_metadata.output_info[desc.idx] if plain else None


def storage_of(node: fx.Node) -> Any:
    """What two nodes have in common that show one memory."""
    fake = node.meta.get("val")
    return fake.untyped_storage()._cdata if isinstance(fake, torch.Tensor) else None


def _same_strides(shape: Any, have: Any, want: Any) -> bool:
    return all(
        extent == 1 or left == right for extent, left, right in zip(shape, have, want, strict=True)
    ) or any(extent == 0 for extent in shape)

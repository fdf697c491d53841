"""Inductor's scheduler nodes as parts of the record: loops and library calls before fusion, kernels after it.

Ids and meanings are those of our own pipeline: ``g0.fw.l0`` a loop, ``g0.fw.c0`` a library call,
``g0.fw.k0`` a kernel. A scheduler node's ``origins``, which Inductor carries along, are its links upward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from nbcompile import targets
from nbcompile.backends.inductor.loop_text import loop_text, operations
from nbcompile.compiler.capture.graph_record import node_kind
from nbcompile.compiler.fx_values import dim
from nbcompile.record.compilation import Graph, Kernel, Node, NodeKind

_KINDS: dict[str, NodeKind] = {"Pointwise": "pointwise", "Scatter": "scatter", "Scan": "scan", "Sort": "scan"}


@dataclass(frozen=True)
class ScheduledNode:
    """A scheduler node: its part of the record, and what it moves. Bytes are by the name of a buffer."""

    node: Node
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    flops: int = 0
    device: Any = None
    template: bool = False

    @property
    def is_call(self) -> bool:
        return self.node.kind in ("library", "fallback")


@dataclass
class WrapperCall:
    """What the wrapper runs, in order: a generated kernel (``name``) or a library call."""

    steps: tuple[str, ...]  # names of scheduler nodes
    name: str = ""


@dataclass
class InductorSchedule:
    """What the scheduler of one ATen graph did. ``aten`` has the ids of that graph's nodes by name."""

    prefix: str  # g0.fw
    aten: Mapping[str, str]
    inputs: list[Node] = field(default_factory=list)
    steps: dict[str, ScheduledNode] = field(default_factory=dict)  # by the scheduler node's name
    makers: dict[str, tuple[str, ...]] = field(default_factory=dict)  # buffer → names of steps, or an input
    outputs: tuple[str, ...] = ()  # names of buffers
    groups: dict[str, int] = field(default_factory=dict)  # scheduler node → its group after fusion
    calls: list[WrapperCall] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)  # kernel's name → its definition in the wrapper
    removed: frozenset[str] = frozenset()  # buffers that live within one kernel only

    # -- before fusion ---------------------------------------------------------------------------------

    def add_inputs(self, graph: Any) -> None:
        """``graph``: the GraphLowering."""
        for name, value in graph.graph_inputs.items():
            if not hasattr(value, "get_size"):  # a size
                continue
            id = f"{self.prefix}.{name}"
            above = (self.aten[name],) if name in self.aten else ()
            shape, stride, dtype, size = _described(value)
            self.inputs.append(
                Node(id, name, "input", "input", origins=above, shape=shape, stride=stride, dtype=dtype,
                     bytes=size, text=f"{name} = input")
            )  # fmt: skip
            self.makers[name] = (name,)
        self.outputs = tuple(str(name) for name in graph.get_output_names())

    def add(self, node: Any) -> None:
        """One of the scheduler's nodes (each of them, where it is several)."""
        for each in node.get_nodes():
            self._add(each)

    def _add(self, node: Any) -> None:
        from torch._inductor import ir, scheduler

        name, operation = node.get_name(), node.node
        reads = _sizes(node.read_writes.reads)
        writes = _sizes(node.read_writes.writes)
        for buffer in node.get_outputs():
            writes.setdefault(buffer.get_name(), 0)
        read = dict.fromkeys(step for buffer in reads for step in self.makers.get(buffer, ()))
        views = isinstance(node, scheduler.NopKernelSchedulerNode) or isinstance(operation, ir.MultiOutput)
        if views:  # no code of its own: a place in, or a name for, what others make
            self.makers |= dict.fromkeys(writes, tuple(read))
            return
        shape, stride, dtype, size = _described(operation)
        call = isinstance(node, scheduler.ExternKernelSchedulerNode)
        calls = sum(step.is_call for step in self.steps.values())
        id = f"{self.prefix}.c{calls}" if call else f"{self.prefix}.l{len(self.steps) - calls}"
        body = getattr(node, "_body", None)
        op, kind = _operation(node), _kind(node, call)
        made = Node(
            id=id,
            name=next(iter(writes), name),
            op=op,
            kind=kind,
            inputs=tuple(self._id(step) for step in read),
            origins=self._origins(operation, call),
            shape=shape,
            stride=stride,
            dtype=dtype,
            bytes=size,
            text=loop_text(body) if body is not None else _call_text(op, node, reads, writes),
            note="Inductor has no lowering for it: ATen's own code runs" if kind == "fallback" else "",
        )
        points = _hint(_product(body.var_ranges.values())) if body is not None else 0
        flops = operations(body) * points if body is not None else 0
        self.steps[name] = ScheduledNode(
            made, reads, writes, flops, node.get_device(), bool(node.is_template())
        )
        self.makers |= dict.fromkeys(writes, (name,))

    def _id(self, maker: str) -> str:
        return self.steps[maker].node.id if maker in self.steps else f"{self.prefix}.{maker}"

    def _origins(self, operation: Any, call: bool) -> tuple[str, ...]:
        """The ATen nodes that Inductor says an operation is made of: of a call the one it is, if known."""
        exact = getattr(operation, "origin_node", None) if call else None
        found = {node.name for node in ((exact,) if exact is not None else operation.origins)}
        return tuple(id for name, id in self.aten.items() if name in found)

    # -- after fusion ----------------------------------------------------------------------------------

    def fused(self, nodes: Iterable[Any]) -> None:
        """The scheduler's final nodes."""
        self.groups = {each.get_name(): at for at, node in enumerate(nodes) for each in node.get_nodes()}

    def kernel_defined(self, name: str, text: str) -> None:
        """The definition of a kernel, as the wrapper prints it."""
        self.texts[name] = text

    def kernel_called(self, nodes: Iterable[Any], name: str) -> None:
        """``nodes`` may have marks between the scheduler's nodes."""
        held = [each for node in nodes if hasattr(node, "get_nodes") for each in node.get_nodes()]
        steps = dict.fromkeys(each.get_name() for each in held)
        self.calls.append(WrapperCall(tuple(step for step in steps if step in self.steps), name))

    def library_called(self, node: Any) -> None:
        for each in node.get_nodes():
            if each.get_name() in self.steps:
                self.calls.append(WrapperCall((each.get_name(),)))

    def ids(self) -> dict[str, str]:
        """Scheduler node → id of the kernel or call that does it."""
        found: dict[str, str] = {}
        for id, call in self._named():
            for step in call.steps:
                found.setdefault(step, id)
        return found

    def _named(self) -> list[tuple[str, WrapperCall]]:
        named, kernels = [], 0
        for call in self.calls:
            if call.name:
                named.append((f"{self.prefix}.k{kernels}", call))
                kernels += 1
            else:
                named.append((self.steps[call.steps[0]].node.id, call))
        return named

    # -- the record ------------------------------------------------------------------------------------

    def graphs(self, code: str) -> tuple[Graph, Graph]:
        """The loops and the fused graph. ``code``: Inductor's output code, the second one's text, with each
        kernel named where its text (which is the kernel's own) would stand."""
        steps = [step.node for step in self.steps.values()]
        text = [node.text for node in (*self.inputs, *steps)]
        loops = Graph(
            id=f"{self.prefix}.loops",
            stage="loops",
            title=f"Inductor's scheduler nodes of {self.prefix}",
            nodes=(*self.inputs, *steps),
            outputs=self._outputs({name: step.node.id for name, step in self.steps.items()}),
            parent=self.prefix,
            text="\n".join(
                [*text, f"return {', '.join(name for name in self.outputs if name in self.makers)}"]
            ),
        )
        where = self.ids()
        nodes = [replace(node, text="") for node in self.inputs]
        for id, call in self._named():
            nodes.append(self._fused_node(id, call, where))
        for name, body in self.texts.items():
            code = code.replace(body, f"...  # the text of {name}", 1)
        fused = Graph(
            id=f"{self.prefix}.fused",
            stage="fused",
            title=f"Inductor's kernels of {self.prefix}",
            nodes=tuple(nodes),
            outputs=self._outputs(where),
            parent=loops.id,
            text=code,
        )
        return loops, fused

    def _fused_node(self, id: str, call: WrapperCall, where: Mapping[str, str]) -> Node:
        steps = [self.steps[name] for name in call.steps]
        makers = (maker for step in steps for buffer in step.reads for maker in self.makers.get(buffer, ()))
        inputs = dict.fromkeys(where.get(maker, self._id(maker)) for maker in makers)
        inputs.pop(id, None)
        if not call.name:
            return replace(steps[0].node, inputs=tuple(inputs))
        stored = [step for step in steps if self._stored(step)] or steps[-1:]
        last = stored[-1].node if stored else None
        return Node(
            id=id,
            name=call.name,
            op=call.name,
            kind="kernel",
            inputs=tuple(inputs),
            origins=tuple(step.node.id for step in steps),
            shape=last.shape if last else None,
            stride=last.stride if last else None,
            dtype=last.dtype if last else None,
            bytes=sum(self._stored(step) for step in steps),
            text=call.name,
        )

    def _stored(self, step: ScheduledNode) -> int:
        return sum(size for name, size in step.writes.items() if name not in self.removed)

    def _outputs(self, where: Mapping[str, str]) -> tuple[str, ...]:
        makers = (maker for name in self.outputs for maker in self.makers.get(name, ()))
        return tuple(dict.fromkeys(where.get(maker, self._id(maker)) for maker in makers))

    def kernels(self) -> list[Kernel]:
        """One a call of a generated kernel: two calls of one text are two."""
        return [self._kernel(id, call) for id, call in self._named() if call.name]

    def _kernel(self, id: str, call: WrapperCall) -> Kernel:
        steps = [self.steps[name] for name in call.steps]
        device = next((step.device for step in steps if step.device is not None), None)
        target = (
            "cpu" if device is None or device.type == "cpu" else targets.of_device(device.index or 0).name
        )
        made: dict[str, int] = {}
        reads: dict[str, int] = {}
        for step in steps:
            for name, size in step.reads.items():
                reads[name] = max(size, reads.get(name, 0))
            made |= step.writes
        reads = {name: size for name, size in reads.items() if name not in made}
        writes = {name: size for name, size in made.items() if name not in self.removed}
        text = kernel_text(self.texts.get(call.name, ""))
        return Kernel(
            id=id,
            name=call.name,
            graph=f"{self.prefix}.fused",
            loops=tuple(step.node.id for step in steps),
            schedule=self._schedule(call, text),
            sources={"cpp" if target == "cpu" else "triton": text} if text else {},
            reads=tuple(sorted(reads)),
            writes=tuple(sorted(writes)),
            bytes_read=sum(reads.values()),
            bytes_written=sum(writes.values()),
            flops=sum(step.flops for step in steps),
            target=target,
        )

    def _schedule(self, call: WrapperCall, text: str) -> str:
        """``pointwise``, ``reduction``, ``template``, by Inductor's own heuristic where it names one; and how
        many of the scheduler's groups the kernel holds, where it is more than one."""
        steps = [self.steps[name] for name in call.steps]
        if any(step.template for step in steps):
            kind = "template"
        elif any(step.node.kind == "reduction" for step in steps):
            persistent = "@triton_heuristics.persistent_reduction" in text
            kind = "persistent reduction" if persistent else "reduction"
        else:
            kind = next((step.node.kind for step in steps if step.node.kind != "pointwise"), "pointwise")
        nests = len({self.groups.get(name, -1) for name in call.steps})
        return f"{kind}, {nests} loop nests" if nests > 1 else kind


def kernel_text(definition: str) -> str:
    """The kernel itself, of its definition in the wrapper: ``async_compile.cpp_pybinding(…, r'''…''')``."""
    start, end = definition.find("'''"), definition.rfind("'''")
    return (definition[start + 3 : end] if 0 <= start < end else definition).strip("\n")


def _operation(node: Any) -> str:
    """What a person calls it: the library's function, the kind of reduction, ``pointwise``."""
    operation = node.node
    if node.is_template():
        return f"template {getattr(operation, 'name', '') or type(operation).__name__}"
    if node.is_extern():
        name = getattr(operation, "python_kernel_name", None) or getattr(operation, "cpp_kernel_name", None)
        overload = getattr(operation, "op_overload", None)
        return str(name or overload or type(operation).__name__).removeprefix("torch.ops.")
    kind = getattr(getattr(operation, "data", None), "reduction_type", None)
    return str(kind) if kind else str(_kind(node, False))


def _kind(node: Any, call: bool) -> NodeKind:
    from torch._inductor import ir

    if call:  # what is a library's anyhow (attention, sorts) is no gap of Inductor's
        known = any(node_kind(each) == "library" for each in node.node.origins)
        return "fallback" if isinstance(node.node, ir.FallbackKernel) and not known else "library"
    kind = _KINDS.get(type(getattr(node.node, "data", None)).__name__)
    return kind or ("reduction" if node.is_reduction() or node.is_template() else "pointwise")


def _call_text(op: str, node: Any, reads: Iterable[str], writes: Iterable[str]) -> str:
    word = "" if node.is_template() else "library "
    return f"{', '.join(writes)} = {word}{op}({', '.join(reads)})"


def _sizes(deps: Iterable[Any]) -> dict[str, int]:
    """Bytes of each buffer that these dependencies touch; one that is there for its order only has none."""
    sizes: dict[str, int] = {}
    for dep in deps:
        if type(dep).__name__ != "WeakDep":
            sizes[dep.name] = max(sizes.get(dep.name, 0), _dep_bytes(dep))
    return sizes


def _dep_bytes(dep: Any) -> int:
    try:
        return int(dep.numbytes_hint())
    except (KeyError, NotImplementedError, AttributeError):  # a buffer without a layout
        return 0


def _described(value: Any) -> tuple[Any, Any, str | None, int]:
    """Shape, strides, dtype and bytes of what an IR node makes; of several results none."""
    try:
        shape, dtype = tuple(dim(extent) for extent in value.get_size()), value.get_dtype()
    except (NotImplementedError, AttributeError):
        return None, None, None, 0
    stride = value.maybe_get_stride()
    size = _hint(_product(value.get_size())) * dtype.itemsize
    return shape, tuple(map(dim, stride)) if stride is not None else None, _dtype(dtype), size


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _product(extents: Iterable[Any]) -> Any:
    count: Any = 1
    for extent in extents:
        count = count * extent
    return count


def _hint(value: Any) -> int:
    """A size as it was when the graph was traced; 0 where it depends on data."""
    from torch._inductor.virtualized import V

    sizes: Any = V.graph.sizevars
    ask = getattr(sizes, "optimization_hint", None) or sizes.size_hint  # the older name before torch 2.12
    try:
        return int(ask(value, fallback=0))
    except (TypeError, ValueError):
        return 0

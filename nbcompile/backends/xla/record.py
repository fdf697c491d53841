"""What XLA made of a graph, as stages of the record: StableHLO, optimised HLO, and its kernels.

XLA's own fusions are the kernels, its instructions the loops. Which ATen node an instruction comes from is
written in its metadata: each node is lowered in a scope of its name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from nbcompile.backends.xla.hlo import Computation, HloModule, Instruction, parse
from nbcompile.backends.xla.program import XlaProgram
from nbcompile.backends.xla.split import Plan
from nbcompile.compiler.fx_values import dim, nbytes
from nbcompile.compiler.stages import AtenGraph, device_of
from nbcompile.record.compilation import Graph, Kernel, LineLink, Node, NodeKind, Span

_LIBRARY = frozenset(
    "dot convolution custom-call sort topk fft cholesky triangular-solve scatter ragged-dot rng-bit-generator"
    .split()
)  # fmt: skip
_SILENT = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id".split()
)
_REDUCING = frozenset(("reduce", "reduce-window", "dot", "convolution"))
_FREE = _SILENT | {"broadcast", "reshape", "transpose", "copy", "slice", "iota", "fusion", "call", "pad",
                   "concatenate", "gather", "dynamic-slice", "dynamic-update-slice", "reverse"}  # fmt: skip
_DTYPES = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name in (("f", "float"), ("s", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}
_FUSIONS = {"kLoop": "loop", "kInput": "reduction", "kOutput": "output", "kCustom": "custom"}


def record(aten: AtenGraph, plan: Plan, programs: Sequence[XlaProgram]) -> Iterable[Graph | Kernel]:
    """The stages below ``aten`` and the kernels, of the programs of its steps."""
    maker = _Maker(aten, plan)
    steps = [step for step in plan.steps if step.torch or step.returns]
    compiled = iter(programs)
    for step in steps:
        for node in step.torch:
            maker.torch_call(node)
        if step.returns:
            maker.program(next(compiled))
    outputs = tuple(
        dict.fromkeys(
            maker.maker[item] for item in plan.results if isinstance(item, fx.Node) and item in maker.maker
        )
    )
    text = "\n\n".join(program.stablehlo.rstrip() for program in programs)
    yield Graph(f"{aten.id}.stablehlo", "loops", f"StableHLO of {aten.id}", parent=aten.id, text=text)
    text = "\n\n".join(program.hlo.strip() for program in programs)
    yield Graph(
        f"{aten.id}.loops", "loops", f"HLO instructions of {aten.id}", tuple(maker.loops),
        tuple(maker.inner.get(id, id) for id in outputs), parent=aten.id,
    )  # fmt: skip
    yield Graph(
        f"{aten.id}.fused", "fused", f"XLA's kernels of {aten.id}", tuple(maker.fused), outputs,
        parent=f"{aten.id}.loops", text=text,
    )  # fmt: skip
    yield from maker.kernels


@dataclass
class _Maker:
    """Collects nodes while it walks the programs. ``maker`` has for each ATen node the kernel, call or input
    that makes it, ``inner`` for each kernel the instruction that makes its (last) result."""

    aten: AtenGraph
    plan: Plan
    maker: dict[fx.Node, str] = field(default_factory=dict)
    inner: dict[str, str] = field(default_factory=dict)
    loops: list[Node] = field(default_factory=list)
    fused: list[Node] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    calls: int = 0
    instructions: int = 0

    def __post_init__(self) -> None:
        self.names = {node.name for node in self.aten.module.graph.nodes}
        device = device_of(self.aten.module)
        self.target = "cpu"
        if device.type == "cuda":
            major, minor = torch.cuda.get_device_capability(device)
            self.target = f"cuda:{major}{minor}"

    def torch_call(self, node: fx.Node) -> None:
        """A node that runs in torch, between the programs."""
        if node.target is torch.ops.aten.copy_.default:
            return  # results of XLA written to where the program wants them
        id = self._call_id()
        origins = (self.aten.ids[node.name],)
        inputs = tuple(self._input(each) for each in node.all_input_nodes if each in self.maker)
        made = Node(
            id, node.name, str(node.target), "library", inputs, origins,
            self.aten.spans.get(node.name, ()), text=f"{node.name} = {node.target}",
            note=_note(node),
        )  # fmt: skip
        self.fused.append(made)
        self.loops.append(made)
        self.maker[node] = id

    def program(self, program: XlaProgram) -> None:
        """The entry computation of one program."""
        module = parse(program.hlo)
        entry = module.entry
        outer: dict[str, tuple[str, ...]] = {}  # instruction → what makes it, among the kernels
        inner: dict[str, tuple[str, ...]] = {}  # ... among the instructions
        by_name = {each.name: each for each in entry.instructions}
        for item in entry.instructions:
            if item.opcode == "parameter":
                outer[item.name] = inner[item.name] = (self._input(program.arrays[int(item.literal)][0]),)
            elif item.opcode in _SILENT:
                outer[item.name] = _through(item, outer)
                inner[item.name] = _through(item, inner)
            elif item.opcode in _LIBRARY:
                id = self._call_id()
                self._library(id, item, _through(item, outer), _through(item, inner))
                outer[item.name] = inner[item.name] = (id,)
            else:
                outer[item.name], inner[item.name] = self._kernel(module, item, by_name, outer, inner)
        roots = entry.root.operands if entry.root.opcode == "tuple" else (entry.root.name,)
        for (node, _), root in zip(program.returned, roots, strict=False):
            if outer[root]:
                self.maker[node] = outer[root][0]

    def _input(self, node: fx.Node) -> str:
        """What makes an ATen node that a program reads: an input of the graph the first time it is met."""
        if node not in self.maker:
            id = self.maker[node] = f"{self.aten.id}.{node.name}"
            value = node.meta["val"]
            shape, stride = tuple(map(dim, value.shape)), tuple(map(dim, value.stride()))
            made = Node(
                id, node.name, "input", "input", origins=(self.aten.ids[node.name],), shape=shape,
                dtype=str(value.dtype).removeprefix("torch."), stride=stride, bytes=nbytes(value),
                text=f"{node.name} = input",
            )  # fmt: skip
            self.loops.append(made)
            self.fused.append(made)
        return self.maker[node]

    def _library(self, id: str, item: Instruction, inputs: tuple[str, ...], within: tuple[str, ...]) -> None:
        note = item.attributes.get("custom_call_target", "").strip('"')
        origins = self._origins(item)
        for nodes, read in ((self.fused, inputs), (self.loops, within)):
            nodes.append(self._node(id, item, "library", read, origins, self._spans([item]), note=note))

    def _kernel(
        self, module: HloModule, item: Instruction, by_name: Mapping[str, Instruction],
        outer: Mapping[str, tuple[str, ...]], inner: Mapping[str, tuple[str, ...]],
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:  # fmt: skip
        id = f"{self.aten.id}.k{len(self.kernels)}"
        bodies = [module.computations[name] for name in item.called] if _holds_code(item) else []
        walked: list[tuple[Instruction, str]] = []
        if bodies:
            made: tuple[str, ...] = ()
            operands = [inner.get(name, ()) for name in item.operands]
            for body in bodies:
                made = self._walk(module, body, operands, walked)
        else:
            made = (self._loop(item, _through(item, inner), walked),)
        ids = tuple(loop for _, loop in walked)
        found = [item, *(each for each, _ in walked)]
        inputs = _through(item, outer)
        self.fused.append(self._node(id, item, "kernel", inputs, ids, self._spans(found)))
        text = "\n\n".join(body.text for body in bodies) or item.text
        here = bodies[0] if bodies else None
        self.kernels.append(
            Kernel(
                id=id,
                name=item.name,
                graph=f"{self.aten.id}.fused",
                loops=ids,
                schedule=_schedule(item),
                sources={"hlo": text},
                line_map=_line_map(here, walked),
                reads=tuple(dict.fromkeys(item.operands)),
                writes=(item.name,),
                bytes_read=sum(by_name[name].bytes for name in dict.fromkeys(item.operands)),
                bytes_written=item.bytes,
                flops=sum(_flops(each, module) for each, _ in walked),
                target=self.target,
            )
        )
        if made:
            self.inner[id] = made[-1]
        return (id,), made or (id,)

    def _walk(
        self, module: HloModule, body: Computation, operands: Sequence[tuple[str, ...]],
        walked: list[tuple[Instruction, str]],
    ) -> tuple[str, ...]:  # fmt: skip
        """The instructions of a fused computation, in order; what makes its result."""
        values: dict[str, tuple[str, ...]] = {}
        for item in body.instructions:
            if item.opcode == "parameter":
                place = int(item.literal)
                values[item.name] = operands[place] if place < len(operands) else ()
            elif item.opcode in _SILENT:
                values[item.name] = _through(item, values)
            elif _holds_code(item):
                given = [values.get(name, ()) for name in item.operands]
                for name in item.called:
                    values[item.name] = self._walk(module, module.computations[name], given, walked)
            else:
                values[item.name] = (self._loop(item, _through(item, values), walked),)
        return values.get(body.root.name, ())

    def _loop(self, item: Instruction, inputs: tuple[str, ...], walked: list[tuple[Instruction, str]]) -> str:
        id = f"{self.aten.id}.l{self.instructions}"
        self.instructions += 1
        kind: NodeKind = "pointwise"
        if item.opcode in _REDUCING:
            kind = "reduction"
        elif item.opcode == "scatter":
            kind = "scatter"
        self.loops.append(self._node(id, item, kind, inputs, self._origins(item), self._spans([item])))
        walked.append((item, id))
        return id

    def _node(
        self, id: str, item: Instruction, kind: NodeKind, inputs: tuple[str, ...], origins: tuple[str, ...],
        spans: tuple[Span, ...], note: str = "",
    ) -> Node:  # fmt: skip
        first = item.arrays[0] if item.arrays else ("", ())
        return Node(
            id, item.name, item.opcode, kind, inputs, origins, spans, shape=first[1],
            dtype=_DTYPES.get(first[0], first[0] or None), bytes=item.bytes,
            text=item.text.partition(", metadata=")[0], note=note,
        )  # fmt: skip

    def _call_id(self) -> str:
        self.calls += 1
        return f"{self.aten.id}.c{self.calls - 1}"

    def _scope(self, item: Instruction) -> str:
        """The ATen node whose scope an instruction was made in: ours is outermost."""
        return next((part for part in item.op_name.split("/") if part in self.names), "")

    def _origins(self, item: Instruction) -> tuple[str, ...]:
        name = self._scope(item)
        return (self.aten.ids[name],) if name in self.aten.ids else ()

    def _spans(self, items: Iterable[Instruction]) -> tuple[Span, ...]:
        return tuple(
            dict.fromkeys(span for each in items for span in self.aten.spans.get(self._scope(each), ()))
        )


def _note(node: fx.Node) -> str:
    """Why a node runs in torch."""
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return "drawn by torch, so that the numbers are those of eager mode"
    return "checked by torch: XLA has no way to raise an error"


def _holds_code(item: Instruction) -> bool:
    """Whether what it calls is code of its own, rather than how two numbers are combined."""
    return item.opcode in ("fusion", "call", "while", "conditional", "async-start") and bool(item.called)


def _through(item: Instruction, values: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What makes the operands of an instruction."""
    return tuple(dict.fromkeys(id for name in item.operands for id in values.get(name, ())))


def _schedule(item: Instruction) -> str:
    if item.opcode != "fusion":
        return item.opcode
    kind = _FUSIONS.get(item.attributes.get("kind", ""), "")
    return f"{kind} fusion".strip()


def _line_map(body: Computation | None, walked: Sequence[tuple[Instruction, str]]) -> tuple[LineLink, ...]:
    """Lines of a kernel's text, from 1: its first computation's, whose header is the first."""
    if body is None:
        return tuple(LineLink(1, (id,)) for _, id in walked)
    own = {id(each) for each in body.instructions}
    return tuple(LineLink(each.line + 1, (loop,)) for each, loop in walked if id(each) in own)


def _flops(item: Instruction, module: HloModule) -> int:
    """Operations of an instruction: of a product two for each multiplication, else one an element."""
    if item.opcode in _FREE:
        return 0
    shapes = {
        each.name: each for body in module.computations.values() for each in body.instructions
    } if item.opcode in ("dot", "convolution", "reduce") else {}  # fmt: skip
    if item.opcode == "dot":
        left = shapes[item.operands[0]].arrays[0][1]
        axes = item.attributes.get("lhs_contracting_dims", "{}").strip("{}")
        contracted = 1
        for place in axes.split(","):
            contracted *= left[int(place)] if place else 1
        return 2 * item.elements * contracted
    if item.opcode == "convolution":
        kernel = shapes[item.operands[1]].arrays[0][1]
        layout = item.attributes.get("dim_labels", "").partition("_")[2].partition("->")[0]
        size = math.prod(kernel) // max(1, kernel[layout.index("o")])
        return 2 * item.elements * size
    if item.opcode == "reduce":
        return sum(shapes[name].elements for name in item.operands[: len(item.operands) // 2])
    return item.elements

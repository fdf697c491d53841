"""An optimised HLO module as stages of a record: XLA's kernels, and the instructions that they hold.

XLA's own fusions are the kernels, its instructions the loops. What an instruction was made from is written in
its metadata; who compiled the module knows how to read that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from nbcompile.backends.xla.hlo import Computation, HloModule, Instruction
from nbcompile.record.compilation import Kernel, LineLink, Node, NodeKind, Span

_LIBRARY = frozenset(
    "dot convolution custom-call sort topk fft cholesky triangular-solve scatter ragged-dot rng-bit-generator"
    .split()
)  # fmt: skip
_SILENT = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id".split()
)
_DONE = frozenset(f"{name}-done" for name in "all-reduce all-gather collective-permute".split())
COLLECTIVES = frozenset(
    "all-reduce all-gather all-to-all ragged-all-to-all reduce-scatter collective-permute "
    "collective-broadcast all-reduce-start all-gather-start collective-permute-start".split()
)
"""Instructions by which devices hand each other data."""
_REDUCING = frozenset(("reduce", "reduce-window", "dot", "convolution"))
_FREE = _SILENT | {"broadcast", "reshape", "transpose", "copy", "slice", "iota", "fusion", "call", "pad",
                   "concatenate", "gather", "dynamic-slice", "dynamic-update-slice", "reverse"}  # fmt: skip
_DTYPES = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"} | {
    f"{letter}{bits}": f"{name}{bits}"
    for letter, name in (("f", "float"), ("s", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}
_FUSIONS = {"kLoop": "loop", "kInput": "reduction", "kOutput": "output", "kCustom": "custom"}


class HloRecord(ABC):
    """Collects nodes while it walks compiled modules. Ids begin with ``prefix``; ``inner`` has for each
    kernel the instruction that makes its (last) result."""

    def __init__(self, prefix: str, target: str) -> None:
        self.prefix = prefix
        self.target = target
        self.inner: dict[str, str] = {}
        self.loops: list[Node] = []
        self.fused: list[Node] = []
        self.kernels: list[Kernel] = []
        self._calls = 0
        self._instructions = 0

    @abstractmethod
    def origins_of(self, item: Instruction) -> tuple[str, ...]:
        """Ids of the nodes, one stage up, that an instruction was made from."""

    @abstractmethod
    def spans_of(self, item: Instruction) -> tuple[Span, ...]:
        """Where in the user's source an instruction comes from."""

    def entry(self, module: HloModule, made_by: Callable[[int], str]) -> dict[str, tuple[str, ...]]:
        """Walk the entry computation; ``made_by`` gives the id of what makes a parameter. Returns by the name
        of each instruction what makes its value, among the kernels and calls."""
        outer: dict[str, tuple[str, ...]] = {}
        inner: dict[str, tuple[str, ...]] = {}  # the same among the instructions
        by_name = {each.name: each for each in module.entry.instructions}
        for item in module.entry.instructions:
            if item.opcode == "parameter":
                outer[item.name] = inner[item.name] = (made_by(int(item.literal)),)
            elif item.opcode in _SILENT or item.opcode in _DONE:
                outer[item.name] = _through(item, outer)
                inner[item.name] = _through(item, inner)
            elif item.opcode in _LIBRARY or item.opcode in COLLECTIVES:
                id = self.call_id()
                self._library(id, item, _through(item, outer), _through(item, inner))
                outer[item.name] = inner[item.name] = (id,)
            else:
                outer[item.name], inner[item.name] = self._kernel(module, item, by_name, outer, inner)
        return outer

    def call_id(self) -> str:
        """The id of the next call into a library."""
        self._calls += 1
        return f"{self.prefix}.c{self._calls - 1}"

    def _library(self, id: str, item: Instruction, inputs: tuple[str, ...], within: tuple[str, ...]) -> None:
        note = item.attributes.get("custom_call_target", "").strip('"')
        if item.opcode in COLLECTIVES:
            note = f"a collective: {_who_takes_part(item)}"
        origins = self.origins_of(item)
        for nodes, read in ((self.fused, inputs), (self.loops, within)):
            nodes.append(self._node(id, item, "library", read, origins, self._spans([item]), note=note))

    def _kernel(
        self, module: HloModule, item: Instruction, by_name: Mapping[str, Instruction],
        outer: Mapping[str, tuple[str, ...]], inner: Mapping[str, tuple[str, ...]],
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:  # fmt: skip
        id = f"{self.prefix}.k{len(self.kernels)}"
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
                graph=f"{self.prefix}.fused",
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
        id = f"{self.prefix}.l{self._instructions}"
        self._instructions += 1
        kind: NodeKind = "pointwise"
        if item.opcode in _REDUCING:
            kind = "reduction"
        elif item.opcode == "scatter":
            kind = "scatter"
        self.loops.append(self._node(id, item, kind, inputs, self.origins_of(item), self._spans([item])))
        walked.append((item, id))
        return id

    def _node(
        self, id: str, item: Instruction, kind: NodeKind, inputs: tuple[str, ...], origins: tuple[str, ...],
        spans: tuple[Span, ...], note: str = "",
    ) -> Node:  # fmt: skip
        first = item.arrays[0] if item.arrays else ("", ())
        return Node(
            id, item.name, item.opcode, kind, inputs, origins, spans, shape=first[1],
            dtype=dtype_of(first[0]), bytes=item.bytes,
            text=item.text.partition(", metadata=")[0], note=note,
        )  # fmt: skip

    def _spans(self, items: Iterable[Instruction]) -> tuple[Span, ...]:
        return tuple(dict.fromkeys(span for each in items for span in self.spans_of(each)))


def dtype_of(kind: str) -> str | None:
    """The dtype that HLO calls ``f32`` or ``pred``."""
    return _DTYPES.get(kind, kind or None)


def _who_takes_part(item: Instruction) -> str:
    """The devices between which a collective goes, as HLO writes them."""
    groups = item.attributes.get("replica_groups") or item.attributes.get("source_target_pairs", "")
    return f"between the devices {groups}" if groups.strip("{}") else "between all devices"


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

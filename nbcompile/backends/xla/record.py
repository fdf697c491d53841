"""What XLA made of a graph, as stages of the record: StableHLO, optimised HLO, and its kernels.

Which ATen node an instruction comes from is written in its metadata: each node is lowered in a scope of its
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import fx

from nbcompile.backends.xla.hlo import Instruction, parse
from nbcompile.backends.xla.hlo_record import HloRecord
from nbcompile.backends.xla.program import XlaProgram
from nbcompile.backends.xla.split import Plan
from nbcompile.compiler.fx_values import dim, nbytes
from nbcompile.compiler.stages import AtenGraph, device_of
from nbcompile.record.compilation import Graph, Kernel, Node, Span


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


class _Maker(HloRecord):
    """``maker`` has for each ATen node the kernel, call or input that makes it."""

    def __init__(self, aten: AtenGraph, plan: Plan) -> None:
        device = device_of(aten.module)
        target = "cpu"
        if device.type == "cuda":
            major, minor = torch.cuda.get_device_capability(device)
            target = f"cuda:{major}{minor}"
        super().__init__(aten.id, target)
        self.aten = aten
        self.plan = plan
        self.maker: dict[fx.Node, str] = {}
        self.names = {node.name for node in aten.module.graph.nodes}

    def torch_call(self, node: fx.Node) -> None:
        """A node that runs in torch, between the programs."""
        if node.target is torch.ops.aten.copy_.default:
            return  # results of XLA written to where the program wants them
        id = self.call_id()
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
        made = self.entry(module, lambda place: self._input(program.arrays[place][0]))
        root = module.entry.root
        roots = root.operands if root.opcode == "tuple" else (root.name,)
        for (node, _), name in zip(program.returned, roots, strict=False):
            if made[name]:
                self.maker[node] = made[name][0]

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

    def _scope(self, item: Instruction) -> str:
        """The ATen node whose scope an instruction was made in: ours is outermost."""
        return next((part for part in item.op_name.split("/") if part in self.names), "")

    def origins_of(self, item: Instruction) -> tuple[str, ...]:
        """See :meth:`HloRecord.origins_of`."""
        name = self._scope(item)
        return (self.aten.ids[name],) if name in self.aten.ids else ()

    def spans_of(self, item: Instruction) -> tuple[Span, ...]:
        """See :meth:`HloRecord.spans_of`."""
        return self.aten.spans.get(self._scope(item), ())


def _note(node: fx.Node) -> str:
    """Why a node runs in torch."""
    if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return "drawn by torch, so that the numbers are those of eager mode"
    return "checked by torch: XLA has no way to raise an error"

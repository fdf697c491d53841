"""The loop and fused stages as parts of the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nbcompile.compiler.fuse import traffic
from nbcompile.compiler.fuse.cost import flops
from nbcompile.compiler.fuse.dependencies import reads
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.nodes import (
    Buffer,
    LibraryCall,
    Loop,
    LoopProgram,
    Statement,
    View,
    statement_text,
)
from nbcompile.compiler.stages import AtenGraph, KernelSource
from nbcompile.record.compilation import Decision, Graph, Kernel, LineLink, Node, Span

Spans = Mapping[str, tuple[Span, ...]]


def loop_graph(program: LoopProgram, aten: AtenGraph) -> Graph:
    """Record of a loop program: its inputs, loops and library calls; ids as in the program."""
    texts, spans = _texts(program), statement_spans(program, aten)
    makers, nodes = _inputs(program, aten, texts)
    for statement in program.statements:
        inputs = tuple(dict.fromkeys(makers[name] for name in reads(statement) if name in makers))
        out = next((buffer for buffer in statement.outputs if buffer is not None), None)
        nodes.append(
            Node(
                id=statement.id,
                name=out.name if out else statement.id,
                op=statement.name if isinstance(statement, LibraryCall) else statement.op,
                kind=_kind(statement),
                inputs=inputs,
                origins=statement.origins,
                spans=spans.get(statement.id, ()),
                text=texts.get(statement.id) or " ".join(statement_text(statement)),
                note=statement.reason if isinstance(statement, LibraryCall) else "",
                **_memory(out),
            )
        )
        makers |= {buffer.name: statement.id for buffer in statement.outputs if buffer is not None}
    return Graph(
        id=f"{program.graph}.loops",
        stage="loops",
        title=f"loops of {program.graph}",
        nodes=tuple(nodes),
        outputs=_outputs(program, makers),
        parent=program.graph,
        text=program.as_text(),
    )


def fused_graph(program: FusedProgram, aten: AtenGraph) -> Graph:
    """Record of a fused program: one node a kernel or library call."""
    loops = program.program
    spans = statement_spans(loops, aten)
    makers, nodes = _inputs(loops, aten, {})
    for entry in program.items:
        members: tuple[Statement, ...] = entry.loops if isinstance(entry, Group) else (entry,)
        made = {buffer.name for member in members for buffer in member.outputs if buffer is not None}
        inputs = tuple(
            dict.fromkeys(
                makers[name] for member in members for name in reads(member)
                if name in makers and name not in made
            )
        )  # fmt: skip
        out = [
            buffer for member in members for buffer in member.outputs
            if buffer is not None and (not isinstance(entry, Group) or buffer.name in entry.stored)
        ]  # fmt: skip
        nodes.append(
            Node(
                id=entry.id,
                name=entry.name,
                op=entry.name,
                kind="kernel" if isinstance(entry, Group) else _kind(entry),
                inputs=inputs,
                origins=tuple(loop.id for loop in entry.loops) if isinstance(entry, Group) else entry.origins,
                spans=tuple(dict.fromkeys(span for item in members for span in spans.get(item.id, ()))),
                text=entry.name if isinstance(entry, Group) else " ".join(statement_text(entry)),
                note=entry.reason if isinstance(entry, LibraryCall) else "",
                **_memory(out[-1] if out else None) | {"bytes": sum(buffer.bytes_hint() for buffer in out)},
            )
        )
        makers |= dict.fromkeys(made, entry.id)
    return Graph(
        id=f"{loops.graph}.fused",
        stage="fused",
        title=f"kernels of {loops.graph}",
        nodes=tuple(nodes),
        outputs=_outputs(loops, makers),
        parent=f"{loops.graph}.loops",
        text=program.as_text(),
    )


def kernel_records(program: FusedProgram, source: KernelSource) -> list[Kernel]:
    """One Kernel a group, with its traffic at the sizes compiled for."""
    texts = {item.id: item for item in source.kernels}
    buffers = program.program.buffers()
    kernels = []
    for group in program.groups:
        made = {buffer.name for loop in group.loops for buffer in loop.outputs}
        read = {name for loop in group.loops for name in reads(loop)} - made
        text = texts[group.id]
        kernels.append(
            Kernel(
                id=group.id,
                name=group.name,
                graph=f"{program.program.graph}.fused",
                loops=tuple(loop.id for loop in group.loops),
                schedule=text.schedule,
                sources={source.language: text.text},
                line_map=tuple(LineLink(line, links) for line, links in text.lines),
                recomputed=tuple(
                    loop.id
                    for loop in group.loops
                    if loop.kind == "pointwise" and loop.id not in group.bindings
                ),
                reads=tuple(sorted(read)),
                writes=tuple(sorted(group.stored)),
                bytes_read=sum(traffic.bytes_read(group, buffers).values()),
                bytes_written=traffic.bytes_written(group, buffers),
                flops=sum(flops(loop) for loop in group.loops),
            )
        )
    return kernels


def parts(
    program: FusedProgram, source: KernelSource, aten: AtenGraph
) -> Iterable[Graph | Decision | Kernel]:
    """Everything the stages below ATen leave in the record."""
    yield loop_graph(program.program, aten)
    yield fused_graph(program, aten)
    yield from program.decisions
    yield from kernel_records(program, source)


def statement_spans(program: LoopProgram, aten: AtenGraph) -> Spans:
    """Where in the user's source each statement comes from."""
    names = {id: name for name, id in aten.ids.items()}
    return {
        item.id: tuple(
            dict.fromkeys(
                span for origin in item.origins for span in aten.spans.get(names.get(origin, ""), ())
            )
        )
        for item in program.statements
    }


def _placeholders(program: LoopProgram, aten: AtenGraph) -> dict[str, tuple[str, ...]]:
    """For each input buffer the id of its ATen placeholder: a program's inputs are in their order."""
    found = [node.name for node in aten.module.graph.nodes if node.op == "placeholder"]
    return {
        item.name: (aten.ids[name],)
        for item, name in zip(program.inputs, found, strict=False)
        if isinstance(item, Buffer) and name in aten.ids
    }


def _texts(program: LoopProgram) -> dict[str, str]:
    """The line of the program's text for each input (by name) and statement (by id)."""
    lines = program.as_text().split("\n")
    inputs = [item.name for item in program.inputs if isinstance(item, Buffer)]
    statements = [item.id for item in program.statements]
    start = len(inputs) + len(program.constants)
    if len(lines) != start + len(statements) + 1:
        return {}  # an argument with a line break in it
    return dict(zip(inputs, lines, strict=False)) | dict(zip(statements, lines[start:], strict=False))


def _inputs(
    program: LoopProgram, aten: AtenGraph, texts: Mapping[str, str]
) -> tuple[dict[str, str], list[Node]]:
    """(the id of the node that makes each input buffer, by the buffer's name, and these nodes)."""
    above = _placeholders(program, aten)
    nodes = [
        Node(
            id=f"{program.graph}.{item.name}",
            name=item.name,
            op="input",
            kind="input",
            origins=above.get(item.name, ()),
            text=texts.get(item.name, ""),
            **_memory(item),
        )
        for item in program.inputs
        if isinstance(item, Buffer)
    ]
    return {node.name: node.id for node in nodes}, nodes


def _memory(out: Buffer | None) -> dict[str, Any]:
    """What a node says of the memory that it makes."""
    if out is None:
        return {"shape": None, "dtype": None, "stride": None, "bytes": 0}
    return {
        "shape": tuple(map(_dim, out.shape)),
        "dtype": str(out.dtype).removeprefix("torch."),
        "stride": tuple(map(_dim, out.strides)),
        "bytes": out.bytes_hint(),
    }


def _kind(item: Statement) -> Literal["pointwise", "reduction", "scan", "scatter", "library", "fallback"]:
    if isinstance(item, Loop):
        return item.kind
    return "fallback" if item.fallback else "library"


def _outputs(program: LoopProgram, makers: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        makers[output.buffer.name]
        for output in program.outputs
        if isinstance(output, View) and output.buffer.name in makers
    )


def _dim(extent: IndexExpr) -> int | str:
    return extent.constant if extent.constant is not None else str(extent)

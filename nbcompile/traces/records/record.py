"""One compilation of a trace as the record that every view reads, as far as the trace tells.

Links between stages are what torch's text gives: ATen nodes come from the FX nodes of the same source line,
Triton kernels from the nodes that Inductor lists above them. What is not said there is not linked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from nbcompile.record.compilation import (
    Compilation,
    Environment,
    Graph,
    GraphBreak,
    Kernel,
    Node,
    PassRecord,
    Span,
    Stage,
)
from nbcompile.traces.reading.values import TimedPart, TraceArtifact, TracedCompile, TraceIndex
from nbcompile.traces.records.fused import fused_graph
from nbcompile.traces.records.kernels import read_code
from nbcompile.traces.records.printed import read_graph
from nbcompile.traces.records.told import break_of, guards_of, recompile_of
from nbcompile.units import count_text, seconds_text

Read = Callable[[TraceArtifact], str]
_HALVES: tuple[tuple[str, Stage, str, str], ...] = (
    ("aot_joint_graph", "joint", "joint", "joint forward and backward graph"),
    ("aot_forward_graph", "forward", "fw", "forward graph"),
    ("aot_inference_graph", "forward", "fw", "inference graph"),
    ("aot_backward_graph", "backward", "bw", "backward graph"),
)
_PHASES = {
    "bytecode_tracing": ("Dynamo", "g0"),
    "build_guards": ("guards", "g0"),
    "backend_compile": ("AOTAutograd and what is around it", "g0.fw"),
    "create_aot_dispatcher_function": ("AOTAutograd", "g0.fw"),
    "_recursive_joint_graph_passes": ("joint graph passes", "g0.fw"),
    "_recursive_post_grad_passes": ("post-grad passes", "g0.fw"),
    "GraphLowering.run": ("Inductor: lowering", "g0.fw.fused"),
    "Scheduler.__init__": ("Inductor: fusion", "g0.fw.fused"),
    "GraphLowering.codegen": ("Inductor: code", "g0.fw.source"),
    "PyCodeCache.load_by_key_path": ("Inductor: kernels compiled", "g0.fw.module"),
}
"""Stretches of compile time that are steps to a reader, by torch's names, and what each makes."""
_LINKED_BY_LINE = "ATen nodes are linked to the FX nodes of the same source line: a trace has no closer link."
_CPP_UNLINKED = "Inductor's C++ kernels do not say which nodes they were made of."


@dataclass
class _Making:
    traced: TracedCompile
    read: Read
    graphs: list[Graph] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text and text not in self.notes:
            self.notes.append(text)


def record_of(traced: TracedCompile, index: TraceIndex, read: Read) -> Compilation:
    """``read`` gives the text of an artifact. What is no graph in it is counted in the record's notes."""
    making = _Making(traced, read)
    whose = f"rank {index.rank}" if index.rank is not None else "a trace"
    for text in _how_it_went(traced, whose):
        making.note(text)
    last = max((each.attempt for each in traced.artifacts), default=0)
    of_last = [each for each in traced.artifacts if each.attempt == last]
    _dynamo(making, of_last)
    _aten(making, of_last)
    _code(making, of_last)
    breaks, guards = _breaks(making), []
    for artifact in [each for each in of_last if each.name in ("dynamo_cpp_guards_str", "dynamo_guards")][:1]:
        guards = guards_of(read(artifact), "g0")
    files = _files(making)
    inductor = bool(traced.named("inductor_output_code", "fx_graph_runnable", "inductor_post_grad_graph"))
    return Compilation(
        id=f"trace-{traced.id}",
        backend="inductor" if inductor else "torch.compile",
        environment=Environment(torch=index.torch, device=_device(making.kernels)),
        graphs=tuple(making.graphs),
        guards=tuple(replace(each, spans=_whole(each.spans, files)) for each in guards),
        breaks=tuple(breaks),
        recompiles=tuple(
            replace(each, spans=_whole(each.spans, files))
            for each in (recompile_of(text, traced.function) for text in traced.recompiles)
        ),
        kernels=tuple(making.kernels),
        passes=_passes(traced, index, making.graphs),
        notes=tuple(making.notes),
        compile_seconds=traced.seconds or 0.0,
        from_cache=any(each.state == "hit" for each in traced.caches),
    )


def _how_it_went(traced: TracedCompile, whose: str) -> list[str]:
    """Sentences: which function, how it ended, and where the time went."""
    where = f"{traced.file}:{traced.line}" if traced.file else "an unknown place"
    said = []
    if traced.failure is not None:
        at = f" at {traced.failure.file}:{traced.failure.line}" if traced.failure.file else ""
        said.append(f"It failed{at}: {traced.failure.type}: {_first(traced.failure.reason)}")
    elif traced.status == "empty":
        said.append("There was nothing in it to compile: its graph is empty.")
    elif traced.status == "unfinished":
        said.append("The trace has no metrics of it: nobody knows how it ended.")
    said.append(f"Compilation {traced.id} of {whose}: {traced.function or 'a frame'} at {where}.")
    caller = traced.caller
    if caller is not None and (caller.file, caller.line) != (traced.file, traced.line):
        said.append(f"Called from {caller}{': ' + caller.code if caller.code else ''}")
    said += [f"Dynamo began anew: {_first(reason)}" for reason in traced.restarts]
    times = [
        f"{name} {seconds_text(seconds)}"
        for name, seconds in (
            ("in all", traced.seconds),
            ("backend", traced.backend_seconds),
            ("Inductor", traced.inductor_seconds),
        )
        if seconds is not None
    ]
    said += [f"Compile time: {', '.join(times)}."] if times else []
    said += [f"Caches: {traced.cache_text}."] if traced.caches else []
    said += [f"Sizes: {each.kind}: {each.text}" for each in traced.shapes[:20]]
    damaged = sum(not each.place.intact for each in traced.artifacts)
    if damaged:
        said.append(f"{count_text(damaged, 'payload')} of it are not what torch wrote: their hash differs.")
    return said


def _first(text: str) -> str:
    return text.strip().split("\n", 1)[0]


# -- graphs --------------------------------------------------------------------------------------------


def _dynamo(making: _Making, artifacts: Sequence[TraceArtifact]) -> None:
    """Dynamo's graph as ``g0``; the pieces that DDPOptimizer cut of it as further graphs."""
    found = [each for each in artifacts if each.name in ("dynamo_output_graph", "compiled_autograd_graph")]
    pieces = [each for each in artifacts if each.name.startswith("optimize_ddp_split_child")]
    shown = pieces or found[-1:]
    for number, artifact in enumerate(shown):
        title = f"Dynamo's graph of {making.traced.function or making.traced.id}"
        if pieces:
            title = f"piece {number} that DDPOptimizer cut of {title}"
        making.graphs.append(_graph(making, artifact, f"g{number}", "fx", title, ()))


def _aten(making: _Making, artifacts: Sequence[TraceArtifact]) -> None:
    """The graphs of AOTAutograd; where there are several of a kind, each belongs to one piece."""
    above = {graph.id: graph for graph in making.graphs}
    linked = False
    for name, stage, short, title in _HALVES:
        for number, artifact in enumerate(each for each in artifacts if each.name == name):
            piece = f"g{number}"
            parent = above.get(piece)
            id = f"{piece}.{short}"
            if any(graph.id == id for graph in making.graphs):
                continue
            made = _graph(making, artifact, id, stage, title, parent.nodes if parent else ())
            linked = linked or any(node.origins for node in made.nodes)
            making.graphs.append(replace(made, parent=piece if parent else ""))
    making.note(_LINKED_BY_LINE if linked else "")


def _graph(
    making: _Making, artifact: TraceArtifact, id: str, stage: Stage, title: str, above: Sequence[Node]
) -> Graph:
    text = making.read(artifact)
    found = read_graph(text, f"{id}.fx" if stage == "fx" else id)
    if found.inner:
        making.note(
            f"{id}: {count_text(found.inner, 'inner graph')} in its text are no nodes of the picture."
        )
    if found.unread:
        making.note(f"{id}: {count_text(found.unread, 'line')} of its text are no nodes: not understood.")
    by_line: dict[tuple[str, int], list[str]] = {}
    for node in above:
        for span in node.spans:
            by_line.setdefault((span.file, span.line), []).append(node.id)
    nodes = [
        replace(node, origins=_origins(node, by_line)) if node.kind != "output" else node
        for node in found.nodes
    ]
    return Graph(id=id, stage=stage, title=title, nodes=tuple(nodes), outputs=found.outputs, text=text)


def _origins(node: Node, by_line: dict[tuple[str, int], list[str]]) -> tuple[str, ...]:
    if node.kind == "input":
        return ()
    same = [id for span in node.spans for id in by_line.get((span.file, span.line), ())]
    return tuple(dict.fromkeys(same))


# -- what runs -----------------------------------------------------------------------------------------


def _code(making: _Making, artifacts: Sequence[TraceArtifact]) -> None:
    """Inductor's code, each below the graph it was made of: the forward is compiled first."""
    modules = [each for each in artifacts if each.name == "inductor_output_code"]
    # A graph found in a cache is written once more by the cache that found it.
    texts = list(dict.fromkeys(making.read(each) for each in modules))
    order = [graph for stage in ("forward", "backward") for graph in making.graphs if graph.stage == stage]
    for text, aten in zip(texts, order):
        code = read_code(text)
        graph, kernels, unlinked = fused_graph(code, aten)
        making.graphs.append(graph)
        making.kernels += kernels
        making.note(_CPP_UNLINKED if unlinked else "")
        if code.left_out:
            making.note(
                f"{aten.id}: {count_text(code.left_out, 'line')} of the code after its first calls left out."
            )
    if len(texts) > len(order):
        making.note(
            f"{count_text(len(texts) - len(order), 'module')} of code belong to no graph of the trace."
        )


def _device(kernels: Iterable[Kernel]) -> str:
    return next((kernel.target for kernel in kernels if kernel.target != "cpu"), "cpu")


# -- the rest ------------------------------------------------------------------------------------------


def _breaks(making: _Making) -> list[GraphBreak]:
    graph = "g0" if making.graphs else ""
    found = [break_of(making.read(each), graph) for each in making.traced.named("dynamo_graph_break_reason")]
    if not found and making.traced.failure is not None:
        failure = making.traced.failure
        found = [break_of(failure.reason, "", failure)]
    return found


def _files(making: _Making) -> tuple[str, ...]:
    """The user's files that this compilation names in full."""
    named = [making.traced.file, *(frame.file for frame in making.traced.stack)]
    named += [span.file for graph in making.graphs for node in graph.nodes for span in node.spans]
    return tuple(dict.fromkeys(named))


def _whole(spans: tuple[Span, ...], files: Sequence[str]) -> tuple[Span, ...]:
    """Of a file whose name Dynamo has cut at its beginning, the one that ends so, if there is one."""
    found = []
    for span in spans:
        whole = [file for file in files if file.endswith(span.file)]
        found.append(replace(span, file=whole[0]) if len(whole) == 1 else span)
    return tuple(found)


def _passes(traced: TracedCompile, index: TraceIndex, graphs: Iterable[Graph]) -> tuple[PassRecord, ...]:
    """Steps with the time of each, that of the steps within it left out, so that they add up."""
    own: list[list[float]] = []
    steps: list[TimedPart] = []
    inside: list[int] = []
    for part in index.parts:
        if part.compile != traced.id or part.name not in _PHASES:
            continue
        while inside and steps[inside[-1]].ends <= part.begins:
            inside.pop()
        if inside:
            own[inside[-1]][0] -= part.ends - part.begins
        inside.append(len(steps))
        steps.append(part)
        own.append([part.ends - part.begins])
    made = {graph.id for graph in graphs}
    found = []
    for part, (seconds,) in zip(steps, own, strict=True):
        title, after = _PHASES[part.name]
        if after.rpartition(".")[0] in made or after in made:
            before = "g0.fw.source" if after.endswith(".module") else ""
            found.append(PassRecord(title, before, after, 1e3 * max(0.0, seconds)))
    return tuple(found)

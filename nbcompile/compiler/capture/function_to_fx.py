"""Function → FX graph: the backend that Dynamo calls with every graph it captured."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import fx

from nbcompile.compiler import passes
from nbcompile.compiler.capture.fx_to_aten import CompileAten, LookUp, compile_fx_graph
from nbcompile.compiler.capture.graph_breaks import break_of_subgraph_reason
from nbcompile.compiler.capture.graph_record import (
    cell_callers,
    places_of,
    record_nodes,
    source_name,
)
from nbcompile.compiler.capture.lost.default_device import write_default_device
from nbcompile.compiler.capture.lost.dropout import off_is_its_input, with_repeated, without_repeated
from nbcompile.compiler.capture.lost.margins import as_the_kernel_does
from nbcompile.compiler.capture.lost.out import copy_into_out
from nbcompile.compiler.capture.lost.python_draws import told_as_they_come
from nbcompile.compiler.capture.lost.shuffles import shuffled_as_they_lie
from nbcompile.compiler.linear_cross_entropy.rewrite import chunk_linear_cross_entropy
from nbcompile.compiler.rare_collections import rare_collections
from nbcompile.compiler.rewrite.attention import choose_attention
from nbcompile.compiler.stages import AtenGraph, CompiledModule, FxGraph, device_of
from nbcompile.options import Options
from nbcompile.record.compilation import Graph, PassRecord
from nbcompile.record.recorder import Recorder
from nbcompile.units import count_text

Backend = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def _attention(graph: FxGraph, setting: passes.Setting) -> FxGraph:
    if chosen := choose_attention(graph.module):
        setting.said.append(f"{chosen} masked attention calls go to cuDNN")
        said = f"{chosen} masked attention calls of graph {graph.id} go to cuDNN, as in eager mode"
        setting.recorder.add(said)
    return graph


def _dropout(graph: FxGraph, setting: passes.Setting) -> FxGraph:
    if off := off_is_its_input(graph.module):
        setting.said.append(f"{count_text(off, 'dropout')} turned off: inputs take their places")
    return graph


def _out(graph: FxGraph, setting: passes.Setting) -> FxGraph:
    if copied := copy_into_out(graph.module):
        setting.said.append(f"{count_text(copied, 'result')} copied into out=, whose strides stay")
    return graph


def _margins(graph: FxGraph, setting: passes.Setting) -> FxGraph:
    if written := as_the_kernel_does(graph.module):
        setting.said.append(
            f"{count_text(written, 'multilabel_margin_loss')} written out as ATen computes it"
        )
    return graph


def _shuffles(graph: FxGraph, setting: passes.Setting) -> FxGraph:
    if written := shuffled_as_they_lie(graph.module):
        setting.said.append(f"{count_text(written, 'channel_shuffle')} laid out as ATen's kernel does")
    return graph


FX_PASSES = (
    passes.Pass("dropout", _dropout),
    passes.Pass("out=", _out),
    passes.Pass("margin losses", _margins),
    passes.Pass("channel_shuffle", _shuffles),
    passes.Pass("linear + cross_entropy", chunk_linear_cross_entropy),
    passes.Pass("attention", _attention),
)


def make_backend(
    options: Options,
    recorder: Recorder,
    compile_aten: CompileAten,
    *,
    record_breaks: bool = True,
    look_up: LookUp | None = None,
) -> Backend:
    """The Dynamo backend of one compile.

    The returned function records each FX graph, gives it to AOTAutograd and ``compile_aten``, and
    returns what Dynamo is to call: positional tensors in, a tuple of outputs back. ``record_breaks``
    records the break that ended the graph; turn it off where somebody listens to all breaks. ``look_up``:
    where nobody reads the record, what finds a graph that was compiled before, with no stage of it.
    """

    def where_it_works(aten: AtenGraph, _: Options, recorder: Recorder) -> CompiledModule:
        """Of a graph that works on a GPU the backward graph may not, and is compiled for the CPU then."""
        return compile_aten(aten, options, recorder)

    @rare_collections()
    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        write_default_device(module)
        example_inputs = told_as_they_come(module, example_inputs)
        lookup = look_up and look_up(module, example_inputs, options, recorder)
        graph = record_fx_graph(module, recorder, later=lookup is not None and not lookup.reason)
        if record_breaks:
            found = break_of_subgraph_reason(module, recorder, graph.id)
            if found is not None:
                recorder.add(found)
        resolved = options.for_device(device_of(module, example_inputs))
        setting = passes.Setting(resolved, recorder)
        graph = passes.run(FX_PASSES, graph, graph.id, setting, start="fx")[-1]
        repeated = without_repeated(graph.module)
        call = compile_fx_graph(graph, example_inputs, resolved, recorder, where_it_works, lookup=lookup)
        return call if repeated is None else with_repeated(call, repeated)

    return backend


def delegating_backend(recorder: Recorder, compiler: Callable[..., Any]) -> Backend:
    """A backend that records the FX graph and then lets ``compiler(graph, inputs, recorder)`` compile it."""

    def backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph = record_fx_graph(module, recorder)
        recorder.progress(f"{recorder.backend} compiles graph {graph.id}")
        start, known = time.perf_counter(), recorder.compile_seconds
        compiled = compiler(graph, list(example_inputs), recorder)
        # What it told of its own steps is not counted twice.
        spent = time.perf_counter() - start - (recorder.compile_seconds - known)
        recorder.add(PassRecord(recorder.backend, f"{graph.id}.fx", "", max(0.0, spent) * 1e3))
        if not callable(compiled):
            raise TypeError(f"backend {recorder.backend} returned {type(compiled).__name__}, not a callable")
        return compiled  # type: ignore[no-any-return]

    return backend


class _Later(Mapping[str, Any]):
    """A mapping that is made when it is first read."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._made = functools.cache(make)

    def __getitem__(self, name: str) -> Any:
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self._made())


def record_fx_graph(module: fx.GraphModule, recorder: Recorder, later: bool = False) -> FxGraph:
    """Give the graph its id, add it to the record and return it as a stage value. ``later``: it is added when
    a stage first reads of it, which none does of a graph that has been compiled before."""
    graph_id = recorder.next_graph_id()
    if not later:
        return _recorded(module, recorder, graph_id)
    recorded = functools.cache(lambda: _recorded(module, recorder, graph_id))
    ids, spans = _Later(lambda: recorded().ids), _Later(lambda: recorded().spans)
    return FxGraph(id=graph_id, module=module, ids=ids, spans=spans)


def _recorded(module: fx.GraphModule, recorder: Recorder, graph_id: str) -> FxGraph:
    start = time.perf_counter()
    recorder.progress(f"captured graph {graph_id}: {_count(module)} operations")
    cell_file = recorder.cell.filename if recorder.cell is not None else ""
    callers = cell_callers(cell_file)
    spans = {node.name: places_of(node, cell_file, callers) for node in module.graph.nodes}
    ids, nodes, outputs = record_nodes(module.graph, f"{graph_id}.fx", spans, {})
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    by_id = {node.id: node for node in nodes}
    recorder.sources[graph_id] = {source_name(node): by_id[ids[node.name]] for node in placeholders}
    recorder.add(
        Graph(
            id=f"{graph_id}.fx",
            stage="fx",
            title=f"FX graph {graph_id}",
            nodes=nodes,
            outputs=outputs,
        )
    )
    # Dynamo began before it called us; where nobody saw it begin, only our own part is known.
    start = start if recorder.capture_started is None else recorder.capture_started
    recorder.capture_started = None
    spent = (time.perf_counter() - start) * 1e3
    recorder.add(PassRecord("capture", before="", after=f"{graph_id}.fx", milliseconds=spent))
    return FxGraph(id=graph_id, module=module, ids=ids, spans=spans, callers=callers)


def _count(module: fx.GraphModule) -> int:
    return sum(node.op in ("call_function", "call_method", "call_module") for node in module.graph.nodes)

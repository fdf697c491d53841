"""What one of Dynamo's graphs becomes in Inductor, as it happens, into the record.

Where Inductor takes a graph from one of its own caches it runs none of its stages. So what was recorded when
it did is kept in our cache, by Inductor's key, the code it printed and the captured graph, and added again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from nbcompile.backends.inductor import hooks
from nbcompile.backends.inductor.decisions import Offers
from nbcompile.backends.inductor.schedule import InductorSchedule
from nbcompile.compiler.capture.fx_to_aten import saved_names
from nbcompile.compiler.capture.graph_record import node_spans, op_name, record_nodes
from nbcompile.compiler.capture.origins import Origins
from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.compiler.runtime.graph_cache import RECORD, code_version
from nbcompile.compiler.stages import FxGraph
from nbcompile.errors import in_one_line
from nbcompile.record.compilation import AutotuneChoice, Graph, PassRecord, Span
from nbcompile.record.recorder import Part, Recorder

Half = Literal["fw", "bw"]
_TITLES = {"fw": "forward", "bw": "backward", "joint": "joint forward and backward"}
_FIELDS = ("graphs", "decisions", "kernels", "autotune")


@dataclass
class _Timed:
    """The candidates of one operation: milliseconds of each, by its name."""

    milliseconds: dict[str, float]
    origin: str  # the ATen node it was for, or
    buffer: str  # the buffer it makes


@dataclass
class _Compile:
    """One of the two graphs on its way through Inductor."""

    half: Half
    parts: list[Part] = field(default_factory=list)
    schedule: InductorSchedule | None = None
    offers: Offers | None = None
    lowering: Any = None
    timed: list[_Timed] = field(default_factory=list)
    choosing: str = ""


class Watch:
    """Listens while Inductor compiles ``graph``; made before that, for Inductor rewrites what it is given."""

    def __init__(self, graph: FxGraph, recorder: Recorder) -> None:
        self.graph = graph
        self.recorder = recorder
        self.origins = Origins(graph, recorder.cell.filename if recorder.cell is not None else "")
        nodes = graph.module.graph.nodes
        self.captured = [(n.name, op_name(n), repr(n.args), repr(dict(n.kwargs))) for n in nodes]
        self.by_place = {node_spans(node, self.origins.cell_file): (graph.ids[node.name],)
                         for node in nodes if node.op not in ("placeholder", "output")}  # fmt: skip
        self.places: dict[str, list[dict[str, Any]]] = {
            id: [vars(span) for span in spans] for id, spans in self.origins.spans_by_id.items()
        }  # of everything in the record of this graph
        self.saved: tuple[str, ...] = ()
        self.joint: list[Part] = []
        self.joint_ids: dict[str, str] = {}
        self.found: dict[Half, tuple[str, str]] = {}  # from Inductor's cache: its key and the output code
        self.done: set[Half] = set()
        self.under_way = False
        self.now: _Compile | None = None

    # -- the compile -------------------------------------------------------------------------------------

    def compile(self, run: Callable[[Callable[..., Any]], Any]) -> Any:
        """``run(inner_compile)`` compiles the graph by way of compile_fx and returns what is to be called."""
        lost = hooks.missing()
        if lost:
            self.recorder.add(f"This torch does not let the record of Inductor show {', '.join(lost)}.")
        self.under_way = True
        try:
            with hooks.listening(self):
                compiled = run(self.inner_compile)
        finally:
            self.under_way = False
        for half in sorted(self.found.keys() - self.done, reverse=True):  # forward, which has the joint graph
            self._guarded("cache", partial(self._recall, half))
        return compiled

    def inner_compile(self, gm: Any, example_inputs: Any, **keywords: Any) -> Any:
        """Compiles one ATen graph, as ``torch._inductor.compile_fx.compile_fx_inner`` does; maybe long after
        :meth:`compile`, when the backward graph is first needed."""
        from torch._inductor.compile_fx import compile_fx_inner

        half: Half = "bw" if keywords.get("is_backward") else "fw"
        late, before, start = not self.under_way, self.now, time.perf_counter()
        now = self.now = _Compile(half)
        try:
            with hooks.listening(self):
                compiled = compile_fx_inner(gm, example_inputs, **keywords)
        finally:
            self.now = before
        self._guarded("record", partial(self._finish, now, gm, compiled))
        if late:
            spent = (time.perf_counter() - start) * 1e3
            self.recorder.add(PassRecord("inductor", self._id(half), "", spent))
        return compiled

    def _finish(self, now: _Compile, gm: Any, compiled: Any) -> None:
        code = getattr(compiled, "source_code", "")
        if now.schedule is not None:
            now.parts += self._below(now, now.schedule, code)
        elif now.half in self.found:
            return self._recall(now.half)
        else:  # nothing to do: the graph only hands tensors on
            now.parts.append(self._aten(gm, now.half)[0])
        now.lowering = None
        scratch = Recorder(self.recorder.options)
        scratch.extend([*(self.joint if now.half == "fw" else ()), *now.parts])
        rows = scratch.part(self.graph.id)
        if name := self._key(now.half, getattr(compiled, "_fx_graph_cache_key", None) or "", code):
            DiskCache.shared().put(name, {RECORD: json.dumps(rows).encode()})
        self._add(now.half, rows)

    # -- from the cache ------------------------------------------------------------------------------------

    def _key(self, half: Half, inductor: str, code: str) -> str:
        """Empty where Inductor does not keep the graph. Ids and names are those of the captured graph;
        places in the source are not in it, since they are put in anew (:meth:`_add`)."""
        if not inductor:
            return ""
        return key("inductor", half, inductor, code, self.captured, code_version())

    def _recall(self, half: Half) -> None:
        name, code = self.found[half]
        entry = DiskCache.shared().get(self._key(half, name, code))
        text = entry.read(RECORD) if entry is not None else None
        self.recorder.from_cache.add(self._id(half))
        if text is None:
            self.done.add(half)
            self.recorder.add(
                f"Inductor had {self._id(half)} in its own cache from a compile that nbcompile did not see, "
                "so its stages are not in this record; with the option fx_graph_cache=False they are."
            )
            return
        self._add(half, json.loads(text))

    def _add(self, half: Half, rows: Mapping[str, Any]) -> None:
        """Rows of a record as parts of this one, with the places in the source that the captured graph has
        now: what was compiled before may have stood on other lines."""
        known = self.places
        for graph in rows["graphs"]:
            for node in graph["nodes"]:
                lists = [spans for origin in node["origins"] if (spans := known.get(origin))]
                # A stack each: of a node of several, the first's; of a loop, all places it comes from.
                below = graph["stage"] in ("loops", "fused")
                places = [span for spans in lists for span in spans] if below else (lists or [[]])[0]
                node["spans"] = known[node["id"]] = [s for n, s in enumerate(places) if s not in places[:n]]
        self.recorder.load_part({"prefix": self.graph.id, **{name: rows[name] for name in _FIELDS}})
        self.done.add(half)

    # -- what was heard ------------------------------------------------------------------------------------

    def joint_made(self, module: Any, forward: Any, outputs: int | None) -> None:
        if self.joint_ids:  # of a subgraph
            return
        self.saved = saved_names(forward, outputs)
        made, self.joint_ids = self._aten(module, "joint")
        self.joint.append(made)

    def fusion_begins(self, scheduler: Any, nodes: list[Any], graph: Any) -> None:
        now = self.now
        if now is None:
            return
        if now.schedule is None:
            made, ids = self._aten(graph.module, now.half)
            now.parts.append(made)
            now.lowering = graph
            now.schedule = InductorSchedule(made.id, ids)
            now.offers = Offers(now.schedule)
            now.schedule.add_inputs(graph)
        for node in nodes:
            now.schedule.add(node)

    @property
    def offers(self) -> Offers | None:
        """Who is told of pairs, while a graph is scheduled."""
        return self.now.offers if self.now is not None else None

    @property
    def schedule(self) -> InductorSchedule | None:
        """Who is told of kernels and calls."""
        return self.now.schedule if self.now is not None else None

    def choosing(self, buffer: Any) -> None:
        if self.now is not None:
            self.now.choosing = str(buffer.get_name())

    def autotuned(self, name: str, milliseconds: dict[Any, float], node: Any) -> None:
        if self.now is None:
            return
        times = {_candidate(choice): float(time) for choice, time in milliseconds.items()}
        origin = "" if self.now.choosing else str(getattr(node, "name", ""))
        self.now.timed.append(_Timed(times, origin, self.now.choosing))
        self.now.choosing = ""

    def loaded(self, key: str, backward: bool, compiled: Any) -> None:
        self.found["bw" if backward else "fw"] = (key, str(getattr(compiled, "source_code", "")))

    def failed(self, what: str, error: Exception) -> None:
        self.recorder.add(
            f"The record of Inductor's {self.graph.id} is not whole ({what}: {in_one_line(error)})."
        )

    def _guarded(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # a record must not cost the user the compile
            self.failed(what, error)

    # -- parts of the record ---------------------------------------------------------------------------------

    def _id(self, suffix: str) -> str:
        return f"{self.graph.id}.{suffix}"

    def _aten(self, module: Any, suffix: str) -> tuple[Graph, dict[str, str]]:
        """An ATen graph and the ids of its nodes by name. Where the joint graph has a node of that name, it
        is that one; else the FX nodes that torch, or the same place in the source, say it is of."""
        graph = module.graph
        above = self.origins.of(graph)
        for node in graph.nodes:
            if node.name not in above and (place := node_spans(node, self.origins.cell_file)):
                above |= {node.name: self.by_place[place]} if place in self.by_place else {}
            if suffix != "joint" and node.name in self.joint_ids and node.op != "output":
                above[node.name] = (self.joint_ids[node.name],)
        empty: dict[str, tuple[Span, ...]] = {}
        ids, nodes, outputs = record_nodes(graph, self._id(suffix), empty, above)
        stages: dict[str, Literal["forward", "backward", "joint"]]
        stages = {"fw": "forward", "bw": "backward", "joint": "joint"}
        made = Graph(
            id=self._id(suffix),
            stage=stages[suffix],
            title=f"ATen {_TITLES[suffix]} graph {self.graph.id}, after Inductor's passes",
            nodes=nodes,
            outputs=outputs,
            saved=tuple(ids[name] for name in self.saved if name in ids) if suffix == "fw" else (),
            parent=self._id("joint" if self.joint_ids and suffix != "joint" else "fx"),
        )
        return made, ids

    def _below(self, now: _Compile, schedule: InductorSchedule, code: str) -> list[Part]:
        removed = (
            getattr(now.lowering, "removed_buffers", ()),
            getattr(now.lowering, "inplaced_to_remove", ()),
        )
        schedule.removed = frozenset(str(name) for names in removed for name in names)
        parts: list[Part] = [*schedule.graphs(code), *schedule.kernels()]
        if now.offers is not None:
            parts += now.offers.decisions()
        where = schedule.ids()
        for timed in now.timed:
            step = _step_of(schedule, timed)
            if step in where:
                parts += _choices(where[step], timed)
        return parts


def _candidate(choice: Any) -> str:
    name, about = str(getattr(choice, "name", choice)), str(getattr(choice, "description", "") or "")
    return f"{name} {about}".strip()


def _step_of(schedule: InductorSchedule, timed: _Timed) -> str:
    """The scheduler node whose candidates these are; empty if it is not there any more."""
    origin = schedule.aten.get(timed.origin)
    for name, step in schedule.steps.items():
        if timed.buffer in step.writes or (
            origin in step.node.origins and (step.template or step.node.kind in ("library", "fallback"))
        ):
            return name
    return ""


def _choices(kernel: str, timed: _Timed) -> list[AutotuneChoice]:
    times = timed.milliseconds
    best = min(times, key=times.__getitem__, default="")
    return [
        AutotuneChoice(
            kernel=kernel,
            candidate=name,
            seconds=time / 1e3 if time - time == 0.0 else None,
            chosen=name == best,
            note="" if time - time == 0.0 else "it failed, or took too long",
        )
        for name, time in times.items()
    ]

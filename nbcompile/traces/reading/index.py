"""From the records of one file to its index: compilations, what each left behind, and how each ended."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from nbcompile.traces.reading.compiles import Building
from nbcompile.traces.reading.digests import COMPARED, digest
from nbcompile.traces.reading.lines import TraceReader, TraceRecord, parsed
from nbcompile.traces.reading.timing import PartsOfTime
from nbcompile.traces.reading.values import OUTSIDE, ShapeFact, TraceArtifact, TraceFrame, TraceIndex

_ABOUT = frozenset(
    "rank compiled_autograd_id frame_id frame_compile_id attempt has_payload stack severity timestamp "
    "pathname thread subgraph_name process lineno".split()
)
"""Keys of a record that say where it is from; the one beside them says what it is."""
_LISTED = frozenset(
    "artifact dump_file graph_dump inductor_pre_grad_graph inductor_post_grad_graph inductor_output_code "
    "dynamo_output_graph dynamo_guards dynamo_cpp_guards_str aot_joint_graph aot_forward_graph "
    "aot_backward_graph aot_inference_graph compiled_autograd_graph optimize_ddp_split_graph "
    "optimize_ddp_split_child bwd_compilation_metrics compilation_metrics link exported_program "
    "aot_autograd_backward_compilation_metrics export missing_fake_kernel mismatched_fake_kernel".split()
)
_TOLD = frozenset("describe_storage describe_tensor describe_source expression_created guard_added".split())
"""Known, and no part of the index: what a meta tensor was made of, and each step of symbolic arithmetic."""
_SHAPES = frozenset(
    "create_symbol create_unbacked_symbol symbolic_shape_specialization guard_added_fast "
    "propagate_real_tensors propagate_real_tensors_provenance guard_on_data_dependent_error".split()
)
_MOST_FRAMES = 200
_RANK = re.compile(r"rank_?(\d{1,9})(?!\d)")


def index_of(path: Path) -> TraceIndex:
    """Go through the file once. Never raises for what is in it: what cannot be read is counted."""
    reader = TraceReader(path)
    sorting = _Sorting(reader)
    sorting.rank = rank_in(path.name)
    for record in reader:
        sorting.add(record)
    return sorting.index()


def rank_in(name: str) -> int | None:
    """The rank in a file's name, as torch writes it: ``dedicated_log_torch_trace_rank_3_…``."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


class _Sorting:
    """Takes records in the order of the file."""

    def __init__(self, reader: TraceReader) -> None:
        self.reader = reader
        self.rank: int | None = None
        self.torch = ""
        self.unknown: Counter[str] = Counter()
        self.strings: dict[int, str] = {}
        self.time = PartsOfTime()
        self.outside: list[TraceArtifact] = []
        self.compiles: dict[str, list[Building]] = {}
        self.order: list[Building] = []
        self.number = 0

    def add(self, record: TraceRecord) -> None:
        header = record.header
        kind = next((key for key in header if key not in _ABOUT), "")
        if isinstance(header.get("rank"), int):
            self.rank = header["rank"]
        if kind == "str":
            self._string(header["str"])
        elif kind == "chromium_event":
            self._event(record)
        elif kind == "dynamo_start":
            self._start(header)
        elif kind in _SHAPES:
            building = self._building(header)
            if building is not None:
                building.shapes.append(self._shape(kind, header[kind]))
        elif kind and kind not in _TOLD:
            self._artifact(kind, record)

    def index(self) -> TraceIndex:
        done = [each.finished() for each in self.order]
        return TraceIndex(
            compiles=tuple(done),
            outside=tuple(self.outside),
            parts=self.time.parts(),
            events=self.time.events,
            parts_left_out=self.time.left_out,
            rank=self.rank,
            torch=self.torch,
            records=self.reader.records,
            size=self.reader.size,
            damaged=self.reader.damaged,
            unread=dict(self.reader.unread),
            unknown=dict(self.unknown),
        )

    # -- compilations ----------------------------------------------------------------------------------

    def _building(self, header: dict[str, Any], begins: bool = False) -> Building | None:
        """The compilation that a record belongs to. One that ``begins`` under the id of one that has ended
        is another: ids are counted anew after a reset."""
        name = compile_id(header)
        if name == OUTSIDE:
            return None
        runs = self.compiles.setdefault(name, [])
        if not runs or (begins and runs[-1].ended):
            made = Building(f"{name}#{len(runs) + 1}" if runs else name)
            runs.append(made)
            self.order.append(made)
        building = runs[-1]
        attempt = header.get("attempt")
        if isinstance(attempt, int) and 0 <= attempt < 1_000_000:
            building.attempts = max(building.attempts, attempt + 1)
        return building

    def _start(self, header: dict[str, Any]) -> None:
        building = self._building(header, begins=True)
        told = header["dynamo_start"]
        if building is not None and isinstance(told, dict):
            building.stack = self._frames(told.get("stack")) or building.stack

    def _event(self, record: TraceRecord) -> None:
        event = parsed(record.payload) if record.payload is not None else record.header["chromium_event"]
        begins = isinstance(event, dict) and event.get("ph") == "B" and event.get("name") == "dynamo"
        building = self._building(record.header, begins) if compile_id(record.header) != OUTSIDE else None
        if not self.time.add(event, building.id if building else OUTSIDE):
            self.reader.unread["event that is none"] += 1

    # -- artifacts -------------------------------------------------------------------------------------

    def _artifact(self, kind: str, record: TraceRecord) -> None:
        told = record.header[kind]
        told = told if isinstance(told, dict) else {}
        if kind not in _LISTED:
            self.unknown[kind] += 1
        name = sys.intern(_artifact_name(kind, told))
        # Of a compilation that is about to begin, this is the first that is written.
        building = self._building(record.header, begins=name == "recompile_reasons")
        attempt = record.header.get("attempt")
        made = TraceArtifact(
            self.number,
            name,
            record.place or record.header_place,
            attempt if isinstance(attempt, int) else 0,
            _label(kind, told),
            digest(kind, record.payload) if kind in COMPARED and record.payload is not None else "",
        )
        self.number += 1
        if kind in COMPARED and record.payload is None and record.place is not None:
            self.reader.unread[f"{kind} too long to be compared"] += 1
        if building is None:
            self._alone(name, made, record)
            return
        if kind.endswith("compilation_metrics"):
            building.measured(kind, told)
        else:
            building.heard(name, record.payload)
        if kind == "compiled_autograd_graph" or not building.stack:
            building.stack = self._frames(record.header.get("stack")) or building.stack
        building.artifacts.append(made)

    def _alone(self, name: str, made: TraceArtifact, record: TraceRecord) -> None:
        self.outside.append(made)
        if name == "torch_version" and record.payload is not None:
            told = parsed(record.payload)
            version = told.get("pytorch_version") if isinstance(told, dict) else None
            self.torch = str(version)[:100] if version else ""

    # -- stacks ----------------------------------------------------------------------------------------

    def _string(self, told: Any) -> None:
        if isinstance(told, list) and len(told) == 2 and isinstance(told[1], int):
            self.strings[told[1]] = str(told[0])
        else:
            self.reader.unread["string without a number"] += 1

    def _frames(self, told: Any) -> tuple[TraceFrame, ...]:
        frames = [frame for frame in told if isinstance(frame, dict)] if isinstance(told, list) else []
        return tuple(
            TraceFrame(
                self._file(frame.get("filename")),
                line if isinstance(line := frame.get("line"), int) else 0,
                sys.intern(str(frame.get("name", ""))[:500]),
                str(frame.get("loc") or "")[:1000],
            )
            for frame in frames[-_MOST_FRAMES:]
        )

    def _file(self, number: Any) -> str:
        if isinstance(number, str):
            return number
        return self.strings.get(number, f"file {number}") if isinstance(number, int) else "?"

    def _shape(self, kind: str, told: Any) -> ShapeFact:
        told = told if isinstance(told, dict) else {}
        said = {key: value for key, value in told.items() if isinstance(value, str | int | float | list)}
        user, framework = self._frames(told.get("user_stack")), self._frames(told.get("stack"))
        return ShapeFact(*_shape_text(kind, said), user, framework)


def _shape_text(kind: str, told: dict[str, Any]) -> tuple[Any, str]:
    symbol, source = told.get("symbol", "?"), told.get("source", "?")
    if kind == "create_symbol":
        return "symbol", f"{symbol} is {source}, {told.get('val', '?')} here, in {told.get('vr', '?')}"
    if kind == "symbolic_shape_specialization":
        sources = told.get("sources")
        where = ", ".join(map(str, sources)) if isinstance(sources, list) else "?"
        return "specialization", f"{symbol} ({where}) = {told.get('value', '?')}: {told.get('reason', '?')}"
    if kind == "create_unbacked_symbol":
        return "unbacked", f"{symbol} depends on data, in {told.get('vr', '?')}"
    if kind.startswith("guard"):
        return "guard", str(told.get("expr", "?"))
    return "real tensor", f"{told.get('expr', '?')} = {told.get('result', '?')}"


def _artifact_name(kind: str, told: dict[str, Any]) -> str:
    name = told.get("name")
    if kind in ("artifact", "graph_dump", "link") and isinstance(name, str) and name:
        return name[:300]
    if kind == "optimize_ddp_split_child" and isinstance(name, str):
        return f"{kind}_{name}"[:300]
    return kind


def _label(kind: str, told: dict[str, Any]) -> str:
    key = {"inductor_output_code": "filename", "dump_file": "name", "link": "url"}.get(kind)
    value = told.get(key) if key else None
    return value[:1000] if isinstance(value, str) else ""


def compile_id(header: dict[str, Any]) -> str:
    """``0/1``, ``!0/1/0``, ``!0/-/-``; :data:`OUTSIDE` for a record of no compilation."""
    frame, compile, autograd = (
        value if isinstance(value := header.get(name), int) else None
        for name in ("frame_id", "frame_compile_id", "compiled_autograd_id")
    )
    inner = "/".join("-" if each is None else str(each) for each in (frame, compile))
    return inner if autograd is None else f"!{autograd}/{inner}"

"""The JSON form of a record: what is repeated is written once, what is at its default is left out.

A training step's record holds thousands of nodes, but some dozen distinct call stacks, tensor types and
operators. So the JSON form has tables of these (:data:`TABLES`, and ``spans``: stacks, outermost frame
first), and a node holds its places in them: ``"spans": 7, "tensor": 12``. A node's inputs are places in its
graph's list of nodes, and a ``text`` that is a line of the graph's text is that line's number, from 1. A
field that is missing has its class's default. Long texts of a kernel after the first (PTX, machine code) are
written ``{"deflate": "..."}``: zlib's format in base64, a sixth of their size. A peer is a record in this
form again, with tables of its own and all long texts deflated; what it has of :data:`SHARED` is left out
where it equals the record's, and a graph that equals one of the record's is that one's id. :func:`unpack`
undoes all of it, exactly; it also takes each of these written out in full.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from nbcompile.errors import RecordError

TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tensor": ("Node", ("dtype", "shape", "stride", "bytes")),
    "operator": ("Node", ("op", "kind")),
    "path": ("Node", ("module",)),
    "rule": ("Decision", ("graph", "kind", "accepted", "code", "reason")),
}
"""Fields that are written once for each distinct combination: the field that holds the place (the table
has its name and an s), the class, and the fields in the table."""
_WITH_SPANS = ("guards", "breaks", "recompiles")
SHARED = ("cell", "environment", "guards", "breaks", "recompiles", "measurements", "accuracy", "ceilings")
"""Fields of a peer that are the record's own where they are left out."""
_MAX_PEERS = 8
_MAX_SPANS = 2_000_000
"""Spans of one record, written out: a small file must not unfold into a large one."""
_LONG = 2000
"""Characters from which a text is deflated."""
_MAX_INFLATED = 256_000_000
"""Bytes of all deflated texts of one record, written out."""


def pack(record: Any) -> dict[str, Any]:
    """A Compilation as JSON values. Non-finite numbers are not JSON: they become ``None``."""
    packer = _Packer()
    out = {"schema": record.schema, **packer.fields(dataclasses.replace(record, peers=()))}
    if record.peers:
        out["peers"] = [_packed_peer(record, peer) for peer in record.peers]
    if packer.stacks:
        out["spans"] = [[packer.fields(span) for span in stack] for stack in packer.stacks]
    for key, rows in packer.tables.items():
        if rows:
            names = TABLES[key][1]
            out[key + "s"] = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
    return out


def _packed_peer(record: Any, peer: Any) -> dict[str, Any]:
    known = {graph.id: graph for graph in record.graphs}
    own = tuple(graph for graph in peer.graphs if graph != known.get(graph.id))
    out = pack(dataclasses.replace(peer, graphs=own))
    rows = iter(out.pop("graphs", ()))
    out["graphs"] = [g.id if g == known.get(g.id) else next(rows) for g in peer.graphs]
    for kernel in out.get("kernels", ()):
        kernel["sources"] = {key: _deflated(text) for key, text in kernel["sources"].items()}
    for name in SHARED:
        if getattr(peer, name) == getattr(record, name):
            out.pop(name, None)
        elif name not in out:  # it is at its default, which the record's is not
            out[name] = None if name == "cell" else {} if name == "environment" else []
    return out


class _Packer:
    """Collects the tables on the way through a record."""

    def __init__(self) -> None:
        self.stacks: dict[tuple[Any, ...], int] = {}
        self.tables: dict[str, dict[tuple[Any, ...], int]] = {key: {} for key in TABLES}

    def fields(self, item: Any, lines: Mapping[str, int] | None = None) -> dict[str, Any]:
        """The fields of one dataclass that differ from their defaults. ``lines`` numbers what a field of
        a node may be written as: lines of its graph's text, and ids of nodes (as ``"#id"``)."""
        kind: Any = type(item)
        defaults, tabled = _defaults(kind), _tabled(kind.__name__)
        values = vars(item)
        out: dict[str, Any] = {}
        for name, value in values.items():
            if name in tabled or value == defaults[name]:
                continue
            if name == "spans":
                out[name] = self.stacks.setdefault(value, len(self.stacks))
            elif name == "nodes":
                inner = _numbered(item)
                out[name] = [self.fields(node, inner) for node in value]
            elif name == "sources":
                out[name] = {
                    key: _deflated(text) if n else text for n, (key, text) in enumerate(value.items())
                }
            elif lines is not None and name == "text":
                out[name] = lines.get(value, value)
            elif lines is not None and name == "inputs":
                out[name] = [lines.get(f"#{id}", id) for id in value]
            else:
                out[name] = self._value(value)
        for key, (of, names) in TABLES.items():
            if of == kind.__name__ and any(values[name] != defaults[name] for name in names):
                row = tuple(values[name] for name in names)
                out[key] = self.tables[key].setdefault(row, len(self.tables[key]))
        return out

    def _value(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return self.fields(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return _plain(value)


def _deflated(text: str | dict[str, str]) -> str | dict[str, str]:
    if isinstance(text, dict) or len(text) < _LONG:
        return text
    try:
        return {"deflate": base64.b64encode(zlib.compress(text.encode(), 9)).decode()}
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold
        return text


@lru_cache(maxsize=64)
def _defaults(kind: Any) -> dict[str, Any]:
    """Default of each field; a value equal to nothing where there is none."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        out[field.name] = field.default if field.default is not dataclasses.MISSING else object()
        if field.default_factory is not dataclasses.MISSING:
            out[field.name] = field.default_factory()
    return out


@lru_cache(maxsize=64)
def _tabled(kind: str) -> frozenset[str]:
    return frozenset(name for of, names in TABLES.values() if of == kind for name in names)


def _numbered(graph: Any) -> dict[str, int]:
    """Each line of the graph's text and its number from 1, each node's id (after a #) and its place."""
    lines = {line: number for number, line in reversed(list(enumerate(_lines(graph.text), start=1)))}
    return lines | {f"#{node.id}": place for place, node in reversed(list(enumerate(graph.nodes)))}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def unpack(data: Mapping[str, Any], span: type, read: Any) -> dict[str, Any]:
    """What :func:`pack` made, with everything in its full place again; ``data`` is left as it is.

    ``span`` is the class of a span, and ``read(type, value)`` validates ``value`` as one of ``type``.
    RecordError for a number that is in no table. Wrong types elsewhere are left for the caller to find.
    """
    # Read once, so that nodes share the spans.
    unpacker = _Unpacker(data, read(tuple[tuple[span, ...], ...], data.get("spans", [])))  # type: ignore[valid-type]
    tables = {"spans", *(key + "s" for key in TABLES)}
    out = {name: value for name, value in data.items() if name not in tables}
    makers: dict[str, Callable[[Any], Any]] = {"graphs": unpacker.graph, "decisions": unpacker.decision,
                                      "kernels": unpacker.kernel}  # fmt: skip
    for name, make in {**makers, **dict.fromkeys(_WITH_SPANS, unpacker.whole)}.items():
        if isinstance(out.get(name), list):
            out[name] = [make(item) for item in out[name]]
    if isinstance(out.get("peers"), list):
        if len(out["peers"]) > _MAX_PEERS:
            raise RecordError("this record has too many peers")
        out["peers"] = [_whole_peer(out, peer, span, read) for peer in out["peers"]]
    return out


def _whole_peer(record: Mapping[str, Any], peer: Any, span: type, read: Any) -> Any:
    if not isinstance(peer, dict):
        return peer
    graphs: list[Any] = peer["graphs"] if isinstance(peer.get("graphs"), list) else []
    own = {**peer, "graphs": [item for item in graphs if not isinstance(item, str)], "peers": []}
    out = {**{name: record[name] for name in SHARED if name in record}, **unpack(own, span, read)}
    known = {
        graph["id"]: graph for graph in record.get("graphs", ()) if isinstance(graph, dict) and "id" in graph
    }
    rows = iter(out["graphs"])
    for item in graphs:
        if isinstance(item, str) and item not in known:
            raise RecordError(f"field peers: the record has no graph {item}")
    out["graphs"] = [known[item] if isinstance(item, str) else next(rows) for item in graphs]
    return out


class _Unpacker:
    """Puts rows of the tables of ``data`` back in their places; counts the spans it writes out."""

    def __init__(self, data: Mapping[str, Any], stacks: Sequence[Sequence[Any]]) -> None:
        self.data, self.stacks, self.spent, self.inflated = data, stacks, 0, 0

    def whole(self, item: Any, kind: str = "") -> Any:
        if not isinstance(item, dict):
            return item
        item = dict(item)
        if _is_number(item.get("spans")):
            item["spans"] = _at(self.stacks, item["spans"], "spans")
            self.spent += len(item["spans"])
            if self.spent > _MAX_SPANS:
                raise RecordError("this record has too many spans")
        for key, (of, names) in TABLES.items():
            if of == kind and _is_number(item.get(key)):
                row = _at(self.data.get(f"{key}s"), item.pop(key), f"{key}s")
                item |= {name: row[name] for name in names if name in row} if isinstance(row, dict) else {}
        return item

    def decision(self, item: Any) -> Any:
        return self.whole(item, "Decision")

    def kernel(self, item: Any) -> Any:
        if not isinstance(item, dict) or not isinstance(item.get("sources"), dict):
            return item
        return {**item, "sources": {key: self.text(value) for key, value in item["sources"].items()}}

    def text(self, value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("deflate"), str):
            return value
        room = _MAX_INFLATED - self.inflated
        inflate = zlib.decompressobj()
        try:
            found = inflate.decompress(base64.b64decode(value["deflate"], validate=True), room + 1)
            whole = found.decode()
        except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
            raise RecordError(f"field sources: damaged text: {error}") from error
        self.inflated += len(found)
        if self.inflated > _MAX_INFLATED:
            raise RecordError("the texts of this record are too long")
        if not inflate.eof:
            raise RecordError("field sources: a text breaks off")
        return whole

    def graph(self, item: Any) -> Any:
        if not isinstance(item, dict) or not isinstance(item.get("nodes"), list):
            return item
        lines = _lines(item["text"]) if isinstance(item.get("text"), str) else []
        return {**item, "nodes": [self.node(node, lines, item["nodes"]) for node in item["nodes"]]}

    def node(self, item: Any, lines: Sequence[str], nodes: Sequence[Any]) -> Any:
        node = self.whole(item, "Node")
        if not isinstance(node, dict):
            return node
        if _is_number(node.get("text")):
            node["text"] = _at(lines, node["text"] - 1, "text")
        if isinstance(node.get("inputs"), list):
            node["inputs"] = [
                _at(nodes, each, "inputs")["id"] if _is_number(each) else each for each in node["inputs"]
            ]
        return node


def _at(table: Any, place: int, what: str) -> Any:
    """RecordError if there is no such place, or what is there is of no use."""
    if not isinstance(table, list | tuple) or not 0 <= place < len(table):
        raise RecordError(f"field {what}: there is no number {place}")
    if what == "inputs" and not (isinstance(table[place], dict) and "id" in table[place]):
        raise RecordError(f"field {what}: number {place} has no id")
    return table[place]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def packed_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of the packed form, from the one of the classes; ``schema`` is changed."""
    definitions = schema["$defs"]
    number = {"type": "integer", "minimum": 0}
    for definition in definitions.values():
        if "spans" in definition.get("properties", {}):
            definition["properties"]["spans"] = {
                **number,
                "description": "place in the table `spans`, from 0",
            }
    for key, (kind, names) in TABLES.items():
        holder, row = definitions[kind], key.capitalize()
        properties = {name: holder["properties"].pop(name) for name in names}
        needed = [name for name in names if name in holder.get("required", ())]
        definitions[row] = {"title": row, "type": "object", "properties": properties, "required": needed}
        holder["required"] = [name for name in holder["required"] if name not in names]
        holder["properties"][key] = {**number, "description": f"place in the table `{key}s`, from 0"}
        schema["properties"][key + "s"] = {"type": "array", "items": {"$ref": f"#/$defs/{row}"}}
    definitions["Kernel"]["properties"]["sources"]["additionalProperties"] = {
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "properties": {"deflate": {"type": "string", "contentEncoding": "base64"}},
                "required": ["deflate"],
                "description": "a text in zlib's format",
            },
        ]
    }
    node = definitions["Node"]["properties"]
    node["text"] = {
        "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}],
        "description": "this node's line, or the number of that line in the graph's text, from 1",
    }
    node["inputs"] = {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, number]},
        "description": "ids, or places in the list of nodes of this graph, from 0",
    }
    schema["properties"]["spans"] = {
        "type": "array",
        "items": {"type": "array", "items": {"$ref": "#/$defs/Span"}},
        "description": "distinct stacks of places in the source, outermost frame first",
    }
    return schema

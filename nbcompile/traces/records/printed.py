"""Graphs as torch prints them (``print_readable``), read as nodes: names, operators, shapes, places.

A trace has no graph but this text. What a line does not say is not known: no module paths, and the places
only of the nodes below a ``# File:`` comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nbcompile.record.compilation import Dim, Node, NodeKind, Span
from nbcompile.record.op_kinds import ATEN_VIEWS, FX_LIBRARY, FX_VIEWS, LIBRARY_OPS, LIBRARY_PREFIXES
from nbcompile.traces.records.kernels import arguments_of
from nbcompile.units import shape_text

MOST_NODES = 20_000
_DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8",
    "b8": "bool", "c32": "complex32", "c64": "complex64", "c128": "complex128", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}  # fmt: skip
_NAME = r"[A-Za-z_]\w*"
_ASSIGNED = re.compile(rf'^(?P<name>{_NAME})(?::\s*"(?P<type>[^"]*)")?\s*=\s*(?P<value>\S.*)$')
_DECLARED = re.compile(rf'^(?P<name>{_NAME})(?::\s*"(?P<type>[^"]*)")?\s*,?$')
_PARAMETER = re.compile(rf'({_NAME})\s*(?::\s*"([^"]*)")?')
_FILE = re.compile(
    r"^# File: (?P<file>.{1,1000}?):(?P<line>\d{1,9}) in (?P<function>\S+)(?:, code: (?P<code>.*))?$"
)
_TYPE = re.compile(r"^(?P<dtype>[a-z]\w{0,12})\[(?P<shape>[^\]]*)\](?:\[(?P<stride>[^\]]*)\])?")
_WORDS = re.compile(rf"(?<![\w.]){_NAME}")
_STRINGS = re.compile(r"'[^']*'|\"[^\"]*\"")
_FREED = re.compile(rf";\s+{_NAME}(?: = {_NAME})* = None$")
_CALL = re.compile(r"^(?P<target>[A-Za-z_][\w.]*)\(")
_INFIX = re.compile(r" (\+|-|\*|/|//|@|%|\*\*|<|<=|>|>=|==|!=|&|\||\^) ")
_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "@": "matmul", "%": "mod",
    "**": "pow", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "&": "and_",
    "|": "or_", "^": "xor",
}  # fmt: skip


@dataclass(frozen=True)
class PrintedGraph:
    """The nodes of the outermost module in a text. ``inner`` counts the modules within it, ``unread`` the
    statements that are none of a graph."""

    nodes: tuple[Node, ...] = ()
    outputs: tuple[str, ...] = ()
    inner: int = 0
    unread: int = 0


@dataclass
class _Reading:
    prefix: str
    nodes: list[Node] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)  # a name in the text → the id of its node
    outputs: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    unread: int = 0
    left: int = 0


def read_graph(text: str, prefix: str) -> PrintedGraph:
    """The nodes have ids ``<prefix>.n0``, ``.n1`` and so on."""
    reading = _Reading(prefix)
    inner = sum(line.lstrip().startswith("class ") for line in text.splitlines()) - 1
    for statement in _statements(text):
        if len(reading.nodes) >= MOST_NODES:
            reading.left += 1
        else:
            _read(reading, statement)
    return PrintedGraph(tuple(reading.nodes), reading.outputs, max(0, inner), reading.unread + reading.left)


def _statements(text: str) -> Iterator[str]:
    """The statements of the first module's ``forward``, several lines of one joined; comments of places."""
    depth, held, inside, indent = 0, "", False, 0
    for line in text.splitlines():
        plain = line.strip()
        if not inside:
            if not plain.startswith("def forward("):
                continue
            inside, indent = True, len(line) - len(line.lstrip())
        elif plain.startswith("class ") or (
            plain and len(line) - len(line.lstrip()) <= indent and depth <= 0
        ):
            return
        if plain.startswith("#") and depth == 0:
            yield plain
            continue
        bare = _without_comment(plain)
        held = f"{held} {bare}" if held else bare
        depth += _depth(bare)
        if depth <= 0 and held:
            yield held
            depth, held = 0, ""
    if held:
        yield held


def _without_comment(line: str) -> str:
    """A comment follows two spaces; a hash inside of a string does not."""
    place = line.find("  # ")
    return line[:place].rstrip() if place >= 0 else line


def _depth(line: str) -> int:
    plain = _STRINGS.sub("", line)
    return sum(plain.count(each) for each in "([{") - sum(plain.count(each) for each in ")]}")


def _read(reading: _Reading, statement: str) -> None:
    if statement.startswith("#"):
        place = _FILE.match(statement)
        if place:
            reading.spans = (Span(int(place["line"]), file=place["file"]),)
        elif statement.startswith("# No stacktrace"):
            reading.spans = ()
        return
    if statement.startswith("def forward("):
        _parameters(reading, statement)
    elif statement.startswith("return"):
        _output(reading, statement)
    elif declared := _DECLARED.match(statement):
        _add(reading, declared["name"], declared["type"] or "", "placeholder", "input", "")
    elif assigned := _ASSIGNED.match(statement):
        _assigned(reading, assigned["name"], assigned["type"] or "", _FREED.sub("", assigned["value"]))
    elif "tree_flatten_spec(" not in statement:
        reading.unread += 1


def _parameters(reading: _Reading, statement: str) -> None:
    for parameter in arguments_of(statement[len("def forward(") : statement.rfind(")")]):
        found = _PARAMETER.match(parameter)
        # A joint graph's own are two lists; what is in them is declared below.
        if found and found[1] not in ("self", "primals", "tangents"):
            _add(reading, found[1], found[2] or "", "placeholder", "input", "")


def _assigned(reading: _Reading, name: str, kind: str, value: str) -> None:
    if value in reading.names:  # another name of an input
        reading.names[name] = reading.names[value]
        return
    op = _op(value, reading.names)
    _add(reading, name, kind, op, _kind(op, value), value)


def _add(reading: _Reading, name: str, kind: str, op: str, of: NodeKind, value: str) -> None:
    shape, dtype, stride = _typed(kind)
    text = f"{name} = {value.replace('torch.ops.', '') or 'input'}    {shape_text(dtype, shape) or kind}"
    id = f"{reading.prefix}.n{len(reading.nodes)}"
    made = Node(
        id=id,
        name=name,
        op=op,
        kind=of,
        inputs=_inputs(reading, value),
        spans=reading.spans,
        shape=shape,
        dtype=dtype,
        stride=stride,
        bytes=_size(shape, dtype),
        text=text.rstrip(),
    )
    reading.nodes.append(made)
    reading.names[name] = id


def _inputs(reading: _Reading, value: str) -> tuple[str, ...]:
    words = _WORDS.findall(_STRINGS.sub("", value))
    return tuple(dict.fromkeys(reading.names[word] for word in words if word in reading.names))


def _output(reading: _Reading, statement: str) -> None:
    reading.outputs = _inputs(reading, statement.removeprefix("return"))
    made = Node(
        id=f"{reading.prefix}.n{len(reading.nodes)}",
        name="output",
        op="output",
        kind="output",
        inputs=reading.outputs,
        text=statement,
    )
    reading.nodes.append(made)


def _op(value: str, names: dict[str, str]) -> str:
    """``aten.add.Tensor``, ``torch.relu``, ``operator.mul``, ``Tensor.sin``, as records write them."""
    call = _CALL.match(value)
    if call:
        target = call["target"]
        first, _, rest = target.partition(".")
        if first in names and rest:
            return f"Tensor.{rest}"
        target = target.removeprefix("torch.ops.")
        return target.replace("torch._C._nn.", "torch.nn.functional.").replace("_operator.", "operator.")
    if value.startswith("self."):
        return "get_attr"
    infix = _INFIX.search(value)
    if infix:
        return f"operator.{_OPERATORS[infix[1]]}"
    if value.endswith("]") and _WORDS.match(value):
        return "operator.getitem"
    if value.startswith("-"):
        return "operator.neg"
    return "getattr" if "." in value else "constant"


def _kind(op: str, value: str) -> NodeKind:
    """A guess from the name alone, as :mod:`nbcompile.compiler.capture.graph_record` makes one."""
    if op in ("get_attr", "constant"):
        return "constant"
    if op.startswith("aten."):
        name = op.split(".")[1]
        if name in LIBRARY_OPS or name.startswith(LIBRARY_PREFIXES):
            return "library"
        return "view" if name in ATEN_VIEWS else "compute"
    name = op.rpartition(".")[2]
    if name in FX_LIBRARY:
        return "library"
    return "view" if name in FX_VIEWS else "compute"


def _typed(kind: str) -> tuple[tuple[Dim, ...] | None, str | None, tuple[Dim, ...] | None]:
    found = _TYPE.match(kind)
    if found is None or found["dtype"] not in _DTYPES:
        return None, None, None
    stride = _extents(found["stride"]) if found["stride"] is not None else None
    return _extents(found["shape"]), _DTYPES[found["dtype"]], stride


def _extents(text: str) -> tuple[Dim, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(part) if part.isdigit() and len(part) < 19 else part[:60] for part in parts)


def _size(shape: tuple[Dim, ...] | None, dtype: str | None) -> int:
    """Bytes; 0 where a size is a symbol."""
    if shape is None or dtype is None:
        return 0
    count = 1
    for extent in shape:
        if not isinstance(extent, int):
            return 0
        count *= extent
    bits = re.search(r"(\d+)$", dtype)
    item = int(bits[1]) // 8 if bits and not dtype.startswith("float8") else 1
    return count * item

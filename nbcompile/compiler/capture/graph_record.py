"""FX nodes as record nodes: names of ops, shapes, bytes, spans and the line of text a person reads."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import operator
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.fx_values import dim, nbytes, node_value, short_dtype
from nbcompile.record.compilation import Node, NodeKind, Span
from nbcompile.record.op_kinds import FX_LIBRARY, FX_VIEWS, LIBRARY_OPS, LIBRARY_PREFIXES

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_PYTHON_FOLDER = os.path.join(sysconfig.get_path("stdlib"), "")
_OWN_FOLDER = str(Path(__file__).resolve().parents[2]) + os.sep
_MADE_UP = ("<frozen", "<string>", "<eval_with_key>", "<torch_package")
_NOT_THE_USERS = (_TORCH_FOLDER, _OWN_FOLDER, _PYTHON_FOLDER, *_MADE_UP)
_LIBRARY_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{short_dtype(value.dtype)}[{','.join(str(dim(extent)) for extent in value.shape)}]"
    if isinstance(value, tuple | list):
        return f"({', '.join(_describe(item) for item in value)})"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"{type(value).__name__}({dim(value)})"
    return ""


def op_name(node: fx.Node) -> str:
    """``torch.nn.functional.layer_norm``, ``operator.add``, ``Tensor.sum``, ``aten.add.Tensor``,
    ``placeholder``..."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op != "call_function":
        return node.op
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "__name__", str(target))
    module = getattr(target, "__module__", None) or ""
    if module == "_operator":
        return f"operator.{name}"
    if module.startswith("torch._C") or module in ("builtins", ""):
        # Builtins say torch._C._nn or nothing; people know them by their public name.
        if hasattr(torch.nn.functional, name) and not hasattr(torch, name):
            return f"torch.nn.functional.{name}"
        if hasattr(torch, name):
            return f"torch.{name}"
    return f"{module}.{name}" if module else str(name)


def node_kind(node: fx.Node) -> NodeKind:
    """A first guess from the op alone; lowering knows better."""
    if node.op == "placeholder":
        return "input"
    if node.op == "output":
        return "output"
    if node.op == "get_attr":
        return "constant"
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.rpartition("::")[2]
        if name in LIBRARY_OPS or name.startswith(LIBRARY_PREFIXES):
            return "library"
        return "view" if _is_view(target) else "compute"
    if target is operator.getitem:
        return "view"
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name in FX_LIBRARY:
        return "library"
    return "view" if name in FX_VIEWS else "compute"


@functools.cache
def _is_view(target: Any) -> bool:
    returns = target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def source_name(node: fx.Node) -> str:
    """Dynamo's name of what an input of an FX graph is, e.g. ``L['x']``; empty in other graphs."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", "")
    return str(name() if callable(name) else name)  # a method before torch 2.10


def node_line(node: fx.Node) -> str:
    """``y = torch.softmax(x, -1)    f32[64,16]``."""
    shape = _describe(node_value(node))
    if node.op == "placeholder":
        text = f"{node.name} = input {source_name(node)}".rstrip()
    elif node.op == "output":
        return f"return {_argument(node.args[0])}"
    elif node.op == "get_attr":
        text = f"{node.name} = self.{node.target}"
    else:
        arguments = [_argument(item) for item in node.args]
        arguments += [f"{key}={_argument(item)}" for key, item in node.kwargs.items()]
        if node.op == "call_method" and arguments:
            text = f"{node.name} = {arguments[0]}.{node.target}({', '.join(arguments[1:])})"
        else:
            text = f"{node.name} = {op_name(node)}({', '.join(arguments)})"
    return f"{text}    {shape}".rstrip()


def _argument(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple):
        return f"({', '.join(_argument(item) for item in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(_argument(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_argument(item)}' for key, item in value.items())}}}"
    if isinstance(value, slice):
        parts = [_argument(part) if part is not None else "" for part in (value.start, value.stop)]
        step = f":{_argument(value.step)}" if value.step is not None else ""
        return ":".join(parts) + step
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def record_nodes(
    graph: fx.Graph,
    prefix: str,
    spans: Mapping[str, tuple[Span, ...]],
    origins: Mapping[str, tuple[str, ...]],
) -> tuple[dict[str, str], tuple[Node, ...], tuple[str, ...]]:
    """Every node of a graph as a record Node. Returns (ids by node name, nodes, ids of the outputs);
    ids are ``<prefix>.n<position>``. ``spans`` and ``origins`` are keyed by node name."""
    ids = {node.name: f"{prefix}.n{position}" for position, node in enumerate(graph.nodes)}
    nodes = []
    outputs: tuple[str, ...] = ()
    for node in graph.nodes:
        value = node_value(node)
        tensor = value if isinstance(value, torch.Tensor) else None
        inputs = tuple(ids[each.name] for each in node.all_input_nodes)
        if node.op == "output":
            outputs = inputs
        shape = stride = None
        if tensor is not None:
            shape = tuple(dim(extent) for extent in tensor.shape)
            if tensor.layout == torch.strided:
                stride = tuple(dim(step) for step in tensor.stride())
        nodes.append(
            Node(
                id=ids[node.name],
                name=node.name,
                op=op_name(node),
                kind=node_kind(node),
                inputs=inputs,
                origins=origins.get(node.name, ()),
                spans=spans.get(node.name, ()),
                shape=shape,
                dtype=str(tensor.dtype).removeprefix("torch.") if tensor is not None else None,
                stride=stride,
                bytes=nbytes(value),
                module=module_path(node),
                text=node_line(node),
            )
        )
    return ids, tuple(nodes), outputs


def module_path(node: fx.Node) -> str:
    """``layers.0.attention``: where in the user's module this was called; empty outside of one."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    innermost = list(stack.values())[-1]
    path = innermost[0] if isinstance(innermost, tuple) else innermost
    return clean_source(str(path))


def clean_source(source: str) -> str:
    """``L['self']._modules['layers']._modules['0']`` as people write it: ``layers.0``."""
    source = re.sub(r"\._modules\['([^']*)'\]", r".\1", source)
    source = re.sub(r"(?:\b[LG]|\.__dict__|globals\(\))\['([^']*)'\]", r".\1", source)
    source = re.sub(r"\[(\d+)\]", r".\1", source).replace("getattr(", "").replace("['", ".").replace("']", "")
    return source.strip(".").removeprefix("self.").removeprefix("self")


_NUMBER_OUT = ("torch.scalar_tensor", "aten.scalar_tensor.default")


# -- places in the user's source -------------------------------------------------------------------

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+)(?:, in .*)?$')


def is_user_file(filename: str) -> bool:
    """False for Python itself, torch, this package, installed packages and made-up files."""
    return not filename.startswith(_NOT_THE_USERS) and not any(f in filename for f in _LIBRARY_FOLDERS)


def span_file(filename: str, cell_file: str) -> str:
    """What a Span's ``file`` says for this file: empty for the compiled cell itself."""
    return "" if cell_file and filename == cell_file else filename


@functools.lru_cache(maxsize=4096)
def spans_of_trace(stack_trace: str, cell_file: str) -> tuple[Span, ...]:
    """The user's frames of a formatted stack trace, outermost first, with the columns its carets mark."""
    spans = []
    rows = stack_trace.splitlines()
    for position, row in enumerate(rows):
        frame = _FRAME.match(row)
        if frame is None or not is_user_file(frame["file"]):
            continue
        line = int(frame["line"])
        column = end = None
        if position + 2 < len(rows) and not set(rows[position + 2].strip()) - set("^~"):
            carets = rows[position + 2]
            marks = carets.strip()
            if marks:
                # The trace prints the line without its own indent, behind four spaces.
                text = linecache.getline(frame["file"], line)
                indent = len(text) - len(text.lstrip())
                column = len(carets) - len(carets.lstrip()) - 4 + indent
                end = column + len(marks)
        elif unmarked := _unmarked_call(linecache.getline(frame["file"], line)):
            column, end = unmarked
        file = span_file(frame["file"], cell_file)
        spans.append(Span(line, column, line if end is not None else None, end, file))
    return tuple(spans)


def _unmarked_call(text: str) -> tuple[int, int] | None:
    """Columns of the call ``f(...)`` in a line that is ``name = f(...)`` or ``return f(...)``: from 3.13 on
    Python leaves out the carets under such a call. None for another line, and where Python marks it."""
    if not hasattr(traceback.StackSummary, "_should_show_carets"):
        return None
    try:
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        return None
    match statement:
        case ast.Return(ast.Call(func=ast.Name()) as call) | ast.Assign([ast.Name()], ast.Call() as call):
            indent = len(text) - len(text.lstrip())
            shown = text.strip().encode()  # the parser counts bytes
            ends = call.col_offset, call.end_col_offset or 0
            column, end = (len(shown[:offset].decode()) + indent for offset in ends)
            return column, end
    return None


def spans_of_frames(frames: Iterable[traceback.FrameSummary], cell_file: str) -> tuple[Span, ...]:
    """The user's frames of a stack summary, outermost first, with columns where they were recorded."""
    spans = []
    for frame in frames:
        if not is_user_file(frame.filename):
            continue
        line = frame.lineno or 1
        column, end = getattr(frame, "colno", None), getattr(frame, "end_colno", None)
        end_line = getattr(frame, "end_lineno", None) or (line if end is not None else None)
        if column is None or end is None or (end_line == line and end <= column):
            column = end = end_line = None
        spans.append(Span(line, column, end_line, end, span_file(frame.filename, cell_file)))
    return tuple(spans)


_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<name>.*)_at_\d+$")


def cell_callers(cell_file: str) -> tuple[Span, ...]:
    """Where in the functions of the cell the code is called that Dynamo compiles now, outermost first. After
    a graph break it compiles the rest of a function by itself, and its traces begin there."""
    places: dict[str, Span] = {}
    compiled = ""
    frame = sys._getframe(1) if cell_file else None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_compile" and not places:
            compiled = _function_of(getattr(frame.f_locals.get("code"), "co_name", ""))
        if code.co_filename == cell_file and code.co_flags & inspect.CO_NEWLOCALS:
            places.setdefault(_function_of(code.co_name), Span(frame.f_lineno))
        frame = frame.f_back
    places.pop(compiled, None)
    return tuple(reversed(places.values()))


def _function_of(name: str) -> str:
    resumed = _RESUMED.match(name)
    return resumed["name"] if resumed else name


def places_of(node: fx.Node, cell_file: str, callers: tuple[Span, ...]) -> tuple[Span, ...]:
    """Where a node comes from: the cell's call of what Dynamo compiles, if it began there, then the node's
    own frames. Code of a package (an optimizer's step) has the call alone; an input has no place of its own.
    """
    own = node_spans(node, cell_file)
    traced = node.op != "placeholder" and isinstance(node.meta.get("stack_trace"), str)
    return (*callers, *own) if own or traced else ()


def called_from(callers: tuple[Span, ...], spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """``spans``, and before them where the cell calls what they are in."""
    return (*callers, *spans) if spans else ()


def node_spans(node: fx.Node, cell_file: str) -> tuple[Span, ...]:
    """Where in the user's source a node comes from, by its own metadata. Dynamo makes a tensor of each number
    that a graph returns, where the function returns: its place is that of the number."""
    made = node.args[0] if op_name(node) in _NUMBER_OUT and node.args else None
    if isinstance(made, fx.Node) and all(user.op == "output" for user in node.users):
        return node_spans(made, cell_file)
    trace = node.meta.get("stack_trace")
    return spans_of_trace(trace, cell_file) if isinstance(trace, str) else ()

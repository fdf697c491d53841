"""A jaxpr as the captured graph of a record, and the same jaxpr with its equations named.

What XLA makes of an equation carries the name scopes of that equation along. So each gets a scope of its own
here (:attr:`JaxprRecord.named`), by which an instruction of the compiled program says where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from traceback import FrameSummary
from types import CodeType
from typing import Any

import numpy as np

from nbcompile.compiler.capture.graph_record import is_user_file, spans_of_frames
from nbcompile.record.compilation import Dim, Graph, Node, NodeKind, Span

CALLS = frozenset(
    "jit pjit closed_call core_call remat2 checkpoint custom_jvp_call custom_vjp_call shard_map".split()
)
"""Primitives that call one jaxpr with their own operands: the graph has the equations of that one instead."""
COLLECTIVES = frozenset(
    "psum psum2 psum_invariant pmax pmin all_gather all_gather_invariant all_to_all ppermute pbroadcast "
    "psum_scatter reduce_scatter ragged_all_to_all".split()
)
_LIBRARY = COLLECTIVES | frozenset(
    "dot_general conv_general_dilated sort top_k fft cholesky triangular_solve eigh svd qr lu scatter "
    "scatter-add ragged_dot_general custom_call ffi_call pure_callback scan while cond".split()
)
_VIEWS = frozenset(
    "reshape squeeze expand_dims transpose broadcast_in_dim slice stop_gradient copy pvary "
    "sharding_constraint reshard mesh_cast split".split()
)
_SCOPE = "nbcompile_{}"
_SCOPES = re.compile(r"(?<!\w)nbcompile_(\d+)(?!\w)")
_UNSCOPED = re.compile(r"(?<!\w)nbcompile_\d+(?:/|(?!\w))| stack_frame_id=\d+")
_TABLES = re.compile(
    r"(?:^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n*)+", re.MULTILINE
)


def scope_in(op_name: str) -> int | None:
    """The number of the innermost equation that a path of scopes names; None for one that names none."""
    found = _SCOPES.findall(op_name)
    return int(found[-1]) if found else None


def without_scopes(text: str) -> str:
    """HLO as it is where no equation has a scope of ours, without its tables of files and frames, which are
    of whoever had it compiled."""
    return _UNSCOPED.sub("", _TABLES.sub("", text))


@dataclass(frozen=True)
class Caller:
    """Where a function was called first: the user's frames, outermost first, the file of the compiled cell,
    the function's own code, if it has any, and the other lines of the cell that call it."""

    frames: tuple[FrameSummary, ...] = ()
    cell_file: str = ""
    code: CodeType | None = None
    also: tuple[int, ...] = ()

    def spans(self, frames: tuple[FrameSummary, ...]) -> tuple[Span, ...]:
        """The frames as places of the cell, and those other lines."""
        return (*spans_of_frames(frames, self.cell_file), *map(Span, self.also))


@dataclass(frozen=True)
class JaxprRecord:
    """A jaxpr as a ``graph``. ``named`` is the jaxpr with scopes; ``nodes`` has the node of each scope,
    ``inputs`` the id of each input that is an array, constants first."""

    graph: Graph
    named: Any
    nodes: Mapping[int, Node]
    inputs: tuple[str, ...]


def record_jaxpr(closed: Any, prefix: str, title: str, caller: Caller, names: Sequence[str]) -> JaxprRecord:
    """Read a ``jax.extend.core.ClosedJaxpr``. Ids begin with ``prefix``; ``names`` are its arguments'."""
    reader = _Reader(f"{prefix}.jaxpr", caller)
    jaxpr = closed.jaxpr
    known: dict[Any, str] = {}
    constants = [reader.given(var, "", known, "constant") for var in jaxpr.constvars]
    inputs = [reader.given(var, name or "", known) for var, name in zip(jaxpr.invars, names, strict=True)]
    made = reader.read(closed, known, None)
    outputs = tuple(dict.fromkeys(known[var] for var in jaxpr.outvars if var in _Known(known)))
    graph = Graph(f"{prefix}.jaxpr", "fx", title, tuple(reader.nodes), outputs, text=str(closed))
    return JaxprRecord(graph, made, reader.by_scope, (*constants, *inputs))


class _Known:
    """Whether a variable is known: a literal, which cannot be hashed, is not."""

    def __init__(self, known: Mapping[Any, str]) -> None:
        self.known = known

    def __contains__(self, var: object) -> bool:
        return not hasattr(var, "val") and var in self.known


_Frames = tuple[FrameSummary, ...]


@dataclass
class _Reader:
    """Reads equations, those of called jaxprs in place of the call."""

    prefix: str
    caller: Caller
    nodes: list[Node] = field(default_factory=list)
    by_scope: dict[int, Node] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    literals: dict[Any, str] = field(default_factory=dict)  # inputs of called jaxprs that are numbers
    scopes: int = 0

    def given(self, var: Any, name: str, known: dict[Any, str], kind: NodeKind = "input") -> str:
        """A node for an input or constant."""
        name = self._name(re.sub(r"\W+", "_", name).strip("_") or kind)
        node = self._node(name, kind, kind, (), var, text=f"{name} = {kind}")
        known[var] = node.id
        return node.id

    def read(self, closed: Any, known: dict[Any, str], outer: _Frames | None) -> Any:
        """Add the equations of a jaxpr, whose inputs are ``known``; what its results are is added to that.
        ``outer``: where it is called, None for the function's own. Returns it with scopes."""
        jaxpr = getattr(closed, "jaxpr", closed)
        equations = []
        for equation in jaxpr.eqns:
            scope = self.scopes
            self.scopes += 1
            frames = frames_of(equation.source_info.traceback)
            frames = _of_function(self.caller, frames) if outer is None else _within(outer, frames)
            key = inner_jaxpr(equation)
            params = equation.params
            if key:
                params = {**params, key: self._called(equation, params[key], known, frames)}
            else:
                self._equation(equation, known, frames, scope)
            source = equation.source_info
            scoped = source.replace(name_stack=source.name_stack.extend(_SCOPE.format(scope)))
            equations.append(equation.replace(params=params, source_info=scoped))
        made = jaxpr.replace(eqns=equations)
        return made if jaxpr is closed else type(closed)(made, closed.consts)

    def _called(self, equation: Any, called: Any, known: dict[Any, str], frames: _Frames) -> Any:
        jaxpr = getattr(called, "jaxpr", called)
        inner: dict[Any, str] = {}
        for var, operand in zip(jaxpr.invars, equation.invars, strict=False):
            if operand in _Known(known):
                inner[var] = known[operand]
            else:
                self.literals[var] = self._literal(operand)
        for var in jaxpr.constvars:
            self.given(var, "", inner, "constant")
        made = self.read(called, inner, frames)
        for var, result in zip(equation.outvars, jaxpr.outvars, strict=True):
            if result in _Known(inner):
                known[var] = inner[result]
        return made

    def _equation(self, equation: Any, known: dict[Any, str], frames: _Frames, scope: int) -> None:
        primitive = str(equation.primitive)
        name = self._name(re.sub(r"\W+", "_", primitive))
        operands = [known[var] if var in _Known(known) else self._literal(var) for var in equation.invars]
        inputs = tuple(dict.fromkeys(known[var] for var in equation.invars if var in _Known(known)))
        kind: NodeKind = "compute"
        if primitive in _LIBRARY:
            kind = "library"
        elif primitive in _VIEWS:
            kind = "view"
        spans = self.caller.spans(frames)
        within = _bodies(equation)
        for body in within:  # what a loop or branch does stands at lines of its own
            for each in body.eqns:
                inside = _within(frames, frames_of(each.source_info.traceback))
                spans += self.caller.spans(inside)
        shown = [each.removeprefix(f"{self.prefix}.") for each in operands]
        node = self._node(
            name, primitive, kind, inputs, equation.outvars[0] if equation.outvars else None,
            text=f"{name} = {primitive}({', '.join(shown)})", spans=tuple(dict.fromkeys(spans)),
            note=_note(equation, within),
        )  # fmt: skip
        self.by_scope[scope] = node
        known.update((var, node.id) for var in equation.outvars)

    def _node(
        self, name: str, op: str, kind: NodeKind, inputs: tuple[str, ...], var: Any, *, text: str,
        spans: tuple[Span, ...] = (), note: str = "",
    ) -> Node:  # fmt: skip
        aval: Any = getattr(var, "aval", None)
        shape = tuple(_dim(each) for each in aval.shape) if hasattr(aval, "shape") else None
        dtype = str(aval.dtype) if aval is not None and hasattr(aval, "dtype") else None
        made = Node(
            f"{self.prefix}.{name}", name, op, kind, inputs, spans=spans, shape=shape, dtype=dtype,
            bytes=_bytes(aval, shape), text=f"{text}    {_short(aval)}".rstrip(), note=note,
        )  # fmt: skip
        self.nodes.append(made)
        return made

    def _literal(self, var: Any) -> str:
        """A number that is no node."""
        text = str(np.asarray(var.val)) if hasattr(var, "val") else self.literals.get(var, "?")
        return text if len(text) <= 24 else f"{text[:21]}..."

    def _name(self, wanted: str) -> str:
        count = self.names.get(wanted, 0)
        self.names[wanted] = count + 1
        return f"{wanted}_{count}" if count else wanted


def inner_jaxpr(equation: Any) -> str:
    """The parameter that holds the jaxpr that an equation calls, of one of :data:`CALLS`; else empty."""
    if str(equation.primitive) not in CALLS:
        return ""
    found = (key for key in ("jaxpr", "call_jaxpr") if hasattr(equation.params.get(key), "eqns"))
    return next(found, "")


def primitives_in(jaxpr: Any) -> int:
    """How many equations there are, those of called jaxprs in place of the calls."""
    inner = [(inner_jaxpr(each), each) for each in jaxpr.eqns]
    return sum(primitives_in(getattr(each.params[key], "jaxpr", each.params[key])) if key else 1
               for key, each in inner)  # fmt: skip


def on_mesh(jaxpr: Any) -> bool:
    """Whether any of it is a ``shard_map``, which has no form without a compile."""
    for equation in jaxpr.eqns:
        key = inner_jaxpr(equation)
        inner = getattr(equation.params[key], "jaxpr", equation.params[key]) if key else None
        if str(equation.primitive) == "shard_map" or (inner is not None and on_mesh(inner)):
            return True
    return False


def _bodies(equation: Any) -> list[Any]:
    """The jaxprs of a loop's body and condition, or of the branches of a choice."""
    found: list[Any] = []
    for value in equation.params.values():
        many = value if isinstance(value, tuple | list) else (value,)
        found += [getattr(each, "jaxpr", each) for each in many if hasattr(each, "eqns")]
    return found


def _note(equation: Any, bodies: Sequence[Any]) -> str:
    """What the name of a primitive leaves out."""
    if str(equation.primitive) in COLLECTIVES:
        axes = equation.params.get("axes", equation.params.get("axis_name", ()))
        named = axes if isinstance(axes, tuple | list) else (axes,)
        return f"a collective over {', '.join(map(str, named))}"
    if not bodies:
        return ""
    count = sum(len(body.eqns) for body in bodies)
    length = equation.params.get("length")
    steps = f"{length} steps of " if isinstance(length, int) else ""
    return f"{steps}{count} equations of its own"


# -- places --------------------------------------------------------------------------------------------


def frames_of(traceback: Any) -> tuple[FrameSummary, ...]:
    """The frames of the user's in a traceback that jax took, outermost first, with their columns."""
    if traceback is None:
        return ()
    found = []
    for code, instruction in zip(*traceback.raw_frames(), strict=True):
        if is_user_file(code.co_filename):
            found.append(frame_at(code, instruction))
    return tuple(reversed(found))


def frame_at(code: CodeType, instruction: int) -> FrameSummary:
    """The place in ``code`` of its instruction with this offset."""
    line, end_line, column, end = next(
        islice(code.co_positions(), instruction // 2, None), (None, None, None, None)
    )
    return FrameSummary(
        code.co_filename, line or code.co_firstlineno, code.co_name, lookup_line=False,
        end_lineno=end_line, colno=column, end_colno=end,
    )  # fmt: skip


def _of_function(caller: Caller, frames: _Frames) -> _Frames:
    """``frames`` of an equation of the called function itself, as those of this call: jax traces a function
    once, and what its traces say of callers is as of the first call, in whatever cell that was."""
    code = caller.code
    for place, each in enumerate(frames):
        if code is not None and (each.filename, each.name) == (code.co_filename, code.co_name):
            return (*caller.frames, *frames[place:])
    return _within(caller.frames, frames)


def _within(outer: _Frames, frames: _Frames) -> _Frames:
    """``frames`` of an equation of a jaxpr that is called at ``outer``: what lies within the call."""
    for place in range(len(frames) - 1, -1, -1):
        here = frames[place]
        if outer and (here.filename, here.name) == (outer[-1].filename, outer[-1].name):
            return (*outer, *frames[place + 1 :])
    return (*outer, *(each for each in frames if each.name != "<module>"))


# -- values --------------------------------------------------------------------------------------------


def _dim(extent: Any) -> Dim:
    return int(extent) if isinstance(extent, int) else str(extent)


def _bytes(aval: Any, shape: tuple[Dim, ...] | None) -> int:
    size = getattr(getattr(aval, "dtype", None), "itemsize", 0) if shape is not None else 0
    for extent in shape or ():
        size *= extent if isinstance(extent, int) else 1
    return int(size)


def _short(aval: Any) -> str:
    """``float32[8,4]``, as jax writes it."""
    short = getattr(aval, "str_short", None)
    return str(short(short_dtypes=True)) if callable(short) else ""

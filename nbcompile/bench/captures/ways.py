"""The ways to capture a function: what each is, and how it is asked for its graph.

Every way captures a copy of the function with an identity of its own, since torch.jit.script and jax.jit keep
what they made of a function object, and Dynamo of a code object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nbcompile import api
from nbcompile.bench.captures.frameworks import JAX, TENSORFLOW, TORCH, Framework

Call = Callable[..., Any]
Graphs = tuple[tuple[str, str], ...]


@dataclass
class Captured:
    """A captured function. ``call`` runs it. After a call: ``graphs`` are its texts by title, ``nodes`` its
    number of operations, ``count`` how many graphs were captured so far (a way that captures once has none).
    ``pieces`` and ``why_not`` say where Python runs between graphs, and why its own graph did not run."""

    call: Call
    graphs: Callable[[], Graphs]
    nodes: Callable[[], int]
    count: Callable[[], int] | None = None
    pieces: Callable[[], tuple[str, int | None] | None] = lambda: None
    why_not: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Way:
    """``capture(fn, args)`` hands the function over, with inputs for those that trace at once."""

    name: str
    title: str
    capture: Callable[[Call, tuple[Any, ...]], Captured]
    framework: Framework = TORCH


def _compile(backend: str) -> Callable[[Call, tuple[Any, ...]], Captured]:
    def capture(fn: Call, args: tuple[Any, ...]) -> Captured:
        compiled = api.compile(fn, backend=backend)

        def graphs() -> Graphs:
            shown = ("fx", "fused") if backend == "nbcompile" else ("fx",)
            return tuple((g.title or g.id, g.text) for g in compiled.compilation.graphs if g.stage in shown)

        def fx_graphs() -> tuple[Any, ...]:
            return compiled.compilation.of_stage("fx")

        def pieces() -> tuple[str, int | None] | None:
            breaks = compiled.compilation.breaks
            if not breaks:
                return None
            first = breaks[0]
            return first.reason, first.spans[-1].line if first.spans else None

        return Captured(
            call=compiled,
            graphs=graphs,
            nodes=lambda: sum(n.kind not in ("input", "output") for g in fx_graphs() for n in g.nodes),
            count=lambda: len(fx_graphs()),
            pieces=pieces,
            why_not=lambda: compiled.eager_reason,
        )

    return capture


def _script(fn: Call, args: tuple[Any, ...]) -> Captured:
    return _jit(torch.jit.script(api.fresh_identity(fn)))


def _trace(fn: Call, args: tuple[Any, ...]) -> Captured:
    return _jit(torch.jit.trace(api.fresh_identity(fn), args))  # type: ignore[no-untyped-call]


def _jit(made: Any) -> Captured:
    graph = made.inlined_graph if hasattr(made, "inlined_graph") else made.graph
    return Captured(
        call=made,
        graphs=lambda: (("TorchScript", str(made.code)), ("graph", str(graph))),
        nodes=lambda: _jit_nodes(graph),
    )


def _jit_nodes(block: Any) -> int:
    """Operators of a TorchScript graph and of the blocks inside; constants and containers are none."""
    count = 0
    for node in block.nodes():
        count += node.kind().startswith("aten::") or node.kind() in ("prim::If", "prim::Loop", "prim::Print")
        count += sum(_jit_nodes(inner) for inner in node.blocks())
    return count


def _fx(fn: Call, args: tuple[Any, ...]) -> Captured:
    made = torch.fx.symbolic_trace(api.fresh_identity(fn))
    return Captured(
        call=made,
        graphs=lambda: (("fx", str(made.code).strip()),),
        nodes=lambda: _fx_nodes(made.graph),
    )


def _fx_nodes(graph: torch.fx.Graph) -> int:
    return sum(node.op.startswith("call") for node in graph.nodes)


class _Calling(torch.nn.Module):
    """torch.export takes modules only."""

    def __init__(self, fn: Call) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def _export(strict: bool) -> Callable[[Call, tuple[Any, ...]], Captured]:
    def capture(fn: Call, args: tuple[Any, ...]) -> Captured:
        module = fn if isinstance(fn, torch.nn.Module) else _Calling(api.fresh_identity(fn))
        program = torch.export.export(module, args, strict=strict)
        text = program.graph_module.print_readable(print_output=False)
        text = "\n".join(line for line in text.splitlines() if f"# File: {__file__}" not in line)
        return Captured(
            call=program.module(),
            graphs=lambda: (("ExportedProgram", text),),
            nodes=lambda: _fx_nodes(program.graph_module.graph),
        )

    return capture


def _jax(fn: Call, args: tuple[Any, ...]) -> Captured:
    import jax

    traced = 0

    def counted(*given: Any) -> Any:  # its Python runs only while it is traced
        nonlocal traced
        traced += 1
        return fn(*given)

    jitted = jax.jit(counted)

    def call(*given: Any) -> Any:
        return jax.block_until_ready(jitted(*given))  # type: ignore[no-untyped-call]

    def jaxpr() -> Any:
        return jax.make_jaxpr(api.fresh_identity(fn))(*args)

    def graphs() -> Graphs:
        return ("jaxpr", jaxpr().pretty_print(use_color=False)), (
            "StableHLO",
            jax.jit(api.fresh_identity(fn)).lower(*args).as_text(),
        )

    return Captured(
        call=call,
        graphs=graphs,
        nodes=lambda: _jaxpr_nodes(jaxpr().jaxpr),
        count=lambda: traced,
    )


def _jaxpr_nodes(jaxpr: Any) -> int:
    """Equations of a jaxpr; those that only wrap another jaxpr (``pjit``) count as what is in it."""
    count = 0
    for equation in jaxpr.eqns:
        inner = [value for value in equation.params.values() if hasattr(value, "jaxpr")]
        count += sum(_jaxpr_nodes(value.jaxpr) for value in inner) if inner else 1
    return count


def _tensorflow(xla: bool) -> Callable[[Call, tuple[Any, ...]], Captured]:
    def capture(fn: Call, args: tuple[Any, ...]) -> Captured:
        import tensorflow as tf

        made = tf.function(api.fresh_identity(fn), jit_compile=xla or None)

        def graph() -> Any:
            return made.get_concrete_function(*args).graph

        def graphs() -> Graphs:
            lines = (f"{op.name} = {op.type}({', '.join(i.name for i in op.inputs)})" for op in _ops(graph()))
            found = (("tf.Graph", "\n".join(lines)),)
            if not xla:
                return found
            return (*found, ("HLO", str(made.experimental_get_compiler_ir(*args)(stage="hlo"))))

        return Captured(
            call=made,
            graphs=graphs,
            nodes=lambda: sum(op.type not in _PLUMBING for op in _ops(graph())),
            count=made.experimental_get_tracing_count,
        )

    return capture


_PLUMBING = frozenset({"Placeholder", "Const", "Identity", "NoOp"})


def _ops(graph: Any) -> list[Any]:
    """Operations of a tf.Graph and of the functions that its control flow calls."""
    found = list(graph.get_operations())
    for op in list(found):
        for name in ("then_branch", "else_branch", "body", "cond"):
            if op.type in ("If", "StatelessIf", "While", "StatelessWhile") and name in op.node_def.attr:
                inner = graph._get_function(op.node_def.attr[name].func.name)
                found += _ops(inner.graph) if inner is not None and hasattr(inner, "graph") else []
    return found


WAYS: dict[str, Way] = {
    way.name: way
    for way in (
        Way("nbcompile", "torch.compile with nbcompile", _compile("nbcompile")),
        Way("dynamo", "torch.compile, capture alone", _compile("eager")),
        Way("script", "torch.jit.script", _script),
        Way("trace", "torch.jit.trace", _trace),
        Way("fx", "torch.fx.symbolic_trace", _fx),
        Way("export", "torch.export", _export(strict=False)),
        Way("export-strict", "torch.export, strict", _export(strict=True)),
        Way("jax", "jax.jit", _jax, JAX),
        Way("tf", "tf.function", _tensorflow(xla=False), TENSORFLOW),
        Way("tf-xla", "tf.function with XLA", _tensorflow(xla=True), TENSORFLOW),
    )
}


def reason_of(error: BaseException, file: str) -> tuple[str, int | None]:
    """The line of an error's message that says what happened, and the line in ``file`` that it points at."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = lines[-1] if lines and lines[0] == "in user code:" else lines[0] if lines else ""
    kind = type(error).__name__
    text = told if told.startswith(kind) else f"{kind}: {told}" if told else kind
    return text, _line_of(error, file)


def _line_of(error: BaseException, file: str) -> int | None:
    seen: BaseException | None = error
    while seen is not None:
        place, found = seen.__traceback__, None
        while place is not None:
            if place.tb_frame.f_code.co_filename == file:
                found = place.tb_lineno
            place = place.tb_next
        if found is not None:
            return found
        seen = seen.__cause__ or seen.__context__
    written = re.findall(rf'{re.escape(file)}"?(?:, line |:)(\d+)', str(error))
    return int(written[-1]) if written else None


def ways(names: Sequence[str] | None) -> list[Way]:
    """The ways of these names, or all; MeasureError for one that there is not."""
    from nbcompile.errors import MeasureError

    unknown = [name for name in names or () if name not in WAYS]
    if unknown:
        raise MeasureError(
            f"there is no way {', '.join(map(repr, unknown))}.", advice=f"Ways: {', '.join(WAYS)}."
        )
    return [WAYS[name] for name in names or WAYS]

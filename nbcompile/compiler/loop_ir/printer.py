"""Prints a loop program so that a person can read it aloud: one loop a line."""

from __future__ import annotations

from typing import Any

from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import LibraryCall, Loop, LoopProgram, Statement, View


def print_program(program: LoopProgram) -> str:
    """The whole program: inputs, one line a statement (columns aligned), outputs."""
    lines = []
    for item in program.inputs:
        if item is not None and not isinstance(item, str):
            lines.append((f"{item.name}", "= input", item.describe(), ""))
    for name, buffer in program.buffers().items():
        if name in program.constants:
            lines.append((name, "= constant", buffer.describe(), ""))
    for statement in program.statements:
        left, right = statement_text(statement)
        outputs = [buffer for buffer in statement.outputs if buffer is not None]
        types = ", ".join(dict.fromkeys(buffer.describe() for buffer in outputs))
        cells = program.spans.get(statement.id, ())
        lines.append((left, right, types, f"cell {', '.join(map(str, cells))}" if cells else ""))
    wide = min(max((len(line[0]) for line in lines), default=0), 28)
    long = min(max((len(line[1]) for line in lines), default=0), 72)
    text = [
        f"{left:<{wide}} {right:<{long}}  {types:<16}  {cells}".rstrip()
        for left, right, types, cells in lines
    ]
    text += [f"{name} becomes {new}" for name, new in program.updates.items()]
    text.append("return " + ", ".join(output_text(output) for output in program.outputs))
    return "\n".join(text)


def statement_text(statement: Statement) -> tuple[str, str]:
    """(left side, right side) of one statement, e.g. ("m[i]", "= max y[i, j]  over j<16")."""
    if isinstance(statement, LibraryCall):
        names = ", ".join(buffer.name if buffer else "_" for buffer in statement.outputs)
        arguments = [argument_text(item) for item in statement.args]
        arguments += [f"{key}={argument_text(item)}" for key, item in statement.kwargs.items()]
        word = "fallback" if statement.fallback else "library"
        return names, f"= {word} {statement.name}({', '.join(arguments)})"
    return loop_text(statement)


def loop_text(loop: Loop) -> tuple[str, str]:
    names = ", ".join(buffer.name for buffer in loop.outputs)
    kept = ", ".join(axis.name for axis in loop.kept)
    if loop.target is not None:
        places = ", ".join(map(str, loop.target))
        sign = {"set": "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}[loop.mode or "set"]
        return f"{names}[{places}]", f"{sign} {loop.body}  over {_over(loop.axes)}, from {loop.base}"
    left = f"{names}[{kept}]" if kept else names
    if loop.reduction:
        return left, f"= {loop.reduction} {loop.body}  over {_over(loop.reduced)}"
    if loop.scan and loop.scanned:
        return left, f"= running {loop.scan} {loop.body}  along {_over((loop.scanned,))}"
    return left, f"= {loop.body}"


def _over(axes: tuple[Axis, ...]) -> str:
    return ", ".join(f"{axis.name}<{axis.extent}" for axis in axes)


def argument_text(value: Any) -> str:
    if isinstance(value, View):
        if value.is_whole():
            return value.buffer.name
        shape = ",".join(map(str, value.shape))
        return f"{value.buffer.name}.view[{shape}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(argument_text(item) for item in value)}]"
    return str(value)


def output_text(output: Any) -> str:
    if isinstance(output, View | IndexExpr):
        return argument_text(output)
    return repr(output)

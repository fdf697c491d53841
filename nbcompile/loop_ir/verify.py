"""Checks that a loop program is well formed; run after each pass under test."""

from __future__ import annotations

from nbcompile.errors import VerifyError
from nbcompile.loop_ir.expr import COMPARISONS, SCALAR_OPS, Expr, Guard, Load, Op
from nbcompile.loop_ir.index import Axis
from nbcompile.loop_ir.nodes import Buffer, LibraryCall, Loop, LoopProgram, View
from nbcompile.loop_ir.printer import statement_text


def verify(program: LoopProgram) -> LoopProgram:
    """``program`` itself if it is well formed; VerifyError with the neighbourhood otherwise.

    Checked: single assignment, definition before use, ranks and dtypes of loads, axes in scope,
    shapes of outputs, arity and argument types of operations, mutated inputs not read afterwards.
    """
    defined: dict[str, Buffer] = {}
    mutated: set[str] = set()
    for item in program.inputs:
        if isinstance(item, Buffer):
            defined[item.name] = item
    for name, buffer in program.buffers().items():
        if name in program.constants:
            defined[name] = buffer
    for place, statement in enumerate(program.statements):
        try:
            if isinstance(statement, LibraryCall):
                for view in statement.views():
                    _use(view.buffer.name, defined, mutated)
                    if view.strided() is None:
                        raise VerifyError(f"argument {view.buffer.name} of a library call is not strided")
            else:
                _loop(statement, defined, mutated)
            for output in statement.outputs:
                if output is None:
                    continue
                if output.name in defined:
                    raise VerifyError(f"{output.name} is defined twice")
                defined[output.name] = output
        except VerifyError as error:
            raise VerifyError(f"{error.message}\n{_neighbourhood(program, place)}") from None
    for output_value in program.outputs:
        if isinstance(output_value, View):
            if output_value.buffer.name not in defined:
                raise VerifyError(f"returns {output_value.buffer.name}, which nothing defines")
            if output_value.strided() is None:
                raise VerifyError(f"returns a view of {output_value.buffer.name} that is not strided")
    return program


def _use(name: str, defined: dict[str, Buffer], mutated: set[str]) -> Buffer:
    if name not in defined:
        raise VerifyError(f"{name} is read before it is defined")
    if name in mutated:
        raise VerifyError(f"{name} is read after it was overwritten")
    return defined[name]


def _loop(loop: Loop, defined: dict[str, Buffer], mutated: set[str]) -> None:
    axes = set(loop.axes)
    if len({axis.name for axis in axes}) != len(loop.axes):
        raise VerifyError("two axes have one name")
    if not set(loop.reduced) <= axes:
        raise VerifyError("reduces an axis it does not have")
    if bool(loop.reduction) != bool(loop.reduced) and loop.reduction is None:
        raise VerifyError("reduced axes without a reduction")
    if loop.target is None:
        for output in loop.outputs:
            if output.shape != tuple(axis.extent for axis in loop.kept):
                raise VerifyError(f"{output.name} has shape {output.shape}, its axes say otherwise")
    elif len(loop.target) != len(loop.outputs[0].shape) or loop.base not in defined:
        raise VerifyError("scatter target or base does not fit its output")
    if (loop.reduction == "welford") != (len(loop.outputs) == 2):
        raise VerifyError("wrong number of outputs")
    stray = {axis for axis in loop.body.axes() if isinstance(axis, Axis)} - axes
    if stray:
        raise VerifyError(f"axes {stray} are not axes of this loop")
    _expression(loop.body)
    for load in loop.reads():
        buffer = _use(load.buffer, defined, mutated)
        if len(load.index) != len(buffer.shape):
            raise VerifyError(f"{load} has {len(load.index)} indices, {buffer.name} {len(buffer.shape)}")
        if load.dtype != buffer.dtype:
            raise VerifyError(f"{load} is typed {load.dtype}, the buffer {buffer.dtype}")
    if loop.mutates:
        _use(loop.mutates, defined, mutated)
        mutated.add(loop.mutates)


def _expression(body: Expr) -> None:
    for node in body.walk():
        if isinstance(node, Guard) and node.inside.dtype != node.outside.dtype:
            raise VerifyError(f"branches of {node} differ in dtype")
        if isinstance(node, Load) or not isinstance(node, Op):
            continue
        if SCALAR_OPS.get(node.name) != len(node.args):
            raise VerifyError(f"unknown operation or wrong number of arguments: {node}")
        if node.name == "cast" or node.name == "philox_uniform":
            continue
        args = node.args[1:] if node.name == "where" else node.args
        kinds = {arg.dtype for arg in args}
        if len(kinds) > 1:
            raise VerifyError(f"arguments of {node} mix {', '.join(sorted(map(str, kinds)))}")
        if node.name not in COMPARISONS and node.dtype != args[0].dtype:
            raise VerifyError(f"{node} is typed {node.dtype}, its arguments {args[0].dtype}")


def _neighbourhood(program: LoopProgram, place: int) -> str:
    lines = []
    for n in range(max(place - 3, 0), min(place + 3, len(program.statements))):
        left, right = statement_text(program.statements[n])
        lines.append(f"{'-->' if n == place else '   '} {left} {right}")
    return "\n".join(lines)

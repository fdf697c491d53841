"""Checks that a loop program is well formed; run after each pass under test."""

from __future__ import annotations

import torch

from nbcompile.compiler.loop_ir.expr import (
    BITCASTS,
    COMPARISONS,
    SCALAR_OPS,
    Expr,
    Guarded,
    Load,
    Op,
    walk_index,
)
from nbcompile.compiler.loop_ir.nodes import (
    Buffer,
    LibraryCall,
    Loop,
    LoopProgram,
    Statement,
    View,
    statement_text,
)
from nbcompile.errors import VerifyError


def verify(program: LoopProgram) -> LoopProgram:
    """``program`` itself if it is well formed; VerifyError with the neighbourhood otherwise.

    Checked: single assignment, definition before use, ranks and dtypes of loads, axes in scope,
    shapes of outputs, arity and argument types of operations, new values of inputs laid out as these are.
    """
    defined: dict[str, Buffer] = {}
    for item in program.inputs:
        if isinstance(item, Buffer):
            defined[item.name] = item
    for name, buffer in program.buffers().items():
        if name in program.constants:
            defined[name] = buffer
    for place, statement in enumerate(program.statements):
        try:
            _statement(statement, defined)
        except VerifyError as error:
            raise VerifyError(f"{error.message}\n{_neighbourhood(program, place)}") from None
    for value in program.outputs:
        if isinstance(value, View):
            if value.buffer.name not in defined:
                raise VerifyError(f"returns {value.buffer.name}, which nothing defines")
            if value.strided() is None:
                raise VerifyError(f"returns a view of {value.buffer.name} that is not strided")
            if value.buffer.name in program.updates:
                raise VerifyError(f"returns {value.buffer.name}, which holds another value by then")
    _updates(program, defined)
    for name in program.become:
        if name in program.updates or _use(name, defined).role != "input":
            raise VerifyError(f"{name} is to show another memory: only an input that keeps its values can")
    return program


def _updates(program: LoopProgram, defined: dict[str, Buffer]) -> None:
    """What inputs hold afterwards: each a value of its own, made by a loop and laid out like the input."""
    made = {out.name for item in program.statements if isinstance(item, Loop) for out in item.outputs}
    if len(set(program.updates.values())) < len(program.updates):
        raise VerifyError("two inputs are to hold one buffer")
    for name, value in program.updates.items():
        old, new = _use(name, defined), _use(value, defined)
        if old.role != "input" or value not in made:
            raise VerifyError(f"{name} is to become {value}: only an input can, and only what a loop makes")
        if (old.shape, old.strides, old.dtype) != (new.shape, new.strides, new.dtype):
            raise VerifyError(f"{value} is not laid out like {name}, which it is to overwrite")


def _statement(statement: Statement, defined: dict[str, Buffer]) -> None:
    if isinstance(statement, LibraryCall):
        for view in statement.views():
            _use(view.buffer.name, defined)
            if view.strided() is None:
                raise VerifyError(f"argument {view.buffer.name} of a library call is not strided")
    else:
        _domain(statement)
        _results(statement, defined)
        _reads(statement, defined)
    for output in statement.outputs:
        if output is None:
            continue
        if output.name in defined:
            raise VerifyError(f"{output.name} is defined twice")
        defined[output.name] = output


def _use(name: str, defined: dict[str, Buffer]) -> Buffer:
    if name not in defined:
        raise VerifyError(f"{name} is read before it is defined")
    return defined[name]


def _domain(loop: Loop) -> None:
    """Axes: distinct, and the only ones that anything in the loop depends on."""
    axes = set(loop.axes)
    if len({axis.name for axis in axes}) != len(loop.axes):
        raise VerifyError("two axes have one name")
    if not set(loop.reduced) <= axes:
        raise VerifyError("reduces an axis it does not have")
    if loop.reduced and loop.reduction is None:
        raise VerifyError("reduced axes without a reduction")
    if (loop.scan is None) != (loop.scanned is None):
        raise VerifyError("a scan and the axis it goes along belong together")
    if loop.scan and (loop.reduction or loop.target is not None or loop.scanned not in axes):
        raise VerifyError("scans along an axis it does not have, or does more than that")
    used = loop.body.axes().union(*(place.axes() for place in loop.target or ()))
    if used - axes:
        raise VerifyError(f"axes {used - axes} are not axes of this loop")


def _results(loop: Loop, defined: dict[str, Buffer]) -> None:
    """Outputs: as many as the loop makes, shaped by its axes or, of a scatter, like its base."""
    if (loop.reduction == "welford" or loop.scan in ("max", "min")) != (len(loop.outputs) == 2):
        raise VerifyError("wrong number of outputs")
    if loop.scan in ("max", "min") and loop.outputs[1].dtype != torch.int64:
        raise VerifyError("positions are not of type int64")
    if loop.target is None:
        for output in loop.outputs:
            if output.shape != tuple(axis.extent for axis in loop.kept):
                raise VerifyError(f"{output.name} has shape {output.shape}, its axes say otherwise")
        return
    base, output = _use(loop.base or "", defined), loop.outputs[0]
    fits = (base.shape, base.dtype) == (output.shape, output.dtype)
    if loop.reduction or not fits or len(loop.target) != len(base.shape):
        raise VerifyError("scatter target or base does not fit its output")


def _reads(loop: Loop, defined: dict[str, Buffer]) -> None:
    """Loads: of buffers that are there, by rank and dtype; and well-typed operations on them."""
    _expression(loop.body)
    for place in loop.target or ():
        for value in walk_index(place):
            _expression(value)
    for load in loop.reads():
        buffer = _use(load.buffer, defined)
        if len(load.index) != len(buffer.shape):
            raise VerifyError(f"{load} has {len(load.index)} indices, {buffer.name} {len(buffer.shape)}")
        if load.dtype != buffer.dtype:
            raise VerifyError(f"{load} is typed {load.dtype}, the buffer {buffer.dtype}")


def _expression(body: Expr) -> None:
    for node in body.walk():
        if isinstance(node, Guarded) and node.inside.dtype != node.outside.dtype:
            raise VerifyError(f"branches of {node} differ in dtype")
        if isinstance(node, Load) or not isinstance(node, Op):
            continue
        if SCALAR_OPS.get(node.name) != len(node.args):
            raise VerifyError(f"unknown operation or wrong number of arguments: {node}")
        if node.name == "bitcast" and (node.args[0].dtype, node.dtype) not in BITCASTS:
            raise VerifyError(f"{node} takes the bits of {node.args[0].dtype} for {node.dtype}")
        if node.name in ("cast", "bitcast", "philox_uniform"):
            continue
        if node.name == "where" and node.args[0].dtype != torch.bool:
            raise VerifyError(f"the condition of {node} is not bool")
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

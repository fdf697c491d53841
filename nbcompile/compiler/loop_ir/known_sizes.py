"""Symbolic sizes by who needs them and who tells them; comparisons of them that a graph checks."""

from __future__ import annotations

from collections.abc import Sequence

from torch.utils._pytree import tree_leaves

from nbcompile.compiler.loop_ir.computed_sizes import (
    ComputedSize,
    PythonNumber,
    base_sizes,
    computed_in,
    told_by,
)
from nbcompile.compiler.loop_ir.expr import Indirect, SizeComparison, walk_index
from nbcompile.compiler.loop_ir.index import IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer, Loop, LoopProgram, Statement, View, ViewCalls


def sizes_in(statement: Statement) -> set[str]:
    """The symbolic sizes that have to be known for a statement to run; of those that are computed, what they
    are computed of."""
    return base_sizes(places_in(statement))


def places_in(statement: Statement) -> list[IndexExpr | PythonNumber]:
    """Every expression of sizes in a statement."""
    found: list[IndexExpr | PythonNumber] = [
        extent for out in statement.outputs if out is not None for extent in (*out.shape, *out.strides)
    ]  # fmt: skip
    if isinstance(statement, Loop):
        found += [axis.extent for axis in statement.axes]
        target = statement.target or ()
        nodes = [*statement.body.walk(), *(node for place in target for node in walk_index(place))]
        places = [*target, *(place for node in nodes for place in node.indices())]
        found += [*places, *(size for place in places for size in _limits(place))]
    else:
        for item in tree_leaves([statement.args, dict(statement.kwargs)]):
            if isinstance(item, View):
                found += [*item.index, *(axis.extent for axis in item.axes)]
            elif isinstance(item, SizeComparison):
                found += [item.left, item.right]
            elif isinstance(item, IndexExpr | PythonNumber):
                found.append(item)
    return found


def _limits(place: IndexExpr) -> list[IndexExpr]:
    """What the indices that are read from tensors are checked to be below."""
    return [atom.size for atom in place.atoms() if isinstance(atom, Indirect)]


def sizes_given(program: LoopProgram) -> set[str]:
    """The symbolic sizes that the arguments of a program tell."""
    return sizes_told(program.inputs)


def sizes_told(inputs: Sequence[Buffer | str | None]) -> set[str]:
    """The symbolic sizes that these arguments tell."""
    told = {item for item in inputs if isinstance(item, str)}
    given = (item for item in inputs if isinstance(item, Buffer))
    sizes = (told_by(extent) for buffer in given for extent in buffer.shape)
    return told | {item.size.text for item in sizes if item is not None}


def sizes_returned(program: LoopProgram) -> set[str]:
    """The symbolic sizes that the results of a program are, or have; of computed ones what they are computed
    of."""
    return base_sizes(_places_returned(program))


def _places_returned(program: LoopProgram) -> list[IndexExpr | PythonNumber]:
    shown = [item for item in program.outputs if isinstance(item, View)]
    places: list[IndexExpr | PythonNumber] = [
        place for item in shown for place in (*item.index, *(axis.extent for axis in item.axes))
    ]  # fmt: skip
    places += [stride for item in shown for stride in item.traced if stride is not None]
    places += [place for item in shown if isinstance(item, ViewCalls) for place in item.sizes()]
    return [*places, *(item for item in program.outputs if isinstance(item, IndexExpr | PythonNumber))]


def sizes_computed(program: LoopProgram) -> dict[str, ComputedSize]:
    """The computed sizes of a program by name, each after those that it is computed of."""
    made = program.buffers().values()
    extents = [extent for item in made for extent in (*item.shape, *item.strides)]
    inside = [place for item in program.statements for place in places_in(item)]
    return computed_in([*extents, *inside, *_places_returned(program)])

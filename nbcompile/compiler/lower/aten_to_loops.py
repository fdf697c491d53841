"""AtenGraph → LoopProgram: one registered lowering per node, library calls for the rest."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from nbcompile.compiler import other_devices
from nbcompile.compiler.in_aten import shares_elements
from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber, base_sizes
from nbcompile.compiler.loop_ir.expr import Constant, Expr, Load, SizeNumber
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, Size, index
from nbcompile.compiler.loop_ir.known_sizes import sizes_given, sizes_in, sizes_returned
from nbcompile.compiler.loop_ir.nodes import (
    Body,
    Buffer,
    LibraryCall,
    Loop,
    LoopProgram,
    Output,
    Statement,
    View,
    buffer_like,
    has_effect,
)
from nbcompile.compiler.lower import as_itself
from nbcompile.compiler.lower.builder import Builder
from nbcompile.compiler.lower.outputs import SET, Outputs, as_it_stands, set_last, storage_of
from nbcompile.compiler.lower.registry import registry
from nbcompile.compiler.lower.sizes import SizeTable
from nbcompile.compiler.lower.sizes_of_data import called_as_it_is, checked, number_of, tell_place
from nbcompile.compiler.stages import STEP_OF, AtenGraph, device_of, is_ragged
from nbcompile.errors import LoweringError, SymbolicSizeError
from nbcompile.options import Options

aten = torch.ops.aten
_TORCHS = frozenset({"aten", "prims", "inductor", "quantized", "_c10d_functional"})
_FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError,
)  # fmt: skip
"""What a mistake in a lowering raises. (Dynamo's own, which must reach it, are others.)"""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def aten_to_loops(
    graph: AtenGraph, options: Options, called: Mapping[str, str] = MappingProxyType({})
) -> LoopProgram:
    """Lower every node, but for those that are ``called`` as they are: ids, with the reason.
    LoweringError if the graph holds what no program can (tensor subclasses): the graph is then run as it
    is."""
    sizes = SizeTable()
    builder = Builder(graph.id, sizes, options, device_of(graph.module))
    away = other_devices.away(graph.module, builder.device)
    become = set_last(graph.module.graph, away)
    counted = as_itself.begin_elsewhere(graph.module.graph)
    values: dict[fx.Node, Any] = {}
    inputs: list[Buffer | str | None] = []
    constants: dict[str, torch.Tensor] = {}
    bodies: dict[str, str] = {}  # the graphs within it, each by the first node that stands for it
    outputs: tuple[Output, ...] = ()

    for node in graph.module.graph.nodes:
        fake = node.meta.get("val")
        origins = (graph.ids.get(node.name, node.name),)
        if node.op == "placeholder":
            values[node], item = _input(builder, node, fake, graph.names.get(node.name, node.name))
            inputs.append(item)
        elif node.op == "get_attr":
            tensor = _attribute(graph.module, str(node.target))
            if isinstance(tensor, fx.GraphModule):
                values[node] = Body(bodies.setdefault(str(node.target), node.name))
                continue
            if not isinstance(tensor, torch.Tensor):
                raise LoweringError(f"the graph holds {type(tensor).__name__} {node.target}")
            builder.take_name(node.name)
            constants[node.name] = tensor
            values[node] = View.whole(buffer_like(node.name, tensor, "constant"))
        elif node.op == "call_function":
            builder.begin(node.name, node.meta.get(STEP_OF) or _op_name(node.target), origins, fake)
            values[node] = as_it_stands(builder, node, values) or _lower_node(
                builder, node, values, away, called.get(origins[0], "") or counted.get(node, "")
            )
            tell_place(builder, node, values)
            builder.folded.made(node, values[node])
            if node.target is aten.copy_.default:
                # whoever reads the input from here on sees what was written
                values[node.args[0]] = values[node]
        elif node.op == "output":
            results = _returned(graph, node)
            outputs = Outputs(builder, graph, values, inputs).of(results, [*become.values()])
            apart = _apart(results, outputs[: len(results)])
        else:
            raise LoweringError(f"the graph has a {node.op} node, {node.name}")

    names = {value: key for key, value in graph.ids.items()}
    spans = {statement.id: _cell_lines(graph, names, statement) for statement in builder.statements}
    as_itself.check_memory(builder.statements, away, values)
    program = LoopProgram(
        graph.id, tuple(inputs), tuple(builder.statements), outputs, constants, spans, builder.updates,
        sizes.facts(), apart, tuple(values[item].buffer.name for item in become),
    )  # fmt: skip
    live = without_dead_statements(replace(program, facts=(*program.facts, *checked(program))))
    _check_sizes(live)
    return with_own_numbers(live)


def _returned(graph: AtenGraph, output: fx.Node) -> list[Any]:
    """What a graph returns. LoweringError for a result that is a sparse tensor: it keeps the memory that it
    is made of, of which nobody here knows, and others would be given it."""
    items = _flat(output.args[0])
    for item in items:
        fake = item.meta.get("val") if isinstance(item, fx.Node) else None
        if isinstance(fake, torch.Tensor) and fake.layout != torch.strided:
            lines = [span.line for span in graph.spans.get(item.name, ()) if not span.file]
            raise LoweringError(
                f"{item.target} makes a sparse tensor, and kernels are of dense ones",
                line=min(lines, default=None),
                advice="Dense gradients (sparse=False) are compiled.",
            )
    return items


def _apart(items: Sequence[Any], outputs: Sequence[Output]) -> frozenset[int]:
    """The places of results that show the whole memory of another node's result. The earliest node's is the
    one that may be written to, and need a gradient where the others (``detach``) need none. So do those that
    show a whole input without being it: its strides may change when all has run (``x.t_()``)."""
    first: dict[str, fx.Node] = {}
    shown = [
        (place, items[place], value.buffer.name)
        for place, value in enumerate(outputs)
        if isinstance(value, View) and value.is_whole() and value.buffer.role == "temporary"
    ]
    for _, node, name in shown:
        first[name] = min(first.get(name, node), node)
    views = [
        place
        for place, value in enumerate(outputs)
        if isinstance(value, View) and value.is_whole() and value.buffer.role == "input"
        and items[place].op == "call_function" and items[place].target is not aten.copy_.default
    ]  # fmt: skip
    return frozenset([*views, *(place for place, node, name in shown if node is not first[name])])


def _check_sizes(program: LoopProgram) -> None:
    """SymbolicSizeError for a size that nothing tells when the program is called: what a backward graph is
    given may be a sum of sizes, and not each of them."""
    told = sizes_given(program)
    told |= {name for item in program.statements if isinstance(item, LibraryCall) for name in item.tells()}
    made = program.buffers().values()
    atoms = {atom for item in made for extent in (*item.shape, *item.strides) for atom in extent.atoms()}
    wanted = base_sizes(index(atom) for atom in atoms if isinstance(atom, Size))
    for name in sorted(wanted.union(*map(sizes_in, program.statements), sizes_returned(program)) - told):
        raise SymbolicSizeError(f"the size {name} is neither an input nor an extent of one")


def with_own_numbers(program: LoopProgram) -> LoopProgram:
    """The program with a number that several loops read made for each of them, within its kernel: made for
    all, it would be stored by one kernel for the others."""
    numbers: dict[str, Loop] = {}
    taken: set[str] = set()
    names, statements, spans = {*program.buffers()}, list[Statement](), dict(program.spans)
    loops = [item.id.rpartition(".l")[2] for item in program.statements if isinstance(item, Loop)]
    ids = itertools.count(max(map(int, loops), default=0) + 1)
    for item in program.statements:
        if isinstance(item, Loop):
            made = item.kind == "pointwise" and not item.axes and isinstance(item.body, Constant)
            if made and item.name not in program.results:
                numbers[item.name] = item
            read = [node.buffer for node in item.nodes if isinstance(node, Load)]
            for name in dict.fromkeys(name for name in read if name in numbers):
                if name not in taken:
                    taken.add(name)
                    continue
                number = numbers[name]
                own = next(new for n in itertools.count(2) if (new := f"{name}_{n}") not in names)
                names.add(own)
                copy = replace(
                    number,
                    id=f"{program.graph}.l{next(ids)}",
                    outputs=(replace(number.outputs[0], name=own),),
                )
                statements.append(copy)
                spans[copy.id] = spans.get(number.id, ())
                item = replace(item, body=_reading(item.body, name, own))
        statements.append(item)
    return replace(program, statements=tuple(statements), spans=spans)


def _reading(expr: Expr, name: str, other: str) -> Expr:
    """The expression with another buffer read in place of the one with this name."""
    if isinstance(expr, Load):
        return replace(expr, buffer=other) if expr.buffer == name else expr
    children = tuple(_reading(item, name, other) for item in expr.children())
    return expr.rebuild(children, expr.indices())


def without_dead_statements(program: LoopProgram) -> LoopProgram:
    """The program less what nothing reads, and what finds no size that is needed."""
    live = set(program.results)
    sizes = sizes_returned(program)
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        names = {buffer.name for buffer in statement.outputs if buffer is not None}
        if isinstance(statement, Loop):
            if not names & live:
                continue
            live |= {load.buffer for load in statement.reads()}
            if statement.base:
                live.add(statement.base)
        else:
            if not (names & live or statement.tells() & sizes or has_effect(statement)):
                continue
            live |= {view.buffer.name for view in statement.views()}
        sizes |= sizes_in(statement)
        kept.append(statement)
    statements = tuple(reversed(kept))
    spans = {item.id: program.spans[item.id] for item in statements if item.id in program.spans}
    return replace(program, statements=statements, spans=spans)


def _lower_node(
    builder: Builder, node: fx.Node, values: Mapping[fx.Node, Any], away: Set[fx.Node], failed: str
) -> Any:
    """What a node makes. ``failed``: why it is called as it is, if its loops failed or would be wrong."""
    target, fake = node.target, node.meta.get("val")
    if target is SET or (target is operator.getitem and not isinstance(fake, _SYMBOLIC)):
        source, place = node.args  # (a graph within it returns sizes)
        return None if target is SET else _resolve(source, values)[place]  # (that is done when all has run)
    if isinstance(fake, _SYMBOLIC):
        return number_of(builder, target, _resolve(node.args, values), fake)
    args = _resolve(node.args, values)
    kwargs = _resolve(dict(node.kwargs), values)
    if called := called_as_it_is(target, fake):
        return builder.call(target, args, kwargs, result=() if fake is None else None, reason=called)
    if not isinstance(target, torch._ops.OpOverload):
        raise LoweringError(f"no lowering for {target}")
    if isinstance(fake, int | float | bool):
        raise LoweringError(f"{target} returns a number that depends on data")
    _check_own_places(node, fake)
    if node in away or any(item in away for item in node.all_input_nodes):
        why = as_itself.ELSEWHERE
        return as_itself.called(builder, target, args, kwargs, fallback=True, reason=why, elsewhere=True)
    entry = registry().find(target)
    reason = registry().library.get(target)
    if failed:
        reason, why = None, failed
    elif entry is not None and any(isinstance(each, PythonNumber) for each in tree_leaves((args, kwargs))):
        reason, why = None, "it is given a number that Python computes"
    elif entry is not None:
        before = len(builder.statements)
        try:
            lowered = entry.lower(builder, *args, **kwargs)
            _check_scatters(builder.statements[before:], builder.options)
            _check_shapes(builder, fake, lowered)
            return _in_its_own_memory(builder, node, before, _as_traced(builder, fake, lowered))
        except LoweringError as error:
            del builder.statements[before:]
            reason = None
            why = error.message
        except _FAULTS as error:
            given = tree_leaves((args, kwargs))
            numbers = isinstance(error, TypeError) and any(
                isinstance(each, IndexExpr | SizeNumber | complex) for each in given
            )
            if builder.options.verify and not numbers:
                raise
            del builder.statements[before:]
            reason = None
            what = "complex number" if any(isinstance(each, complex) for each in given) else "symbolic size"
            why = f"its lowering failed: {type(error).__name__}: {error}"
            if numbers:
                why = f"it is given a {what} where only numbers are lowered ({error})"
    else:
        why = "no lowering for this operator yet"
        if target.namespace not in _TORCHS:
            reason = "an operator from outside torch, called as it is"
    return as_itself.called(builder, target, args, kwargs, fallback=reason is None, reason=reason or why)


def _check_shapes(builder: Builder, fake: Any, made: Any) -> None:
    """SymbolicSizeError where a result has not the extents that it was traced with: an extent that was 1 and
    may be more, say, where nothing told that it is broadcast."""
    for wanted, item in zip(_flat(fake), _flat(made), strict=False):
        if isinstance(wanted, torch.Tensor) and isinstance(item, View):
            were = tuple(extent.hint() for extent in builder.shape(wanted))
            if were != tuple(extent.hint() for extent in item.shape):
                raise SymbolicSizeError(f"a result of the sizes {item.shape} was traced with {were}")


def _as_traced(builder: Builder, fake: Any, made: Any) -> Any:
    """What was made, with the extents that the guards make a number as that number: whoever drops extents of
    1 goes by the traced ones, and has to find the same in what it is given."""
    if isinstance(made, tuple | list):
        return type(made)(_as_traced(builder, *pair) for pair in zip(fake, made, strict=True))
    if not isinstance(made, View):
        return made
    shape = builder.shape(fake)
    if all(
        traced.constant is None or traced == extent for traced, extent in zip(shape, made.shape, strict=True)
    ):
        return made
    return builder.view(made, shape, lambda *where: where)


def _in_its_own_memory(builder: Builder, node: fx.Node, before: int, made: Any) -> Any:
    """What the statements from ``before`` on made, copied where the lowering shares the memory of an argument
    (that of ``copy`` does), the operator does not, and ``as_strided`` is to count from the start of it."""
    if not isinstance(made, View) or as_itself.is_view(node) or not _is_read_by_strides(node):
        return made
    new = any(made.buffer in each.outputs for each in builder.statements[before:])
    return made if new else builder.copy(made)


def _is_read_by_strides(node: fx.Node) -> bool:
    return any(
        user.target in as_itself.BY_STRIDES or (as_itself.is_view(user) and _is_read_by_strides(user))
        for user in node.users
    )


def _check_own_places(node: fx.Node, fake: Any) -> None:
    """LoweringError for a result that is no view, traced with strides by which its elements share memory:
    torch 2.11 says so of a scatter into an expanded tensor, and its elements are not the same numbers. (The
    storage of a view need not be its argument's: of equal nodes one is kept, with the views of all.)"""
    if as_itself.is_view(node):
        return
    for item in fake if isinstance(fake, tuple | list) else (fake,):
        if not isinstance(item, torch.Tensor) or item.layout != torch.strided or not shares_elements(item):
            continue
        if item.untyped_storage()._cdata not in {storage_of(each) for each in node.all_input_nodes}:
            raise LoweringError(f"{node.target} was traced with a result whose elements share memory")


def _check_scatters(statements: Sequence[Statement], options: Options) -> None:
    """LoweringError for a scatter that the target has no way to do: on a GPU points that meet in one element
    are combined by atomic operations, in any order."""
    if not options.chip.is_gpu:
        return
    for item in statements:
        if not isinstance(item, Loop) or item.kind != "scatter":
            continue
        dtype = item.outputs[0].dtype
        if options.deterministic and (item.mode in (None, "set") or dtype.is_floating_point):
            raise LoweringError("its points meet in any order, and a deterministic result was asked for")
        adds = item.mode == "add" and dtype != torch.bool
        extremes = item.mode in ("max", "min") and not (dtype.is_floating_point or dtype == torch.bool)
        if not (item.mode in (None, "set") or adds or extremes):
            raise LoweringError(f"a GPU has no atomic {item.mode} of {dtype}")


def _input(builder: Builder, node: fx.Node, fake: Any, name: str) -> tuple[Any, Buffer | str | None]:
    if isinstance(fake, torch.Tensor):
        if type(fake).__name__ not in ("FakeTensor", "Tensor", "Parameter", "FunctionalTensor"):
            raise LoweringError(f"input {node.name} is a {type(fake).__name__}")
        if fake.layout != torch.strided or fake.is_quantized:
            raise LoweringError(f"input {node.name} is not a strided tensor")
        if fake._is_zerotensor() and ZERO not in builder.shape(fake):
            raise LoweringError(f"the input {node.name} has no memory (torch._efficientzerotensor)")
        strides = builder.sizes.strides(fake)
        buffer = Buffer(builder.fresh(name), builder.shape(fake), strides, fake.dtype, "input")
        whole = View.whole(buffer)
        if not fake.is_neg():
            return whole, buffer
        if any(user.target is aten.copy_.default and user.args[0] is node for user in node.users):
            raise LoweringError(f"the input {node.name} is overwritten, and is a negative by a mark (is_neg)")
        numbers = fake.clone()
        builder.begin(f"{name}_numbers", "clone", (), numbers)
        why = "the memory of an input is the negative of what it holds (is_neg)"
        return builder.call(aten.clone.default, (whole,), {}, result=numbers, reason=why), buffer
    if isinstance(fake, torch.SymInt):
        # the extents of a nested tensor are no number: they are handed on as they are
        size = index(Size(str(fake.node.expr), 1, None)) if is_ragged(fake) else builder.size(fake)
        told = str(fake.node.expr)
        return size, told if told.isidentifier() else str(size)
    if isinstance(fake, int) and not isinstance(fake, bool):
        return fake, None
    if node.users:
        raise LoweringError(f"input {node.name} is a {type(fake).__name__}")
    return None, None


def _resolve(value: Any, values: Mapping[fx.Node, Any]) -> Any:
    if isinstance(value, fx.Node):
        return values[value]
    if isinstance(value, list | tuple):
        return type(value)(_resolve(item, values) for item in value)
    if isinstance(value, dict):
        return {key: _resolve(item, values) for key, item in value.items()}
    return value


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _op_name(target: Any) -> str:
    return target._schema.name.split("::")[-1] if hasattr(target, "_schema") else str(target)


def _cell_lines(graph: AtenGraph, names: Mapping[str, str], statement: Statement) -> tuple[int, ...]:
    """The lines of the cell that a statement is of; ``names``: nodes by their ids."""
    lines = set()
    for origin in statement.origins:
        for span in graph.spans.get(names.get(origin, origin), ())[:1]:
            if not span.file:
                lines.add(span.line)
    return tuple(sorted(lines))

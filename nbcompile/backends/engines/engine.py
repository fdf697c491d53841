"""Inference engines of other people behind AOTAutograd: what they all need.

An engine compiles a flat graph of core ATen operators on tensors of fixed sizes. AOTAutograd makes such
graphs of forward and backward alike, so engines for inference train as well; what is no tensor, what is
overwritten and what is only passed through stays here (:class:`Frame`). A graph of symbolic sizes becomes one
program for each set of sizes. Parameters are inputs, so what an optimizer does to them in place is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from nbcompile.backends.base import GraphCompiler
from nbcompile.compiler.capture.decompositions import Table, core_table
from nbcompile.compiler.capture.fx_to_aten import AtenForm, compile_fx_graph
from nbcompile.compiler.fx_values import hint, short_dtype
from nbcompile.compiler.in_aten import in_aten
from nbcompile.compiler.stages import AtenGraph, CompiledModule, FxGraph
from nbcompile.errors import BackendError, in_one_line
from nbcompile.options import Options
from nbcompile.record.compilation import Graph, Node
from nbcompile.record.recorder import Recorder

aten_ops = torch.ops.aten

Run = Callable[[list[Tensor]], Sequence[Tensor]]
"""An engine's program: contiguous tensors in, tensors of its own out."""


@dataclass(frozen=True)
class EngineStep:
    """One thing an engine's program does: ``operator`` in the engine's words, the steps it reads, and the
    ATen nodes it stands for, where the engine tells (both by name)."""

    name: str
    operator: str
    inputs: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineProgram:
    """A compiled :class:`StaticGraph`: what runs, and what it shows of itself. ``note``: what a user has to
    know of its results."""

    run: Run
    title: str
    text: str
    steps: tuple[EngineStep, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class StaticGraph:
    """What an engine compiles: ``module`` takes tensors of fixed sizes and returns a tuple of distinct
    tensors that it computes. Its nodes have the names of ``aten``'s."""

    aten: AtenGraph
    module: fx.GraphModule

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        return tuple(self.module.graph.find_nodes(op="placeholder"))

    @property
    def calls(self) -> tuple[fx.Node, ...]:
        return tuple(node for node in self.module.graph.nodes if node.op == "call_function")

    @property
    def outputs(self) -> tuple[fx.Node, ...]:
        return tuple(self.module.graph.output_node().args[0])  # type: ignore[arg-type]

    def lacks(self, engine: str, operator: str) -> BackendError:
        """The error that says which operator ``engine`` does not have, with the types it would be for, and
        where the cell uses it."""
        node = next((node for node in self.calls if str(node.target) == operator), None)
        if node is None:
            return BackendError(f"{engine} has no {operator}", operator=operator)
        return self.refuse(node, f"{engine} has no {operator}{self._types(node)}")

    def refuse(self, node: fx.Node, why: str) -> BackendError:
        """``why``, with the node's operator and line."""
        return BackendError(why, operator=str(node.target), line=_line(self.aten, node.name))

    @staticmethod
    def _types(node: fx.Node) -> str:
        types = [short_dtype(v.dtype) for n in node.all_input_nodes for v in _tensors(n.meta["val"])]
        return f" of {', '.join(dict.fromkeys(types))}" if types else ""


Engine = Callable[[StaticGraph], EngineProgram]
"""Compiles one graph. BackendError for what it cannot."""


def of_engine(engine: Engine, *, device: Literal["cpu", "cuda"] = "cpu") -> GraphCompiler:
    """``Backend.compiler``'s result for an engine on that device."""

    def compile_aten(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        check(aten, recorder.backend, device)
        return CompiledModule(aten.id, _Programs(aten, engine, recorder))

    def compiler(graph: FxGraph, example_inputs: Sequence[Any], recorder: Recorder) -> Callable[..., Any]:
        training = torch.is_grad_enabled() and any(t.requires_grad for t in _tensors(list(example_inputs)))
        form = AtenForm(lambda options: _table(training), ours=False)
        return compile_fx_graph(graph, example_inputs, Options(), recorder, compile_aten, form)

    return compiler


def check(aten: AtenGraph, engine: str, device: str) -> None:
    """BackendError for what no engine here does as eager mode does it."""
    for node in aten.module.graph.nodes:
        if node.op not in ("call_function", "get_attr"):
            continue
        # What must not be reordered (prints, checks of values) comes as with_effects(token, operator, ...).
        effects = getattr(node.target, "__name__", "") == "with_effects"
        operator = str(node.args[1] if effects else node.target)
        why = _objection(aten.module, node)
        if why:
            raise BackendError(f"{operator} {why}", operator=operator, line=_line(aten, node.name))
        for value in _tensors(node.meta.get("val")):
            if value.device.type != device:
                raise BackendError(f"{engine} is for tensors on {device} here, not on {value.device.type}")
            if value.dtype.is_complex:
                name = str(value.dtype).removeprefix("torch.")
                raise BackendError(f"{engine} has no {name}", operator=operator, line=_line(aten, node.name))


def _objection(module: fx.GraphModule, node: fx.Node) -> str:
    target = node.target
    if node.op == "get_attr":
        return "" if isinstance(getattr(module, str(target), None), Tensor) else "is another graph"
    if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
        return "draws random numbers, and they would not be eager's"
    if any(free_unbacked_symbols(value) for value in _leaves(node.meta.get("val")) if _has_symbols(value)):
        return "has a result whose size or value depends on the data"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "has effects, or calls another graph"
    overwrites = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    if overwrites and not _writes_input(node):
        return "overwrites its operand"
    return ""


def _writes_input(node: fx.Node) -> bool:
    """What functionalization leaves of a mutated input: a copy into it, at the end of the graph."""
    into = node.args[0] if node.args else None
    return node.target is aten_ops.copy_.default and isinstance(into, fx.Node) and into.op == "placeholder"


def _table(training: bool) -> Table:
    """Core ATen, but variances in steps, and so batch_norm that learns and, in training, layer_norm: engines
    do not give their means and deviations."""
    table = core_table()
    apart = [aten_ops.native_batch_norm, aten_ops._native_batch_norm_legit_functional]
    table.update(get_decompositions(apart + [aten_ops.native_layer_norm] * training))
    table[aten_ops.var_mean.correction] = _variance_and_mean
    table[aten_ops.var.correction] = lambda *args, **kwargs: _variance_and_mean(*args, **kwargs)[0]
    return table


def _variance_and_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    axes = list(range(x.dim())) if not dim else list(dim)
    mean = x.mean(axes, keepdim=True)
    count = math.prod(x.shape[axis] for axis in axes)
    divisor = max(count - (1 if correction is None else correction), 0)
    variance = (x - mean).square().sum(axes, keepdim=keepdim) / divisor
    return variance, mean if keepdim else x.mean(axes)


class _Programs:
    """The programs of one ATen graph, one for each set of sizes; the first is made at once."""

    def __init__(self, aten: AtenGraph, engine: Engine, recorder: Recorder) -> None:
        self.aten = aten
        self.engine = engine
        self.recorder = recorder
        values = [node.meta.get("val") for node in aten.module.graph.find_nodes(op="placeholder")]
        self.symbolic = any(map(_has_symbols, values))
        hinted = [_hinted(value) for value in values]
        self.programs: dict[Any, Callable[[list[Any]], Sequence[Any]]] = {
            self.sizes(hinted): Frame(aten, hinted, engine, recorder)
        }
        if self.symbolic:
            recorder.add(f"{recorder.backend} compiles graph {aten.id} anew for each set of sizes")

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        arguments = list(inputs)
        inputs.clear()
        sizes = self.sizes(arguments)
        program = self.programs.get(sizes)
        try:
            if program is None:
                program = self.programs[sizes] = Frame(self.aten, arguments, self.engine, self.recorder)
            return program(arguments)
        except Exception as error:
            # Nothing has been overwritten yet: a frame does that last. What raises in ATen too is no fault
            # of the engine's.
            results = self._in_aten(arguments)
            what = f"{self.recorder.backend} failed: {in_one_line(error)}"
            self.recorder.ran_eagerly[self.aten.id] = what
            self.recorder.add(f"graph {self.aten.id} runs eagerly: {what}")
            self.programs[sizes] = self._in_aten
            return results

    def _in_aten(self, arguments: list[Any]) -> Sequence[Any]:
        return in_aten(self.aten.module)(list(arguments))  # type: ignore[no-any-return]

    def sizes(self, values: Sequence[Any]) -> Any:
        if not self.symbolic:
            return None
        return tuple(tuple(map(hint, v.shape)) if isinstance(v, Tensor) else v for v in values)


class Frame:
    """One engine's program in the place of its ATen graph: constants, inputs that are outputs, copies into
    inputs, results' strides and Python numbers are seen to here, the rest is the engine's."""

    def __init__(self, aten: AtenGraph, values: Sequence[Any], engine: Engine, recorder: Recorder) -> None:
        self.constants: list[Tensor] = []  # tensors that the graph holds: more inputs of the engine
        self.taken: list[int] = []  # positions of the arguments that the engine takes
        self.results: list[tuple[str, Any]] = []  # of the graph: "made", "given" with a position, or "value"
        self.copies: list[tuple[int, int]] = []  # (argument, result of the engine) to copy into it
        static = self._static(aten, values)
        self.expected = [node.meta["val"] for node in static.outputs]
        self.run: Run = lambda tensors: ()
        if self.expected:
            backend = recorder.backend
            with recorder.step(backend, before=aten.id, after=f"{aten.id}.fused"):
                program = engine(static)
            self.run = program.run
            _record(program, aten, recorder)

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        tensors = [_plain(arguments[place]) for place in self.taken]
        made = [_as_traced(got, want) for got, want in zip(self.run(tensors + self.constants), self.expected)]
        results = [
            made[value] if kind == "made" else arguments[value] if kind == "given" else value
            for kind, value in self.results
        ]
        for place, index in self.copies:
            arguments[place].copy_(made[index])
        return results

    def _static(self, aten: AtenGraph, values: Sequence[Any]) -> StaticGraph:
        """The graph without symbolic sizes, for arguments like ``values``."""
        graph = fx.Graph()
        mode = FakeTensorMode() if any(map(_has_symbols, _values(aten.module.graph))) else None
        known: dict[fx.Node, Any] = {}  # new nodes, and numbers
        places: dict[fx.Node, int] = {}  # new placeholders: of which argument
        held: dict[fx.Node, Tensor] = {}
        copies: list[tuple[fx.Node, Any]] = []
        returned: Sequence[Any] = ()
        for node in aten.module.graph.nodes:
            if node.op == "output":
                returned = node.args[0]
            elif node.op == "placeholder":
                place = len(known)  # placeholders stand first
                value = known[node] = values[place]
                if isinstance(value, Tensor):
                    known[node] = _placeholder(graph, node, value, mode)
                    places[known[node]] = place
            elif node.op == "get_attr":
                tensor = getattr(aten.module, str(node.target))
                known[node] = _placeholder(graph, node, tensor, mode)
                held[known[node]] = tensor
            elif _writes_input(node):
                copies.append((known[node.args[0]], known[node.args[1]]))
                known[node] = known[node.args[1]]
            else:
                known[node] = _evaluated(graph, node, known, mode)
        results = [known[item] if isinstance(item, fx.Node) else item for item in returned]
        self._finish(graph, results, copies, places, held)
        return StaticGraph(aten, fx.GraphModule(torch.nn.Module(), graph))

    def _finish(
        self,
        graph: fx.Graph,
        results: list[Any],
        copies: list[tuple[fx.Node, Any]],
        places: dict[fx.Node, int],
        held: dict[fx.Node, Tensor],
    ) -> None:
        """Have the graph return what it computes, each once, and take what it uses."""
        made: dict[fx.Node, int] = {}
        for value in results:
            if value in places:
                self.results.append(("given", places[value]))
            elif value in held:
                self.results.append(("value", held[value]))
            elif isinstance(value, fx.Node):
                self.results.append(("made", made.setdefault(value, len(made))))
            else:
                self.results.append(("value", value))
        for into, source in copies:
            if source.op == "placeholder":  # an engine gives back only what it has computed
                copy = graph.call_function(aten_ops.clone.default, (source,))
                copy.meta["val"] = source.meta["val"]
                source = copy
            self.copies.append((places[into], made.setdefault(source, len(made))))
        graph.output(tuple(made))
        graph.eliminate_dead_code()
        for node in [*places, *held]:
            if not node.users:
                graph.erase_node(node)
            elif node in held:  # constants come last, as in the calls
                graph.find_nodes(op="placeholder")[-1].append(node)
                self.constants.append(held[node])
            else:
                self.taken.append(places[node])


def _placeholder(graph: fx.Graph, node: fx.Node, value: Tensor, mode: FakeTensorMode | None) -> fx.Node:
    made = graph.create_node("placeholder", node.name, name=node.name)
    made.meta["val"] = node.meta.get("val")
    if mode is not None or made.meta["val"] is None:
        with mode or torch._guards.detect_fake_mode(list(_values(node.graph))) or FakeTensorMode():
            made.meta["val"] = torch.empty_strided(
                [hint(extent) for extent in value.shape],
                [hint(step) for step in value.stride()],
                dtype=value.dtype,
                device=value.device,
            )
    return made


def _evaluated(graph: fx.Graph, node: fx.Node, known: dict[fx.Node, Any], mode: FakeTensorMode | None) -> Any:
    """The new node for ``node``; the number, where that is what it computes."""
    arguments = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    value = node.meta["val"]
    if mode is not None:
        args, kwargs = fx.map_arg(arguments, lambda each: each.meta["val"])
        with mode:
            value = node.target(*args, **kwargs)  # type: ignore[operator]
        if not any(True for _ in _tensors(value)):
            return value
    target = node.target
    if target is torch.ops.prims.convert_element_type.default:  # what AOTAutograd puts in, and importers lack
        target, arguments = aten_ops._to_copy.default, (arguments[0][:1], {"dtype": arguments[0][1]})
    made = graph.create_node("call_function", target, *arguments, name=node.name)
    made.meta = {**node.meta, "val": value}
    return made


def _hinted(value: Any) -> Any:
    """A traced argument at the sizes it was traced for."""
    return value if isinstance(value, Tensor) else hint(value) if _has_symbols(value) else value


def _values(graph: fx.Graph) -> Iterator[Any]:
    for node in graph.nodes:
        yield from _leaves(node.meta.get("val"))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    return (item for item in _leaves(value) if isinstance(item, Tensor))


def _has_symbols(value: Any) -> bool:
    if isinstance(value, Tensor):
        return any(not isinstance(extent, int) for extent in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


def _as_traced(got: Tensor, want: Tensor) -> Tensor:
    """A result with the strides it was traced with, which what comes after may go by."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise BackendError(f"it returned {got.dtype}{list(got.shape)} for {want.dtype}{list(want.shape)}")
    if got.stride() == want.stride() or got.numel() < 2:
        return got
    return torch.empty_strided(want.shape, want.stride(), dtype=got.dtype, device=got.device).copy_(got)


def last_line(error: BaseException) -> str:
    """What an engine's error comes to: the last line of its message, else its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _line(aten: AtenGraph, name: str) -> int | None:
    return next((span.line for span in aten.spans.get(name, ()) if not span.file), None)


def _record(program: EngineProgram, aten: AtenGraph, recorder: Recorder) -> None:
    """The engine's own graph, once: what it makes for other sizes reads the same."""
    if program.note:
        recorder.add(program.note)
    id = f"{aten.id}.fused"
    if any(graph.id == id for graph in recorder.parts(Graph)):
        return
    ids = {step.name: f"{aten.id}.c{number}" for number, step in enumerate(program.steps)}
    nodes = tuple(
        Node(
            id=ids[step.name],
            name=step.name,
            op=step.operator,
            kind="library",
            inputs=tuple(ids[name] for name in step.inputs if name in ids),
            origins=tuple(aten.ids[name] for name in step.origins if name in aten.ids),
            spans=next((aten.spans[name] for name in step.origins if name in aten.spans), ()),
            text=f"{step.name} = {step.operator}({', '.join(step.inputs)})",
        )
        for step in program.steps
    )
    recorder.add(Graph(id, "fused", program.title, nodes, parent=aten.id, text=program.text))

"""FX graph → ATen graphs: joint, forward and backward, by AOTAutograd, each node with its origins.

Whatever goes wrong in compiling one of these graphs, nothing is lost: that graph runs as it is, in
ATen, and the record says so and why.
"""

from __future__ import annotations

import contextlib
import functools
import keyword
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch.nn.attention import SDPBackend, sdpa_kernel

from nbcompile.compiler import passes
from nbcompile.compiler.capture import tangents
from nbcompile.compiler.capture.calls.first_call import outside_checks
from nbcompile.compiler.capture.calls.short_call import short
from nbcompile.compiler.capture.decompositions import Table, decompositions
from nbcompile.compiler.capture.fixed_sizes import fix_sizes, guards_lost
from nbcompile.compiler.capture.graph_record import record_nodes
from nbcompile.compiler.capture.lost import modes, overlapping, updates
from nbcompile.compiler.capture.lost.branches import branches_lost
from nbcompile.compiler.capture.lost.quantized import quantized_lost
from nbcompile.compiler.capture.lost.related import as_views, gradients_lost, related
from nbcompile.compiler.capture.origins import Origins
from nbcompile.compiler.in_aten import in_aten
from nbcompile.compiler.rare_collections import rare_collections
from nbcompile.compiler.rewrite import flex_attention, views_of_inputs
from nbcompile.compiler.rewrite.complex_pairs import pairs_of_complex_numbers
from nbcompile.compiler.rewrite.devices import gather
from nbcompile.compiler.rewrite.extremes import keep_compared
from nbcompile.compiler.rewrite.images.channels_last import run_channels_last
from nbcompile.compiler.rewrite.index_tensors import make_again, split
from nbcompile.compiler.rewrite.log_softmax import write_out
from nbcompile.compiler.rewrite.marked_results import mark_results
from nbcompile.compiler.rewrite.random_states import tell_repeated_draws
from nbcompile.compiler.stages import AtenGraph, CompiledModule, FxGraph
from nbcompile.errors import LoweringError, NbcompileError, SymbolicSizeError
from nbcompile.options import Options
from nbcompile.record.compilation import Graph, PassRecord, Span
from nbcompile.record.recorder import Recorder

CompileAten = Callable[[AtenGraph, Options, Recorder], CompiledModule]
"""``compile_aten(aten, options, recorder)``: everything that happens below this file."""


class WholeGraph(Protocol):
    """A graph's place in the cache of whole graphs (:mod:`nbcompile.compiler.warm.lookup`)."""

    reason: str
    inference: list[Callable[..., Any]]

    def within(self) -> contextlib.AbstractContextManager[None]: ...
    def compiler(self, compiler: Callable[..., Any]) -> Callable[..., Any]: ...
    def keep(self, call: Any, compiled: CompiledModule, module: fx.GraphModule, backward: bool) -> None: ...
    def say(self, graph: str, hit: bool) -> None: ...
    def forget(self) -> None: ...


LookUp = Callable[[fx.GraphModule, Sequence[Any], Options, Recorder], WholeGraph]


@dataclass(frozen=True)
class AtenForm:
    """The form that a compiler wants its ATen graphs in: which operators are rewritten, and whether with
    ``ours``, the rewrites for our own compiler (layouts, what backward recomputes). Without them attention is
    written out in plain products, whose gradients autograd knows."""

    decompositions: Callable[[Options], Table] = decompositions
    ours: bool = True


OURS = AtenForm()


def _in_place(rewrite: Callable[[fx.GraphModule], object]) -> Callable[[fx.GraphModule, passes.Setting], Any]:
    def run(module: fx.GraphModule, _: passes.Setting) -> fx.GraphModule:
        rewrite(module)
        return module

    return run


def _flex_attention(module: fx.GraphModule, setting: passes.Setting) -> fx.GraphModule:
    said = flex_attention.write_out(module, decompositions(setting.options))
    setting.said.extend(said)
    setting.recorder.extend(said)
    return module


# Where a graph's tensors lie, and how its images are laid out in memory.
LAYOUT_PASSES = (
    passes.Pass("flex_attention", _flex_attention),
    passes.Pass("devices", _in_place(gather)),
    passes.Pass("marked results", _in_place(mark_results)),
    passes.Pass("complex numbers", _in_place(pairs_of_complex_numbers)),
    passes.Pass("channels last", run_channels_last),
)
# So that less has to be saved for backward, and what must be is.
JOINT_PASSES = (
    passes.Pass("log_softmax", _in_place(write_out)),
    passes.Pass("extremes", _in_place(keep_compared)),
)

_TITLES = {"fw": "forward", "bw": "backward", "joint": "joint forward and backward"}


def compile_fx_graph(
    graph: FxGraph,
    example_inputs: Sequence[Any],
    options: Options,
    recorder: Recorder,
    compile_aten: CompileAten,
    form: AtenForm = OURS,
    lookup: WholeGraph | None = None,
) -> Callable[..., Any]:
    """Compile one FX graph, or take what ``lookup`` finds; the result takes its inputs and returns its
    outputs as a tuple.

    If AOTAutograd itself fails, the FX graph runs eagerly and a note says why; only what Dynamo wants
    to see (its own exceptions, and those that it turns into graph breaks) is raised.
    """
    if fault := _lost(graph.module):
        return _left_whole(graph, recorder, fault, "AOTAutograd was not asked")
    tensors = [item for item in example_inputs if isinstance(item, torch.Tensor)]
    if differentiable := any(item.requires_grad for item in tensors):
        views_of_inputs.copy_once_more(graph.module)
    # Loops do not write complex numbers: AOTAutograd then writes to inputs itself, after the graph.
    after = form.ours and views_of_inputs.writes_complex_numbers(graph.module.graph)
    trace = _Trace(graph, options, recorder, compile_aten, form.ours, differentiable, lookup)
    start = time.perf_counter()
    try:
        plain = contextlib.nullcontext() if form.ours else sdpa_kernel(SDPBackend.MATH)
        within = lookup.within() if lookup else contextlib.nullcontext()
        with modes.traced(graph.module), _as_eager_draws(graph.module, options), plain, within:
            forward = trace.compiler("fw")
            compiled = aot_autograd(
                fw_compiler=lookup.compiler(forward) if lookup else forward,
                bw_compiler=trace.compiler("bw"),
                inference_compiler=trace.compiler("fw", whole=True),
                decompositions=form.decompositions(options),
                partition_fn=trace.partition,
                keep_inference_input_mutations=not after,
            )(graph.module, list(example_inputs))
    except Exception as error:
        if belongs_to_dynamo(error):
            raise
        return _left_whole(graph, recorder, error, "AOTAutograd could not trace it")
    if lookup:
        lookup.say(graph.id, hit=not trace.asked)
    mended = _trusted(compiled, graph.module, example_inputs, differentiable and after)
    if isinstance(mended, LoweringError):
        return _left_whole(graph, recorder, mended, "AOTAutograd's graph is not to be trusted")
    spent = (time.perf_counter() - start) * 1e3 - trace.below
    recorder.add(PassRecord("autograd", f"{graph.id}.fx", f"{graph.id}.fw", spent))
    if lookup and mended is not compiled:
        lookup.forget()  # what is put around it is not kept with it
    call = short(mended, [*trace.inference, *(lookup.inference if lookup else ())])
    call = updates.with_versions(call, graph.module.graph, len(example_inputs))
    call = as_views(call, related(graph.module.graph))
    fixed = list(map(_is_static, graph.module.graph.find_nodes(op="placeholder")))
    say = functools.partial(recorder.leave_call_to_eager, graph.id)
    eager = modes.eagerly(graph.module)
    call = modes.where_no_tangents(call, eager, say)
    call = updates.where_whole(call, eager, graph.module.graph, say)
    call = updates.only_in_inference_mode(call, eager, example_inputs, say)
    return overlapping.where_compiled_for(call, eager, example_inputs, fixed, say)


def _left_whole(graph: FxGraph, recorder: Recorder, error: Exception, why: str) -> Callable[..., Any]:
    recorder.drop_part(graph.id)
    _give_up(recorder, f"{graph.id}.fw", error, None, why)
    return modes.eagerly(graph.module)


def _lost(module: fx.GraphModule) -> LoweringError | None:
    """What AOTAutograd would get wrong of a captured graph; None if nothing that can be told before."""
    if lost := updates.updated_number(module):
        return LoweringError(f"it would lose what is written to {user_name(lost)}, a number as a tensor")
    return updates.strides_lost(module.graph) or quantized_lost(module.graph)


def _trusted(
    compiled: Callable[..., Any], module: fx.GraphModule, inputs: Sequence[Any], written_after: bool
) -> Callable[..., Any] | LoweringError:
    """What AOTAutograd has made of a graph, mended where it is wrong; what is wrong if that cannot be."""
    if fault := guards_lost() or overlapping.expanded_lost(inputs) or overlapping.overlap_lost(inputs):
        return fault
    if fault := gradients_lost(module.graph) or updates.set_lost(module.graph):
        return fault
    if written_after and (fault := overlapping.versions_lost(inputs)):
        return fault
    groups = overlapping.merged(inputs)
    if fault := overlapping.merged_lost(inputs, groups):
        return fault
    if lost := updates.views_lost():
        views = views_of_inputs.views_made_anew(module.graph, lost)
        if views is None:
            return LoweringError(
                "it overwrites an input and returns a view of it by symbolic sizes, which AOTAutograd would "
                "look for in the wrong place",
                advice="Return what is overwritten, and make the view outside.",
            )
        return views_of_inputs.with_views(compiled, views, lost)
    return compiled


@contextlib.contextmanager
def _as_eager_draws(graph: fx.GraphModule, options: Options) -> Iterator[None]:
    """Within it AOTAutograd keeps random numbers that nothing reads, so that the next ones are eager's (it
    removes such draws as dead code, but where Inductor is told to draw what eager draws), and traces
    checkpoints with random numbers in them where no gradient is taken: a pass of torch 2.13 for gradients
    taken within a graph refuses these, whether there are any or not."""
    from torch._functorch import config as aot
    from torch._inductor import config as inductor

    remat = "remat_using_tags_for_fwd_loss_bwd_graph"
    within = any(node.target is torch.autograd.grad for node in graph.graph.nodes)
    with contextlib.ExitStack() as stack:
        if options.eager_random:
            stack.enter_context(inductor.patch(fallback_random=True))
        if hasattr(aot, remat) and not within:
            stack.enter_context(aot.patch({remat: False}))
        yield


def belongs_to_dynamo(error: BaseException) -> bool:
    """Exceptions that Dynamo handles itself: restarts of its analysis, and fake-tensor failures that it
    turns into a graph break."""
    from torch._dynamo import exc
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    breaks = tuple(getattr(exc, "exceptions_allowed_to_be_fallback", ()))
    return isinstance(error, (TorchDynamoException, GuardOnDataDependentSymNode, *breaks))


class _Trace:
    """What AOTAutograd's callbacks need to know of one FX graph, and of one another."""

    def __init__(
        self, graph: FxGraph, options: Options, recorder: Recorder, compile_aten: CompileAten, ours: bool,
        differentiable: bool, lookup: WholeGraph | None,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.options = options
        self.recorder = recorder
        self.compile_aten = compile_aten
        self.ours = ours
        self.differentiable = differentiable
        self.lookup = lookup
        self.asked = False  # whether AOTAutograd has asked for a compiled graph yet
        self.fx_inputs = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
        self.saved: tuple[str, ...] = ()
        self.inference: list[Callable[..., Any]] = []  # what runs a graph of which no gradient is taken
        self.below = 0.0  # milliseconds spent in compile_aten while AOTAutograd was running
        self.joint_ids: dict[str, str] = {}
        self.joint_spans: dict[str, tuple[Span, ...]] = {}
        self.joint_inputs: dict[str, int] = {}

    # -- recording ---------------------------------------------------------------------------

    @functools.cached_property
    def origins(self) -> Origins:
        return Origins(self.graph, self.recorder.cell.filename if self.recorder.cell is not None else "")

    def record_joint(self, module: fx.GraphModule) -> None:
        origins = self.origins.of(module.graph)
        spans = self.origins.spans(module.graph, origins)
        self.joint_ids = self._add(module, "joint", origins, spans, saved=())
        self.joint_spans = spans
        self.joint_inputs = self.origins.input_positions(module.graph)

    def aten_graph(self, module: fx.GraphModule, suffix: Literal["fw", "bw"]) -> AtenGraph:
        graph = module.graph
        if suffix == "bw":
            known = self.joint_ids
            origins: dict[str, tuple[str, ...]] = {
                n.name: (known[n.name],) for n in graph.nodes if n.name in known and n.op != "output"
            }
            spans = {name: self.joint_spans.get(name, ()) for name in origins}
            positions = self.joint_inputs
        else:
            captured = self.origins.of(graph)
            spans = self.origins.spans(graph, captured)
            # Half of a joint graph: of the node that it was there, which has its own origins.
            origins = captured | {
                node.name: (self.joint_ids[node.name],)
                for node in graph.nodes
                if node.name in self.joint_ids and node.op != "output"
            }
            positions = self.joint_inputs or self.origins.input_positions(graph)
        saved = self.saved if suffix == "fw" else ()
        ids = self._add(module, suffix, origins, spans, saved)
        return AtenGraph(
            id=f"{self.graph.id}.{suffix}",
            stage="forward" if suffix == "fw" else "backward",
            module=module,
            ids=ids,
            origins=origins,
            spans=spans,
            saved=saved,
            static_inputs=self._static_inputs(graph, positions),
            names={
                name: user_name(str(self.fx_inputs[place].target))
                for name, place in positions.items()
                if place < len(self.fx_inputs)
            },
            differentiable=self.differentiable,
        )

    def _add(
        self,
        module: fx.GraphModule,
        suffix: str,
        origins: dict[str, tuple[str, ...]],
        spans: dict[str, tuple[Span, ...]],
        saved: tuple[str, ...],
    ) -> dict[str, str]:
        id = f"{self.graph.id}.{suffix}"
        ids, nodes, outputs = record_nodes(module.graph, id, spans, origins)
        stages: dict[str, Literal["forward", "backward", "joint"]]
        stages = {"fw": "forward", "bw": "backward", "joint": "joint"}
        self.recorder.add(
            Graph(
                id=id,
                stage=stages[suffix],
                title=f"ATen {_TITLES[suffix]} graph {self.graph.id}",
                nodes=nodes,
                outputs=outputs,
                saved=tuple(ids[name] for name in saved if name in ids),
                parent=f"{self.graph.id}.{'joint' if self.joint_ids and suffix != 'joint' else 'fx'}",
            )
        )
        return ids

    def _static_inputs(self, graph: fx.Graph, positions: dict[str, int]) -> frozenset[int]:
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        static = set()
        for position, node in enumerate(inputs):
            place = positions.get(node.name)
            if place is not None and place < len(self.fx_inputs) and _is_static(self.fx_inputs[place]):
                static.add(position)
        return frozenset(static)

    def rewrite(self, rewrites: Sequence[passes.Pass], module: fx.GraphModule, suffix: str) -> None:
        """Let the passes change a graph, in place, before it is recorded."""
        if not self.ours:
            return
        start = time.perf_counter()
        passes.run(rewrites, module, f"{self.graph.id}.{suffix}", passes.Setting(self.options, self.recorder))
        self.below += (time.perf_counter() - start) * 1e3

    def partition(self, joint: fx.GraphModule, inputs: Any, **keywords: Any) -> Any:
        """The forward and the backward graph of a joint one."""
        # Of a subgraph that is called (which comes without inputs) the caller knows the strides already.
        if inputs:
            self.rewrite(LAYOUT_PASSES, joint, "joint")
        self.rewrite(JOINT_PASSES, joint, "joint")
        again = self.ours and make_again(joint, keywords["num_fwd_outputs"])
        self.record_joint(joint)
        forward, backward = split(joint, inputs, again, **keywords)
        self.saved = saved_names(forward, keywords.get("num_fwd_outputs"))
        return forward, backward

    # -- compiling -----------------------------------------------------------------------------

    def compiler(self, suffix: Literal["fw", "bw"], whole: bool = False) -> Callable[..., Any]:
        """The function AOTAutograd calls with one flat graph; returns a boxed callable. ``whole``: the graph
        is no half of a joint one, whose layout has been chosen before."""

        @rare_collections()
        def compile_one(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            self.asked = True
            if whole:
                self.rewrite(LAYOUT_PASSES, module, suffix)
            if suffix == "bw":
                _keep_what_is_saved()
            elif self.ours and updates.subtracts_bools(module):
                raise LoweringError("it writes a change through an expand as a difference of bools")
            if self.ours:
                tell_repeated_draws(module)
            start = time.perf_counter()
            try:
                call = self._compile(module, suffix)
            finally:
                self.below += (time.perf_counter() - start) * 1e3
            if whole:
                self.inference.append(call)
            return call

        return compile_one

    def _compile(self, module: fx.GraphModule, suffix: Literal["fw", "bw"]) -> Callable[..., Any]:
        aten = self.aten_graph(module, suffix)
        self.recorder.progress(f"compiling {aten.id}: {len(aten.ids)} nodes")
        try:
            compiled = self._compiled(aten)
        except Exception as error:
            if belongs_to_dynamo(error):
                raise
            self.recorder.drop_part(aten.id)
            who = "our compiler" if self.recorder.backend == "nbcompile" else self.recorder.backend
            _give_up(self.recorder, aten.id, error, aten, f"{who} could not compile it")
            return _boxed(outside_checks(in_aten(module), module))
        if compiled.from_cache:
            self.recorder.from_cache.add(aten.id)
        call = outside_checks(compiled.call, module)
        call = _boxed(tangents.as_traced(call, tangents.traced(module)) if suffix == "bw" else call)
        if self.lookup:
            self.lookup.keep(call, compiled, module, backward=suffix == "bw")
        return call

    def _compiled(self, aten: AtenGraph) -> CompiledModule:
        if fault := branches_lost(aten.module):
            raise fault
        try:
            return self.compile_aten(aten, self.options, self.recorder)
        except SymbolicSizeError as error:
            if not self.ours or not fix_sizes(aten.module):
                raise
            self.recorder.drop_part(aten.id)
            alone = f"graph {aten.id} is compiled for the sizes of this call alone"
            self.recorder.add(f"{alone}: {error.message.splitlines()[0]}")
            return self.compile_aten(aten, self.options, self.recorder)


def _keep_what_is_saved() -> None:
    """Tell AOTAutograd that this backward overwrites nothing that forward saved: else, where it is compiled
    before it runs (symbolic sizes), ``retain_graph=True`` is refused at run time."""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    try:
        call._boxed_call = True  # type: ignore[attr-defined]
    except AttributeError:  # a builtin or bound method takes no attributes

        def boxed(inputs: list[Any]) -> Any:
            return call(inputs)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed
    return call


def _give_up(recorder: Recorder, graph: str, error: Exception, aten: AtenGraph | None, what: str) -> None:
    line = error.line if isinstance(error, NbcompileError) else None
    if line is None and aten is not None:
        lines = [span.line for spans in aten.spans.values() for span in spans if not span.file]
        line = min(lines, default=None)
    where = f"line {line}: " if line is not None else ""
    if isinstance(error, NbcompileError):
        reason, advice = error.message.strip().splitlines()[0].rstrip("."), error.advice or ""
    else:
        text = str(error).strip() or "no message"
        reason, advice = f"{type(error).__name__}: {text.splitlines()[0]}", ""
    recorder.leave_to_eager(graph, f"{what}: {reason}", advice, error)
    recorder.add(f"{where}graph {graph} runs eagerly: {what}: {reason}{f'. {advice}' if advice else ''}")


def saved_names(forward: fx.GraphModule, outputs: int | None) -> tuple[str, ...]:
    """The nodes that a forward graph returns for backward: all but its first ``outputs`` results. None of an
    unknown number of results."""
    returned = next(node for node in reversed(forward.graph.nodes) if node.op == "output").args[0]
    kept = list(returned)[outputs:] if outputs is not None and isinstance(returned, tuple | list) else []
    return tuple(node.name for node in kept if isinstance(node, fx.Node))


def _is_static(node: fx.Node) -> bool:
    """Whether an FX input is a parameter or buffer: the same memory at every call."""
    if isinstance(node.meta.get("example_value"), torch.nn.Parameter) or node.type is torch.nn.Parameter:
        return True
    return "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def user_name(source: str) -> str:
    """What a person would call an input that Dynamo calls ``L_self_modules_norm_parameters_weight_``:
    ``norm_weight``. A name that Python takes: DDPOptimizer's graphs have inputs called ``0_weight``."""
    words = [word for word in source.strip("_").split("_") if word]
    if words and words[0] in ("L", "G", "l", "g"):
        words = words[1:]
    telling = [word for word in words if word not in ("self", "modules", "parameters", "buffers")]
    name = "_".join(telling or words) or "input"
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"_{name}"

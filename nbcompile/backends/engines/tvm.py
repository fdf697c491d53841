"""Apache TVM: ATen graph → Relax → scheduled TIR → LLVM code for this CPU.

TVM's own pipelines leave a CPU's loops as its operators state them, one thread, no vectors, unless one lets
it search for hours; :mod:`nbcompile.backends.engines.tvm_schedules` gives them a plain schedule. Tensors are
exchanged by DLPack, so a call copies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.dlpack import from_dlpack

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.backends.engines.engine import EngineProgram, EngineStep, StaticGraph, last_line, of_engine
from nbcompile.backends.engines.exported import exported_program
from nbcompile.backends.engines.indices import inside
from nbcompile.backends.engines.tvm_schedules import scheduled
from nbcompile.errors import BackendError, OptionError

aten = torch.ops.aten


def _compiler(settings: BackendSettings) -> GraphCompiler:
    import tvm
    from tvm.relax.frontend.torch.dynamo import llvm_target

    try:
        target = tvm.target.Target(settings.options.get("target") or llvm_target())
    except Exception as error:
        raise OptionError(f"option target of tvm: {last_line(error)}.") from error

    def engine(graph: StaticGraph) -> EngineProgram:
        return _compile(graph, target)

    return of_engine(engine)


def _compile(graph: StaticGraph, target: Any) -> EngineProgram:
    import tvm
    from tvm import relax

    graph, checked = inside(graph)  # its code reads wherever an index points
    module = _imported(graph)
    try:
        with target:
            fused = scheduled(relax.get_pipeline("zero")(module))
        executable = tvm.compile(fused, target=target)
    except Exception as error:
        raise BackendError(f"TVM cannot compile it: {last_line(error)}") from error
    tvm.get_global_func("runtime.config_threadpool")(1, torch.get_num_threads())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    main = machine["main"]

    def run(tensors: list[Tensor]) -> Sequence[Tensor]:
        made = [from_dlpack(each) for each in main(*tensors)]
        if checked and made.pop().item():
            raise BackendError("an index is out of range")
        return made

    return EngineProgram(
        run, "TVM's Relax program and the TIR of its kernels", fused.script(), tuple(_steps(fused))
    )


def _imported(graph: StaticGraph) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    for node in graph.calls:
        if node.target is aten.convolution.default and node.meta["val"].dtype is not torch.float32:
            raise graph.refuse(node, "TVM's importer makes every convolution float32")
    try:
        return from_exported_program(
            exported_program(graph), run_ep_decomposition=False, custom_convert_map=_importers()
        )
    except Exception as error:
        lacking = re.search(r"Unsupported function types \['([\w.]+)'", str(error))
        if lacking is not None:
            operators = [str(node.target) for node in graph.calls]  # TVM leaves out the namespace
            found = (each for each in operators if each.partition(".")[2] == lacking[1])
            raise graph.lacks("TVM", next(found, lacking[1])) from error
        at = _under_way(error)
        if at is not None:
            raise graph.refuse(at, f"TVM's importer fails at {at.target}: {last_line(error)}") from error
        raise BackendError(f"TVM's importer failed: {last_line(error)}") from error


def _importers() -> dict[str, Callable[[fx.Node, Any], Any]]:
    """Importers of products, which TVM's own all make float32, and of what it has but does not import."""
    from tvm import relax

    def product(node: fx.Node, importer: Any) -> Any:
        left, right = (importer.env[each] for each in node.args[:2])
        return importer.block_builder.emit(relax.op.matmul(left, right))

    def affine(node: fx.Node, importer: Any) -> Any:
        if node.kwargs:
            raise ValueError("scaled by alpha or beta")
        bias, left, right = (importer.env[each] for each in node.args)
        made = importer.block_builder.emit(relax.op.matmul(left, right))
        return importer.block_builder.emit(relax.op.add(bias, made))

    def extreme(operator: Any) -> Callable[[fx.Node, Any], Any]:
        def convert(node: fx.Node, importer: Any) -> Any:
            x, axes, keep = (tuple(node.args) + ((), False)[len(node.args) - 1 :])[:3]
            return importer.block_builder.emit(operator(importer.env[x], axes or None, keep))

        return convert

    return {
        "mm.default": product,
        "bmm.default": product,
        "addmm.default": affine,
        "amax.default": extreme(relax.op.max),
        "amin.default": extreme(relax.op.min),
    }


def _under_way(error: BaseException) -> fx.Node | None:
    """The node that the importer was at: it does not say."""
    found, trace = None, error.__traceback__
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        found = node if isinstance(node, fx.Node) and node.op == "call_function" else found
        trace = trace.tb_next
    return found


def _steps(module: Any) -> Iterator[EngineStep]:
    """The calls of the program's kernels, in the order they run."""
    from tvm import relax

    made: dict[Any, str] = {}
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or "call_tir" not in str(call.op):
                continue
            reads = tuple(made[value] for value in call.args[1] if value in made)
            made[binding.var] = str(binding.var)
            yield EngineStep(str(binding.var), str(call.args[0].name_hint), reads)


BACKEND = Backend(
    name="tvm",
    summary="Apache TVM, through its Relax importer",
    compiler=_compiler,
    modules=("tvm",),
    packages=("apache-tvm",),
    devices=("cpu",),
    options={"target": "a TVM target, as a mapping or a text; by default LLVM for this CPU"},
)

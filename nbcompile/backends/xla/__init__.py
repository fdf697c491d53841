"""XLA: AOTAutograd's ATen graphs as functions of jax arrays, fused and compiled under ``jax.jit``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.compiler.stages import AtenGraph, CompiledModule, FxGraph
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder


def supported() -> tuple[str, ...]:
    """The ATen overloads that have a lowering, by name. Needs jax. What is not among them is rewritten with
    torch's own decompositions, where there is one."""
    from nbcompile.backends.xla.registry import lowerings

    return tuple(sorted(str(target) for target in lowerings()))


def _compiler(settings: BackendSettings) -> GraphCompiler:
    def compiler(graph: FxGraph, example_inputs: Sequence[Any], recorder: Recorder) -> Callable[..., Any]:
        from nbcompile.backends.xla.decompositions import FORM
        from nbcompile.compiler.capture.fx_to_aten import compile_fx_graph

        compile_aten = partial(_compile_aten, flags=settings.options)
        return compile_fx_graph(graph, example_inputs, recorder.options, recorder, compile_aten, FORM)

    return compiler


def _compile_aten(
    aten: AtenGraph, options: Options, recorder: Recorder, *, flags: Mapping[str, Any]
) -> CompiledModule:
    from nbcompile.backends.xla.compile import compile_aten

    return compile_aten(aten, recorder, flags)


BACKEND = Backend(
    name="xla",
    summary="ATen's graph as jax.numpy under jax.jit: XLA fuses and compiles it",
    compiler=_compiler,
    modules=("jax",),
    packages=("jax",),
    options={"xla_*": "XLA's own flags, as jax.stages.Lowered.compile takes them"},
)

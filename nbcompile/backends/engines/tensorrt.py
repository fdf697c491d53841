"""TensorRT, NVIDIA's inference engine, through Torch-TensorRT: ATen graph → ExportedProgram → engines.

Its own torch.compile backend leaves small blocks and whatever TensorRT lacks to PyTorch, and after a failed
build runs everything there. Here each graph is one engine, or a reason. Weights are inputs, float32 is not
rounded to TF32, and types stay as they are, unless options say otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.backends.engines.engine import EngineProgram, EngineStep, StaticGraph, of_engine
from nbcompile.backends.engines.exported import exported_program
from nbcompile.backends.engines.indices import inside
from nbcompile.errors import BackendError, OptionError

_ASKED = {"min_block_size": 1, "disable_tf32": True, "use_explicit_typing": True}


def _compiler(settings: BackendSettings) -> GraphCompiler:
    """Options: the keywords of ``torch_tensorrt.dynamo.compile``."""
    import torch_tensorrt

    known = inspect.signature(torch_tensorrt.dynamo.compile).parameters
    for name in settings.options:
        if name not in known:
            raise OptionError(
                f"option {name!r} is unknown to tensorrt.", advice="See torch_tensorrt.dynamo.compile."
            )
    asked = {name: value for name, value in _ASKED.items() if name in known} | dict(settings.options)

    def engine(graph: StaticGraph) -> EngineProgram:
        return _compile(graph, asked)

    return of_engine(engine, device="cuda")


def _compile(graph: StaticGraph, options: dict[str, Any]) -> EngineProgram:
    import torch_tensorrt

    graph, checked = inside(graph)
    examples = [torch_tensorrt.Input(**_described(node)) for node in graph.inputs]
    try:
        made = torch_tensorrt.dynamo.compile(exported_program(graph), arg_inputs=examples, **options)
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise BackendError(
            f"TensorRT cannot build it: {lines[0] if lines else type(error).__name__}"
        ) from error
    left = _in_torch(made)
    if left is not None:
        raise graph.lacks("TensorRT", left)

    def run(tensors: list[Tensor]) -> Sequence[Tensor]:
        found = made(*tensors)
        results = list(found) if isinstance(found, tuple | list) else [found]
        if checked and results.pop().item():
            raise BackendError("an index is out of range")
        return results

    steps = tuple(EngineStep(name, type(module).__name__) for name, module in made.named_children())
    return EngineProgram(run, "TensorRT's engines", made.print_readable(print_output=False), steps)


def _described(node: fx.Node) -> dict[str, Any]:
    return {"shape": tuple(node.meta["val"].shape), "dtype": node.meta["val"].dtype}


def _in_torch(made: fx.GraphModule) -> str | None:
    """The first operator that Torch-TensorRT has left to PyTorch."""
    for module in (made, *(child for _, child in made.named_children() if isinstance(child, fx.GraphModule))):
        for node in module.graph.find_nodes(op="call_function"):
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace != "tensorrt":
                return str(node.target)
    return None


BACKEND = Backend(
    name="tensorrt",
    summary="NVIDIA's TensorRT, through Torch-TensorRT",
    compiler=_compiler,
    modules=("torch_tensorrt",),
    packages=("torch-tensorrt",),
    devices=("cuda",),
)

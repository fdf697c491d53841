"""OpenVINO, through its PyTorch frontend: ATen graph → ov.Model → compiled model, on one of its devices.

Its own torch.compile backend (``import openvino.torch``) is not used: it switches off a part of Dynamo for
the whole process, runs what it lacks in eager pieces, and gives what fails to Inductor without a word.
Tensors are shared with it, results are made in torch's memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.backends.engines.engine import (
    EngineProgram,
    EngineStep,
    Run,
    StaticGraph,
    last_line,
    of_engine,
)
from nbcompile.backends.engines.indices import inside
from nbcompile.errors import BackendError, OptionError

# torch dtype → openvino.Type's name for it. float64 is left out: the CPU plugin would compute it as float32.
_TYPES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.bool: "boolean",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}


_INT32 = torch.iinfo(torch.int32)


def _compiler(settings: BackendSettings) -> GraphCompiler:
    import openvino

    device = str(settings.options.get("device", "CPU"))
    devices = openvino.Core().available_devices
    if device.partition(".")[0] not in {name.partition(".")[0] for name in devices}:
        raise OptionError(f"OpenVINO has no device {device!r} here.", advice=f"It has {', '.join(devices)}.")
    config = settings.options.get("config", {})
    if not isinstance(config, Mapping):
        raise OptionError(f"option config of openvino wants a mapping, got {config!r}.")

    def engine(graph: StaticGraph) -> EngineProgram:
        return _compile(graph, device, config)

    return of_engine(engine)


def _compile(graph: StaticGraph, device: str, config: Mapping[str, Any]) -> EngineProgram:
    import openvino

    _check_types(graph)
    graph, checked = inside(graph)  # it reads nothing outside, but gives zeros for it
    model = _convert(graph)
    # Unasked, it computes float32 in bfloat16 where the chip is faster at that.
    asked = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    try:
        compiled = openvino.Core().compile_model(model, device, {**asked, **config})
    except RuntimeError as error:
        raise BackendError(f"OpenVINO cannot compile it: {last_line(error)}") from error
    layers = compiled.get_runtime_model().get_ordered_ops()
    steps = tuple(_steps(layers, graph))
    return EngineProgram(
        _bound(compiled, graph, checked),
        title="OpenVINO's layers as they run",
        text="\n".join(_text(layer) for layer in layers),
        steps=steps,
        note="OpenVINO computes int64 as int32: what overflows that is wrong" if _counts(graph) else "",
    )


def _check_types(graph: StaticGraph) -> None:
    for node in graph.module.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, tuple | list) else (values,):
            if isinstance(value, Tensor) and value.dtype not in _TYPES:
                name = str(value.dtype).removeprefix("torch.")
                why = ": it computes in float32" if value.dtype is torch.float64 else ""
                raise graph.refuse(node, f"OpenVINO has no {name}{why}")
        if any(isinstance(each, int) and abs(each) > _INT32.max for each in node.args):
            if node.target is not torch.ops.aten.slice.Tensor:  # whose end may be anything
                raise graph.refuse(node, "OpenVINO computes int64 as int32")


def _counts(graph: StaticGraph) -> bool:
    """Whether it returns whole numbers that it has computed."""
    return any(node.meta["val"].dtype is torch.int64 for node in graph.outputs)


def _fits(tensor: Tensor) -> bool:
    """Whether its numbers are what OpenVINO will take them for."""
    if tensor.dtype is not torch.int64 or not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)
    return _INT32.min <= int(low) and int(high) <= _INT32.max


def _convert(graph: StaticGraph) -> Any:
    import openvino
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.fx_decoder import TorchFXPythonDecoder

    frontend = FrontEndManager().load_by_framework("pytorch")
    try:
        decoder = TorchFXPythonDecoder(graph.module)  # has to outlive the conversion
        model = frontend.convert(frontend.load(decoder))
        for port, node in zip(model.inputs, graph.inputs, strict=True):
            value = node.meta["val"]
            port.get_node().set_element_type(getattr(openvino.Type, _TYPES[value.dtype]))
            port.get_node().set_partial_shape(openvino.PartialShape(list(value.shape)))
        model.validate_nodes_and_infer_types()
    except Exception as error:
        lacking = re.search(r"aten\.[\w.]+", str(error))
        if lacking is not None:
            raise graph.lacks("OpenVINO", lacking[0]) from error
        raise BackendError(f"OpenVINO's frontend failed: {last_line(error)}") from error
    return model


def _bound(compiled: Any, graph: StaticGraph, checked: bool) -> Run:
    import openvino

    types = {dtype: getattr(openvino.Type, name) for dtype, name in _TYPES.items()}
    made = [(tuple(node.meta["val"].shape), node.meta["val"].dtype) for node in graph.outputs]
    for port, (shape, dtype) in zip(compiled.outputs, made, strict=True):
        if port.get_element_type() != types[dtype] or tuple(port.get_partial_shape().to_shape()) != shape:
            raise BackendError(
                f"OpenVINO makes {port.get_element_type()} {port.get_partial_shape()} of {dtype}"
            )
    request, alone = compiled.create_infer_request(), threading.Lock()

    def shared(tensor: Tensor) -> Any:
        if tensor.dtype is torch.bfloat16:  # which numpy lacks
            return openvino.Tensor(tensor.view(torch.int16).numpy(), list(tensor.shape), types[tensor.dtype])
        return openvino.Tensor(tensor.numpy(), shared_memory=True)

    def run(tensors: list[Tensor]) -> Sequence[Tensor]:
        results = [torch.empty(shape, dtype=dtype) for shape, dtype in made]
        if not all(map(_fits, tensors)):
            raise BackendError("it computes int64 as int32, and an input is beyond that")
        with alone:
            for index, tensor in enumerate(tensors):
                request.set_input_tensor(index, shared(tensor))
            for index, tensor in enumerate(results):
                request.set_output_tensor(index, shared(tensor))
            request.infer()
        if checked and results.pop().item():
            raise BackendError("an index is out of range")
        return results

    return run


def _steps(layers: Sequence[Any], graph: StaticGraph) -> Iterator[EngineStep]:
    """The layers that do something. OpenVINO names a layer after the node it converted, ``gelu/aten.gelu…``,
    and says what it has fused into it."""
    own = {node.name for node in graph.calls}
    inputs = {layer.get_friendly_name(): layer for layer in layers}
    for name, layer in inputs.items():
        info = _info(layer)
        if layer.get_type_name() in ("Constant", "Result") or info.get("layerType") in ("Input", "Output"):
            continue
        merged = (name + "," + info.get("originalLayersNames", "")).split(",")
        origins = tuple(
            dict.fromkeys(part.partition("/")[0] for part in merged if part.partition("/")[0] in own)
        )
        reads = tuple(port.get_source_output().get_node().get_friendly_name() for port in layer.inputs())
        yield EngineStep(name, info.get("layerType", layer.get_type_name()), reads, origins)


def _text(layer: Any) -> str:
    """``name = layerType[primitiveType](inputs)``."""
    info = _info(layer)
    kind = f"{info.get('layerType', layer.get_type_name())}[{info.get('primitiveType', '')}]"
    reads = ", ".join(port.get_source_output().get_node().get_friendly_name() for port in layer.inputs())
    return f"{layer.get_friendly_name()} = {kind}({reads})"


def _info(layer: Any) -> dict[str, str]:
    return {name: str(getattr(value, "value", value)) for name, value in layer.get_rt_info().items()}


BACKEND = Backend(
    name="openvino",
    summary="Intel's OpenVINO, through its PyTorch frontend",
    compiler=_compiler,
    modules=("openvino",),
    packages=("openvino",),
    devices=("cpu",),
    options={
        "device": "one of OpenVINO's devices; by default CPU",
        "config": "a mapping of OpenVINO's properties, e.g. INFERENCE_PRECISION_HINT",
    },
)

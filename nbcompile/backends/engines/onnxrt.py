"""ONNX Runtime, through torch's own exporter: ATen graph → ONNX graph → session, on the CPU.

torch's in-tree backend of this name is gone. Tensors are bound where they lie, results are made in torch's
memory, so a call copies nothing. A session has torch's number of threads, which do not spin between calls.
"""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.backends.engines.engine import EngineProgram, EngineStep, Run, StaticGraph, of_engine
from nbcompile.backends.engines.exported import exported_program
from nbcompile.compiler.capture.origins import root_name
from nbcompile.errors import BackendError, OptionError

# torch dtype → onnx.TensorProto's name for it
_TYPES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
}
_NOTHING = np.empty(1)  # its address stands for that of tensors that have none
_FX_NODE = "pkg.torch.onnx.fx_node"  # where the exporter says which FX node an ONNX node came from


def _compiler(settings: BackendSettings) -> GraphCompiler:
    _session_options(settings.options)

    def engine(graph: StaticGraph) -> EngineProgram:
        return _compile(graph, settings.options)

    return of_engine(engine)


def _session_options(given: Mapping[str, Any]) -> Any:
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = torch.get_num_threads()
    made.log_severity_level = 4  # its errors are raised
    made.add_session_config_entry("session.intra_op.allow_spinning", "0")
    for name, value in given.items():
        if name == "config":
            for key, entry in value.items():
                made.add_session_config_entry(key, str(entry))
        elif name == "providers":
            absent = sorted(set(value) - set(onnxruntime.get_available_providers()))
            if absent:
                here = ", ".join(onnxruntime.get_available_providers())
                raise OptionError(f"onnxruntime here has no {', '.join(absent)}.", advice=f"It has {here}.")
        elif hasattr(made, name) and not name.startswith("_") and not callable(getattr(made, name)):
            kind = type(getattr(made, name))
            enumerated = isinstance(value, str) and hasattr(kind, "__members__")
            try:
                setattr(made, name, kind.__members__[value] if enumerated else value)
            except (KeyError, TypeError) as error:
                raise OptionError(f"option {name} of onnxrt cannot be {value!r}.") from error
        else:
            raise OptionError(
                f"option {name!r} is unknown to onnxrt.",
                advice="There are providers, config, and the attributes of onnxruntime.SessionOptions.",
            )
    return made


def _compile(graph: StaticGraph, given: Mapping[str, Any]) -> EngineProgram:
    import onnx
    import onnxruntime

    exported = _export(graph)
    origins = _origins(exported, graph)
    options = _session_options(given)
    with tempfile.TemporaryDirectory(prefix="nbcompile-onnx-") as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        try:
            session = onnxruntime.InferenceSession(
                exported.model_proto.SerializeToString(),
                options,
                providers=list(given.get("providers", ["CPUExecutionProvider"])),
            )
        except Exception as error:
            raise _no_kernel(str(error), graph, origins) from error
        optimized = onnx.load(options.optimized_model_filepath)
    return EngineProgram(
        _bound(session, graph),
        title="ONNX Runtime's optimised graph",
        text=onnx.printer.to_text(optimized),
        steps=tuple(_steps(optimized.graph.node, origins)),
    )


def _bound(session: Any, graph: StaticGraph) -> Run:
    import onnx

    names = [item.name for item in session.get_inputs()]
    made = [item.name for item in session.get_outputs()]
    wanted = [node.meta["val"] for node in graph.outputs]
    shapes = [(tuple(value.shape), value.dtype) for value in wanted]
    type_of = {dtype: getattr(onnx.TensorProto, name) for dtype, name in _TYPES.items()}

    def run(tensors: list[Tensor]) -> Sequence[Tensor]:
        binding = session.io_binding()
        for name, tensor in zip(names, tensors, strict=True):
            address = tensor.data_ptr() or _NOTHING.ctypes.data
            binding.bind_input(name, "cpu", 0, type_of[tensor.dtype], tuple(tensor.shape), address)
        results = [torch.empty(shape, dtype=dtype) for shape, dtype in shapes]
        for name, tensor in zip(made, results, strict=True):
            address = tensor.data_ptr() or _NOTHING.ctypes.data
            binding.bind_output(name, "cpu", 0, type_of[tensor.dtype], tuple(tensor.shape), address)
        session.run_with_iobinding(binding)
        return results

    return run


def _export(graph: StaticGraph) -> Any:
    for node in (*graph.inputs, *graph.outputs):
        if node.meta["val"].dtype not in _TYPES:
            name = str(node.meta["val"].dtype).removeprefix("torch.")
            raise BackendError(f"ONNX has no {name}", operator=str(node.target))
    try:
        with _silence():
            return torch.onnx.export(exported_program(graph), dynamo=True, verbose=False)
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
            lacking = re.search(
                r"No ONNX function found for <OpOverload\(op='(.+?)', overload='(.+?)'", str(cause)
            )
            if lacking is not None:
                raise graph.lacks("ONNX", ".".join(lacking.groups())) from error
        raise BackendError(f"torch.onnx.export failed: {cause}".splitlines()[0]) from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """The exporter logs and warns about itself."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _origins(exported: Any, graph: StaticGraph) -> dict[str, tuple[str, ...]]:
    """ONNX node or value → names of the ATen nodes it came from. The exporter has traced the graph again."""
    own = {node.name for node in graph.calls}
    roots = {}
    for node in exported.exported_program.graph.nodes:
        root = root_name(node.meta.get("from_node"), own)
        if root is not None:
            roots[node.name] = (root,)
    found = dict(roots)  # values have the names of FX nodes
    for node in exported.model.graph:
        origin = re.match(r"%(\w+)", node.metadata_props.get(_FX_NODE, ""))
        if origin is not None and origin[1] in roots:
            found[node.name] = roots[origin[1]]
    return found


def _steps(nodes: Any, origins: Mapping[str, tuple[str, ...]]) -> Iterator[EngineStep]:
    maker: dict[str, str] = {}
    for number, node in enumerate(nodes):
        name = node.name or f"n{number}"
        made_for = next((origins[key] for key in (*node.output, node.name) if key in origins), ())
        reads = tuple(dict.fromkeys(maker[value] for value in node.input if value in maker))
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        yield EngineStep(name, operator, reads, made_for)
        maker.update((value, name) for value in node.output if value)


def _no_kernel(text: str, graph: StaticGraph, origins: Mapping[str, tuple[str, ...]]) -> BackendError:
    found = re.search(r"implementation for (\w+)\(\d+\) node with name '([^']*)'", text)
    if found is None:
        return BackendError(f"ONNX Runtime refused the graph: {text.splitlines()[0]}")
    name = next(iter(origins.get(found[2], ())), "")
    node = next((node for node in graph.calls if node.name == name), None)
    if node is None:
        return BackendError(f"ONNX Runtime has no kernel for {found[1]} of these types")
    return graph.lacks(f"ONNX Runtime (in {found[1]})", str(node.target))


BACKEND = Backend(
    name="onnxrt",
    summary="ONNX Runtime, through torch's ONNX exporter",
    compiler=_compiler,
    modules=("onnxruntime", "onnx", "onnxscript"),
    packages=("onnxruntime", "onnx", "onnxscript"),
    devices=("cpu",),
    options={
        "providers": "a list of onnxruntime's execution providers",
        "config": "a mapping of session configuration entries",
        "*": "any attribute of onnxruntime.SessionOptions, e.g. graph_optimization_level",
    },
)

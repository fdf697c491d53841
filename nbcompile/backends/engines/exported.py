"""An ATen graph as the ``ExportedProgram`` that other compilers' importers read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_flatten

from nbcompile.backends.engines.engine import StaticGraph

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def exported_program(graph: StaticGraph) -> ExportedProgram:
    """The graph with every tensor an input of the user's; nothing is traced again."""
    from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        TensorArgument,
    )

    inputs = [TensorArgument(node.name) for node in graph.inputs]
    outputs = [TensorArgument(node.name) for node in graph.outputs]
    values = tuple(node.meta["val"] for node in graph.inputs)
    call = ModuleCallSignature(
        inputs=list(inputs),
        outputs=list(outputs),
        in_spec=tree_flatten((values, {}))[1],
        out_spec=tree_flatten(tuple(outputs))[1],
        forward_arg_names=[node.name for node in graph.inputs],
    )
    signature = ExportGraphSignature(
        [InputSpec(InputKind.USER_INPUT, item, None) for item in inputs],
        [OutputSpec(OutputKind.USER_OUTPUT, item, None) for item in outputs],
    )
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph.module.graph,
        graph_signature=signature,
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=(values, {}),
    )

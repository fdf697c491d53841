"""Lightning Thunder: its own traces and executors, from Dynamo's graph; it makes its own backward.

What it does not know it hands to Inductor: that is found out and said, with the operators and its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.compiler.stages import FxGraph
from nbcompile.errors import OptionError
from nbcompile.record.recorder import Recorder


def _compiler(settings: BackendSettings) -> GraphCompiler:
    """Options: the keywords of ``thunder.jit``."""
    try:
        from thunder.dynamo import ThunderCompiler
    except AttributeError as error:  # it lists torch's functions when it is imported
        raise OptionError(
            f"thunder cannot be imported with torch {torch.__version__}: {error}.",
            advice="It needs the torch that it was released for.",
        ) from error

    def compiler(graph: FxGraph, example_inputs: Sequence[Any], recorder: Recorder) -> Callable[..., Any]:
        thunder = ThunderCompiler(**settings.options)
        compiled: Callable[..., Any] = thunder(graph.module, list(example_inputs))
        for reason in thunder.subgraph_infos[-1].split_reasons or ():
            what = f"thunder left a part of it to Inductor: {reason.info}"
            recorder.ran_eagerly[f"{graph.id}.fw"] = what
            recorder.add(f"graph {graph.id}: {what}")
        return compiled

    return compiler


BACKEND = Backend(
    name="thunder",
    summary="Lightning Thunder, through its Dynamo entry",
    compiler=_compiler,
    modules=("thunder",),
    packages=("lightning-thunder",),
)

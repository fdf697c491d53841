"""Inductor, torch's own compiler: the peer, with its stages, decisions and kernels in the same record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbcompile.backends.base import Backend, BackendSettings, GraphCompiler
from nbcompile.compiler.stages import FxGraph
from nbcompile.errors import OptionError
from nbcompile.options import PEER_MODES, unknown_option
from nbcompile.record.recorder import Recorder


def _compiler(settings: BackendSettings) -> GraphCompiler:
    import torch
    import torch._inductor

    patches: dict[str, Any] = {}
    if settings.mode != "default":
        try:
            patches.update(torch._inductor.list_mode_options(settings.mode, settings.dynamic))
        except RuntimeError as error:  # not every torch has every mode
            raise OptionError(f"torch {torch.__version__}: {error}.") from error
    known = torch._inductor.list_options()
    for name, value in settings.options.items():
        key = name.replace("-", "_")
        if key not in known:
            raise unknown_option("inductor", name, known)
        patches[key] = value

    def compiler(graph: FxGraph, example_inputs: Sequence[Any], recorder: Recorder) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        from nbcompile.backends.inductor.watch import Watch

        def run(inner_compile: Callable[..., Any]) -> Any:
            # As torch._inductor.compile does, which takes no inner_compile.
            return compile_fx(
                graph.module, list(example_inputs), inner_compile=inner_compile, config_patches=dict(patches)
            )

        compiled: Callable[..., Any] = Watch(graph, recorder).compile(run)
        return compiled

    return compiler


BACKEND = Backend(
    name="inductor",
    summary="torch.compile's default compiler",
    compiler=_compiler,
    modes=PEER_MODES,
)

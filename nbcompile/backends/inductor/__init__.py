"""Inductor, torch's own compiler: the peer."""

from __future__ import annotations

from typing import Any

from nbcompile.backends.base import Backend, GraphCompiler, Settings, of_inner
from nbcompile.errors import OptionError
from nbcompile.options import PEER_MODES


def _compiler(settings: Settings) -> GraphCompiler:
    import torch
    import torch._inductor

    patches: dict[str, Any] = {}
    if settings.mode != "default":
        try:
            patches.update(torch._inductor.list_mode_options(settings.mode, settings.dynamic))
        except RuntimeError as error:  # not every torch has every mode
            raise OptionError(f"torch {torch.__version__}: {error}.") from error
    for name, value in settings.options.items():
        key = name.replace("-", "_")
        if key not in torch._inductor.list_options():
            raise OptionError(
                f"option {name!r} is unknown to inductor.", advice="See torch._inductor.list_options()."
            )
        patches[key] = value

    def inductor(module: Any, example_inputs: Any) -> Any:
        return torch._inductor.compile(module, example_inputs, options=dict(patches))

    return of_inner(inductor, Settings())


BACKEND = Backend(
    name="inductor",
    summary="torch.compile's default compiler",
    compiler=_compiler,
    modes=PEER_MODES,
)

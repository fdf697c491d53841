"""Our compiler as an ordinary torch.compile backend: ``torch.compile(model, backend="nbcompile")``.

Found through the ``torch_dynamo_backends`` entry point; needs no Jupyter package.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from nbcompile.backends.base import Backend, of_inner
from nbcompile.compiler.capture.function_to_fx import make_backend
from nbcompile.compiler.runtime import artifacts
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.compiler.warm.lookup import Lookup
from nbcompile.errors import OptionError
from nbcompile.options import MODES, Options
from nbcompile.record.recorder import Recorder


def nbcompile_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one of Dynamo's graphs.

    ``options`` are those of :class:`nbcompile.options.Options`, and ``recorder``: a
    :class:`nbcompile.record.recorder.Recorder` to keep the record in, for a program that wants to see it.
    Where none is given, a graph that is left to eager is told to the logger ``nbcompile``, once a reason.
    Raises OptionError for an unknown option or mode.
    """
    given = dict(options or {})
    recorder = given.pop("recorder", None)
    checked = Options.from_mapping(given, mode=mode)
    if recorder is None:
        recorder = Recorder(checked, on_eager=_warn)
        return make_backend(checked, recorder, pipeline, look_up=Lookup)(gm, example_inputs)
    if not isinstance(recorder, Recorder):
        raise OptionError(f"option recorder wants a nbcompile.record.recorder.Recorder, got {recorder!r}.")
    return make_backend(checked, recorder, pipeline)(gm, example_inputs)


@functools.cache
def _warn(reason: str) -> None:
    logging.getLogger("nbcompile").warning("a graph runs eagerly: %s", reason)


def register() -> None:
    """Make the name known to Dynamo where the package runs without being installed. Idempotent."""
    from torch._dynamo.backends import registry

    if "nbcompile" not in registry.list_backends(exclude_tags=()):
        registry.register_backend(compiler_fn=nbcompile_backend, name="nbcompile")


artifacts.register()

BACKEND = Backend(
    name="nbcompile",
    summary="the compiler of this package",
    compiler=lambda settings: of_inner(nbcompile_backend, settings),
    modes=MODES,
)


def pipeline(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
    """:func:`nbcompile.compiler.compile_graph.compile_graph`, which is imported with the first graph."""
    from nbcompile.compiler.compile_graph import compile_graph

    return compile_graph(aten, options, recorder)

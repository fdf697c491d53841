"""Backends by name: what ``--backend NAME`` and ``nbcompile.compile(backend=NAME)`` mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nbcompile.errors import OptionError

Inner = Callable[..., Any]
"""``(fx.GraphModule, list of example inputs) -> callable``."""


def resolve(
    backend: str | Inner,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> Inner:
    """The compile function of any backend but ours, with mode and options bound as torch.compile binds
    them. OptionError where the name is unknown or the backend does not take what was given."""
    if backend == "inductor":
        return _inductor(mode, options, dynamic)
    given: dict[str, Any] = {}
    if mode is not None and mode != "default":
        given["mode"] = mode
    if options:
        given["options"] = dict(options)
    compiler = backend if callable(backend) else _lookup(backend)
    if not given:
        return compiler

    def bound(module: Any, example_inputs: Any) -> Any:
        return compiler(module, example_inputs, **given)

    return bound


def names() -> tuple[str, ...]:
    """Every backend name that can be asked for here, sorted, ours first."""
    import torch._dynamo

    known = set(torch._dynamo.list_backends(exclude_tags=()))
    return ("nbcompile", *sorted(known - {"nbcompile"}))


def _lookup(name: str) -> Inner:
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    try:
        return lookup_backend(name)
    except InvalidBackend as error:
        raise OptionError(
            f"backend {name!r} is unknown.", advice=f"Backends here: {', '.join(names())}."
        ) from error
    except ImportError as error:
        missing = getattr(error, "name", None) or str(error)
        raise OptionError(
            f"backend {name!r} needs {missing}, which is not installed.", advice=f"pip install {missing}"
        ) from error


def _inductor(mode: str | None, options: Mapping[str, Any] | None, dynamic: bool | None) -> Inner:
    import torch._inductor

    patches: dict[str, Any] = {}
    if mode is not None and mode != "default":
        known = torch._inductor.list_mode_options()
        if mode not in known:
            raise OptionError(f"mode {mode!r} is unknown.", advice=f"Modes: default, {', '.join(known)}.")
        patches.update(torch._inductor.list_mode_options(mode, dynamic))
    for name, value in (options or {}).items():
        key = name.replace("-", "_")
        if key not in torch._inductor.list_options():
            raise OptionError(
                f"option {name!r} is unknown to inductor.", advice="See torch._inductor.list_options()."
            )
        patches[key] = value

    def inductor(module: Any, example_inputs: Any) -> Any:
        return torch._inductor.compile(module, example_inputs, options=dict(patches))

    return inductor

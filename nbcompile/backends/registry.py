"""Backends by name: what ``--backend NAME`` and ``nbcompile.compile(backend=NAME)`` mean."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Mapping
from typing import Any

import nbcompile.backends
import nbcompile.backends.engines
from nbcompile.backends.base import Backend, BackendArgument, BackendSettings, GraphCompiler, Inner, of_inner
from nbcompile.errors import OptionError
from nbcompile.near import did_you_mean


def resolve(
    backend: BackendArgument,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
) -> GraphCompiler:
    """The compiler that any backend but ours is, with mode and options bound.

    ``backend``: one of :func:`names`, a function or a Backend, or the name of one, dotted
    (``package.module.function``) or as it was defined in the notebook or program itself. OptionError where it
    is unknown, not here, or does not take what was given.
    """
    settings = BackendSettings(mode or "default", dict(options or {}), dynamic)
    found = _named(backend) if isinstance(backend, str) else backend
    return found.bound(settings) if isinstance(found, Backend) else of_inner(found, settings)


@functools.cache
def backends() -> Mapping[str, Backend]:
    """The backends that have a file here, by name, ours first, then Inductor, then the rest by name."""
    found: dict[str, Backend] = {}
    for package in (nbcompile.backends, nbcompile.backends.engines):
        for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            backend = getattr(importlib.import_module(entry.name), "BACKEND", None)
            if isinstance(backend, Backend):
                found[backend.name] = backend
    first = [name for name in ("nbcompile", "inductor") if name in found]
    return {name: found[name] for name in (*first, *sorted(found.keys() - set(first)))}


def names() -> tuple[str, ...]:
    """Every name that can be asked for, ours first, here or not: also what else is registered with torch, but
    for what only its own tests and minifiers use."""
    import torch._dynamo

    files = tuple(backends())
    known = set(torch._dynamo.list_backends(exclude_tags=())).difference(files)
    return (*files, *sorted(name for name in known if "TESTING" not in name and "minifier" not in name))


def check(name: str) -> None:
    """OptionError, with the next thing to do, unless ``name`` can be used here. Loads no compiler."""
    known = backends().get(name)
    if known is not None:
        known.check()
    elif name not in names():
        _dotted(name)


def _named(name: str) -> Backend | Inner:
    return backends().get(name) or _lookup(name)


def _lookup(name: str) -> Backend | Inner:
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import InvalidBackend

    try:
        return lookup_backend(name)
    except InvalidBackend:
        return _dotted(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or str(error)
        raise OptionError(
            f"backend {name!r} needs {missing}, which is not installed.", advice=f"Run: pip install {missing}"
        ) from error


def _dotted(name: str) -> Backend | Inner:
    """``package.module.function``, ``package.module:function``, or a name of the program itself."""
    module, _, function = name.replace(":", ".").rpartition(".")
    if not module and not hasattr(sys.modules.get("__main__"), name):
        raise _unknown(name)
    try:
        found = getattr(importlib.import_module(module or "__main__"), function)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"backend {name!r} cannot be imported: {error}.") from error
    if not (callable(found) or isinstance(found, Backend)):
        raise OptionError(f"backend {name!r} is {type(found).__name__}, neither a function nor a Backend.")
    return found  # type: ignore[no-any-return]


def _unknown(name: str) -> OptionError:
    return OptionError(
        f"backend {name!r} is unknown.",
        advice=f"{did_you_mean(name, names())}There are {', '.join(names())}, and any function by its name.",
    )

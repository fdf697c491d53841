"""What a cell calls that ``torch.compile`` has made by itself: it runs as the user asked there, with its own
backend, mode and options, and the record says with which."""

from __future__ import annotations

import types
from typing import Any

import torch

from nbcompile.record.compilation import OWN_COMPILE


def is_compiled(target: Any) -> bool:
    """Whether ``torch.compile`` made this function or module; ``torch.compiler.disable`` has like marks."""
    if isinstance(target, torch.nn.Module):
        return isinstance(target, torch._dynamo.OptimizedModule)
    if not isinstance(target, types.FunctionType):
        return False
    known = vars(target)
    return "_torchdynamo_orig_callable" in known and not known.get("_torchdynamo_disable", False)


def own_compile(target: Any) -> str:
    """That it is compiled by itself, and with what, as far as this torch tells."""
    asked = ", ".join(f"{name} {value}" for name, value in _asked(target).items())
    return f"{OWN_COMPILE} ({asked})" if asked else OWN_COMPILE


def _asked(target: Any) -> dict[str, str]:
    """Backend, mode and the rest of what was asked of ``torch.compile``. Where it keeps them is private."""
    context = getattr(target, "dynamo_ctx", None) or _closed_over(target, "self")
    wrapper: Any = getattr(context, "callback", None)
    filtered = False
    while hasattr(wrapper, "_torchdynamo_orig_backend"):
        hooks = getattr(wrapper, "_hooks", None)
        filtered = filtered or getattr(hooks, "guard_filter_fn", None) is not None
        wrapper = wrapper._torchdynamo_orig_backend
    if wrapper is None:
        return {}
    found = {"backend": _backend(wrapper)}
    given = {"mode": getattr(wrapper, "mode", None), **getattr(wrapper, "kwargs", {})}
    settings = {**getattr(wrapper, "config", {}), **(given.pop("options", None) or {})}
    if given.get("mode"):
        found["mode"] = str(given["mode"])
    elif settings:
        found["options"] = ", ".join(f"{name}={value}" for name, value in settings.items())
    if filtered:
        found["guards"] = "filtered"
    return found


def _backend(wrapper: Any) -> str:
    name = getattr(wrapper, "compiler_name", "")  # "inductor", or what a wrapper of another has
    inner = getattr(wrapper, "compiler_fn", None) or wrapper
    return str(name or getattr(inner, "__name__", None) or type(inner).__name__)


def _closed_over(target: Any, name: str) -> Any:
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None) or ()
    names = code.co_freevars if code is not None else ()
    return next((cell.cell_contents for each, cell in zip(names, cells, strict=False) if each == name), None)

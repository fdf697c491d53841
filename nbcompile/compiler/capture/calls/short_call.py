"""AOTAutograd's calling of a graph from which it wants nothing but its results, without its wrappers.

Around a compiled graph AOTAutograd puts functions that write to inputs, make aliases, unwrap subclasses and
take gradients. Where none of that is to be done, what is left is five functions in Python that turn
gradients off and count the results. :func:`short` knows them by their code, to the last instruction; any
other (a graph with more to do, another torch) is called as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

Call = Callable[..., Any]

_ORCHESTRATION = """
def _runtime_wrapper(_compiled_fn_, _first_ctx_, _on_before_call_, args):
    orig_inputs = {{}}
    with _first_ctx_():
        grad_enabled = torch.is_grad_enabled()
        try:
            if grad_enabled: torch._C._set_grad_enabled(False)
            _on_before_call_()
            all_outs = _compiled_fn_(args)
            if isinstance(all_outs, tuple):
                all_outs = list(all_outs)
            elif not isinstance(all_outs, list):
                all_outs = [all_outs]
        finally:
            if grad_enabled: torch._C._set_grad_enabled(True)
    del args
    if len(all_outs) != {0}:
        raise AssertionError(f"expected {0} outputs, got {{len(all_outs)}}")
    fw_outs = all_outs
    ret_outs = fw_outs
    return ret_outs
"""
"""What AOTAutograd writes for a graph without gradients, of {0} results, by torch 2.13."""

_HELD = {
    "_codegen_runtime_wrapper",
    "_first_invocation_ctx",
    "_inner_compiled_fn",
    "record_runtime_wrapper_prologue_enter",
    "record_runtime_wrapper_prologue_exit",
}
"""What its caller closes over."""


def short(compiled: Call, ours: list[Call]) -> Call:
    """``compiled``, which AOTAutograd made and Dynamo calls, or a function that does the same sooner.

    ``ours``: what the compilers given to AOTAutograd returned.
    """
    try:
        found = _graph_of(compiled, ours)
    except (AttributeError, TypeError, ValueError):
        found = None  # another torch
    if found is None:
        return compiled
    graph: Call = found
    is_enabled, enable = torch.is_grad_enabled, torch._C._set_grad_enabled
    profiler = torch.autograd.profiler
    first = True  # AOTAutograd watches custom operators in the first call

    def call(*inputs: Any) -> Any:
        nonlocal first
        if first or profiler._is_profiler_enabled:
            first = False
            return compiled(*inputs)
        if not is_enabled():
            return graph(list(inputs))
        enable(False)
        try:
            return graph(list(inputs))
        finally:
            enable(True)

    return call


def _graph_of(compiled: Call, ours: list[Call]) -> Call | None:
    """The one of ``ours`` that ``compiled`` does nothing but call."""
    forward: Any = getattr(compiled, "_torchdynamo_orig_callable", None)
    if forward is None or forward.__code__.co_qualname != "aot_module_simplified.<locals>.forward":
        return None
    held = _held(forward)
    if set(held) != {"compiled_fn", "params_buffers_flat"} or held["params_buffers_flat"]:
        return None
    wrapper = _within(held["compiled_fn"])
    if wrapper.__code__.co_qualname != "_create_runtime_wrapper.<locals>.runtime_wrapper":
        return None
    held = _held(wrapper)
    if set(held) != _HELD or not _is_plain(held["_codegen_runtime_wrapper"].__code__):
        return None
    inner = _within(held["_inner_compiled_fn"])
    return next((each for each in ours if each is inner), None)


def _within(function: Any) -> Any:
    """What is called by what AOTAutograd's cache puts around a function, or the function itself."""
    return function.compiled_fn if type(function).__name__ == "SerializableCompiledFunction" else function


def _held(function: Any) -> dict[str, Any]:
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    return dict(zip(function.__code__.co_freevars, cells, strict=True))


def _is_plain(code: CodeType) -> bool:
    count = re.search(r"expected (\d+) outputs", str(code.co_consts))
    if count is None:
        return False
    made: dict[str, Any] = {}
    exec(compile(_ORCHESTRATION.format(count[1]), "orchestration", "exec"), made)
    known: CodeType = made["_runtime_wrapper"].__code__
    return all(
        getattr(code, part) == getattr(known, part)
        for part in ("co_code", "co_consts", "co_names", "co_varnames", "co_exceptiontable")
    )

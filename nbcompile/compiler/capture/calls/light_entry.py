"""A call of what ``torch.compile`` made, at a fifth of what its wrapper in Python costs.

Dynamo wraps a compiled function in one that asks, at each call, for what could make this call another (a
stance, an export, a trace, a compiled caller), tells the interpreter to watch frames, calls, and puts all
back. :func:`light` makes a function that asks the same where it costs little and leaves to Dynamo's own
every call that is not the usual one. It is made only around a wrapper all of whose names are known here
(``_KNOWN``): a torch whose wrapper asks for more is called as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import eval_frame

from nbcompile.compiler.capture.listening import Session, active

Call = Callable[..., Any]

_KNOWN = frozenset(
    """
    set_eval_frame fullgraph set_fullgraph_error_on_nested_compile torch _dynamo config export
    error_on_dynamo_callback_in_fullgraph_compiled_code set_fullgraph_compiled_frame_count reset_skip_reasons
    _guards TracingContext try_get fake_mode in_kernel_invocation dynamo_tls skip_reasons
    _maybe_set_eval_frame compiler is_exporting force_compile_during_fx_trace torch._higher_order_ops.utils
    _in_hop_compile error_on_nested_fx_trace RuntimeError enter_exit_hooks set_skip_guard_eval_unsafe
    _is_skip_guard_eval_unsafe_stance set_eval_frame_isolate_recompiles_id _isolate_recompiles_id
    error_on_graph_break _get_error_on_graph_break _set_error_on_graph_break _C _functorch
    get_dynamic_layer_stack_depth _dispatch_tls_local_include_set _dispatch_tls_local_exclude_set
    _callback_from_stance _ForceDispatchKeyGuard Unsupported UncapturedHigherOrderOpError UserError verbose
    __cause__ with_traceback ShortenTraceback remove_dynamo_frames _stance stance get_skip_reasons join
    pop_dynamic_layer_stack_and_undo_to_depth
    """.split()
)
"""What Dynamo's wrapper uses, by torch 2.13."""

_ASKED = (
    (eval_frame, "_stance"),
    (torch.fx._symbolic_trace, "_is_fx_tracing_flag"),
    (torch.compiler, "_is_exporting_flag"),
    (torch._guards, "_TLS"),
)
"""Where what the wrapper asks about stands."""

FULL: Any = object()
"""What a light entry returns where the call is for the wrapper: it has done nothing."""


def light(compiled: Call, session: Session) -> Call | None:
    """A function that calls what ``compiled`` calls, telling ``session`` what ``Session.begin`` and ``end``
    do; it returns :data:`FULL` where it cannot.

    ``compiled`` is what ``torch.compile`` made of a function or a module. None where its wrapper is not the
    one known here, or where what was asked for needs it whole (``fullgraph``, a watched compile).
    """
    module = isinstance(compiled, eval_frame.OptimizedModule)
    found = _inside(vars(compiled).get("forward") if module else compiled)
    if found is None or session.walker is not None or not all(hasattr(*each) for each in _ASKED):
        return None
    try:
        entry = _entry(*found, session)
        return _of_module(entry) if module else entry
    except AttributeError:
        return None  # another torch


def _of_module(entry: Call) -> Call:
    """As ``OptimizedModule`` calls the wrapper of its forward. Hooks are those of the module within."""
    has_hooks: Call = torch.nn.modules.module._has_any_global_hook
    marks = hasattr(eval_frame, "_in_optimized_module")

    def call(*args: Any, **kwargs: Any) -> Any:
        if has_hooks():  # torch warns of them
            return FULL
        if not marks:
            return entry(*args, **kwargs)
        outer, eval_frame._in_optimized_module = eval_frame._in_optimized_module, True
        try:
            return entry(*args, **kwargs)
        finally:
            eval_frame._in_optimized_module = outer

    return call


def _inside(wrapper: Any) -> tuple[Call, Call, Any] | None:
    """The function that Dynamo's wrapper calls, its frame callback, and its context."""
    code = getattr(wrapper, "__code__", None)
    if code is None or code.co_name != "compile_wrapper" or not _KNOWN.issuperset(code.co_names):
        return None
    held = {
        name: cell.cell_contents
        for name, cell in zip(code.co_freevars, wrapper.__closure__ or (), strict=True)
    }
    context = held.get("self")
    whole = getattr(context, "fullgraph", True) or getattr(context, "export", True)
    if whole or getattr(context, "error_on_graph_break", None) is not None:
        return None
    if not (callable(held.get("fn")) and callable(held.get("callback"))):
        return None
    return held["fn"], held["callback"], context


def _entry(fn: Call, callback: Call, context: Any, session: Session) -> Call:
    set_frames = torch._C._dynamo.eval_frame.set_eval_frame
    set_isolated = getattr(torch._C._dynamo.eval_frame, "set_eval_frame_isolate_recompiles_id", None)
    isolated = getattr(context, "_isolate_recompiles_id", -1)
    hooks: list[Callable[[], Callable[[], None]]] = context.enter_exit_hooks
    tracing = torch._guards._TLS
    symbolic = torch.fx._symbolic_trace
    exporting = torch.compiler
    is_traced, depth = torch._C._is_tracing, torch._C._functorch.get_dynamic_layer_stack_depth
    included = torch._C._dispatch_tls_local_include_set
    excluded = torch._C._dispatch_tls_local_exclude_set
    usual: Any = None  # the stance that was found to be the usual one
    frames = session.frames

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal usual
        stance = eval_frame._stance
        if stance is not usual:
            if stance.stance != "default" or stance.skip_guard_eval_unsafe or stance.backend is not None:
                return FULL
            usual = stance
        if (
            not frames  # nothing is compiled yet
            or tracing.__dict__.get("tracing_context") is not None
            or symbolic._is_fx_tracing_flag
            or exporting._is_exporting_flag
            or is_traced()
            or depth()
        ):
            return FULL
        outer = set_frames(None)
        if outer is not None:  # called by what is compiled itself
            set_frames(outer)
            return FULL
        undo = [enter() for enter in hooks]
        keys = included(), excluded()
        previous = active.session
        session.begin_again()
        before = set_isolated(isolated) if set_isolated is not None else None
        set_frames(callback)
        try:
            return fn(*args, **kwargs)
        except BaseException as error:
            set_frames(None)
            _restore(*keys)
            _raise(error)
        finally:
            set_frames(None)
            if set_isolated is not None:
                set_isolated(before)
            for each in undo:
                each()
            session.end_again(previous)

    return call


_kept: list[Any] = []


def _restore(included: Any, excluded: Any) -> None:
    """A graph that raised may have left layers of functorch and dispatch keys behind."""
    torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
    now = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    if now != (included, excluded):
        guard: Any = torch._C._ForceDispatchKeyGuard(included, excluded)
        guard.__enter__()
        _kept.append(guard)  # its end would bring back what was left behind


def _raise(error: BaseException) -> None:
    """Raise it as Dynamo's wrapper does: without the frames of Dynamo itself."""
    from torch._dynamo import config
    from torch._dynamo.exc import ShortenTraceback, UncapturedHigherOrderOpError, Unsupported, UserError

    if isinstance(error, ShortenTraceback):
        raise error.remove_dynamo_frames() from None
    if isinstance(error, Unsupported | UncapturedHigherOrderOpError | UserError) and not config.verbose:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause.__cause__.with_traceback(None)
            cause = cause.__cause__
        raise error.with_traceback(None) from error.__cause__
    raise error

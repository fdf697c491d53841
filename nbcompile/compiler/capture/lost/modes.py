"""Modes that a captured graph enters and, where it raises in between, does not leave.

A ``with`` block of the user's cell (``torch.no_grad``, ``inference_mode``, ``autocast``, ``sdpa_kernel``) is
two nodes of an FX graph: one enters a mode, one leaves it. Raised in between, the second is not met, and the
user's next cells run in that mode: without gradients, or at half precision (torch 2.11 to 2.13; its
``backend="eager"`` does so). An inference mode is worse: where nobody leaves it, it is left when the garbage
collector meets it, at any time, and brings back the dispatch keys of the moment at which it was entered.
Those of a trace by AOTAutograd are fatal: "Hit PythonDispatcher dispatch key but PythonDispatcherTLS was not
set".

AOTAutograd has one of its own: it asks whether sizes are equal with guards suppressed. Where the stack ends
just there (RecursionError), or the user interrupts, guards stay suppressed in that thread, and all that is
compiled later, by whatever backend, is taken for right at sizes that it is wrong for.

And forward-mode AD, a mode that no guard asks for: a compiled graph would lose the tangents of its inputs.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast
from torch.autograd.grad_mode import _enter_inference_mode
from torch.fx.experimental.symbolic_shapes import TLS, ShapeEnv
from torch.nn.attention import _cur_sdpa_kernel_backends, _sdpa_kernel

from nbcompile.compiler.in_aten import carry_tangents

_ENTERED = (
    torch._C._set_grad_enabled,
    _enter_inference_mode,
    _enter_autocast,
    _sdpa_kernel,
)


def eagerly(module: fx.GraphModule) -> Callable[..., Any]:
    """What runs a captured graph as it is, and leaves what it has entered if it raises."""
    if not _enters_modes(module):
        return module.forward

    def run(*inputs: Any) -> Any:
        with brought_back(module):
            return module.forward(*inputs)

    return run


def where_no_tangents(
    call: Callable[..., Any], eager: Callable[..., Any], say: Callable[[str], None]
) -> Callable[..., Any]:
    """``call`` of a compiled graph; where its inputs carry tangents, of which no guard tells, ``eager`` as
    forward-mode AD follows that, and ``say`` it."""

    def run(*inputs: Any) -> Any:
        if carry_tangents(inputs):
            say("its inputs carry tangents (forward-mode AD)")
            return eager(*inputs)
        return call(*inputs)

    return run


@contextlib.contextmanager
def brought_back(module: fx.GraphModule) -> Iterator[None]:
    """Where a graph is run: if that raises, the modes that are entered now come back."""
    if not _enters_modes(module):
        yield
        return
    grad, forward_grad = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
    attention = _cur_sdpa_kernel_backends(with_priority=True)
    with torch._C._PreserveDispatchKeyGuard():  # some modes are keys
        try:
            yield
        except BaseException as error:
            for mode in reversed(list(_held(error))):
                mode.__exit__(None, None, None)
            torch._C._set_grad_enabled(grad)
            torch._C._set_fwd_grad_enabled(forward_grad)
            _sdpa_kernel(attention, set_priority=True)
            raise


@contextlib.contextmanager
def traced(module: fx.GraphModule) -> Iterator[None]:
    """Where a graph is traced: as :func:`brought_back`, and sizes are guarded again as they are now."""
    around: list[bool] = TLS.__dict__.setdefault("suppress_guards_stack", [])
    suppressed, before = ShapeEnv._suppress_guards_tls(), list(around)
    try:
        with brought_back(module):
            yield
    except BaseException:
        TLS.suppress_guards, around[:] = suppressed, before
        raise


def _enters_modes(module: fx.GraphModule) -> bool:
    graphs = [each.graph for each in module.modules() if isinstance(each, fx.GraphModule)]
    return any(node.target in _ENTERED for graph in graphs for node in graph.nodes)


def _held(error: BaseException) -> Iterator[Any]:
    """The modes that graphs had entered where they raised, outermost first: a graph's own code holds them in
    its variables, an interpreter in its environment, until the node that leaves them."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        raised = chain.pop()
        if raised is None or id(raised) in seen:
            continue
        seen.add(id(raised))
        chain += [raised.__cause__, raised.__context__]
        for frame, _ in traceback.walk_tb(raised.__traceback__):
            held: list[Any] = []
            if frame.f_code.co_filename.startswith("<eval_with_key>"):
                held = list(frame.f_locals.values())
            elif isinstance(interpreter := frame.f_locals.get("self"), fx.Interpreter):
                held = list(interpreter.env.values())
            for mode in held:
                if isinstance(mode, torch._C._InferenceMode | torch.autocast) and id(mode) not in seen:
                    seen.add(id(mode))
                    yield mode

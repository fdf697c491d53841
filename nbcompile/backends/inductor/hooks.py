"""Every private hook into Inductor: what it calls on the way, told to whoever listens.

A hook stands only while a compile of ours runs (:func:`listening`), and tells nothing to other threads: what
they compile meanwhile is the caller's own affair. None changes an argument, a result or a setting, so
Inductor's code and its cache keys are what they would be. Where this torch has no such function, the hook is
left out and :func:`missing` says what the record lacks for it.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol


class Listener(Protocol):
    """Who is told. ``module`` and nodes are torch's own, as they are at that moment: to be read, not kept."""

    def joint_made(self, module: Any, forward: Any, outputs: int | None) -> None:
        """The joint graph after Inductor's passes, the forward half cut from it, and how many of the
        forward's results the program asked for."""

    def fusion_begins(self, scheduler: Any, nodes: list[Any], graph: Any) -> None:
        """The scheduler's nodes before fusion; ``graph`` is the GraphLowering with the post-grad module."""

    @property
    def offers(self) -> Any:
        """What is told of pairs, if anything is: ``offered(first, second, allowed)``, a candidate and whether
        Inductor found that it could be fused, ``refused(first, second, reason)``, why a pair (names of
        scheduler nodes) is not, and ``scored(first, second, bytes_saved)``, the bytes that it would save."""

    @property
    def schedule(self) -> Any:
        """What is told of code, if anything is: ``fused(nodes)``, the scheduler's final ones,
        ``kernel_defined(name, text)`` as the wrapper prints it, ``kernel_called(nodes, name)`` of a generated
        kernel that does these nodes, and ``library_called(node)`` of an extern one."""

    def choosing(self, buffer: Any) -> None:
        """The candidates of this template buffer are about to be timed."""

    def autotuned(self, name: str, milliseconds: dict[Any, float], node: Any) -> None:
        """Candidates of an operation and their times; ``node`` is the FX node being lowered, if any."""

    def loaded(self, key: str, backward: bool, compiled: Any) -> None:
        """A graph came from Inductor's own cache."""

    def failed(self, what: str, error: Exception) -> None:
        """The listener itself raised while it was told ``what``; the compile goes on."""


Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Hook:
    """Where a function of torch is found, what stands around it meanwhile, and what it shows."""

    module: str
    owner: str  # a class, or empty for the module itself
    name: str
    wrap: Wrap
    shows: str
    elsewhere: tuple[str, ...] = ()  # modules that import the function by name

    def places(self) -> list[tuple[Any, Any]]:
        """Each object that holds the function, with what it holds; empty where this torch has none."""
        found = []
        for module in (self.module, *self.elsewhere):
            try:
                holder: Any = importlib.import_module(module)
            except ImportError:
                continue
            if self.owner:
                holder = getattr(holder, self.owner, None)
            if holder is not None and self.name in vars(holder):
                found.append((holder, vars(holder)[self.name]))
        return found


def missing() -> tuple[str, ...]:
    """What this torch does not let a record show: of each hook that finds no function to stand around."""
    lost = [hook.shows for hook in HOOKS if not hook.places()]
    return tuple(lost if _selector() is not None else [*lost, "the candidates that were timed"])


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell ``listener`` what Inductor does in this thread during the body."""
    previous = getattr(_local, "listener", None)
    _stand(1)
    _local.listener = listener
    try:
        yield
    finally:
        _local.listener = previous
        _stand(-1)


_local = threading.local()
_lock = threading.RLock()
_depth = 0  # compiles of ours that are under way, in all threads
_replaced: list[tuple[Any, str, Any]] = []  # holder, name, what was there


def _stand(change: int) -> None:
    """Put the hooks up for the first compile that is under way, and take them down after the last."""
    global _depth
    with _lock:
        before, _depth = _depth, _depth + change
        if before == 0:
            for hook in HOOKS:
                for holder, original in hook.places():
                    _replaced.append((holder, hook.name, original))
                    setattr(holder, hook.name, _around(original, hook.wrap))
            if (selector := _selector()) is not None:
                selector.feedback_saver_fns.append(_autotuned)
        elif _depth == 0:
            while _replaced:
                setattr(*_replaced.pop())
            selector = _selector()
            if selector is not None and _autotuned in selector.feedback_saver_fns:
                selector.feedback_saver_fns.remove(_autotuned)


def _around(original: Any, wrap: Wrap) -> Any:
    if isinstance(original, staticmethod):
        return staticmethod(functools.wraps(original.__func__)(wrap(original.__func__)))
    return functools.wraps(original)(wrap(original))


def _tell(method: str, arguments: Callable[[], tuple[Any, ...] | None]) -> None:
    """Call this method of the listener, or of a part of it (``offers.scored``), with what ``arguments()``
    gives; nothing where that, or the part, is ``None``."""
    listener = getattr(_local, "listener", None)
    if listener is None:
        return
    try:
        part, _, name = method.rpartition(".")
        told = getattr(listener, part) if part else listener
        if told is not None and (given := arguments()) is not None:
            getattr(told, name)(*given)
    except Exception as error:  # what we make of it must not stop the compile
        listener.failed(method, error)


# -- what stands around each function: called as the function is -----------------------------------------

About = Callable[..., tuple[Any, ...] | None]
"""What the listener is told, from the arguments of the call; ``None``: nothing."""


def _before(method: str, about: About) -> Wrap:
    """Tell, then call."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(*args: Any, **keywords: Any) -> Any:
            _tell(method, lambda: about(*args, **keywords))
            return original(*args, **keywords)

        return hooked

    return wrap


def _after(method: str, about: About) -> Wrap:
    """Call, then tell; ``about`` gets the result before the arguments."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def hooked(*args: Any, **keywords: Any) -> Any:
            result = original(*args, **keywords)
            _tell(method, lambda: about(result, *args, **keywords))
            return result

        return hooked

    return wrap


def _joint(result: Any, gm: Any, joint_inputs: Any, **keywords: Any) -> tuple[Any, ...] | None:
    if keywords.get("partitioner_fn_override") is not None:  # a part of a graph
        return None
    return gm, result[0], keywords.get("num_fwd_outputs")


def _fusing(scheduler: Any, nodes: list[Any]) -> tuple[Any, ...]:
    from torch._inductor.virtualized import V

    return scheduler, nodes, V.graph


def _scored(score: Any, self: Any, node1: Any, node2: Any, *rest: Any, **keywords: Any) -> tuple[Any, ...]:
    # A tuple is the score, what overlaps only in part, and a flag.
    return node1, node2, int(sum(score[:2]) if isinstance(score, tuple) else score)


def _called(
    node_schedule: Any, kernel_name: str, is_extern: bool = False, **keywords: Any
) -> tuple[Any, ...] | None:
    return None if is_extern else (node_schedule, kernel_name)


def _loaded(found: Any, key: str, *rest: Any, **keywords: Any) -> tuple[Any, ...] | None:
    compiled = found[0]
    if compiled is None:
        return None
    known = getattr(compiled, "fx_kwargs", None) or {}  # where a torch does not say it in the call
    return key, bool(keywords.get("is_backward", known.get("is_backward", False))), compiled


_INDUCTOR = "torch._inductor."
_SCHEDULER = (_INDUCTOR + "scheduler", "Scheduler")
HOOKS = (
    Hook(_INDUCTOR + "compile_fx", "", "partition_fn", _after("joint_made", _joint), "the joint graph"),
    Hook(*_SCHEDULER, "fuse_nodes", _before("fusion_begins", _fusing), "graphs, loops and kernels"),
    Hook(
        *_SCHEDULER, "can_fuse",
        _after("offers.offered", lambda can, self, node1, node2, *_, **__: (node1, node2, bool(can))),
        "fusion decisions",
    ),
    Hook(
        _INDUCTOR + "scheduler", "WhyNoFuse", "__call__",
        _before("offers.refused", lambda self, why, *a: (self.name1, self.name2, why % a if a else why)),
        "the reasons of refusals",
    ),
    Hook(*_SCHEDULER, "score_fusion_memory", _after("offers.scored", _scored), "the bytes that fusions save"),
    Hook(*_SCHEDULER, "codegen", _before("schedule.fused", lambda self: (self.nodes,)), "what was fused"),
    Hook(
        *_SCHEDULER, "codegen_extern_call",
        _before("schedule.library_called", lambda self, scheduler_node, *_: (scheduler_node,)),
        "library calls",
    ),
    Hook(
        _INDUCTOR + "debug", "", "set_kernel_post_grad_provenance_tracing",
        _before("schedule.kernel_called", _called), "kernels",
        (_INDUCTOR + "codegen.cpp", _INDUCTOR + "codegen.triton"),
    ),
    Hook(
        _INDUCTOR + "codegen.wrapper", "PythonWrapperCodegen", "define_kernel",
        _before(
            "schedule.kernel_defined",
            lambda self, kernel_name, kernel_body, *_, **__: (kernel_name, kernel_body),
        ),
        "the kernels' texts",
    ),
    Hook(
        _INDUCTOR + "ir", "MultiTemplateBuffer", "choice_timings",
        _before("choosing", lambda self, *_, **__: (self,)), "whose candidates were timed",
    ),
    Hook(
        _INDUCTOR + "codecache", "FxGraphCache", "load_with_key", _after("loaded", _loaded),
        "what Inductor's cache gave",
    ),
)  # fmt: skip


def _selector() -> Any:
    """Inductor's autotuner of templates, if it is there and takes those who want to see its times."""
    try:
        from torch._inductor import select_algorithm
    except ImportError:
        return None
    get = getattr(select_algorithm, "get_algorithm_selector_cache", None)
    cache = get() if get is not None else getattr(select_algorithm, "_ALGORITHM_SELECTOR_CACHE", None)
    return cache if isinstance(getattr(cache, "feedback_saver_fns", None), list) else None


def _autotuned(timings: dict[Any, float], name: str, *rest: Any) -> None:
    from torch._inductor.virtualized import V

    _tell("autotuned", lambda: (name, dict(timings), getattr(V.graph, "current_node", None)))

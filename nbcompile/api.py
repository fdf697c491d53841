"""``nbcompile.compile``: a function or module, compiled through any backend, with its record."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Unpack, overload

import torch
import torch._dynamo
from torch import fx

from nbcompile.backends.nbcompile import pipeline
from nbcompile.compiler.capture.calls.light_entry import FULL, light
from nbcompile.compiler.capture.function_to_fx import Backend, delegating_backend, make_backend
from nbcompile.compiler.capture.fx_to_aten import CompileAten
from nbcompile.compiler.capture.listening import STOPPED, Session
from nbcompile.compiler.capture.lost.modes import eagerly
from nbcompile.errors import OptionError
from nbcompile.record.compilation import Cell, Compilation
from nbcompile.record.recorder import KernelStopwatch, Recorder
from nbcompile.settings import CompileKeywords, CompileSettings, keywords_of, settings_given

DISABLED = "disable=True was asked for"
NO_OPERATIONS = "Dynamo found no tensor operations to compile"


class _Keywords(CompileKeywords, total=False):
    """Keyword arguments of :func:`compile`."""

    cell: Cell | None
    progress: Callable[[str], None] | None
    compile_aten: CompileAten | None
    recorder: Recorder | None
    watch: bool


@overload
def compile(fn: Callable[..., Any], **asked: Unpack[_Keywords]) -> Compiled: ...
@overload
def compile(fn: None = None, **asked: Unpack[_Keywords]) -> Callable[[Callable[..., Any]], Compiled]: ...
@keywords_of(CompileSettings)
def compile(
    fn: Callable[..., Any] | None = None,
    *,
    cell: Cell | None = None,
    progress: Callable[[str], None] | None = None,
    compile_aten: CompileAten | None = None,
    recorder: Recorder | None = None,
    watch: bool = False,
    **settings: Any,
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a function or ``nn.Module`` and keep the record of it.

    Takes all that ``torch.compile`` takes, and without ``fn`` makes a decorator, as that does; only
    ``isolate_recompiles`` is missing, for here it always is so.

    Nothing is compiled before the first call. Each call of ``compile`` is a compile of its own: it
    shares no compiled code, recompile limit or dynamic-shape profile with any other, not even of the
    same function.

    backend:    ``"nbcompile"``, any name that ``torch.compile`` knows, a callable
                ``(fx.GraphModule, inputs) -> callable``, or a :class:`nbcompile.backends.base.Backend`.
    mode:       a torch.compile mode, e.g. ``"max-autotune"``.
    fullgraph:  raise at a graph break. dynamic: as for torch.compile.
    options:    of the backend; for ``"nbcompile"`` see :class:`nbcompile.options.Options`.
    name:       what the record calls it. disable: do not compile, run the function as it is.
    recompile_limit: as for torch.compile; also for versions of torch whose torch.compile has none.
    dynamic_shapes: as for torch.compile, which by 2.14 calls it ``shapes_spec``; both names are taken.
    cell:       the notebook cell the function comes from: spans in it have an empty ``file``.
    progress:   called with one short sentence at each step.
    compile_aten: what compiles one ATen graph; by default ours (``compiler/compile_graph.py``).
    recorder:   add to this record (the parts of one cell share one) instead of starting another.
    watch:      keep Dynamo's walk through the bytecode too (``Compilation.walks``); compiling takes longer.

    Raises OptionError for an unknown backend, mode or option, TypeError if ``fn`` is not callable.
    """
    made = functools.partial(
        Compiled,
        settings=settings_given("compile", settings),
        cell=cell,
        progress=progress,
        compile_aten=compile_aten,
        recorder=recorder,
        watch=watch,
    )
    return made if fn is None else made(fn)


class Compiled:
    """A compiled callable. Calls go through Dynamo; attributes of a module are those of the module.

    ``recorder`` collects the record, ``compilation`` is the record so far, ``dynamic`` is what was asked
    for, ``ran_compiled`` says whether compiled code ran in the last call, and ``eager_reason`` why not.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        settings: CompileSettings,
        *,
        cell: Cell | None = None,
        progress: Callable[[str], None] | None = None,
        compile_aten: CompileAten | None = None,
        recorder: Recorder | None = None,
        watch: bool = False,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"nbcompile.compile takes a function or a module, not {type(fn).__name__}")
        fn = plain(fn)
        own = vars(self)  # around __setattr__, which belongs to the module
        options = settings.own_options
        if recorder is None:
            found = cell if cell is not None else _cell_of(fn)
            recorder = settings.recorder(found, progress, settings.name or _name_of(fn))
        session = Session(recorder, watch)
        inner: Backend
        if settings.ours:
            inner = make_backend(options, recorder, compile_aten or pipeline, record_breaks=False)
        else:
            inner = delegating_backend(recorder, settings.compiler())
        tracker = _Tracker(session, inner)
        entry = _weak_backend(weakref.ref(tracker), settings.backend_name)
        own["_target"] = fn
        own["_session"] = session
        own["_tracker"] = tracker
        own["_called"] = False
        own["_disabled"] = _disabled(settings)
        # where torch.compile takes no limit, Dynamo's own is another while this is called
        own["_limit"] = None if "recompile_limit" in _optimize_parameters() else settings.recompile_limit
        own["recorder"] = recorder
        own["dynamic"] = settings.dynamic
        own["_run"] = (
            fn if settings.disable else _optimize(entry, weakref.ref(session), settings)(fresh_identity(fn))
        )
        own["_light"] = None if settings.disable or self._limit is not None else light(self._run, session)
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            if hasattr(fn, attribute):
                own[attribute] = getattr(fn, attribute)
        weakref.finalize(self, _forget, tracker.targets, id(entry))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # called by what torch.compile is given: part of it
            return self._target(*args, **kwargs)
        entry = self._light
        if entry is not None:
            result = entry(*args, **kwargs)
            if result is not FULL:
                return result
        return self._in_full(*args, **kwargs)

    def _in_full(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["_called"] = True
        session: Session = self._session
        limit = self._limit
        previous = session.begin()
        try:
            if limit is not None:
                with torch._dynamo.config.patch(recompile_limit=limit):
                    return self._run(*args, **kwargs)
            return self._run(*args, **kwargs)
        finally:
            session.end(previous)

    @property
    def compilation(self) -> Compilation:
        """The record so far."""
        recorder: Recorder = self.recorder
        return recorder.compilation()

    @property
    def ran_compiled(self) -> bool:
        """Whether the last call ran compiled code, and none of it eagerly for want of compiling."""
        return not self.eager_reason

    @property
    def stopwatches(self) -> Mapping[str, KernelStopwatch]:
        """What times the kernels of each graph that runs our code, by the graph's id."""
        recorder: Recorder = self.recorder
        return recorder.stopwatches

    @property
    def graphs_run(self) -> tuple[str, ...]:
        """Ids of the graphs that the last call, or the one under way, has started to run, in order."""
        session: Session = self._session
        return tuple(session.ran)

    @property
    def eager_reason(self) -> str:
        """Why the last call did not (wholly) run compiled code, in one sentence; empty if it did."""
        session: Session = self._session
        if self._disabled:
            return str(self._disabled)
        if not self._called:
            return "not called yet"
        if session.suppressed:
            return f"Dynamo swallowed an error and ran eagerly: {session.suppressed}"
        frames = {session.frames.get(graph) for graph in session.ran}
        for frame, reason in session.limits.items():
            if frame not in frames:
                return f"{STOPPED}: {reason}"
        for graph in session.ran:
            for part in ("fw", "bw"):
                failed = self.recorder.ran_eagerly.get(f"{graph}.{part}")
                if failed:
                    return f"graph {graph}.{part} ran eagerly: {failed}"
        if session.ran:
            return ""
        if session.forbidden:
            return session.forbidden
        if session.stance != "default":
            return f"torch.compiler.set_stance asks for {session.stance}"
        if session.breaks:
            return f"nothing was compiled: {session.breaks[-1].reason}"
        if session.optimizer:
            return f"nothing was compiled: {session.optimizer}"
        return NO_OPERATIONS

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self._target  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        # Only reached for what this class does not have itself.
        if name.startswith("__") or "_target" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_target"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        target = self.__dict__.get("_target")
        if isinstance(target, torch.nn.Module):
            setattr(target, name, value)
        else:
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<compiled by {self.recorder.backend}: {self._target!r}>"


def _disabled(settings: CompileSettings) -> str:
    """Why nothing will ever be compiled; empty if it will. Dynamo asks for its setting when it is given a
    function, and not again."""
    if settings.disable:
        return DISABLED
    return "torch._dynamo.config.disable was set when it was made" if torch._dynamo.config.disable else ""


class _Tracker:
    """Compiles graphs for one Compiled and notes which of them run."""

    def __init__(self, session: Session, inner: Backend) -> None:
        self.session = session
        self.inner = inner
        self.targets: list[list[Callable[..., Any]]] = []

    def compile(self, module: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        graph = f"g{self.session.recorder.graph_count}"
        self.session.graph_made(graph)
        target = [self.inner(module, example_inputs)]
        self.targets.append(target)
        ran = self.session.ran

        def run(*args: Any) -> Any:
            ran.append(graph)
            return target[0](*args)

        return run


def _weak_backend(tracker: weakref.ref[_Tracker], name: str) -> Backend:
    # Dynamo keeps backends in a table of its own and beside the code of a module's forward: this one
    # must not keep the record and the compiled graphs alive with it.
    def entry(module: fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        alive = tracker()
        return eagerly(module) if alive is None else alive.compile(module, example_inputs)

    entry.__name__ = name  # what Dynamo's errors call it
    return entry


def _forget(targets: list[list[Callable[..., Any]]], entry: int) -> None:
    """The Compiled is gone: free its graphs, also where Dynamo still has an entry for them."""
    for target in targets:
        target.clear()
    from torch._dynamo import eval_frame

    getattr(eval_frame, "cached_backends", {}).pop(entry, None)


_RENAMED = {"shapes_spec": "dynamic_shapes", "dynamic_shapes": "shapes_spec"}
"""What another torch calls the same argument: the second is its name from 2.15 on."""


def _optimize(
    entry: Backend, session: weakref.ref[Session], settings: CompileSettings
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """torch.compile with Dynamo's hooks: torch.compile itself takes none for guards that fail."""

    def failed(failure: Any) -> None:
        alive = session()
        if alive is not None:
            alive.guard_failed(failure)

    def made(guards: Any) -> None:
        alive = session()
        if alive is not None:
            alive.guards_made(guards)

    wanted: dict[str, Any] = {"guard_fail_fn": failed, "guard_export_fn": made, "isolate_recompiles": True}
    known = _optimize_parameters()
    extra = {name: value for name, value in wanted.items() if name in known}
    for name, value in settings.limits.items():
        if name not in known and name == "recompile_limit":
            continue  # Compiled sets it around each call
        called = name if name in known else _RENAMED.get(name, name)
        if called not in known:
            raise OptionError(f"torch {torch.__version__} has no {name} in torch.compile.")
        if called in extra:
            raise OptionError("dynamic_shapes and shapes_spec are two names of one argument: give one.")
        extra[called] = value
    return torch._dynamo.optimize(
        backend=entry, nopython=settings.fullgraph, dynamic=settings.dynamic, **extra
    )


@functools.cache
def _optimize_parameters() -> frozenset[str]:
    """What this torch's ``torch._dynamo.optimize`` takes (not every version can isolate recompiles)."""
    from torch._dynamo import eval_frame

    # optimize() itself may be (*args, **kwargs) around _optimize().
    optimize = getattr(eval_frame, "_optimize", torch._dynamo.optimize)
    return frozenset(inspect.signature(optimize).parameters)


def fresh_identity(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a code object of its own, which is what Dynamo's caches hang on.

    File name, line numbers and names stay, so tracebacks and spans point where they did. Modules and
    other callables are returned as they are where Dynamo isolates them by itself
    (``isolate_recompiles``); else they are called from a function of their own.
    """
    if isinstance(fn, types.MethodType):
        inner = fresh_identity(fn.__func__)
        return types.MethodType(inner, fn.__self__) if inner is not fn.__func__ else fn
    if not isinstance(fn, types.FunctionType):
        return fn if "isolate_recompiles" in _optimize_parameters() else fresh_identity(_calling(fn))
    copy = types.FunctionType(
        fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__qualname__ = fn.__qualname__
    copy.__module__ = fn.__module__
    copy.__doc__ = fn.__doc__
    copy.__annotations__ = fn.__annotations__
    copy.__dict__.update(fn.__dict__)
    return copy


def plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What the user wrote, where they give something already compiled (by us or torch.compile)."""
    while True:
        if isinstance(fn, Compiled):
            fn = fn.__wrapped__
        elif isinstance(fn, torch._dynamo.OptimizedModule):
            fn = fn._orig_mod
        elif hasattr(fn, "_torchdynamo_orig_callable") and not hasattr(fn, "_torchdynamo_disable"):
            fn = fn._torchdynamo_orig_callable
        else:
            return fn


def _calling(target: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return call


def _name_of(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)


def _cell_of(fn: Callable[..., Any]) -> Cell | None:
    """The notebook cell (or typed-in source) that a function was defined in; None for a real file."""
    if isinstance(fn, torch.nn.Module):
        fn = type(fn).forward
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return None
    source = "".join(linecache.getlines(code.co_filename))
    return Cell(source=source, filename=code.co_filename, body_starts=1) if source else None


__all__ = ["Compiled", "OptionError", "compile", "fresh_identity"]

"""Which jitted functions a cell calls, and with what: noticed where jax itself comes by.

jax has no public way to be told of a call. Wrapping ``jax.jit`` would miss what was jitted before, and leave
wrappers behind in the session; a function of jax's own kind cannot be given another ``__call__``, which is C.
So it is asked at the two places that every call passes. The first with new shapes goes through Python
(``_run_python_pjit``, after tracing); each later one ends with jax's own hook (``_post_hook_state``, made for
``jax_debug_nans``). Nothing of the user's is replaced, and nothing is traced or run a second time: what jax
has just traced is taken as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, cast

from nbcompile.backends.xla.exchange import wide_types
from nbcompile.backends.xla.imported import when_imported
from nbcompile.backends.xla.jaxpr import Caller, frame_at
from nbcompile.compiler.capture.graph_record import is_user_file

_COMPILE = "/jax/core/compile/"
_STEPS = {
    f"{_COMPILE}jaxpr_trace_duration": "trace",
    f"{_COMPILE}jaxpr_to_mlir_module_duration": "lower",
    f"{_COMPILE}backend_compile_duration": "xla",
}
_MOST_SHAPES = 32
"""Programs of one function that are kept; with further ones its calls are counted only."""


@dataclass
class JittedCall:
    """A function as jax compiled it for the cell's call. ``arrays`` are the arguments of its first call that
    are not static, in the order of the jaxpr, ``lines`` those of the cell where it is called, ``steps`` the
    seconds that jax took to trace, lower and compile it in this cell (empty: it was compiled before)."""

    name: str
    traced: Any
    lowered: Any
    compiled: Any
    arrays: tuple[Any, ...]
    caller: Caller
    function: FunctionType | None = None  # the user's own
    mapped: bool = False
    count: int = 0
    lines: set[int] = field(default_factory=set)
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def closed(self) -> Any:
        """Its ``ClosedJaxpr``."""
        return self.traced.jaxpr

    @property
    def callers(self) -> Caller:
        """Where all of its calls were."""
        first = self.caller.frames[0].lineno if self.caller.frames else None
        return dataclasses.replace(self.caller, also=tuple(sorted(self.lines - {first})))

    @property
    def made_by(self) -> str:
        """What jitted it."""
        return "jax.pmap" if self.mapped else "jax.jit"

    @property
    def where(self) -> str:
        """Its name, and the line of the cell that calls it first."""
        return f"{self.name} (line {min(self.lines)})" if self.lines else self.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the jaxpr's inputs, as far as they have any; a ``pmap`` numbers them."""
        jaxpr = self.closed.jaxpr
        names = tuple(getattr(jaxpr.debug_info, "arg_names", None) or ())
        if self.mapped and self.function is not None:
            own = tuple(inspect.signature(self.function).parameters)
            names = own if len(own) == len(jaxpr.invars) else names
        return names if len(names) == len(jaxpr.invars) else ("",) * len(jaxpr.invars)

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """As its arguments ask for: 64-bit types where it has any, whatever is set by now, and their mesh."""
        import jax

        avals = (*self.closed.in_avals, *self.closed.out_avals)
        meshes = (getattr(getattr(each, "sharding", None), "mesh", None) for each in self.arrays)
        mesh = next((each for each in meshes if each is not None and each.size > 1), None)
        with contextlib.ExitStack() as stack:
            if any(str(getattr(each, "dtype", "")).endswith(("64", "128")) for each in avals):
                stack.enter_context(wide_types())
            if mesh is not None and hasattr(jax, "set_mesh"):
                stack.enter_context(jax.set_mesh(mesh))
            yield

    @property
    def why_not_again(self) -> str:
        """Why it cannot be called once more; empty if it can."""
        if any(getattr(each, "is_deleted", bool)() for each in self.arrays):
            return "its arguments were donated: their memory is gone"
        if self.traced.donate_argnums:
            return "it takes its arguments' memory (donated), and a call would take what you have left"
        if self.closed.effects:
            return "it prints or calls Python, which would happen again"
        return ""


class JitWatch:
    """Notices the calls that run while it is on and come from the code of ``cell_file``."""

    def __init__(self, cell_file: str) -> None:
        self.calls: list[JittedCall] = []
        self.notes: list[str] = []
        self._cell_file = cell_file
        self._by_program: dict[int, JittedCall] = {}
        self._by_arguments: dict[Hashable, JittedCall] = {}
        self._shapes: dict[int, int] = {}
        self._steps: dict[str, dict[str, float]] = {}
        self._functions: list[Any] = []  # whose addresses are keys
        self._undo: list[Callable[[], None]] = []
        self._hook_again: Callable[[], None] = lambda: None
        self._busy = False

    def start(self) -> None:
        """From now on, or as soon as the cell imports jax."""
        if not self._cell_file:
            self.notes.append("Calls of jitted functions are not seen: IPython keeps no source of this cell.")
            return
        self._undo.append(when_imported("jax", self._install))

    def stop(self) -> None:
        """jax is as it was."""
        while self._undo:
            self._undo.pop()()

    def _install(self) -> None:
        try:
            import jax.monitoring

            pjit, api = (importlib.import_module(f"jax._src.{name}") for name in ("pjit", "api"))
            self._patch(pjit)
            self._hook(api)
            jax.monitoring.register_event_duration_secs_listener(self._timed)
            self._undo.append(lambda: jax.monitoring.unregister_event_duration_listener(self._timed))
        except (ImportError, AttributeError) as error:
            version = getattr(sys.modules.get("jax"), "__version__", "")
            self.notes.append(f"Calls of jitted functions are not seen: jax {version} has no {error.name}.")

    def _hook(self, api: ModuleType) -> None:
        state: Any = api._post_hook_state

        def after_call(function: Any, args: Any, kwargs: Any, output: Any) -> None:
            also = state.get_global() if before is None or not callable(before) else before
            if also is not None:
                also(function, args, kwargs, output)
            self._hit(function, args, kwargs)

        # This thread's, which goes before the one for all: whoever leaves jax.debug_nans() sets it to None.
        before = state.swap_local(after_call)

        def again() -> None:
            if not callable(state.get_local()):
                state.set_local(after_call)

        def undo() -> None:
            if state.get_local() is after_call:
                state.swap_local(before)

        self._hook_again = again
        self._undo.append(undo)

    def _patch(self, pjit: ModuleType) -> None:
        name = "_run_python_pjit"
        if not hasattr(pjit, name):
            name = "_python_pjit_helper"  # before jax 0.10
        original = getattr(pjit, name)

        def run(params: Any, flat: Any, function: Any, args: Any, kwargs: Any) -> Any:
            __tracebackhide__ = True
            made = original(params, flat, function, args, kwargs)
            self._missed(function, lambda: (params, flat))
            return made

        def run_before(function: Any, info: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            made = original(function, info, *args, **kwargs)
            self._missed(function, lambda: pjit._infer_params(function, info, args, kwargs))
            return made

        setattr(pjit, name, run if name == "_run_python_pjit" else run_before)
        self._undo.append(lambda: setattr(pjit, name, original))

    def _timed(self, event: str, duration_secs: float, **about: Any) -> None:
        step = _STEPS.get(event)
        if step is not None:
            name = str(about.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
            self._steps.setdefault(name, {})[step] = duration_secs

    # -- a call -----------------------------------------------------------------------------------------

    def _missed(self, function: Any, ask: Callable[[], tuple[Any, Any]]) -> None:
        """A call that jax has just traced, compiled and run."""
        if self._busy:
            return
        self._busy = True
        try:
            self._hook_again()
            if _is_users(function):
                self._notice(function, ask)
        except Exception as error:
            self._tell(error)
        finally:
            self._busy = False

    def _hit(self, function: Any, args: Any, kwargs: Any) -> None:
        """A call of what was compiled before."""
        if self._busy:
            return
        self._busy = True
        try:
            raw = getattr(function, "_fun", None)
            if raw is None or not _is_users(raw):
                return
            key = _key(raw, args, kwargs)
            known = self._by_arguments.get(key)
            if known is None:
                pjit: Any = sys.modules["jax._src.pjit"]
                known = self._notice(raw, lambda: pjit._infer_params(raw, function._jit_info, args, kwargs))
                if known is not None:
                    self._by_arguments[key] = known
            else:
                self._count(known)
        except Exception as error:
            self._tell(error)
        finally:
            self._busy = False

    def _notice(self, function: Any, ask: Callable[[], tuple[Any, Any]]) -> JittedCall | None:
        frames = _frames(self._cell_file)
        if not frames:
            return None  # of another thread, or of jax's own
        seen = self._shapes.get(id(function), 0)
        if seen >= _MOST_SHAPES:
            return None
        import jax

        params, flat = ask()
        if any(isinstance(each, jax.core.Tracer) for each in flat):
            return None  # within the trace of another function, or of a gradient
        program = params.params["jaxpr"]
        known = self._by_program.get(id(program))
        if known is None:
            self._shapes[id(function)] = seen + 1
            self._functions += [function, program]
            known = self._by_program[id(program)] = self._made(function, params, flat, frames)
            self.calls.append(known)
        self._count(known)
        return known

    def _made(self, function: Any, params: Any, flat: Any, frames: list[tuple[CodeType, int]]) -> JittedCall:
        import jax

        steps = self._steps.pop(str(params.params["name"]), {})
        pjit: Any = sys.modules["jax._src.pjit"]
        traced: Any = jax.stages.Traced  # whose constructor is not for everybody
        users = _users_function(function)
        name = str(getattr(users, "__name__", "") or getattr(function, "__name__", "a function"))
        caller = Caller(
            tuple(frame_at(code, instruction) for code, instruction in frames),
            self._cell_file,
            getattr(users, "__code__", None),
        )
        made = traced(
            list(map(pjit.convert_to_metaty, flat)), params.params, params.in_tree, params.out_tree,
            params.consts,
        )  # fmt: skip
        lowered = made.lower()  # now, while settings are as they were for the call: nothing is compiled anew
        return JittedCall(
            name,
            made,
            lowered,
            lowered.compile(),
            tuple(flat),
            caller,
            users,
            mapped=getattr(function, "__module__", "") == _PMAP,
            steps=steps,
        )

    def _count(self, call: JittedCall) -> None:
        call.count += 1
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if _is_cell(frame.f_code, self._cell_file):
                call.lines.add(frame.f_lineno)
                return
            frame = frame.f_back

    def _tell(self, error: Exception) -> None:
        note = f"A call of a jitted function is not recorded: {type(error).__name__}: {error}"
        if note not in self.notes:
            self.notes.append(note.split("\n", 1)[0])


_PMAP = "jax._src.pmap"


def _is_users(function: Any) -> bool:
    """Whether a function that jax compiles was jitted by the user or a library, rather than by jax: each
    operation of ``jax.numpy`` is a jitted function of its own."""
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, FunctionType) and hasattr(function, "lower"):
        return True  # jax.jit(jnp.tanh): jitted once more
    named = function if isinstance(function, FunctionType) else type(function)
    module = str(named.__module__ or "")
    return not module.startswith(("jax.", "jaxlib.", "nbcompile.")) or module == _PMAP


def _users_function(function: Any) -> Any:
    """The user's own function in what jax made of it, found through what wraps it; None if there is none."""
    level, seen = [function], set()
    for _ in range(8):
        inside: list[Any] = []
        for each in level:
            if isinstance(each, FunctionType) and is_user_file(each.__code__.co_filename):
                return each
            seen.add(id(each))
            inside += [getattr(each, name, None) for name in ("__wrapped__", "func", "f")]
            for cell in getattr(each, "__closure__", None) or ():
                with contextlib.suppress(ValueError):  # not bound yet
                    inside.append(cell.cell_contents)
        level = [each for each in inside if each is not None and id(each) not in seen][:64]
    return None


def _is_cell(code: CodeType, cell_file: str) -> bool:
    """Whether this is the code of a cell itself rather than of a function in it."""
    return code.co_filename == cell_file and not code.co_flags & inspect.CO_NEWLOCALS


def _frames(cell_file: str) -> list[tuple[CodeType, int]]:
    """The user's frames from the cell's own inwards; none where no cell is below."""
    found: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    cell = 0
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lasti))
            if _is_cell(frame.f_code, cell_file):
                cell = len(found)
        frame = frame.f_back
    return found[:cell][::-1]


def _key(function: Any, args: Any, kwargs: Any) -> Hashable:
    """What tells the calls of a function apart, as far as that is quickly said."""
    import jax

    leaves, tree = jax.tree.flatten((args, kwargs))
    return id(function), tree, tuple(_kind(leaf) for leaf in leaves)


def _kind(leaf: Any) -> Hashable:
    kind: Hashable = cast(Hashable, type(leaf))
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        return shape, leaf.dtype, getattr(leaf, "sharding", None)
    if isinstance(leaf, str | bool | int | None):
        return kind, leaf
    return kind

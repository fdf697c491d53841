"""Triton kernels run on CPU tensors, through Triton's interpreter, in this process.

The kernels see a second instance of Triton's language (:mod:`language_copy`), so compiling goes on
undisturbed beside it. Programs of a grid run one after another; those of a ``together`` launch take
turns, changing at each atomic. By default every access is checked (:mod:`memory`): a kernel that
reads or writes outside its arguments, or whose programs race, fails with the argument, the element and
the line.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, TracebackType
from typing import Any

import numpy as np
import torch

from nbcompile.compiler.runtime.cache import key
from nbcompile.compiler.runtime.gpu.grid import grid_of, is_pointer, sizes_of
from nbcompile.compiler.runtime.interpreter.language_copy import TritonCopy
from nbcompile.compiler.runtime.interpreter.memory import HostMemory, Range, one_size
from nbcompile.compiler.runtime.interpreter.operations import ARGUMENT, Reductions, make_builder
from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch
from nbcompile.errors import OUR_BUG, CodegenError, KernelError, LaunchError, NbcompileError, ToolchainError

STALLED_TURNS = 200
"""Turns each program of a ``together`` launch may take in a row without any progress."""

_TO_TENSOR = "__nbcompile_to_tensor"
_INTEGERS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}

Programs = Mapping[str, Callable[..., None]]


def interpreted(
    source: KernelSource, *, checked: bool = True, chosen: Mapping[str, Config] | None = None
) -> Programs:
    """Each launch of ``source`` by function name, to be called with CPU tensors and integers in the order
    of ``Launch.arguments``. ``checked``: verify every access (of kernels that scatter only the addresses:
    the user's indices may collide). ``chosen``: configs other than the first.

    Calls raise LaunchError for an access outside the arguments, a race, or programs that wait for each
    other for ever, CodegenError for whatever else goes wrong in a kernel. ToolchainError without Triton.
    """
    machine = _machine()
    scope = machine.execute(source.source)
    scatters = {kernel.id for kernel in source.kernels if kernel.schedule == "scatter"}
    made: dict[str, Callable[..., None]] = {}
    for launch in source.launches:
        config = (chosen or {}).get(launch.function, launch.configs[0])
        function = scope.get(launch.function)
        if not isinstance(function, _Function):
            raise CodegenError(f"the generated Triton file has no function {launch.function}.")
        made[launch.function] = functools.partial(
            machine.launch, function.fn, launch, config, checked, launch.kernel not in scatters
        )
    return made


class _Function:
    """A ``@triton.jit`` function of a generated file: called as what it is, a Python function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = fn.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **{name: value for name, value in kwargs.items() if name != "_semantic"})


class _Machine:
    """Triton's interpreter on a copy of its language, patched once."""

    def __init__(self) -> None:
        copy = TritonCopy()
        self.copy = copy
        self.language: Any = copy.module("triton.language")
        interpreter: Any = copy.module("triton.runtime.interpreter")
        self.interpreter = interpreter
        self.builder = make_builder(interpreter, self.language)
        interpreter.interpreter_builder = self.builder
        interpreter.interpreter_semantic = interpreter.TritonSemantic(self.builder)
        self.semantic = interpreter.interpreter_semantic
        core: Any = copy.module("triton.language.core")
        # _patch_lang patches the modules that a function sees: here all, and never again
        seen = _Function(lambda: None)
        seen.__globals__ = {"tl": self.language, "core": core}  # type: ignore[attr-defined]
        interpreter._patch_lang(seen)
        interpreter._patch_lang = lambda _: None
        core.tensor.__index__ = lambda self: int(self.handle.data.item())  # numpy has ended int(array of one)
        core.tensor.__bool__ = lambda self: (
            bool(self.handle.data.item()) if self.handle.data.size == 1 else True
        )
        made = Reductions(interpreter, self.language)
        for module in (self.language, core):
            vars(module).update(reduce=made.reduce, associative_scan=made.scan, range=self.range)
        stand_ins: Any = copy.run("nbcompile.compiler.runtime.interpreter.numpy_helpers")
        self.helpers: Mapping[str, Any] = stand_ins.HELPERS
        copy.provide("triton.language.extra.libdevice", stand_ins.libdevice)
        copy.provide("triton.language.extra.cuda", stand_ins.cuda)
        top: Any = copy.module("triton")
        top.jit = _jit
        self.lock = threading.RLock()  # the interpreter has one present program

    def execute(self, text: str) -> dict[str, Any]:
        """The names that a generated file defines."""
        path = f"<nbcompile triton {key('triton-file', text)[:12]}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        scope: dict[str, Any] = {
            "__builtins__": {**self.copy.builtins, "range": self.range},
            "__name__": "nbcompile_interpreted",
            _TO_TENSOR: self.to_tensor,
        }
        try:
            exec(_rewritten(text, path), scope)
        except SyntaxError as error:
            raise CodegenError(
                f"the generated Triton file is no Python, line {error.lineno}: {error.msg}."
            ) from error
        except NbcompileError:
            raise
        except Exception as error:
            raise CodegenError(
                f"the generated Triton file cannot be run: {type(error).__name__}: {error}."
            ) from error
        scope.update(
            {name: helper for name, helper in self.helpers.items() if isinstance(scope.get(name), _Function)}
        )
        return scope

    def to_tensor(self, value: Any) -> Any:
        """What an assignment makes of a number: a tensor, as in the compiler."""
        return self.semantic.to_tensor(value, False) if isinstance(value, bool | int | float) else value

    def range(self, first: Any, end: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
        """A loop's variable is a tensor, 32 bits wide unless a bound is wider."""
        bounds = [
            first if end is not None else 0,
            end if end is not None else first,
            1 if step is None else step,
        ]
        wide = any(
            getattr(item, "dtype", None) in (self.language.int64, self.language.uint64) for item in bounds
        )
        kind, bits = (self.language.int64, np.int64) if wide else (self.language.int32, np.int32)
        for value in range(*(int(getattr(item, "value", item)) for item in bounds)):
            yield self.language.core.tensor(
                self.interpreter.TensorHandle(np.array([value], dtype=bits), kind), kind
            )

    def launch(
        self, fn: Callable[..., Any], launch: Launch, config: Config, checked: bool, races: bool, *args: Any
    ) -> None:
        """Run every program of one launch, with its accesses ``checked``, for ``races`` too."""
        if len(args) != len(launch.arguments):
            raise LaunchError(
                f"kernel {launch.function} takes {len(launch.arguments)} arguments, got {len(args)}."
            )
        grid = grid_of(launch, config, sizes_of(launch, args))
        if 0 in grid:
            return
        with self.lock, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a row of NaN only
            ranges: dict[int, Range] = {}
            given: dict[str, Any] = dict(config.constants)
            for n, (item, value) in enumerate(zip(launch.arguments, args, strict=True)):
                given[item.name] = self._argument(n, item, value, launch.function, ranges)
            builder = self.builder
            races = races and not launch.together and one_size(ranges.values())
            builder.memory = HostMemory(ranges, races) if checked else None
            builder.set_grid_dim(*grid)
            programs = list(itertools.product(*map(range, grid)))
            try:
                if launch.together:
                    _TakingTurns(builder, fn, given, programs).run()
                else:
                    for number, place in enumerate(programs):
                        builder.enter(number, place)
                        fn(**given)
            except Exception as error:
                raise _explained(error, launch.function, fn.__code__) from error
            finally:
                builder.memory, builder.grid_idx = None, None

    def _argument(self, n: int, item: Argument, value: Any, function: str, ranges: dict[int, Range]) -> Any:
        kind = self.language.str_to_ty(item.type, None)
        if is_pointer(item.type):
            if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
                raise LaunchError(f"argument {item.name} of kernel {function} wants a tensor on the CPU.")
            size = max(1, kind.element_ty.primitive_bitwidth // 8)
            if value.element_size() != size:
                raise LaunchError(
                    f"argument {item.name} of kernel {function} is {item.type}, got {value.dtype}."
                )
            storage = value.untyped_storage()
            ranges[n] = Range(item.name, storage.data_ptr(), storage.data_ptr() + storage.nbytes(), size)
            handle = self.interpreter.TensorHandle(np.array([value.data_ptr()], dtype=np.uint64), kind)
            handle.set_attr(ARGUMENT, n)
            return self.language.core.tensor(handle, kind)
        dtype = self.interpreter._get_np_dtype(kind)
        if item.type in _INTEGERS:
            bits = _INTEGERS[item.type]
            low, high = (0, 1 << bits) if item.type[0] == "u" else (-1 << (bits - 1), 1 << (bits - 1))
            if not low <= int(value) < high:
                raise LaunchError(f"argument {item.name} of kernel {function} is {item.type}, got {value}.")
        return self.language.core.tensor(
            self.interpreter.TensorHandle(np.array([value], dtype=dtype), kind), kind
        )


@functools.cache
def _machine() -> _Machine:
    try:
        return _Machine()
    except (ImportError, AttributeError) as error:
        raise ToolchainError(
            f"Triton's interpreter is not as expected here: {error}.", advice="Triton 3.6 is known to work."
        ) from error


def _jit(fn: Callable[..., Any] | None = None, **_: Any) -> Any:
    """``@triton.jit``, with or without options."""
    return _Function(fn) if fn is not None else _Function


@functools.lru_cache(maxsize=256)
def _rewritten(text: str, path: str) -> CodeType:
    """The file's code, with each assigned value in its functions made a tensor, as the compiler does."""
    tree = ast.parse(text, path)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    made = ast.Call(ast.Name(_TO_TENSOR, ast.Load()), [node.value], [])
                    node.value = ast.fix_missing_locations(ast.copy_location(made, node.value))
    return compile(tree, path, "exec")


class _StoppedError(Exception):
    """Ends a program of a launch that has failed elsewhere."""


class _TakingTurns:
    """The programs of a launch that wait for each other: threads of which one runs at a time, the next in
    order after each atomic or volatile load. So a run is the same each time."""

    def __init__(
        self, builder: Any, fn: Callable[..., Any], given: dict[str, Any], programs: list[tuple[int, ...]]
    ) -> None:
        self.builder, self.fn, self.given, self.programs = builder, fn, given, programs
        self.turns = [threading.Semaphore(0) for _ in programs]
        self.alive = list(range(len(programs)))
        self.finished = threading.Event()
        self.failure: Exception | None = None
        self.present = 0
        self.idle = 0

    def run(self) -> None:
        threads = [threading.Thread(target=self._program, args=(n,), daemon=True) for n in self.alive]
        self.builder.pause, self.builder.went_on = self._pause, self._went_on
        try:
            for thread in threads:
                thread.start()
            self.turns[0].release()
            self.finished.wait()
            for thread in threads:
                thread.join()
        finally:
            self.builder.pause = self.builder.went_on = None
        if self.failure is not None:
            raise self.failure

    def _program(self, n: int) -> None:
        self._take(n)
        try:
            if self.failure is None:
                with np.errstate(all="ignore"):
                    self.fn(**self.given)
        except _StoppedError:
            pass  # another program's failure is the one to tell
        except Exception as error:
            self.failure = self.failure or error
        place = self.alive.index(n)
        self.alive.remove(n)
        self.idle = 0
        if self.alive:
            self.turns[self.alive[place % len(self.alive)]].release()
        else:
            self.finished.set()

    def _take(self, n: int) -> None:
        self.turns[n].acquire()
        self.present = n
        self.builder.enter(n, self.programs[n])

    def _pause(self) -> None:
        n = self.present
        self.idle += 1
        if self.idle > STALLED_TURNS * len(self.alive):
            raise LaunchError("the programs of this launch wait for each other for ever.")
        following = self.alive[(self.alive.index(n) + 1) % len(self.alive)]
        if following != n:
            self.turns[following].release()
            self._take(n)
        if self.failure is not None:
            raise _StoppedError

    def _went_on(self) -> None:
        self.idle = 0


def _explained(error: Exception, function: str, code: CodeType) -> KernelError:
    """The error of a kernel, with the line of the generated file where it arose."""
    line, text = _place(error.__traceback__, code.co_filename)
    where = f"kernel {function}, generated line {line} `{text}`" if line else f"kernel {function}"
    found: KernelError
    if isinstance(error, LaunchError):
        found = LaunchError(f"{where}: {error.message}", advice=OUR_BUG)
    else:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        found = CodegenError(f"{where} cannot be interpreted: {told}.")
    found.function, found.file_line = function, line or None
    return found


def _place(trace: TracebackType | None, path: str) -> tuple[int, str]:
    """The innermost line of ``path`` in a traceback, and its text; 0 if there is none."""
    for frame in reversed(traceback.extract_tb(trace)):
        if frame.filename == path and frame.lineno is not None:
            return frame.lineno, textwrap.shorten(
                linecache.getline(path, frame.lineno), 120, placeholder=" ..."
            )
    return 0, ""

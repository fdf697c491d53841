"""KernelSource → CompiledModule: build the C file, load it, bind the Python wrapper."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import linecache
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

import torch

from nbcompile.compiler.in_aten import as_traced, carry_tangents, handed_on, in_aten
from nbcompile.compiler.runtime import scratch
from nbcompile.compiler.runtime.c.calls import native_caller
from nbcompile.compiler.runtime.c.toolchain import Toolchain
from nbcompile.compiler.runtime.layout import flat
from nbcompile.compiler.runtime.pool import POOL, empty_small
from nbcompile.compiler.runtime.stopwatch import Stopwatch
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelSource, KernelText
from nbcompile.errors import ToolchainError
from nbcompile.record.recorder import Recorder

# wrapping signed arithmetic is what torch has; C leaves it undefined
EXTRA_FLAGS = ("-fwrapv", "-fno-semantic-interposition")


@functools.cache
def _builders(process: int) -> concurrent.futures.ThreadPoolExecutor:
    """Threads that wait for compilers; those of a parent process do not survive a fork."""
    return concurrent.futures.ThreadPoolExecutor(max_workers=4, thread_name_prefix="nbcompile-cc")


Allocate = Callable[..., torch.Tensor]
"""``empty(shape, strides, dtype)``."""

Wrap = Callable[[Mapping[str, Callable[..., None]]], Mapping[str, Callable[..., None]]]
"""Kernels by symbol, as the wrapper calls them, to what it is to call."""

KERNEL_FILE = "kernel"
"""What the C compiler is told that the file of a kernel by itself is called."""

KERNELS_A_PART = 3  # fewer are compiled sooner by one compiler than by two and a linker


def build(source: KernelSource, toolchain: Toolchain) -> concurrent.futures.Future[bytes]:
    """Start compiling a graph's C file in the background, large files in parts at once; the future
    gives the shared library's bytes."""
    files = parts(source, os.cpu_count() or 1)
    _builders(os.getpid()).submit(native_caller)  # the first of a machine is built while the kernels are

    def run() -> bytes:
        with scratch.temporary() as folder:
            out = folder / "kernel.so"
            if len(files) == 1:
                toolchain.compile(source.source, out, extra=EXTRA_FLAGS)
                return out.read_bytes()
            objects = [folder / f"part{n}.o" for n in range(len(files))]
            with concurrent.futures.ThreadPoolExecutor(len(files)) as compilers:
                jobs = [
                    compilers.submit(toolchain.compile, text, place, (*EXTRA_FLAGS, "-c"))
                    for text, place in zip(files, objects, strict=True)
                ]
            for job in jobs:
                job.result()
            toolchain.link(objects, out)
            return out.read_bytes()

    return _builders(os.getpid()).submit(run)


def parts(source: KernelSource, cores: int) -> list[str]:
    """The file cut into at most ``cores`` files of about as much text, each with what stands above the
    first kernel."""
    count = min(cores, len(source.kernels) // KERNELS_A_PART)
    if count < 2:
        return [source.source]
    found: list[list[KernelText]] = [[] for _ in range(count)]
    for kernel in sorted(source.kernels, key=lambda item: -len(item.text)):
        min(found, key=lambda part: sum(len(item.text) for item in part)).append(kernel)
    return [source.file_of(part) for part in found]


def alone(source: KernelSource, kernel: KernelText) -> KernelSource:
    """The source of one kernel. To the C compiler the lines of its text are those of :data:`KERNEL_FILE`."""
    marked = replace(kernel, text=f'#line 1 "{KERNEL_FILE}"\n{kernel.text}')
    return replace(source, kernels=(marked,), entry_points=source.functions_of(kernel.id))


def refused_kernels(source: KernelSource, toolchain: Toolchain) -> dict[str, ToolchainError]:
    """The kernels, by id, that the C compiler refuses by themselves, and what it says."""
    found: dict[str, ToolchainError] = {}
    with scratch.temporary() as folder:
        for kernel in source.kernels:
            try:
                text = alone(source, kernel).source
                toolchain.compile(text, folder / "kernel.o", extra=(*EXTRA_FLAGS, "-c"))
            except ToolchainError as error:
                found[kernel.id] = error
    return found


def wrapper_code(source: KernelSource) -> CodeType:
    """What Python makes of a wrapper's text."""
    return compile(source.wrapper, _filename(source), "exec")


def _filename(source: KernelSource) -> str:
    return f"<nbcompile wrapper {source.graph}>"


def bind(
    source: KernelSource,
    functions: Callable[[], Mapping[str, Callable[..., None]]],
    constants: Mapping[str, Any],
    from_cache: bool,
    empty: Allocate | None = None,
    stopwatch: Stopwatch | None = None,
    around: Wrap | None = None,
    code: CodeType | None = None,
) -> CompiledModule:
    """A module that resolves its kernels (waiting for the compiler) at its first call. ``constants``
    are what the graph holds, by name (see :func:`graph_constants`); ``empty`` allocates
    memory (shape, strides, dtype), by default from our pool on the CPU. While ``stopwatch`` runs, every
    step of a call is timed. ``around`` gives what the wrapper calls in place of its kernels. ``code``: what
    :func:`wrapper_code` gave of this source."""
    filename = _filename(source)
    linecache.cache[filename] = (
        len(source.wrapper), None, source.wrapper.splitlines(keepends=True), filename,
    )  # fmt: skip
    code = code or wrapper_code(source)
    libraries = {name: _operator(name, target) for name, target in source.libraries.items()}
    state: list[Callable[[list[Any]], Any]] = []
    scope: dict[str, Any] = {}

    def first(args: list[Any]) -> Any:
        if not state:
            kernels = functions() if around is None else around(functions())
            found = _scope(kernels, libraries, constants, empty)
            exec(code, found)
            scope.update(found)
            state.append(_one_a_thread(found, code) if "check(" in source.wrapper else found["call"])
        return call(args)

    def call(args: list[Any]) -> Any:
        if stopwatch is not None and stopwatch.running and state:
            return stopwatch.run(args, scope)
        return state[0](args) if state else first(args)

    return CompiledModule(source.graph, call, from_cache)


def _one_a_thread(scope: dict[str, Any], code: CodeType) -> Callable[[list[Any]], Any]:
    """The wrapper of ``scope``, of which each thread has its own, with a flag of its own: a kernel sets it
    for an index out of range while other threads run, and it is looked at after the kernel."""
    own = threading.local()

    def call(args: list[Any]) -> Any:
        try:
            return own.call(args)
        except AttributeError:
            if hasattr(own, "call"):
                raise
        mine = {**scope, **_flag()}
        exec(code, mine)
        own.call = mine["call"]
        return own.call(args)

    return call


_OUT_VARIANTS = {
    "mm_out": torch.mm, "bmm_out": torch.bmm, "addmm_out": torch.addmm, "baddbmm_out": torch.baddbmm,
}  # fmt: skip


def _operator(name: str, target: str) -> Any:
    """The operator that a wrapper's global stands for: ``aten.mm.default`` and the like."""
    if name in _OUT_VARIANTS:
        return _OUT_VARIANTS[name]
    if "." not in target:
        return _DIRECT.get(target) or getattr(torch.ops.higher_order, target)
    found: Any = torch.ops
    for part in target.split("."):
        found = getattr(found, part)
    return found


_DONE = torch.tensor([])


# Torch's higher-order operators without their dispatch, which takes 50 to 100 microseconds a call: within a
# wrapper there is no autograd, and nothing is traced.


def _ordered(token: Any, op: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """``with_effects``. Calls are in a wrapper in the order of their tokens."""
    out = op(*args, **kwargs)
    return (_DONE, *out) if isinstance(out, tuple) else (_DONE, out)


def _chosen(pred: Any, yes: Callable[..., Any], no: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """``cond``."""
    return yes(*operands) if pred else no(*operands)


def _looped(
    goes_on: Callable[..., Any], step: Callable[..., Any], carried: Sequence[Any], given: Sequence[Any]
) -> tuple[Any, ...]:
    """``while_loop``: what it gives back is never what it was given."""
    if not goes_on(*carried, *given):
        return tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in carried)
    results: tuple[Any, ...] = step(*carried, *given)
    while goes_on(*results, *given):
        results = step(*results, *given)
    return results


_DIRECT: dict[str, Callable[..., Any]] = {"with_effects": _ordered, "cond": _chosen, "while_loop": _looped}


def graph_constants(aten: AtenGraph, names: tuple[str, ...]) -> dict[str, Any]:
    """The tensors and the graphs that the graph holds, by node name."""
    found: dict[str, Any] = {}
    for node in aten.module.graph.nodes:
        if node.op == "get_attr" and node.name in names:
            value: Any = aten.module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            found[node.name] = value
    return found


def with_fallback(module: CompiledModule, aten: AtenGraph, recorder: Recorder) -> CompiledModule:
    """``module``, whose first call runs the graph in ATen instead if it fails (and from then on): an
    error of ours must not become the user's. An error that ATen raises too is the user's own."""
    state = [module.call]
    instead = in_aten(aten.module)

    def first(args: list[Any]) -> Any:
        kept, as_before = list(args), _generators()
        try:
            result = module.call(args)
        except Exception as error:
            as_before()  # what a graph within the graph has drawn is drawn again
            result = instead(kept)
            reason = f"{type(error).__name__}: {error}"
            recorder.leave_to_eager(aten.id, f"our code failed when run: {reason}", error=error)
            recorder.add(f"graph {aten.id} runs eagerly: our code failed when run: {reason}")
            state[0] = instead
        else:
            state[0] = module.call
        return result

    def call(args: list[Any]) -> Any:
        if carry_tangents(args):
            recorder.leave_call_to_eager(aten.id, "its inputs carry tangents (forward-mode AD)")
            return instead(list(args))
        return state[0](args)

    state[0] = first
    return replace(module, call=call)


def _generators() -> Callable[[], None]:
    """What puts torch's generators back to where they are now."""
    cpu, cuda = torch.get_rng_state(), torch.cuda
    on_gpus = cuda.is_initialized() and not cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
    gpus = cuda.get_rng_state_all() if on_gpus else []

    def put_back() -> None:
        torch.set_rng_state(cpu)
        cuda.set_rng_state_all(gpus)

    return put_back


def _scope(
    functions: Mapping[str, Callable[..., None]],
    libraries: Mapping[str, Any],
    constants: Mapping[str, Any],
    empty: Allocate | None,
) -> dict[str, Any]:
    """The globals of the wrapper."""
    return {
        "torch": torch,
        "math": math,
        "empty": empty or POOL.empty_strided,
        "empty_small": empty or empty_small,
        "view": view,
        "as_result": as_result,
        "as_traced": as_traced,
        "handed_on": handed_on,
        "aligned": aligned,
        "constants": constants,
        **_flag(),
        **functions,
        **libraries,
    }


class OutOfRangeError(IndexError, RuntimeError):
    """Of whichever operator of a kernel. Eager raises IndexError for some (indexing, embedding, a loss's
    classes) and RuntimeError for others (``gather``, ``scatter_``, ``index_add_``): whoever catches eager's
    error catches this one."""


def _flag() -> dict[str, Any]:
    """What a kernel says that it met an index out of range in, and what raises it."""
    flag = ctypes.c_int(0)

    def check(kernel: str) -> None:
        if flag.value:
            flag.value = 0
            raise OutOfRangeError(f"index out of range in kernel {kernel}")

    return {"status": ctypes.addressof(flag), "check": check, "_flag": flag}


def view(base: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The strided view of ``base`` that starts ``offset`` elements after its first."""
    return base.as_strided(shape, strides, base.storage_offset() + offset)


def as_result(
    base: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """The same memory as of :func:`view`, in a tensor that is no view of ``base``."""
    guards: Any = torch._C._dynamo.guards
    made: torch.Tensor = guards._reinterpret_tensor(base, shape, strides, offset)
    return made


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or where its memory begins off a multiple of 16 bytes (a slice of another) a copy laid out
    the same: what loads whole tiles at once has no other way."""
    if tensor.data_ptr() % 16 == 0:
        return tensor
    return flat(tensor).clone().as_strided(tensor.shape, tensor.stride())

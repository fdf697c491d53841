"""Compiled Triton functions → functions that launch them on a GPU of this machine.

``f(*tensors_and_ints)`` goes straight to ``launch.c``, which checks what the code assumes of its
arguments, computes the grid and calls the driver. Where an assumption does not hold (a slice that starts
off 16 bytes, a size that is no multiple of 16) the function is compiled for what does, once, and that variant
serves such calls from then on.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.build import Builds
from nbcompile.compiler.runtime.gpu.compile import LEAST_DIVISOR, Assumed, Built, load_file
from nbcompile.compiler.runtime.gpu.grid import grid_of, is_pointer, program, sizes_of
from nbcompile.compiler.runtime.gpu.libcuda import libcuda, stream_of
from nbcompile.compiler.runtime.gpu.native import (
    DIVISOR,
    KINDS,
    MOST_ARGUMENTS,
    POINTER,
    native_launcher,
)
from nbcompile.compiler.stages import KernelSource, Launch
from nbcompile.errors import LaunchError
from nbcompile.targets import Target

MOST_VARIANTS = 4
"""Sets of assumptions that one launch is compiled for; calls that need yet another get the one that takes
sizes for anything, or for memory that begins elsewhere the one with none."""

_STATIC_SHARED = 48 << 10  # more than this, a function must ask for
_MAX_DYNAMIC_SHARED, _PREFER_SHARED = 8, 1  # numbers of the driver's
_C_TYPES: dict[int, Any] = {
    1: ctypes.c_int8, 2: ctypes.c_int16, 3: ctypes.c_int32, 4: ctypes.c_int64, 5: ctypes.c_uint8,
    6: ctypes.c_uint16, 7: ctypes.c_uint32, 8: ctypes.c_uint64, 9: ctypes.c_float, 10: ctypes.c_double,
}  # fmt: skip


def launchers(
    source: KernelSource, built: Builds, chip: Target, device: torch.device, driver: Driver | None = None
) -> Mapping[str, Callable[..., None]]:
    """Each launch of ``source`` by function name, on ``device`` and its current stream; called with the
    arguments of ``Launch.arguments`` in order, tensors for pointers.

    Loading raises LaunchError where the device cannot hold a function, and so does calling where the
    driver refuses (a ``together`` launch whose programs do not all fit, say)."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    if chip.kind == "hip":
        return {
            item.function: _hip_launcher(source, item, built[item.function], index)
            for item in source.launches
        }
    used = driver or cuda_driver()
    return {
        item.function: _Variants(source, item, built[item.function], chip, index, used).first
        for item in source.launches
    }


def resident_programs(built: Built, chip: Target, device: torch.device, driver: Driver | None = None) -> int:
    """How many programs of a function fit on the device at once: the most that a ``together`` launch may
    have."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    used = driver or cuda_driver()
    return used.resident(used.load(built, index), built, chip, index) * chip.multiprocessors


class Driver:
    """CUDA's driver library, and the functions loaded through it, once for each device."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._contexts: dict[int, int] = {}
        self._functions: dict[tuple[int, bytes, str], int] = {}
        self._call("cuInit", 0)

    def address(self, name: str) -> int:
        """Where the driver's function of this name lies."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def context(self, index: int) -> int:
        """The context of a device that torch uses too."""
        with self._lock:
            return self._context(index)

    def load(self, built: Built, index: int) -> int:
        """The handle of a function on device ``index``; equal binaries are loaded once and stay."""
        name = (index, hashlib.sha256(built.binary).digest(), built.symbol)
        with self._lock:
            if name not in self._functions:
                self._functions[name] = self._within(index, self._load, built)
            return self._functions[name]

    def resident(self, function: int, built: Built, chip: Target, index: int) -> int:
        """Programs of a loaded function that fit on one multiprocessor at once."""
        count = ctypes.c_int(0)

        def ask() -> None:
            self._call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(count), ctypes.c_void_p(function),
                built.warps * chip.warp, ctypes.c_size_t(built.shared_bytes),
            )  # fmt: skip

        with self._lock:
            self._within(index, ask)
        return count.value

    def error_name(self, status: int) -> str:
        """What the driver calls an error."""
        told = ctypes.c_char_p()
        self._library.cuGetErrorName(status, ctypes.byref(told))
        return (told.value or b"unknown error").decode()

    def _context(self, index: int) -> int:
        if index not in self._contexts:
            device, context = ctypes.c_int(0), ctypes.c_void_p()
            self._call("cuDeviceGet", ctypes.byref(device), index)
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[index] = context.value or 0
        return self._contexts[index]

    def _within(self, index: int, work: Callable[..., Any], *args: Any) -> Any:
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(self._context(index)))
        try:
            return work(*args)
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _load(self, built: Built) -> int:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), built.binary, of=built)
        self._call("cuModuleGetFunction", ctypes.byref(function), module, built.symbol.encode(), of=built)
        if built.shared_bytes > _STATIC_SHARED:
            self._call("cuFuncSetCacheConfig", function, _PREFER_SHARED, of=built)
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, built.shared_bytes, of=built)
        return function.value or 0

    def _call(self, name: str, *args: Any, of: Built | None = None) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            what = f"{name} failed"
            if of is not None:
                size = f"{of.shared_bytes} bytes of shared memory"
                what = f"kernel {of.function} ({size}) cannot be loaded, {name}"
            raise LaunchError(f"{what}: {self.error_name(status)}.")


@functools.cache
def cuda_driver() -> Driver:
    """The driver of this machine. LaunchError if there is none."""
    return Driver(libcuda())


class _Variants:
    """One launch on one device, for each set of assumptions met so far. ``first`` is what is called; it
    hands a call whose arguments are not as its code assumes to :meth:`_other`."""

    def __init__(
        self, source: KernelSource, launch: Launch, built: Built, chip: Target, index: int, driver: Driver
    ) -> None:
        self.source, self.launch, self.chip, self.index, self.driver = source, launch, chip, index, driver
        self.config = built.config
        self.assumed = built.assumed
        self.made: dict[Assumed, Callable[..., None]] = {}
        self.first = self._make(built)

    def _other(self, *args: Any) -> None:
        met = ((n, math.gcd(_place(args[n]), divisor), divisor) for n, divisor in self.assumed)
        holding = tuple(
            (n, divisor) for n, divisor, whole in met
            if divisor == whole or (divisor >= LEAST_DIVISOR and not isinstance(args[n], torch.Tensor))
        )  # fmt: skip
        if holding not in self.made and len(self.made) >= MOST_VARIANTS - 2:
            holding = tuple((n, divisor) for n, divisor in holding if isinstance(args[n], torch.Tensor))
        if holding not in self.made and len(self.made) >= MOST_VARIANTS:
            holding = ()
        function = self.made.get(holding)
        if function is None:
            built = triton_build.begin(self.source, self.launch, self.config, self.chip, holding).result()
            function = self.made[holding] = self._make(built)
        function(*args)

    def _make(self, built: Built) -> Callable[..., None]:
        handle = self.driver.load(built, self.index)
        kinds = [_kind(n, item.type, built) for n, item in enumerate(self.launch.arguments)]
        if built.scratch_bytes:
            kinds.append(POINTER)
        if len(kinds) > MOST_ARGUMENTS:
            raise LaunchError(
                f"kernel {self.launch.function} has {len(kinds)} arguments, more than {MOST_ARGUMENTS}."
            )
        native = native_launcher()
        if native is None:
            function = self._in_python(handle, kinds, built)
        else:
            function = native(self._state(handle, kinds, built))
        return self._with_scratch(function, built) if built.scratch_bytes else function

    def _state(self, handle: int, kinds: Sequence[int], built: Built) -> tuple[Any, ...]:
        """The tuple that ``launch.c`` describes."""
        names = (
            "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuCtxGetCurrent",
            "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuGetErrorName",
        )  # fmt: skip
        words = [
            handle, self.driver.context(self.index), built.warps * self.chip.warp, built.shared_bytes,
            int(self.launch.together), int(self.launch.early), len(kinds), len(self.launch.arguments),
            *map(self.driver.address, names), *kinds, *program(self.launch, built.config),
        ]  # fmt: skip
        return (
            struct.pack(f"={len(words)}q", *words), self._other, torch.Tensor.data_ptr, stream_of,
            self.index, self.launch.function, LaunchError,
        )  # fmt: skip

    def _in_python(self, handle: int, kinds: Sequence[int], built: Built) -> Callable[..., None]:
        """The launcher where there is no C compiler: the same, some 10 µs slower, and never ahead of time."""
        launch, driver, index = self.launch, self.driver, self.index
        context, threads = ctypes.c_void_p(driver.context(index)), built.warps * self.chip.warp
        start = getattr(driver._library, "cuLaunchCooperativeKernel" if launch.together else "cuLaunchKernel")
        extra = () if launch.together else (None,)

        def call(*args: Any) -> None:
            if len(args) != len(kinds):
                raise LaunchError(
                    f"kernel {launch.function} takes {len(launch.arguments)} arguments, got {len(args)}."
                )
            values = [_as_parameter(kind, value) for kind, value in zip(kinds, args, strict=True)]
            for n, (kind, value, given) in enumerate(zip(kinds, values, args, strict=True)):
                if kind >> DIVISOR and value.value & (kind >> DIVISOR):
                    return self._other(*args)
                if isinstance(given, int) and value.value != given:
                    raise LaunchError(f"argument {n} of kernel {launch.function} does not hold {given}.")
            sizes = {item.name: value.value for item, value in zip(launch.arguments, values, strict=False)}
            grid = grid_of(launch, built.config, sizes)
            if 0 in grid:
                return None
            values += [ctypes.c_uint64(0), ctypes.c_uint64(0)]
            parameters = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            driver._call("cuCtxPushCurrent_v2", context)
            try:
                status = start(
                    ctypes.c_void_p(handle), *grid, threads, 1, 1, built.shared_bytes,
                    ctypes.c_void_p(stream_of(index)), parameters, *extra,
                )  # fmt: skip
            finally:
                driver._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
            if status:
                told = driver.error_name(status)
                raise LaunchError(
                    f"kernel {launch.function} cannot be launched with the grid {grid}: {told}."
                )
            return None

        return call

    def _with_scratch(self, function: Callable[..., None], built: Built) -> Callable[..., None]:
        """Give each launch the global memory that its programs use for themselves."""
        launch, device = self.launch, torch.device("cuda", self.index)

        def call(*args: Any) -> None:
            programs = math.prod(grid_of(launch, built.config, sizes_of(launch, args)))
            scratch = torch.empty(max(1, programs) * built.scratch_bytes, dtype=torch.uint8, device=device)
            function(*args, scratch)

        return call


def _kind(position: int, type_name: str, built: Built) -> int:
    kind = POINTER if is_pointer(type_name) else KINDS.get(type_name)
    if kind is None:
        raise LaunchError(
            f"kernel {built.function} has an argument of type {type_name}, which no launcher passes."
        )
    return kind | (dict(built.assumed).get(position, 1) - 1) << DIVISOR


def _as_parameter(kind: int, value: Any) -> Any:
    if kind & 15 == POINTER:
        return ctypes.c_uint64(value.data_ptr())
    return _C_TYPES[kind & 15](value)


def _place(value: Any) -> int:
    """The address of a tensor, or the number itself."""
    return int(value.data_ptr()) if isinstance(value, torch.Tensor) else int(value)


def _hip_launcher(source: KernelSource, launch: Launch, built: Built, index: int) -> Callable[..., None]:
    """On AMD's chips Triton launches, and checks alignment itself."""
    function = getattr(load_file(source.source), launch.function)
    options = built.config.triton_options()
    options.pop("maxnreg", None)
    if launch.together:
        options["launch_cooperative_grid"] = True

    def call(*args: Any) -> None:
        grid = grid_of(launch, built.config, sizes_of(launch, args))
        if 0 not in grid:
            with torch.cuda.device(index):
                function[grid](*args, **built.config.constants, **options)

    return call

"""CUDA graphs of this machine: captured through torch, read and patched through CUDA's driver.

All that touches torch's or CUDA's own graph objects is here, so that the rest can be run against a fake.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import torch

from nbcompile.compiler.runtime.autotune.measure import reason
from nbcompile.compiler.runtime.cuda_graphs.pointers import GraphNode, Span
from nbcompile.compiler.runtime.gpu.libcuda import libcuda, stream_of
from nbcompile.errors import LaunchError

Call = Callable[[list[Any]], Any]

_SMALL_BLOCK = 512  # the allocator's least


class Recording(Protocol):
    """One captured graph that can be replayed, and the memory that it owns."""

    @property
    def replay(self) -> Callable[[], None]:
        """Run it on the current stream."""

    def spans(self) -> list[Span]:
        """The memory that was allocated for it."""

    def small_blocks(self) -> list[Span]:
        """Every small piece of memory that is in use outside of it. Torch keeps the state of random numbers
        in such pieces, in some versions one for each graph."""

    def nodes(self) -> list[GraphNode]:
        """Its nodes in the order they were captured; LaunchError where they cannot be read."""

    def update(self, nodes: Sequence[GraphNode]) -> None:
        """Use these nodes' buffers as they are now from the next replay on. LaunchError if refused."""

    def release(self) -> None:
        """Give up the graph; memory that somebody still sees stays."""


class Device(Protocol):
    """What captures graphs."""

    def capture(self, call: Call, args: list[Any]) -> tuple[Recording, Any]:
        """``call(args)`` captured, not run, and what it returned. LaunchError if it cannot be."""

    def is_capturing(self) -> bool:
        """Whether somebody else is capturing what runs now."""

    def stream(self) -> int:
        """Which stream a call would run on now."""

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory on the device for a copy of ``tensor``."""

    def free_bytes(self) -> int:
        """Memory that nobody has taken."""


class CudaDevice:
    """Captures on a side stream of one GPU, each graph with a memory pool of its own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._index = device.index if device.index is not None else torch.cuda.current_device()
        self._stream: torch.cuda.Stream | None = None

    is_capturing = staticmethod(
        getattr(torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)
    )

    def stream(self) -> int:
        return stream_of(self._index)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False):
            return torch.empty_strided(
                tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=self.device
            )

    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self.device)[0]

    def capture(self, call: Call, args: list[Any]) -> tuple[Recording, Any]:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call,unused-ignore]
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        pool = torch.cuda.graph_pool_handle()
        clear_library_memory()  # or the graph would use memory that is not its own
        with _no_collection(), torch.inference_mode(False), torch.no_grad(), torch.cuda.stream(self._stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                outputs = call(args)
                graph.capture_end()
            except BaseException as error:
                self._abandon(graph, pool)
                if not isinstance(error, Exception):
                    raise
                raise LaunchError(f"it cannot be captured: {reason(error)}") from error
            finally:
                clear_library_memory()
            graph.instantiate()
        return CudaRecording(graph, pool, self.device), outputs

    def _abandon(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        """Put torch back to where it was before a capture that failed."""
        with contextlib.suppress(RuntimeError):  # it says again that the capture failed
            graph.capture_end()
        with contextlib.suppress(RuntimeError):  # it says that the pool is not in use, in newer versions
            torch._C._cuda_endAllocateToPool(self._index, pool)
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_releasePool(self._index, pool)
        # the generator believes that a capture goes on until one ends well
        other = torch.cuda.CUDAGraph()
        scratch = torch.empty(1, device=self.device)
        other.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
        scratch.zero_()
        other.capture_end()
        other.reset()


class CudaRecording:
    """A ``torch.cuda.CUDAGraph`` with its raw handles."""

    def __init__(self, graph: torch.cuda.CUDAGraph, pool: Any, device: torch.device) -> None:
        self._graph = graph
        self._pool = tuple(pool)
        self._device = device
        self.replay = graph.replay

    def spans(self) -> list[Span]:
        return [
            (item["address"], item["address"] + item["total_size"])
            for item in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call,unused-ignore]
            if tuple(item["segment_pool_id"]) == self._pool
        ]

    def small_blocks(self) -> list[Span]:
        return [
            (block["address"], block["address"] + block["size"])
            for item in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call,unused-ignore]
            if tuple(item["segment_pool_id"]) != self._pool
            for block in item["blocks"]
            if block["size"] <= _SMALL_BLOCK and block["state"].startswith("active")
        ]

    def nodes(self) -> list[GraphNode]:
        graph: Any = self._graph
        if not hasattr(graph, "raw_cuda_graph") or not hasattr(graph, "raw_cuda_graph_exec"):
            raise LaunchError("this version of torch does not show its graphs.")
        self._executable = ctypes.c_void_p(graph.raw_cuda_graph_exec())
        with torch.cuda.device(self._device):
            return graph_driver(self._device).nodes(graph.raw_cuda_graph())

    def update(self, nodes: Sequence[GraphNode]) -> None:
        graph_driver(self._device).update(self._executable, nodes)

    def release(self) -> None:
        torch.cuda.synchronize(self._device)  # it may be running
        self._graph.reset()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's collector might free another graph just now, which may not happen during a capture."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def clear_library_memory() -> None:
    """Let cuBLAS allocate its workspace anew at its next call."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()


# -- CUDA's driver ---------------------------------------------------------------------------------


class _Kernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint), ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p),
    ]  # fmt: skip


_COPY_BYTES, _FILL_BYTES = 200, 40  # CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS
_COPY_KINDS = (32, 120)  # offsets of the memory types of source and destination, 32 bits each
_IN_DEVICE = (2, 4)  # device, or found by address
_NAMES: dict[int, Literal["kernel", "copy", "fill"]] = {0: "kernel", 1: "copy", 2: "fill"}
_HARMLESS = (5, 6, 7)  # empty, wait for an event, record an event: they read nothing of ours
_MOST_PARAMETERS = 1024


class GraphDriver:
    """The functions of CUDA's driver that read and change graphs. LaunchError at the first that an old
    driver lacks."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._context = ctypes.c_void_p()

    def nodes(self, graph: int) -> list[GraphNode]:
        """Every node of a graph of the current device, its arguments copied into buffers of ours."""
        self._call("cuCtxGetCurrent", ctypes.byref(self._context))
        count = ctypes.c_size_t(0)
        self._call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count))
        handles = (ctypes.c_void_p * count.value)()
        self._call("cuGraphGetNodes", ctypes.c_void_p(graph), handles, ctypes.byref(count))
        return [self._node(handle or 0) for handle in handles]

    def update(self, executable: ctypes.c_void_p, nodes: Sequence[GraphNode]) -> None:
        """Give an executable graph the present buffers of ``nodes``; launches before keep the old ones."""
        current = ctypes.c_void_p()
        self._library.cuCtxGetCurrent(ctypes.byref(current))
        pushed = current.value != self._context.value  # a thread that has had none, or another device
        if pushed:
            self._call("cuCtxPushCurrent_v2", self._context)
        try:
            for node in nodes:
                function, arguments, _ = node.sent
                status = function(executable, *arguments)
                if status:
                    raise LaunchError(f"the address of an input of {node.name} cannot be changed ({status}).")
        finally:
            if pushed:
                self._call("cuCtxPopCurrent_v2", ctypes.byref(current))

    def _node(self, handle: int) -> GraphNode:
        kind = ctypes.c_int(0)
        self._call("cuGraphNodeGetType", ctypes.c_void_p(handle), ctypes.byref(kind))
        name = _NAMES.get(kind.value)
        if name == "kernel":
            return self._kernel(handle)
        if name is not None:
            return self._memory(handle, name)
        opaque = "" if kind.value in _HARMLESS else "is not a kernel, and what it reads is not known"
        return GraphNode(handle, "other", f"node of kind {kind.value}", (kind.value,), [], opaque)

    def _kernel(self, handle: int) -> GraphNode:
        params = _Kernel()
        self._call("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(handle), ctypes.byref(params))
        kind, function = ("Func", params.function) if params.function else ("Kernel", params.kernel)
        told = ctypes.c_char_p()
        self._call(f"cu{kind}GetName", ctypes.byref(told), ctypes.c_void_p(function))
        name = (told.value or b"a kernel").decode()
        form = ("kernel", function, *params.grid, *params.block, params.shared)
        if not params.parameters:
            return GraphNode(
                handle, "kernel", name, form, [], "is launched in a way that hides its arguments"
            )
        sizes = self._sizes(f"cu{kind}GetParamInfo", function)
        buffers = []
        for size, source in zip(sizes, params.parameters):  # an endless pointer: as many as there are sizes
            buffer = (ctypes.c_ubyte * size)()
            ctypes.memmove(buffer, source, size)
            buffers.append(buffer)
        addresses = (ctypes.c_void_p * max(1, len(buffers)))(*map(ctypes.addressof, buffers))
        params.parameters = ctypes.cast(addresses, ctypes.POINTER(ctypes.c_void_p))
        params.extra = None
        update = self._function("cuGraphExecKernelNodeSetParams_v2")
        sent = (update, (ctypes.c_void_p(handle), ctypes.byref(params)), addresses)
        return GraphNode(handle, "kernel", name, (*form, *sizes), buffers, sent=sent)

    def _sizes(self, ask: str, function: int) -> list[int]:
        """The bytes of each parameter of a function."""
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(0), ctypes.c_size_t(0)
        query = self._function(ask)
        while len(sizes) < _MOST_PARAMETERS and not query(
            ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)
        ):
            sizes.append(size.value)
        return sizes

    def _memory(self, handle: int, kind: Literal["copy", "fill"]) -> GraphNode:
        """A copy or a fill: its description is its one buffer."""
        size, word = (_COPY_BYTES, "Memcpy") if kind == "copy" else (_FILL_BYTES, "Memset")
        buffer = (ctypes.c_ubyte * size)()
        self._call(f"cuGraph{word}NodeGetParams", ctypes.c_void_p(handle), buffer)
        types = tuple(buffer[place] for place in _COPY_KINDS) if kind == "copy" else ()
        opaque = "" if all(item in _IN_DEVICE for item in types) else "does not stay on the device"
        update = self._function(f"cuGraphExec{word}NodeSetParams")
        sent = (update, (ctypes.c_void_p(handle), buffer, ctypes.c_void_p(self._context.value)), None)
        return GraphNode(handle, kind, f"a {kind}", (kind, *types), [buffer], opaque, sent)

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError as error:
            raise LaunchError(f"CUDA's driver has no {name}: it is too old.") from error

    def _call(self, name: str, *args: Any) -> None:
        status = self._function(name)(*args)
        if status:
            raise LaunchError(f"{name} failed ({status}).")


@functools.cache
def graph_driver(device: torch.device) -> GraphDriver:
    """For the graphs of one device of this machine. LaunchError if there is no driver."""
    return GraphDriver(libcuda())

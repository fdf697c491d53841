"""A pretended GPU for tests of replay: kernels are functions on raw addresses of this process.

A captured graph is a list of them with their arguments, and replaying one reads and writes the very memory
that a GPU would."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from nbcompile.compiler.runtime.cuda_graphs.pointers import GraphNode
from nbcompile.compiler.runtime.cuda_graphs.replays import WARM_CALLS, replayed
from nbcompile.compiler.stages import AtenGraph, CompiledModule, Config, KernelSource, Launch
from nbcompile.errors import LaunchError
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from nbcompile.targets import parse

CHIP = parse("cuda:90")
N = 8


def _at(address: int, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address)


def _add(a: int, b: int, out: int, count: int) -> None:
    for n in range(count):
        _at(out, count)[n] = _at(a, count)[n] + _at(b, count)[n]


def _double(a: int, out: int, count: int) -> None:
    for n in range(count):
        _at(out, count)[n] = 2 * _at(a, count)[n]


KERNELS: dict[str, Callable[..., None]] = {"add": _add, "double": _double, "packed": _double}


class FakeRecording:
    def __init__(self, tape: list[GraphNode], memory: list[torch.Tensor]) -> None:
        self._nodes = tape
        self.memory = memory
        self.code = [[bytes(item) for item in node.buffers] for node in tape]
        self.replays = 0
        self.updates = 0
        self.released = False
        self.refuses = False

    def replay(self) -> None:
        assert not self.released
        self.replays += 1
        for node, arguments in zip(self._nodes, self.code, strict=True):
            words = [int.from_bytes(item, "little") for item in arguments]
            if node.name == "packed":
                words[0] <<= 4
            KERNELS[node.name](*words)

    def spans(self) -> list[tuple[int, int]]:
        return [(item.data_ptr(), item.data_ptr() + item.nbytes) for item in self.memory]

    def small_blocks(self) -> list[tuple[int, int]]:
        return []

    def nodes(self) -> list[GraphNode]:
        return self._nodes

    def update(self, nodes: Sequence[GraphNode]) -> None:
        if self.refuses:
            raise LaunchError("the driver refuses.")
        for node in nodes:
            self.updates += 1
            self.code[self._nodes.index(node)] = [bytes(item) for item in node.buffers]

    def release(self) -> None:
        self.released = True


class FakeMachine:
    """Launches at once, or onto the tape of a capture."""

    def __init__(self) -> None:
        self.tape: list[GraphNode] | None = None
        self.memory: list[torch.Tensor] = []
        self.recordings: list[FakeRecording] = []
        self.launched = 0
        self.somebody_captures = False
        self.on_stream = 0
        self.free = 1 << 40
        self.fails: Exception | None = None

    def is_capturing(self) -> bool:
        return self.somebody_captures

    def stream(self) -> int:
        return self.on_stream

    def free_bytes(self) -> int:
        return self.free

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor)

    def capture(self, call: Callable[[list[Any]], Any], args: list[Any]) -> tuple[FakeRecording, Any]:
        if self.fails is not None:
            raise self.fails
        self.tape, self.memory = [], []
        outputs = call(args)
        recording = FakeRecording(self.tape, self.memory)
        self.recordings.append(recording)
        self.tape = None
        return recording, outputs

    def empty(self, count: int) -> torch.Tensor:
        made = torch.full((count,), float("nan"))
        if self.tape is not None:
            self.memory.append(made)
        return made

    def launch(self, name: str, *args: torch.Tensor) -> None:
        words = [*(item.data_ptr() for item in args), args[-1].numel()]
        if self.tape is None:
            self.launched += 1
            KERNELS[name](*words)
            return
        if name == "packed":  # no longer an address
            words[0] >>= 4
        buffers = [(ctypes.c_ubyte * 8)(*word.to_bytes(8, "little")) for word in words]
        self.tape.append(GraphNode(len(self.tape), "kernel", name, (name, args[-1].numel()), buffers))

    @property
    def replays(self) -> int:
        return sum(item.replays for item in self.recordings)

    @property
    def updates(self) -> int:
        return sum(item.updates for item in self.recordings)


def aten_graph(
    inputs: int = 2, saved: tuple[int, ...] = (), scalars: tuple[int, ...] = (), change: Any = None
) -> AtenGraph:
    graph = fx.Graph()
    nodes = []
    for n in range(inputs):
        node = graph.placeholder(f"x{n}")
        node.meta["val"] = torch.empty((), device="cpu") if n in scalars else torch.empty(N, device="meta")
        nodes.append(node)
    results = []
    for _ in range(3):
        node = graph.call_function(torch.ops.aten.neg.default, (nodes[0],))
        node.meta["val"] = torch.empty(N, device="meta")
        results.append(node)
    if change is not None:
        change(graph, nodes)
    graph.output(tuple(results))
    names = tuple(results[n].name for n in saved)
    return AtenGraph("g0.fw", "forward", fx.GraphModule({}, graph), {}, saved=names)


def kernel_source() -> KernelSource:
    launches = tuple(Launch(name, "k0", (), ("1",), (Config({}),)) for name in ("add", "double"))
    return KernelSource("g0.fw", "triton", (), (), "", (), launches=launches)


class World:
    """A module on the pretended machine, replayed: ``(x + w, 2 * (x + w))`` unless told otherwise."""

    def __init__(
        self,
        body: Callable[[FakeMachine, list[Any]], tuple[Any, ...]] | None = None,
        aten: AtenGraph | None = None,
    ) -> None:
        self.machine = FakeMachine()
        self.recorder = Recorder(Options(mode="reduce-overhead"))
        body = body or two_kernels

        def call(args: list[Any]) -> tuple[Any, ...]:
            taken = list(args)
            args.clear()
            return body(self.machine, taken)

        self.settled = True
        module = CompiledModule("g0.fw", call)
        device = torch.device("cuda", 0)
        self.module = replayed(
            module, aten or aten_graph(), kernel_source(), CHIP, device, self.recorder,
            lambda: self.settled, self.machine,
        )  # fmt: skip
        self.owner: Any = getattr(self.module.call, "__self__", None)

    def __call__(self, *args: Any) -> Any:
        given = list(args)
        result = self.module.call(given)
        assert given == []
        return result

    def warm(self, *args: Any) -> None:
        for _ in range(WARM_CALLS):
            self(*args)
        self.slow()

    def slow(self) -> None:
        """Let launching kernel by kernel have taken long, so that patching is worth while."""
        for slots in self.owner.of_sizes.values():
            slots.plain_seconds = 1.0

    @property
    def notes(self) -> tuple[str, ...]:
        return self.recorder.parts(str)


def two_kernels(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
    x, w = args
    total = machine.empty(x.numel())
    machine.launch("add", x, w, total)
    out = machine.empty(x.numel())
    machine.launch("double", total, out)
    return (out,)


def tensor(value: float, count: int = N) -> torch.Tensor:
    return torch.full((count,), float(value))

"""Replay on a pretended GPU: kernels are functions on raw addresses of this process, a captured graph is a
list of them with their arguments, and replaying one reads and writes the very memory that a GPU would."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from nbcompile.errors import LaunchError
from nbcompile.options import Options
from nbcompile.recorder import Recorder
from nbcompile.runtime import cuda_graphs
from nbcompile.runtime.cuda_graph_pointers import Node
from nbcompile.runtime.cuda_graph_slots import liveness_is_known
from nbcompile.runtime.cuda_graphs import MOST_CAPTURES, MOST_SIZES, MOST_SLOTS, WARM_CALLS, replayed
from nbcompile.stages import AtenGraph, CompiledModule, Config, KernelSource, Launch
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
    def __init__(self, tape: list[Node], memory: list[torch.Tensor]) -> None:
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

    def nodes(self) -> list[Node]:
        return self._nodes

    def update(self, nodes: Sequence[Node]) -> None:
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
        self.tape: list[Node] | None = None
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
        self.tape.append(Node(len(self.tape), "kernel", name, (name, args[-1].numel()), buffers))

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
    return KernelSource("g0.fw", "triton", "", (), "", (), launches=launches)


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


def test_liveness_can_be_read_on_this_torch() -> None:
    assert liveness_is_known()


def test_a_known_call_is_one_replay() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    launched = world.machine.launched
    for step in range(5):
        x.fill_(step)
        (y,) = world(x, w)
        assert torch.equal(y, tensor(2 * (step + 2)))
        del y
    assert world.machine.launched == launched
    assert len(world.machine.recordings) == 1 and world.machine.replays == 5
    assert world.notes == ()


def test_results_that_are_held_are_never_overwritten() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    held = []
    for step in range(3 * MOST_SLOTS):
        x.fill_(step)
        held.append(world(x, w)[0])
    assert len(world.machine.recordings) > 1
    for step, y in enumerate(held):
        assert torch.equal(y, tensor(2 * (step + 2)))


@pytest.mark.parametrize(
    "keep",
    [
        lambda y: y[2:],
        lambda y: y.detach(),
        lambda y: y.untyped_storage(),
        lambda y: torch.utils.dlpack.to_dlpack(y),
        lambda y: y.view(2, 4).T,
        lambda y: y.numpy(),
    ],
)
def test_every_kind_of_holding_counts(keep: Callable[[torch.Tensor], Any]) -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    first = world(x, w)
    kept = keep(first[0])
    address = first[0].data_ptr()
    del first
    (second,) = world(x, w)
    assert second.data_ptr() != address
    del kept, second
    gc.collect()
    addresses = set()
    for _ in range(2):
        (y,) = world(x, w)
        addresses.add(y.data_ptr())
        del y
    assert addresses == {address}


def test_saved_for_backward_counts_as_held() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    (y,) = world(x, w)
    leaf = tensor(3).requires_grad_()
    product = leaf * y
    address = y.data_ptr()
    del y
    x.fill_(50)
    (other,) = world(x, w)
    assert other.data_ptr() != address
    product.sum().backward()
    assert torch.equal(leaf.grad, tensor(6))  # type: ignore[arg-type]


def test_each_replay_returns_tensors_of_its_own() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    (y,) = world(x, w)
    y.requires_grad_()
    del y
    assert not world(x, w)[0].requires_grad


def test_an_input_that_moves_is_patched_not_copied() -> None:
    world = World()
    w = tensor(2)
    kept = [tensor(n) for n in range(6)]
    world.warm(kept[0], w)
    for x in [*kept, *kept]:
        (y,) = world(x, w)
        assert torch.equal(y, 2 * (x + w))
        del y
    assert len(world.machine.recordings) == 2  # the second shows where the address stands
    assert world.machine.updates >= 4
    assert world.machine.launched == 2 * WARM_CALLS
    assert world.notes == ()


def test_two_inputs_that_swap_places() -> None:
    world = World()
    a, b = tensor(1), tensor(10)
    b[0] = 100
    world.warm(a, b)
    for x, w in ((a, b), (b, a), (a, a), (b, b), (tensor(5), b)):
        (y,) = world(x, w)
        assert torch.equal(y, 2 * (x + w))
        del y


def test_a_slice_is_found_by_where_it_starts() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        out = machine.empty(4)
        machine.launch("add", x[4:], w[:4], out)
        twice = machine.empty(4)
        machine.launch("double", out, twice)
        return (twice,)

    world = World(body)
    w = tensor(1)
    xs = [torch.arange(8.0) * n for n in range(1, 5)]
    world.warm(xs[0], w)
    for x in xs:
        assert torch.equal(world(x, w)[0], 2 * (x[4:] + 1))
    assert world.machine.updates and world.notes == ()


def test_another_alignment_is_not_patched_in() -> None:
    world = World()
    w = tensor(1)
    base = torch.arange(64.0)
    xs = [base[4 * n : 4 * n + 8] for n in range(4)]
    world.warm(xs[0], w)
    for x in xs:
        world(x, w)
    updates = world.machine.updates
    odd = base[1:9]
    for _ in range(2):  # launched once, to load the kernel, then captured for itself
        assert torch.equal(world(odd, w)[0], 2 * (odd + 1))
    assert world.machine.updates == updates
    assert len(world.machine.recordings) == 3


def test_an_address_in_an_unknown_form_is_copied_if_that_is_cheap() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        out = machine.empty(N)
        machine.launch("packed", x, out)
        total = machine.empty(N)
        machine.launch("add", out, w, total)
        return (total,)

    world = World(body)
    w = tensor(1)
    xs = [tensor(n) for n in range(5)]
    world.warm(xs[0], w)
    for x in xs * 2:
        world.slow()
        (y,) = world(x, w)
        assert torch.equal(y, 2 * x + 1)
        del y
    assert world.machine.updates == 0
    assert world.machine.replays >= 7
    assert world.notes == ()


def test_a_large_input_in_an_unknown_form_is_not_copied() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        out = machine.empty(N)
        machine.launch("packed", x, out)
        total = machine.empty(N)
        machine.launch("add", out, w, total)
        return (total,)

    world = World(body)
    w = tensor(1)
    xs = [tensor(n) for n in range(2 * MOST_SLOTS)]
    world.warm(xs[0], w)
    for x in xs * 2:
        next(iter(world.owner.of_sizes.values())).plain_seconds = 1e-9
        assert torch.equal(world(x, w)[0], 2 * x + 1)
    assert len(world.machine.recordings) == MOST_SLOTS
    assert world.machine.replays > MOST_SLOTS  # the addresses that were captured are replayed
    assert any("x0 is elsewhere" in note and "not known" in note for note in world.notes), world.notes


def test_an_input_that_the_graph_overwrites_is_never_copied() -> None:
    def overwrite(graph: fx.Graph, nodes: list[fx.Node]) -> None:
        graph.call_function(torch.ops.aten.copy_.default, (nodes[0], nodes[1]))

    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        machine.launch("add", x, w, x)
        out = machine.empty(N)
        machine.launch("packed", x, out)
        return (out,)

    world = World(body, aten_graph(change=overwrite))
    w = tensor(1)
    xs = [tensor(0) for _ in range(6)]
    world.warm(xs[0], w)
    for _ in range(3):
        for x in xs:
            world.slow()
            before = x.clone()
            (y,) = world(x, w)
            assert torch.equal(x, before + 1)
            assert torch.equal(y, 2 * x)


def test_mutation_happens_once_also_when_it_is_captured() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        x, w = args
        machine.launch("add", x, w, x)
        out = machine.empty(N)
        machine.launch("double", x, out)
        return (x, out, x[2:], None, 7)

    world = World(body)
    w = tensor(1)
    for start in (0, 100, 200, 300):
        x = tensor(start)
        for step in range(4):
            same, out, view, none, seven = world(x, w)
            world.slow()
            assert torch.equal(x, tensor(start + step + 1))
            assert same is x and none is None and seven == 7
            assert view.data_ptr() == x[2:].data_ptr() and view.shape == (N - 2,)
            assert torch.equal(out, 2 * x)
    assert world.machine.replays > 8


def test_two_results_that_are_one_tensor_stay_one() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        (y,) = two_kernels(machine, args)
        return (y, y)

    world = World(body)
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    first, second = world(x, w)
    assert first is second


def test_what_a_forward_saves_is_found_by_the_backward_at_its_place() -> None:
    forward, backward = World(), World()
    x, w, tangent = tensor(1), tensor(2), tensor(1)
    loss = None
    for step in range(8):
        x.fill_(step)
        (saved,) = forward(x, w)
        (grad,) = backward(saved, tangent)
        assert torch.equal(grad, tensor(2 * (2 * (step + 2) + 1)))
        del saved
        loss = grad  # the last one stays alive during the next step
        forward.slow()
        backward.slow()
    assert loss is not None
    assert len(forward.machine.recordings) == 1
    assert len(backward.machine.recordings) == 2


def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "LITTLE_MEMORY", 0)


def test_a_small_result_does_not_keep_a_large_slot_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    losses = []
    for step in range(10):
        x.fill_(step)
        losses.append(world(x, w)[0])
    assert len(world.machine.recordings) == 2
    assert world.machine.replays >= 8
    for step, loss in enumerate(losses):
        assert torch.equal(loss, tensor(2 * (step + 2)))


def test_what_is_saved_for_backward_is_not_copied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    large(monkeypatch)
    world = World(aten=aten_graph(saved=(0,)))
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    addresses = set()
    for _ in range(6):
        (y,) = world(x, w)
        held = y  # during the next call
        addresses.add(y.data_ptr())
    assert held is not None
    assert all(not slot.copied_out for slots in world.owner.of_sizes.values() for slot in slots.slots)


def test_no_further_slot_where_memory_is_short() -> None:
    world = World()
    world.machine.free = 0
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    (first,) = world(x, w)
    x.fill_(9)
    (second,) = world(x, w)
    assert torch.equal(first, tensor(6)) and torch.equal(second, tensor(22))
    assert len(world.machine.recordings) == 1


def test_captures_are_bounded() -> None:
    world = World()
    world.warm(tensor(0), tensor(0))
    held = []
    for n in range(3 * MOST_CAPTURES):
        next(iter(world.owner.of_sizes.values())).plain_seconds = 0.0  # no patch is worth while
        x, w = tensor(n), tensor(1)
        held += [x, w]
        assert torch.equal(world(x, w)[0], tensor(2 * (n + 1)))
    assert len(world.machine.recordings) == MOST_CAPTURES
    assert any("captured 12 times" in note for note in world.notes)


def test_a_driver_that_refuses_a_patch() -> None:
    world = World()
    w = tensor(2)
    xs = [tensor(n) for n in range(8)]
    world.warm(xs[0], w)
    for n, x in enumerate(xs):
        world.slow()
        for recording in world.machine.recordings:
            recording.refuses = n > 2
        assert torch.equal(world(x, w)[0], 2 * (x + w))
    assert any("the driver refuses" in note for note in world.notes)


def test_symbolic_sizes_have_slots_of_their_own() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        _, x, w = args
        return two_kernels(machine, [x, w])

    aten = aten_graph(3)
    node = next(iter(aten.module.graph.nodes))
    node.meta["val"] = None  # a size comes in
    world = World(body, aten)
    for count in range(1, MOST_SIZES + 3):
        x, w = tensor(count, count), tensor(1, count)
        for _ in range(WARM_CALLS + 2):
            assert torch.equal(world(count, x, w)[0], 2 * (x + 1))
    assert len(world.machine.recordings) == MOST_SIZES
    assert any("sets of sizes" in note for note in world.notes)


def test_streams_do_not_share_slots() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    address = world(x, w)[0].data_ptr()
    world.machine.on_stream = 7
    world.warm(x, w)
    (y,) = world(x, w)
    assert y.data_ptr() != address and torch.equal(y, tensor(6))


def test_a_capture_by_somebody_else_takes_the_launches() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    world(x, w)
    launched, replays = world.machine.launched, world.machine.replays
    world.machine.somebody_captures = True
    world(x, w)
    assert world.machine.launched == launched + 2 and world.machine.replays == replays


def test_a_failed_capture_is_noted_and_the_result_right() -> None:
    world = World()
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    world.machine.fails = LaunchError("it cannot be captured: AcceleratorError: not permitted")
    for _ in range(3):
        assert torch.equal(world(x, w)[0], tensor(6))
    assert world.notes == (
        "graph g0.fw is not replayed: it cannot be captured: AcceleratorError: not permitted",
    )


def test_nothing_is_captured_while_kernels_are_still_searched_for() -> None:
    world = World()
    world.settled = False
    x, w = tensor(1), tensor(2)
    for _ in range(6):
        world(x, w)
    assert not world.machine.recordings
    world.settled = True
    for _ in range(WARM_CALLS + 2):
        assert torch.equal(world(x, w)[0], tensor(6))
    assert world.machine.replays == 2


def test_one_launch_is_not_replayed() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        out = machine.empty(N)
        machine.launch("add", *args, out)
        return (out,)

    world = World(body)
    x, w = tensor(1), tensor(2)
    for _ in range(WARM_CALLS + 3):
        assert torch.equal(world(x, w)[0], tensor(3))
    assert world.machine.replays == 0
    assert "one launch" in world.notes[0]


def test_a_number_from_the_cpu_is_copied_in() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        rate, x = args
        out, total = machine.empty(1), machine.empty(1)
        machine.launch("double", rate.view(1), out)
        machine.launch("add", out, x, total)
        return (total,)

    world = World(body, aten_graph(scalars=(0,)))
    x = tensor(1)
    for n in range(6):
        assert world(torch.tensor(float(n)), x)[0].item() == 2 * n + 1
        world.slow()
    assert world.machine.replays == 6 - WARM_CALLS


def _data_dependent(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    graph.call_function(torch.ops.aten.nonzero.default, (nodes[0],))


def _item(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    graph.call_function(torch.ops.aten._local_scalar_dense.default, (nodes[0],))


def _to_cpu(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    for node in graph.nodes:
        if node.op == "call_function":
            node.meta["val"] = torch.empty(N)


def _cpu_written(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    nodes[0].meta["val"] = torch.empty(())
    graph.call_function(torch.ops.aten.copy_.default, (nodes[0], nodes[1]))


@pytest.mark.parametrize(
    ("change", "word"),
    [(_data_dependent, "depends on data"), (_item, "depends on data"), (_to_cpu, "on the CPU"),
     (_cpu_written, "overwritten")],
)  # fmt: skip
def test_what_is_never_replayed_says_why(change: Any, word: str) -> None:
    world = World(aten=aten_graph(change=change))
    assert world.owner is None
    assert len(world.notes) == 1 and word in world.notes[0], world.notes


def test_a_graph_that_runs_eagerly_is_left_alone() -> None:
    world = World()
    world.recorder.ran_eagerly["g0.fw"] = "our code failed"
    x, w = tensor(1), tensor(2)
    for _ in range(5):
        world(x, w)
    assert not world.machine.recordings


def test_threads_take_turns() -> None:
    world = World()
    w = tensor(1)
    world.warm(tensor(0), w)
    wrong = []

    def work(value: int) -> None:
        x = tensor(value)
        for _ in range(10):
            (y,) = world(x, w)
            if not torch.equal(y, tensor(2 * (value + 1))):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

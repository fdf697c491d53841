"""Replay on a pretended GPU: memory, sizes, streams, failures, and what is never replayed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import fx

from nbcompile.compiler.runtime.cuda_graphs import replays as cuda_graphs
from nbcompile.compiler.runtime.cuda_graphs.replays import MOST_CAPTURES, MOST_SIZES, MOST_SLOTS, WARM_CALLS
from nbcompile.errors import LaunchError
from tests.compiler.runtime.cuda_graphs.pretended_gpu import (
    FakeMachine,
    FakeRecording,
    N,
    World,
    aten_graph,
    tensor,
    two_kernels,
)


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


def test_graphs_that_cannot_be_read_are_replayed_where_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: FakeRecording) -> Any:
        raise LaunchError("this version of torch does not show its graphs.")

    monkeypatch.setattr(FakeRecording, "nodes", unreadable)
    monkeypatch.setattr(cuda_graphs, "COPY_SECONDS", 10.0)  # no copy is worth while
    world = World()
    w = tensor(2)
    xs = [tensor(n) for n in range(2 * MOST_SLOTS)]
    world.warm(xs[0], w)
    for x in xs * 2:
        assert torch.equal(world(x, w)[0], 2 * (x + w))
    assert world.machine.replays == 2 * MOST_SLOTS
    assert any("does not show" in note for note in world.notes)


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


def _branches(graph: fx.Graph, nodes: list[fx.Node]) -> None:
    graph.call_function(torch.ops.higher_order.cond, (nodes[0], None, None, ()))


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
    [(_data_dependent, "depends on data"), (_item, "depends on data"),
     (_branches, "decides on the CPU"), (_to_cpu, "on another device"),
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

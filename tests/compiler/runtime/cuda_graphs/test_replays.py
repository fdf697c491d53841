"""Replay on a pretended GPU: results that are held, inputs that move."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from nbcompile.compiler.runtime.cuda_graphs.replays import MOST_SLOTS, WARM_CALLS
from nbcompile.compiler.runtime.cuda_graphs.slots import liveness_is_known
from tests.compiler.runtime.cuda_graphs.pretended_gpu import (
    FakeMachine,
    N,
    World,
    aten_graph,
    tensor,
    two_kernels,
)


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


def test_a_constant_that_is_returned_keeps_no_slot_busy() -> None:
    constant = tensor(4)

    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        return (*two_kernels(machine, args), constant)

    world = World(body)
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    kept = []
    for _ in range(6):
        y, same = world(x, w)
        assert torch.equal(y, tensor(6)) and torch.equal(same, tensor(4))
        kept.append(same)
        del y
    assert len(world.machine.recordings) == 1


def test_two_results_that_are_one_tensor_stay_one() -> None:
    def body(machine: FakeMachine, args: list[Any]) -> tuple[Any, ...]:
        (y,) = two_kernels(machine, args)
        return (y, y)

    world = World(body)
    x, w = tensor(1), tensor(2)
    world.warm(x, w)
    first, second = world(x, w)
    assert first is second

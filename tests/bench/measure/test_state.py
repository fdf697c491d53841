"""A snapshot puts back every value bit for bit, and every object is still itself."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections import OrderedDict, deque
from pathlib import Path
from typing import ClassVar

import numpy
import pytest
import torch
from torch import nn

from nbcompile.bench.measure import state
from nbcompile.bench.measure.state import Snapshot
from nbcompile.errors import MeasureError


def test_views_and_aliases_of_one_storage_are_restored_once_and_still_share() -> None:
    base = torch.randn(6, 4)
    row, column, alias = base[2], base[:, 1], base.detach()
    expected = base.clone()
    before = Snapshot({"base": base, "row": row, "column": column, "alias": alias})
    assert before.bytes == 6 * 4 * 4
    row.fill_(7.0)
    column.mul_(float("nan"))
    assert set(before.changed()) == {"base", "row", "column", "alias"}
    before.restore()
    assert torch.equal(base, expected) and torch.equal(row, expected[2])
    assert before.changed() == ()
    base[2, 0] = 5.0
    assert row[0] == 5.0 and alias[2, 0] == 5.0


def test_nan_payload_and_negative_zero_come_back_bit_for_bit() -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800000], dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32)
    before = Snapshot({"x": x})
    assert before.changed() == ()
    x.zero_()
    before.restore()
    assert torch.equal(x.view(torch.int32), bits)


def test_resized_reassigned_and_retyped_tensors_come_back() -> None:
    x, y = torch.arange(6.0), torch.arange(6.0).reshape(2, 3)
    view, pointer = y[1], y.data_ptr()
    before = Snapshot({"x": x, "y": y})
    x.resize_(100).fill_(1.0)
    y.data = torch.ones(5, dtype=torch.float64)
    before.restore()
    assert torch.equal(x, torch.arange(6.0))
    assert y.dtype == torch.float32 and y.shape == (2, 3) and y.data_ptr() == pointer
    view.zero_()
    assert y[1].sum() == 0


def test_module_optimizer_and_gradients_after_a_training_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step()
    parameters, weight, gradient = list(model.parameters()), model[0].weight, model[0].weight.grad
    before = Snapshot({"model": model, "optimizer": optimizer, "x": x})
    first = [step(), step()]
    model.eval()
    assert "model.0.weight" in before.changed()
    before.restore()
    assert model.training and model[2].training
    assert model[0].weight is weight and weight.grad is gradient
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    again = [step(), step()]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_every_tensor_of_an_optimizer_has_a_name_of_its_own() -> None:
    """All of a model's parameters are keys of its state, which is met before a deep model's layers are."""
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    found = Snapshot({"optimizer": optimizer, "model": model}).tensors
    states = [each for state in optimizer.state.values() for each in state.values()]
    expected = [*model.parameters(), *(p.grad for p in model.parameters()), *states]
    assert {id(each) for each in found.values()} == {id(each) for each in expected}
    assert (
        found["optimizer.state[model.0.0.0.weight]['exp_avg']"]
        is optimizer.state[model[0][0][0].weight]["exp_avg"]
    )
    alone = Snapshot({"optimizer": optimizer}).tensors
    assert {id(each) for each in alone.values()} == {id(each) for each in expected}


def test_no_tensor_hides_another_that_is_reached_by_the_same_path() -> None:
    both = {torch.zeros(2), torch.ones(2)}
    found = Snapshot({"both": both}).tensors
    assert list(found) == ["both.item", "both.item (2)"]
    assert {id(each) for each in found.values()} == {id(each) for each in both}


def test_a_first_step_leaves_no_optimizer_state_and_no_gradient_behind() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    before = Snapshot({"optimizer": optimizer})
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    assert optimizer.state
    before.restore()
    assert not optimizer.state and model.weight.grad is None


def test_random_generators_of_every_library() -> None:
    own_torch = torch.Generator().manual_seed(3)
    own_numpy, own_python = numpy.random.default_rng(3), random.Random(3)
    before = Snapshot({"g": own_torch, "n": own_numpy, "p": own_python})

    def draw() -> list[float]:
        return [
            torch.rand(()).item(),
            random.random(),
            float(numpy.random.rand()),
            torch.rand((), generator=own_torch).item(),
            float(own_numpy.random()),
            own_python.random(),
        ]

    first = draw()
    assert "random" in before.changed()
    before.restore()
    assert draw() == first


COUNT = 0
LOG: list[int] = []


def test_globals_closures_and_containers_of_a_function() -> None:
    state_of_closure = 10
    table, queue, ordered = {"a": 1}, deque([1, 2], maxlen=2), OrderedDict(z=1, y=2)
    array = numpy.arange(4)

    def program(x: torch.Tensor) -> torch.Tensor:
        global COUNT
        nonlocal state_of_closure
        COUNT += 1
        state_of_closure += 1
        LOG.append(COUNT)
        table["b"] = COUNT
        queue.append(9)
        ordered.move_to_end("z")
        array[0] = 99
        return x + COUNT

    before = Snapshot({"program": functools.partial(program, torch.ones(1))})
    program(torch.ones(1))
    assert "objects" in before.changed()
    before.restore()
    assert COUNT == 0 and state_of_closure == 10 and LOG == []
    assert table == {"a": 1} and list(queue) == [1, 2] and list(ordered) == ["z", "y"]
    assert array.tolist() == [0, 1, 2, 3]
    assert before.changed() == ()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.history = 0, [torch.zeros(1)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global COUNT
        COUNT += 5
        self.calls += 1
        self.history.append(x)
        self.extra = x
        return x


def test_plain_attributes_of_a_module_and_globals_of_its_methods() -> None:
    module = Counting()
    compiled = torch.compile(module, backend="eager")
    before = Snapshot({"m": compiled})
    module(torch.ones(1))
    before.restore()
    assert module.calls == 0 and len(module.history) == 1 and not hasattr(module, "extra") and COUNT == 0


def test_restore_does_not_break_a_graph_that_saved_the_tensor() -> None:
    weight = torch.ones(3, requires_grad=True)
    x = torch.full((3,), 2.0)
    loss = (weight * x).sum()  # saves x for the backward pass
    before = Snapshot({"x": x})
    x.mul_(10)
    before.restore()
    loss.backward()
    assert weight.grad is not None and torch.equal(weight.grad, torch.full((3,), 2.0))


def test_in_place_on_a_leafs_alias_loses_its_history_again() -> None:
    weight, x = torch.ones(3, requires_grad=True), torch.zeros(3)
    before = Snapshot({"x": x, "weight": weight})
    x.add_(weight)
    assert not x.is_leaf
    assert before.restore() == ()
    assert x.is_leaf and not x.requires_grad and torch.equal(x, torch.zeros(3))


def test_history_that_cannot_be_put_back_is_named() -> None:
    x = torch.ones(3, requires_grad=True) * 2
    before = Snapshot({"x": x})
    x.mul_(3)
    assert before.restore() == ("x",)
    assert torch.equal(x.detach(), torch.full((3,), 2.0))


def test_what_no_restore_can_rewind_is_named() -> None:
    batches = (torch.ones(1) for _ in range(3))
    before = Snapshot({"batches": batches, "lines": iter([1, 2])})
    assert before.unrestorable == ("batches (generator)", "lines (list_iterator)")


def test_sparse_and_inference_tensors() -> None:
    sparse = torch.eye(3).to_sparse().coalesce()
    with torch.inference_mode():
        frozen = torch.ones(2)
    before = Snapshot({"sparse": sparse, "frozen": frozen})
    sparse._values().mul_(5)
    with torch.inference_mode():
        frozen.mul_(2)
    before.restore()
    assert torch.equal(sparse.to_dense(), torch.eye(3)) and torch.equal(frozen, torch.ones(2))


def test_switches_of_the_process() -> None:
    before = Snapshot({})
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    before.restore()
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


def test_too_many_objects_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_MAX_OBJECTS", 10)
    with pytest.raises(MeasureError, match="more than 10 objects"):
        Snapshot({"big": [[i] for i in range(20)]})


def test_a_gradient_comes_back_after_a_module_was_turned_to_float64() -> None:
    module = nn.Linear(3, 2)
    module(torch.ones(1, 3)).sum().backward()
    gradient = module.weight.grad
    before = Snapshot({"module": module})
    module.double()
    assert gradient is not None
    gradient.data = gradient.double()
    before.restore()
    assert module.weight.dtype == torch.float32
    assert module.weight.grad is gradient and gradient.dtype == torch.float32


@pytest.mark.parametrize(
    ("program", "moves"),
    [("counter", True), ("learning rate", True), ("in place", False), ("random", False), ("adam", False)],
)
def test_only_what_counts_moves_on(program: str, moves: bool) -> None:
    """An optimizer's first step makes its state, the next ones do not."""
    x = torch.ones(4, requires_grad=True)
    kept = {"n": 0}
    adam = torch.optim.Adam([x], lr=0.1)
    x.grad = torch.ones(4)

    def run() -> None:
        with torch.no_grad():
            if program == "counter":
                kept["n"] += 1
            elif program == "learning rate":
                adam.param_groups[0]["lr"] *= 0.9
            elif program == "in place":
                x.add_(1)
            elif program == "random":
                torch.rand(2)
            else:
                adam.step()

    before = Snapshot({"x": x, "kept": kept, "adam": adam})
    run()
    assert before.moves_on(run) is moves
    before.restore()
    assert kept["n"] == 0 and torch.equal(x.detach(), torch.ones(4)) and adam.param_groups[0]["lr"] == 0.1


def test_what_a_module_of_the_users_holds_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists, numbers and tensors of a file that a function of the program calls into, and its names."""
    (tmp_path / "module_with_state.py").write_text(
        "import torch\nseen, calls, total = [], 0, torch.zeros(2)\n\n"
        "def f(x):\n    global calls, new\n    calls, new = calls + 1, 1\n"
        "    seen.append(1)\n    total.add_(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("module_with_state")
    monkeypatch.delitem(sys.modules, "module_with_state")
    scope = {"module": module}
    exec("def program(x):\n    module.f(x)", scope)
    before = Snapshot({"program": scope["program"]})
    scope["program"](torch.ones(2))
    assert module.calls == 1 and module.seen == [1] and module.total.sum() == 2 and module.new == 1
    before.restore()
    assert module.calls == 0 and module.seen == [] and module.total.sum() == 0 and not hasattr(module, "new")


def test_attributes_of_the_users_classes_are_put_back() -> None:
    class Base:
        calls, last = 0, 0
        seen: ClassVar[list[int]] = []

    class Counted(Base, torch.nn.Module):
        total = torch.zeros(2)

        @classmethod
        def count(cls) -> None:
            Base.calls += 1
            cls.last = 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count()
            Counted.seen.append(1)
            Counted.total.add_(x)
            return x

    def program(x: torch.Tensor) -> torch.Tensor:
        Base.calls += 10
        return x

    for roots, run in (({"model": Counted()}, Counted()), ({"program": program}, program)):
        before = Snapshot(roots)
        run(torch.ones(2))
        assert before.changed()
        before.restore()
        assert Base.calls == 0 and Base.seen == [] and Counted.total.sum() == 0
        assert "last" not in vars(Counted) and not before.changed()


def test_what_the_hooks_of_tensors_change_is_put_back() -> None:
    w = torch.ones(3, requires_grad=True)
    log, count = [], [0]
    optimizer = torch.optim.Adam([w], lr=0.1)

    def hook(grad: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return grad * count[0]

    def step(parameter: torch.Tensor) -> None:
        optimizer.step()
        log.append(1)

    w.register_hook(hook)
    w.register_post_accumulate_grad_hook(step)
    w.register_hook(log.append)
    before = Snapshot({"w": w})
    (w * 2).sum().backward()
    assert count == [1] and len(log) == 2 and optimizer.state
    handle = w.register_hook(lambda grad: None)
    before.restore()
    assert count == [0] and log == [] and not optimizer.state and torch.equal(w, torch.ones(3))
    assert handle.id not in w._backward_hooks

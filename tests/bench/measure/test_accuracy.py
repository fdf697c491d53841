"""Accuracy against float64: right answers agree, wrong ones are named, state is as before."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nbcompile.bench.measure.accuracy import RUN, check, relative_error
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.record.compilation import Accuracy


def verdicts(
    eager: Any, other: Any, args: tuple[Any, ...], train: bool = False
) -> tuple[dict[str, Accuracy], Snapshot]:
    before = Snapshot({"fn": eager, "args": args})
    leaves = tuple(t for t in before.tensors.values() if t.is_leaf and t.requires_grad)
    step = Step(eager, args, train=train, leaves=leaves)
    found = check(step, {"other": step.with_function(other)}, before)
    assert before.changed() == ()
    return {item.output: item for item in found}, before


def test_same_program_agrees_and_has_eagers_error() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.3))
    found, _ = verdicts(model, model, (torch.randn(16, 32),), train=True)
    assert set(found) == {
        "output", "fn.0.weight.grad", "fn.0.bias.grad", "fn.1.weight.grad", "fn.1.bias.grad",
        "fn.1.running_mean", "fn.1.running_var", "fn.1.num_batches_tracked",
    }  # fmt: skip
    assert all(item.agrees for item in found.values()), found
    output = found["output"]
    assert output.error == output.eager_error and 1e-9 < (output.eager_error or 0) < 1e-6


class Kept:
    """What programs put results into."""

    total: Any = None

    def __init__(self) -> None:
        self.last: Any = None
        self.items: list[Any] = []
        self.by_name: dict[str, Any] = {"inner": {}}


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (lambda kept, t: setattr(kept, "last", t), "args[1].last"),
        (lambda kept, t: setattr(type(kept), "total", t), "Kept.total"),
        (lambda kept, t: kept.items.append((1, t)), "args[1].items[0][1]"),
        (lambda kept, t: kept.by_name["inner"].update(a=t), "args[1].by_name['inner']['a']"),
    ],
)
def test_what_a_run_puts_into_objects_is_compared(
    store: Callable[[Kept, torch.Tensor], object], name: str
) -> None:
    def right(x: torch.Tensor, kept: Kept) -> torch.Tensor:
        store(kept, x.sin())
        return x * 2

    def wrong(x: torch.Tensor, kept: Kept) -> torch.Tensor:
        store(kept, x.sin() * 1.5)
        return x * 2

    def forgetful(x: torch.Tensor, kept: Kept) -> torch.Tensor:
        return x * 2

    x, kept = torch.randn(8), Kept()
    for other, agrees in ((right, True), (wrong, False), (forgetful, False)):
        found, _ = verdicts(right, other, (x, kept))
        assert found["output"].agrees
        assert found[name].agrees == agrees, found[name]
    assert found[name].error is None  # there is nothing
    assert kept.last is None and not kept.items and Kept.total is None


def test_nested_tensors_are_compared_by_what_they_hold() -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x[:3] * 2, x[3:]], layout=torch.jagged)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x[:3] * 2, x[3:] * 1.1], layout=torch.jagged)

    def cut_elsewhere(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x[:4] * 2, x[4:]], layout=torch.jagged)

    for other, agrees in ((made, True), (wrong, False), (cut_elsewhere, False)):
        found, _ = verdicts(made, other, (torch.randn(8, 4),))
        assert found["output"].agrees == agrees, found


def test_of_a_set_nothing_is_told_by_the_path_of_another() -> None:
    def program(x: torch.Tensor, kept: set[Any]) -> torch.Tensor:
        kept |= {x.sin(), x.cos(), x.tan()}
        return x * 2

    found, _ = verdicts(program, program, (torch.randn(8), set()))
    assert all(item.agrees for item in found.values()), found


def test_reference_draws_the_numbers_eager_draws() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(x.shape) + torch.randn_like(x) + torch.empty_like(x).uniform_(1, 2)
        return x * noise + torch.normal(0.0, torch.ones(4)) + F.dropout(x, 0.5) + torch.bernoulli(x.sigmoid())

    found, _ = verdicts(noisy, noisy, (torch.randn(50, 4),))
    assert found["output"].agrees and (found["output"].eager_error or 1.0) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_widened_through_casts_and_factories(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(8, dtype=torch.float32) / 7
        return (x.float() * steps + torch.tensor(0.1)).softmax(-1).to(dtype)

    found, _ = verdicts(program, program, (torch.randn(16, 8, dtype=dtype),))
    assert 1e-5 < (found["output"].eager_error or 0) < 1e-2


def test_three_times_eagers_error_disagrees_and_says_how_much() -> None:
    x, y = torch.rand(1000) + 0.5, torch.rand(1000) + 0.5

    def eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / y

    def sloppy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / y * (1 + 3e-6)

    found, _ = verdicts(eager, sloppy, (x, y))
    assert not found["output"].agrees and "times eager's" in found["output"].reason
    assert verdicts(eager, lambda x, y: x * y.reciprocal(), (x, y))[0]["output"].agrees
    far = verdicts(eager, lambda x, y: x / y * 2, (x, y))[0]["output"]
    assert far.reason.endswith(", more than 1,000 times eager's"), "15326865.6 says no more"


def test_more_exact_than_eager_agrees() -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for row in x:
            total = total + row.sum()
        return total

    found, _ = verdicts(eager, lambda x: x.double().sum().float(), (torch.rand(2000, 3),))
    assert found["output"].agrees and (found["output"].error or 0) <= (found["output"].eager_error or 0)


def test_lost_nan_wrong_infinity_wrong_dtype_shape_and_exception() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf")])
    assert verdicts(lambda x: x * 1, lambda x: x + 0, (x,))[0]["output"].agrees
    assert not verdicts(lambda x: x * 1, torch.nan_to_num, (x,))[0]["output"].agrees
    assert not verdicts(lambda x: x * 1, lambda x: x.abs() * -1, (x,))[0]["output"].agrees
    assert "float64" in verdicts(lambda x: x * 1, lambda x: x.double(), (x,))[0]["output"].reason
    assert "(1, 3)" in verdicts(lambda x: x * 1, lambda x: x[None], (x,))[0]["output"].reason
    assert verdicts(lambda x: x * 1, lambda x: x @ x[0], (x,))[0][RUN].reason.startswith("RuntimeError")


def test_wrong_gradient_with_right_output_is_found() -> None:
    x = torch.randn(8, requires_grad=True)
    found, _ = verdicts(lambda x: x * x, lambda x: x * x.detach(), (x,), train=True)
    assert found["output"].agrees and not found["args[0].grad"].agrees


def test_what_torch_computes_otherwise_under_a_compiler_is_no_backends_fault() -> None:
    """As the bias correction of Adam, of which a compiled step has four digits."""

    def eager(x: torch.Tensor) -> torch.Tensor:
        return x * (1 + 4e-5) if torch.compiler.is_compiling() else x * 1

    x = torch.randn(8)
    found, _ = verdicts(eager, lambda x: x * (1 + 4e-5), (x,))
    assert found["output"].agrees and "torch's own code for compilers" in found["output"].reason
    found, _ = verdicts(eager, lambda x: x * (1 + 9e-5), (x,))
    assert not found["output"].agrees
    assert not torch.compiler.is_compiling()

    def otherwise(x: torch.Tensor) -> torch.Tensor:
        return x * 1.01 if torch.compiler.is_compiling() else x * 1

    found, _ = verdicts(otherwise, lambda x: x * 1.01, (x,))
    assert not found["output"].agrees


def trained(model: nn.Module, x: torch.Tensor) -> tuple[Callable[..., Any], Any, Snapshot]:
    """A step of Adam after the first one, its optimizer, and what it changes."""
    optimizer = torch.optim.Adam(model.parameters())

    def train(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    train(x)
    return train, optimizer, Snapshot({"optimizer": optimizer, "model": model, "x": x})


def test_a_compiled_step_of_adam_agrees() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    train, _, snapshot = trained(nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)), x)
    compiled = torch.compile(train, backend="aot_eager")
    found = check(Step(train, (x,)), {"it": Step(compiled, (x,))}, snapshot)
    assert [item.output for item in found if not item.agrees] == []
    assert any("torch's own code for compilers" in item.reason for item in found)


def test_a_wrong_moment_of_one_parameter_is_found_and_a_right_step_has_a_float64_run() -> None:
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))))
    x = torch.randn(5, 3)
    train, optimizer, snapshot = trained(model, x)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = train(x)
        optimizer.state[model[0][0][0].weight]["exp_avg"].mul_(1.01)
        return loss

    eager = Step(train, (x,))
    same = check(eager, {"it": Step(train, (x,))}, snapshot)
    assert all(item.agrees and item.error is not None for item in same) and len(same) > 10
    found = check(eager, {"it": Step(wrong, (x,))}, snapshot)
    assert [item.output for item in found if not item.agrees] == [
        "optimizer.state[model.0.0.0.weight]['exp_avg']"
    ]


def test_mutation_that_is_missing_or_extra_is_found() -> None:
    def eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.add_(1) + y

    found, _ = verdicts(eager, lambda x, y: x + 1 + y, (torch.zeros(3), torch.zeros(3)))
    assert found["output"].agrees and not found["args[0]"].agrees
    found, _ = verdicts(eager, lambda x, y: x.add_(1) + y.zero_(), (torch.zeros(3), torch.ones(3)))
    assert not found["args[1]"].agrees


def test_views_that_share_memory_share_it_in_float64_too() -> None:
    base = torch.randn(4, 4)

    def program(base: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        row.mul_(3)
        return base.sum(0) / 7

    found, _ = verdicts(program, program, (base, base[1]))
    assert set(found) == {"output", "args[0]", "args[1]"}
    assert all(item.agrees and (item.eager_error or 0) < 1e-6 for item in found.values())


def test_integers_may_follow_eager_or_the_truth_and_nothing_else() -> None:
    def ties(x: torch.Tensor) -> torch.Tensor:
        return (x * (1 / 3) * 3).argmax(-1)

    x = torch.randn(64, 10)
    assert verdicts(ties, lambda x: x.argmax(-1), (x,))[0]["output"].agrees
    wrong = verdicts(ties, lambda x: x.argmin(-1), (x,))[0]["output"]
    assert not wrong.agrees and wrong.error == 1.0


def test_own_random_numbers_are_said_to_be_so() -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5)

    def other(x: torch.Tensor) -> torch.Tensor:
        torch.rand(7)
        return F.dropout(x, 0.5)

    found, _ = verdicts(eager, other, (torch.rand(1000),))
    assert not found["output"].agrees and "its own random numbers" in found["output"].reason


@pytest.mark.parametrize("draw", [lambda: torch.rand(1).item(), random.random, lambda: numpy.random.rand()])
def test_who_draws_as_eager_does_is_compared(draw: Callable[[], float]) -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        return x + draw()

    found, _ = verdicts(eager, lambda x: eager(x) * 1.01, (torch.rand(1000),))
    assert not found["output"].agrees and "times eager's" in found["output"].reason
    assert verdicts(eager, eager, (torch.rand(1000),))[0]["output"].agrees


def test_errors_of_numbers_beyond_the_root_of_the_largest_are_numbers() -> None:
    huge = torch.tensor([3e300, 1.0], dtype=torch.float64)
    assert relative_error(huge * 0.5, huge) == pytest.approx(0.5)
    assert relative_error(huge, torch.zeros_like(huge)) == pytest.approx(3e300)
    got = torch.tensor([3.4e38, 2.0], dtype=torch.float64)
    assert relative_error(got, torch.tensor([1e170, 2.0], dtype=torch.float64)) == pytest.approx(1.0)


def test_float64_program_has_no_reference_and_is_compared_with_eager() -> None:
    x = torch.randn(5, dtype=torch.float64)
    found, _ = verdicts(torch.exp, torch.exp, (x,))
    assert found["output"].agrees and found["output"].eager_error is None
    assert "float64" in found["output"].reason
    assert not verdicts(torch.exp, lambda x: x.half().exp().double(), (x,))[0]["output"].agrees


def tipped(shift: float) -> Any:
    """A relu layer's pre-activation, ``shift`` lower than it should be."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(x @ w - shift)

    return program


def kinked() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of which one pre-activation is a few roundings from zero, and the others are not."""
    torch.manual_seed(0)
    x, w = torch.randn(8, 16), torch.randn(16, 4)
    x[0, 15] -= ((x.double() @ w.double())[0, 0] - 1e-6) / w[15, 0]  # above zero, whatever order sums are in
    return x.requires_grad_(), w.requires_grad_()


def test_a_mask_that_a_last_bit_tips_is_nobodys_fault() -> None:
    x, w = kinked()
    near = float((x @ w).detach()[0, 0])
    assert 0 < near < 1e-6
    found, _ = verdicts(tipped(0.0), tipped(1e-6), (x, w), train=True)
    flipped = found["args[0].grad"]
    assert flipped.error > 1e-3 and flipped.agrees and "as far as eager moves" in flipped.reason


def at_these_inputs(x: torch.Tensor, program: Any, otherwise: Any) -> Any:
    """``program`` of these very inputs, and another one of any that are a last bit off."""
    saved = x.detach().clone()

    def either(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        same = torch.equal(x.detach().float(), saved)
        return (program if same else otherwise)(x, w)  # type: ignore[no-any-return]

    return either


@pytest.mark.parametrize("single", [False, True])
def test_a_kink_that_few_disturbed_inputs_tip_is_told_from_a_fault(single: bool) -> None:
    """Eager's mask is tipped by two of sixteen. ``single``: by the kink alone, whose gradient is then all
    wrong."""
    x, w = kinked()

    def of(program: Any) -> Any:
        return (lambda x, w: program(x[:1], w[:, :1])) if single else program

    plain, off = of(tipped(0.0)), of(tipped(1e-4))
    accident = verdicts(plain, at_these_inputs(x, off, plain), (x, w), train=True)[0]["args[0].grad"]
    assert accident.error > (0.9 if single else 1e-3)
    assert accident.agrees and "as far as eager moves" in accident.reason
    assert not verdicts(plain, off, (x, w), train=True)[0]["args[0].grad"].agrees


def test_a_gradient_that_no_rounding_explains_differs() -> None:
    def wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        out = F.relu(x @ w)
        return out + 1e-3 * (x.sum(1, keepdim=True) - x.sum(1, keepdim=True).detach())

    torch.manual_seed(1)
    args = (torch.randn(8, 16, requires_grad=True), torch.randn(16, 4, requires_grad=True))
    found, _ = verdicts(tipped(0.0), wrong, args, train=True)
    assert found["output"].agrees and not found["args[0].grad"].agrees


def test_booleans_that_differ_are_compared_with_those_of_disturbed_inputs() -> None:
    """A comparison that is right is no error of the check's own, and one that is wrong is still named."""

    def eager(x: torch.Tensor) -> torch.Tensor:
        return x > 0.5

    def other(x: torch.Tensor) -> torch.Tensor:
        return x > 0.6

    found, _ = verdicts(eager, other, (torch.linspace(0, 1, 101),))
    assert not found["output"].agrees and "of 101 differ" in found["output"].reason


class Drawn:
    """Equal to itself alone, as a distribution is."""

    made = 0

    def __init__(self, mean: torch.Tensor) -> None:
        Drawn.made += 1
        self.id, self.mean, self.inner = Drawn.made, mean, SimpleNamespace(scale=[mean * 2])


def test_objects_are_compared_by_the_tensors_that_they_hold() -> None:
    x = torch.randn(9)
    eager = Step(lambda x: Drawn(x.sin()), (x,))
    snapshot = Snapshot({"x": x})
    (same,) = check(eager, {"it": Step(lambda x: Drawn(x.sin() + 1e-8), (x,))}, snapshot)
    assert same.agrees and same.output == "output" and same.error is not None and same.error < 1e-6
    (wrong,) = check(eager, {"it": Step(lambda x: Drawn(x.sin() * 1.01), (x,))}, snapshot)
    assert not wrong.agrees and wrong.reason.startswith("mean: ")
    (other,) = check(eager, {"it": Step(lambda x: SimpleNamespace(mean=x.sin()), (x,))}, snapshot)
    assert not other.agrees


def test_what_holds_no_tensors_is_not_said_to_agree() -> None:
    x = torch.randn(9)
    made = Step(lambda x: (object(), x.sin()), (x,))
    first, second = check(made, {"it": made}, Snapshot({"x": x}))
    assert first.agrees and not first.is_compared and first.error is None and "object" in first.reason
    assert second.is_compared


def test_plain_fields_of_a_dataclass_are_compared() -> None:
    x = torch.randn(9)
    eager = Step(lambda x: Made(x.sin(), "this"), (x,))
    (wrong,) = check(eager, {"it": Step(lambda x: Made(x.sin(), "that"), (x,))}, Snapshot({"x": x}))
    assert not wrong.agrees and wrong.reason.startswith("name: ")


@dataclass
class Made:
    loss: torch.Tensor
    name: str = "made"


@dataclass(slots=True)
class Slotted:
    loss: torch.Tensor


@pytest.mark.parametrize("made", [Made, Slotted, lambda t: SimpleNamespace(t=t), lambda t: t.numpy()])
def test_what_holds_tensors_is_compared_by_them(made: Callable[[torch.Tensor], Any]) -> None:
    """Its own ``==`` would ask a tensor of many elements whether it is true."""
    x = torch.randn(9)
    snapshot = Snapshot({"x": x})
    eager = Step(lambda x: made(x.sin()), (x,))
    (same,) = check(eager, {"it": Step(lambda x: made(x.sin()), (x,))}, snapshot)
    assert same.agrees and same.error is not None
    (wrong,) = check(eager, {"it": Step(lambda x: made(x.cos()), (x,))}, snapshot)
    assert not wrong.agrees

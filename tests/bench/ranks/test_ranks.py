"""Two ranks on this machine: the same training as one process, and what is told of how they got there."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from nbcompile.bench.ranks.ranks import Ranks
from nbcompile.errors import RanksError
from nbcompile.record.ranks import RanksResult
from tests.bench.ranks.models import Net

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.distributed.is_available(), reason="no c10d")]

TRAIN = """
for step in range(3):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print("step", step)
"""


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with Ranks(2, device="cpu", timeout=120.0) as made:
        yield made


def program(width: int) -> dict[str, Any]:
    torch.manual_seed(3)
    model = Net(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    names: dict[str, Any] = {"model": model, "optimizer": optimizer, "F": F, "losses": []}
    return names | {"x": torch.randn(8, width), "y": torch.randn(8, 4)}


def trained(names: dict[str, Any], steps: int) -> list[float]:
    """What one process does with a copy of ``names``, in which it is left."""
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(names["model"](names["x"]), names["y"])
        loss.backward()
        names["optimizer"].step()
        names["optimizer"].zero_grad()
        losses.append(loss.item())
    return losses


def same_parameters(left: dict[str, Any], right: dict[str, Any]) -> None:
    torch.testing.assert_close(
        dict(left["model"].named_parameters()), dict(right["model"].named_parameters()), rtol=1e-5, atol=1e-6
    )


@pytest.fixture(scope="module")
def under_ddp(ranks: Ranks) -> tuple[RanksResult, dict[str, Any], dict[str, Any]]:
    names = program(512)
    alone = copy.deepcopy({key: names[key] for key in names if key != "F"})
    trained(alone, 3)
    return ranks.run(TRAIN, names, split=("x", "y"), bucket_mb=1), names, alone


def test_ddp_trains_as_one_process_does(
    ranks: Ranks, under_ddp: tuple[RanksResult, dict[str, Any], dict[str, Any]]
) -> None:
    result, names, alone = under_ddp
    same_parameters(names, alone)
    assert len(names["losses"]) == 3, "a list that the cell appends to is the session's own"
    assert result.values["step"] == 2 and not result.differences and not result.notes
    assert [record.output for record in result.ranks] == ["step 2\n"] * 2
    # The optimizer came back with its momentum, over the session's own parameters: both go on alike.
    trained(names, 1)
    trained(alone, 1)
    same_parameters(names, alone)


def test_the_buckets_that_ddp_cuts_are_in_the_record(
    under_ddp: tuple[RanksResult, dict[str, Any], dict[str, Any]],
) -> None:
    result, names, _ = under_ddp
    for record in result.ranks:
        graphs = [g.id.removesuffix(".fx") for g in record.compilation.graphs if g.stage == "fx"]
        assert [bucket.graph for bucket in record.buckets] == graphs == ["g0", "g1"]
        assert sum(bucket.bytes for bucket in record.buckets) == 4 * sum(
            p.numel() for p in names["model"].parameters()
        )
        assert set(record.buckets[0].parameters) == {"blocks_0_up_weight", "blocks_0_up_bias"}
        assert record.buckets[1].span is not None and record.buckets[1].span.file.endswith("models.py")
        assert sum(record.reducer_bytes) == sum(bucket.bytes for bucket in record.buckets)
        assert set(record.lines) == {"g0", "g1"} and set(record.lines.values()) == {3}
        assert {kernel.graph.partition(".")[0] for kernel in record.compilation.kernels} == {"g0", "g1"}


def test_a_steady_step_is_measured_with_its_communication(
    under_ddp: tuple[RanksResult, dict[str, Any], dict[str, Any]],
) -> None:
    result, _, _ = under_ddp
    for record in result.ranks:
        assert record.steady and len(record.steady) == len(record.eager), record.reason
        talk = record.communication
        assert talk is not None
        assert [(kind.name, kind.count) for kind in talk.kinds] == [
            ("gloo:all_reduce", len(record.reducer_bytes))
        ]
        assert 0 <= talk.overlapped <= talk.collectives and talk.exposed > 0
        assert [m.contestant for m in record.compilation.measurements] == ["eager", "nbcompile"]
    assert "2 buckets by DDPOptimizer" in result.text and "blocks_0_up_weight" in result._repr_html_()


def test_ranks_that_compile_different_graphs_are_told_of(ranks: Ranks) -> None:
    source = "model.eval()\nrows = x[:4] if rank else x\nout = model(rows)\nout.shape"
    names = program(16)
    result = ranks.run(source, names, parallel="none", backend="eager", measure=False)
    (difference,) = result.differences
    assert (difference.rank, difference.graph, difference.line) == (1, "g0", 3)
    assert "[4,16]" in difference.text and "rank 0 has" in difference.text
    assert "rank 1 compiled something else than rank 0: graph g0, line 3" in result.text
    assert result.shown == torch.Size([8, 4])
    assert not names["model"].training and not result.values["out"].requires_grad


def test_an_exception_on_a_rank_comes_back_with_its_line(ranks: Ranks) -> None:
    source = "y = x * 2\nprint('so far')\nif rank == 1:\n    y = y[100]\ntorch.distributed.all_reduce(y)"
    names = {"x": torch.ones(2), "torch": torch}
    with pytest.raises(RanksError, match="line 4: rank 1: IndexError: index 100") as caught:
        ranks.run(source, names)
    assert caught.value.rank == 1
    assert any("so far" in note for note in caught.value.__notes__)
    assert ranks.running, "the others heard of it; nobody had to be ended"
    result = ranks.run("x *= 2\ntorch.distributed.all_reduce(x)\ndel torch", names)
    assert torch.equal(names["x"], torch.full((2,), 4.0)) and result.deleted == ("torch",)


def test_fsdp2_trains_as_one_process_does(ranks: Ranks) -> None:
    names = program(16)
    trained(names, 1)  # so that there is momentum to be sharded
    names["optimizer"].zero_grad()
    alone = copy.deepcopy({key: names[key] for key in names if key != "F"})
    trained(alone, 3)
    result = ranks.run(TRAIN, names, parallel="fsdp2", split=("x", "y"), measure=False)
    same_parameters(names, alone)
    modules = [(bucket.module, len(bucket.parameters)) for bucket in result.ranks[0].buckets]
    assert modules == [("model.blocks.0", 4), ("model", 2)]
    assert all(type(p) is torch.nn.Parameter for p in names["model"].parameters())
    trained(names, 1)
    trained(alone, 1)
    same_parameters(names, alone)


def test_a_module_of_torch_itself_is_compiled_too(ranks: Ranks) -> None:
    torch.manual_seed(0)
    names = {"model": torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()), "x": torch.randn(2, 4)}
    result = ranks.run("model(x)", names, backend="aot_eager", measure=False)
    assert [record.graphs for record in result.ranks] == [1, 1]
    torch.testing.assert_close(result.shown, names["model"](names["x"]).detach())


@pytest.mark.nightly
def test_a_sharded_module_of_torch_itself_is_compiled_in_its_parts(ranks: Ranks) -> None:
    """FSDP2's hooks, which Dynamo may not look into, parted it, and torch.nn's own parts were left out."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    alone, x = copy.deepcopy(model), torch.randn(2, 4)
    source = "loss = model(x).square().mean()\nloss.backward()\nloss.item()"
    result = ranks.run(source, {"model": model, "x": x}, parallel="fsdp2", backend="aot_eager", measure=False)
    assert [record.graphs for record in result.ranks] == [3, 3]
    (broke,) = result.ranks[0].compilation.breaks
    assert "FSDP2's hooks" in broke.hint and "nothing to mend" in broke.hint
    expected = alone(x).square().mean()
    expected.backward()
    assert result.shown == pytest.approx(expected.item())
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert not any("forward" in vars(part) for part in model.modules()), "the user's module is as it was"


def test_gradients_go_to_the_ranks_and_come_back(ranks: Ranks) -> None:
    """A tensor's was lost in silence, and what a module had gathered was not added to."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 2), torch.randn(8, 4)
    w, untouched, apart = (torch.randn(4, 2, requires_grad=True) for _ in range(3))
    inside, history = torch.randn(4, 2, requires_grad=True), torch.randn(4, 2, requires_grad=True) * 2
    names = {
        "model": model,
        "x": x,
        "w": w,
        "untouched": untouched,
        "rows": apart,
        "held": [inside],
        "h": history,
    }
    source = (
        "(model(x) + x @ w).pow(2).mean().backward()\n(x @ held[0]).sum().backward()\n"
        "(x @ h).sum().backward()\nrows.sum().backward()\nuntouched.shape"
    )
    for leaf in (w, untouched):
        leaf.pow(2).sum().backward()
    model(x).sum().backward()
    kept, alone = untouched.grad, copy.deepcopy((model, w))
    for mine, theirs in zip((*alone[0].parameters(), alone[1]), (*model.parameters(), w), strict=True):
        mine.grad = theirs.grad.clone()
    (alone[0](x) + x @ alone[1]).pow(2).mean().backward()
    result = ranks.run(source, names, split=("rows",), backend="eager", measure=False)
    for mine, theirs in zip((*model.parameters(), w), (*alone[0].parameters(), alone[1]), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert untouched.grad is kept and inside.grad is apart.grad is None
    for told in (
        "held holds tensors that gathered gradients: these stay on the ranks",
        "h went to the ranks as its value alone: gradients do not go back to what it was computed from",
        "rows has a gradient for each rank's part of it: none is brought back",
    ):
        assert told in result.notes


def test_parameters_that_went_apart_are_told_of(ranks: Ranks) -> None:
    names = program(16) | {"torch": torch}
    source = "with torch.no_grad():\n    model.head.bias += rank"
    before = names["model"].head.bias.detach().clone()
    result = ranks.run(source, names, parallel="none", measure=False)
    assert result.notes == ("model has other parameters on rank 1 now than on rank 0, whose are kept",)
    assert torch.equal(names["model"].head.bias, before)


def test_a_function_runs_on_the_ranks(ranks: Ranks) -> None:
    result = ranks.run(_shard_sum, {"x": torch.arange(4.0), "lock": threading}, split=("x",))
    assert result.shown == (0, 2, 6.0)
    kept = ranks.run("import threading\nlock = threading.Lock()\nkept = 1", {})
    assert kept.values["kept"] == 1 and "lock" not in kept.values
    assert any(note.startswith("lock stays on the ranks: TypeError") for note in kept.notes)


def _shard_sum(x: torch.Tensor, rank: int, world_size: int) -> tuple[int, int, float]:
    total = x.sum()
    torch.distributed.all_reduce(total)
    return rank, world_size, total.item()


def test_what_cannot_be_sent_or_split_is_named(ranks: Ranks) -> None:
    with pytest.raises(RanksError, match="lock cannot be sent to the ranks: TypeError"):
        ranks.run("lock", {"lock": threading.Lock()})
    with pytest.raises(RanksError, match="x has 7 rows, which 2 ranks cannot share evenly"):
        ranks.run("x", {"x": torch.ones(7)}, split=("x",))
    with pytest.raises(RanksError, match="z is to be split, and the program does not read it"):
        ranks.run("x", {"x": torch.ones(7)}, split=("z",))


@pytest.mark.nightly
def test_a_rank_that_waits_for_another_is_ended(ranks: Ranks) -> None:  # the last: it ends the ranks
    ranks.timeout = 6.0
    source = "import torch\nif rank == 1:\n    torch.distributed.barrier()\n"
    with pytest.raises(
        RanksError, match=r"line 3: not done in 6 s: rank 0 waits for it, rank 1 is at line 3"
    ):
        ranks.run(source, {})
    assert not ranks.running

"""An index out of range is met before anything of an input is overwritten, in whichever kernel: a cell whose
index has been mended can be run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import nbcompile
from tests.nightly import few

OPTIONS = {"cache": False, "verify": True}
Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def added(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.add_(t[i])
    return x * 2


def gathered_later(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return torch.softmax((x @ t[:4, :4].t())[:, :2], 0).sum() * t[i]


def in_a_part(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> None:
    x[2:4, 1:].add_(t[i[2:], 1:])


def copied(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.copy_(torch.relu(t[:4] @ t[:4].t()))
    return t[i]


def by_the_values_overwritten(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> None:
    i.add_(1)
    x.add_(t[i - 1])


def two(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    t.mul_(2)
    y = t.sum(0)
    x.add_(y)
    return x[i, i % 4]


def layers(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.mul_(0.5)
    y = t
    for _ in range(3):
        y = torch.zeros_like(y).index_add(0, i % 4, torch.tanh(y @ y.t()[:, :4])[i])
    return y


def summed(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.sub_(t[i].mean(1, keepdim=True))
    return torch.softmax(x, 1)


def put(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> None:
    t.mul_(2)
    x[i] += t[:4]


PROGRAMS: dict[str, Program] = {
    "added": added,
    "gathered later": gathered_later,
    "in a part": in_a_part,
    "copied": copied,
    "by what is overwritten": by_the_values_overwritten,
    "two": two,
    "layers": layers,
    "summed": summed,
    "put": put,
    "computed": lambda x, t, i: x.add_(t[i * 2 // 2]),
    "of floats": lambda x, t, i: x.add_(t[(i.double() * 2).sqrt().square().mul(0.5).round().long()]),
    "two indices": lambda x, t, i: x.add_(t[i[:, None], i % 4]),
    "a chain": lambda x, t, i: x.add_(t[i.flip(0)[i % 4]]),
    "embedding": lambda x, t, i: x.add_(F.embedding(i, t)),
    "index_select": lambda x, t, i: x.mul_(t.index_select(0, i)),
    "gather": lambda x, t, i: x.mul_(t.gather(0, i[:, None].expand(4, 4))),
    "padded": lambda x, t, i: x.add_(F.pad(t[i, 1:3], (1, 1))),
    "joined": lambda x, t, i: x.add_(torch.cat([t[i[2:]], t[:2]])),
    "joined rows": lambda x, t, i: x.add_(torch.cat([t[3:], t[:3]])[i]),
    "behind a choice": lambda x, t, i: x.add_(torch.where(x > 0, t[i], 1.0)),
    "transposed": lambda x, t, i: x.t().add_(t[i]),
    "in columns": lambda x, t, i: x.add_(t[i].sum(0)),
    "index_add_": lambda x, t, i: x.index_add_(0, i % 4, t[i]),
    "scatter_": lambda x, t, i: x.scatter_(0, i[:, None], t[:4]),
    "scatter_add_": lambda x, t, i: x.scatter_add_(0, i[:, None] % 4, t[i]),
    "index_put of another": lambda x, t, i: (x.neg_().sum(), (t + 1).index_put((i,), t[0])),
}


def inputs(bad: int | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What is overwritten, a table of five rows, and indices: four are in range, or the last is not."""
    torch.manual_seed(0)
    return torch.rand(4, 4), torch.rand(5, 4), torch.tensor([0, 1, 2, 3 if bad is None else bad])


def overwritten_nothing(run: Callable[..., Any], bad: int) -> None:
    given, expected = inputs(bad), inputs(bad)
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        run(*given)
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@few(8)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_overwritten(name: str, dynamic: bool) -> None:
    program = PROGRAMS[name]
    run = nbcompile.compile(program, options=OPTIONS, dynamic=dynamic)
    expected, ours = inputs(), inputs()
    torch.testing.assert_close(run(*ours), program(*expected))
    torch.testing.assert_close(ours, expected)
    for bad in (99, 5, -99, 2**40):
        overwritten_nothing(run, bad)
    torch.testing.assert_close(run(*ours), program(*expected))
    torch.testing.assert_close(ours, expected)
    assert run.ran_compiled, run.eager_reason


def test_buffers_stay_as_they_were() -> None:
    """The statistics of a batch and their count, beside embeddings before and after them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3))

    def loss(words: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return (net(words) * net[2].bias[others]).sum()

    run = nbcompile.compile(loss, options=OPTIONS)
    words, others = torch.tensor([0, 4, 2, 1]), torch.tensor([0, 1, 2]).repeat(4, 1)
    run(words, others)
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    for bad in ((torch.tensor([0, 5, 1, 2]), others), (words, others + 1)):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            run(*bad)
        for name, buffer in net.named_buffers():
            torch.testing.assert_close(buffer, before[name], rtol=0, atol=0)
    run(words, others)
    assert int(net[1].num_batches_tracked) == 2
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("columns", [1, 3])
def test_many_indices(columns: int, threads: int) -> None:
    x, t = torch.zeros(200_000, columns), torch.rand(1000, columns)
    index = torch.randint(-1000, 1000, (200_000,))
    run = nbcompile.compile(lambda x, t, i: x.add_(t[i]), options=OPTIONS)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run(x, t, index)
        torch.testing.assert_close(x, t[index])
        index[123_456] = 1000
        with pytest.raises(IndexError, match="out of"):
            run(x, t, index)
    finally:
        torch.set_num_threads(before)
    index[123_456] = 999
    assert (x == t[index]).all(1).sum() >= 199_999
    assert run.ran_compiled, run.eager_reason


@pytest.mark.parametrize("dynamic", [False, True])
def test_no_points_have_no_index_out_of_range(dynamic: bool) -> None:
    """As in eager, where nothing is gathered."""
    run = nbcompile.compile(added, options=OPTIONS, dynamic=dynamic)
    for x, t, index in (
        (torch.ones(4, 0), torch.ones(5, 0), torch.tensor([0, 1, 2, 99])),
        (torch.ones(0, 4), torch.ones(5, 4), torch.tensor([], dtype=torch.int64)),
    ):
        torch.testing.assert_close(run(x, t, index), added(x, t, index))
    overwritten_nothing(run, 99)
    assert run.ran_compiled, run.eager_reason


def test_as_many_as_data_say() -> None:
    def program(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
        picked = i[some.nonzero()[:, 0]]
        x.mul_(2)
        return t[picked]

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = nbcompile.compile(program, options=OPTIONS, fullgraph=True)
        x, t, index = inputs(99)
        torch.testing.assert_close(run(x, t, index, torch.tensor([1, 1, 0, 0])), t[:2])
        before = x.clone()
        with pytest.raises(IndexError, match="out of"):
            run(x, t, index, torch.tensor([0, 1, 0, 1]))
        torch.testing.assert_close(x, before)


def test_what_is_printed() -> None:
    """One function for one tensor of indices, whoever gathers by it; none where nothing is overwritten."""

    def program(x: torch.Tensor, t: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return (torch.exp(t[i]) @ t.t())[i % 4] @ torch.sin(t)[i]

    run = nbcompile.compile(program, options=OPTIONS)
    run(torch.rand(4, 4), torch.rand(4, 4), torch.tensor([0, 1, 2, 3]))
    texts = [kernel.sources["c"] for kernel in run.compilation.kernels]
    assert [text.count("_indices(") for text in texts] == [2, *(0 for _ in texts[1:])]
    alone = nbcompile.compile(lambda t, i: torch.exp(t[i]), options=OPTIONS)
    alone(torch.rand(4, 4), torch.tensor([0, 1, 2, 3]))
    (kernel,) = alone.compilation.kernels
    assert "return" not in kernel.sources["c"]


def test_names_of_what_looks_ahead_are_not_the_nests() -> None:
    """An index of no axes is looked at outside of all loops, where the nest defines its own numbers."""

    def picked(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        lost = F.cross_entropy(x, i)
        i.add_(1)
        return lost

    run = nbcompile.compile(picked, options={"cache": False})
    x, i = torch.randn(9), torch.tensor(3)
    expected = F.cross_entropy(x, i)
    torch.testing.assert_close(run(x, i), expected)
    assert i == 4
    assert not [each for each in run.compilation.decisions if each.code == "taken-apart"]

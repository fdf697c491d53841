"""Which schedule a kernel gets: the first of its kind's list that fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import pytest
import torch
from torch.nn import functional as F

from nbcompile.compiler import schedule as schedules
from nbcompile.compiler.codegen.triton import groups_to_triton, nests
from nbcompile.compiler.codegen.triton import schedules as printers
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.errors import CodegenError
from tests.compiler.codegen.triton_running import generated
from tests.compiler.schedule.cut import BF16, H100, aten_of_fake, cut, empty

Program = tuple[Callable[..., Any], tuple[Callable[[], torch.Tensor], ...]]


def ints(*shape: int) -> Callable[[], torch.Tensor]:
    return empty(*shape, dtype=torch.int64)


def norm_gradients(g, x, mean, rstd):
    y = (x - mean) * rstd
    return (g * y).sum(0), g.sum(0), (g * y).sum(1)


def word_losses(x, at, kept, g):
    """The gradients of a cross entropy and of the bias before it, where some words are left out."""
    hot = torch.zeros_like(x, dtype=torch.bool).scatter(1, at, True) & kept
    chosen = torch.where(hot, -g, 0.0)
    grad = (chosen - x.float().exp() * chosen.sum(1, keepdim=True)).to(x.dtype)
    return grad, grad.sum(0, keepdim=True)


WORDS = empty(6144, 32_000, dtype=BF16), ints(6144, 1), empty(6144, 1, dtype=torch.bool), empty()
SUMS = (empty(8192, 1024), empty(8192, 1024), empty(8192, 1), empty(8192, 1))
LONG_SUMS = (empty(2048, 40_000), empty(2048, 40_000), empty(2048, 1), empty(2048, 1))
PROGRAMS: dict[str, Program] = {
    "Points": (lambda x: x.exp(), (empty(1 << 20),)),
    "Square": (lambda x: x.t().contiguous() + 1, (empty(4096, 4096),)),
    "ByRows": (lambda x, w: x * w.exp()[:, None].sin(), (empty(8192, 4096), empty(8192))),
    "Bands": (lambda x, w: x * w.exp()[:, None].sin(), (empty(512, 128), empty(512))),
    "Parts": (lambda x, y: torch.cat([x.tanh(), y], -1), (empty(8192, 1024), empty(8192, 1024))),
    "Joined": (lambda *x: torch.cat(x, 1), tuple(empty(32, 64, 28, 28) for _ in range(6))),
    "HeldRows": (lambda x: torch.softmax(x, -1), (empty(8192, 1024),)),
    "SteppedColumns": (lambda x: x.sum(0), (empty(8, 100_000),)),
    "SharedRows": (lambda x: torch.softmax(x, -1), (empty(32, 1 << 18),)),
    "SharedWalks": (lambda x: F.layer_norm(x, (1 << 17,)), (empty(64, 1 << 17, dtype=BF16),)),
    "SplitRows": (lambda x: x.sum(-1), (empty(4, 1 << 22),)),
    "SplitLanes": (lambda x: x.sum((1, 3)), (empty(64, 1 << 10, 64, 3),)),
    "WalkedRows": (lambda x: x.sum(-1), (empty(8192, 40_000),)),
    "OwnedRows": (norm_gradients, SUMS),
    "OwnedPieces": (word_losses, WORDS),
    "WalkedSums": (norm_gradients, LONG_SUMS),
    "HeldScan": (lambda x: x.cumsum(-1), (empty(4096, 1024),)),
    "WalkedScan": (lambda x: x.cumsum(-1), (empty(4096, 100_000),)),
    "SplitScan": (lambda x: x.cumsum(-1), (empty(1 << 24),)),
    "Scatter": (lambda x, i, v: x.index_add(0, i, v), (empty(1000), ints(100), empty(100))),
    "SmallTable": (lambda x, i, v: x.index_add(0, i, v), (empty(16, 8), ints(100_000), empty(100_000, 8))),
    "ListedRows": (
        lambda x, i, v: x.index_add(0, i, v),
        (empty(50_000, 1024, dtype=BF16), ints(8192), empty(8192, 1024, dtype=BF16)),
    ),
    "ListedAxes": (
        lambda x, i, v: x.index_add(1, i, v), (empty(64, 32, 256), ints(64), empty(64, 64, 256)),
    ),
    "ListedLanes": (
        lambda x, i, v: x.index_add(2, i, v), (empty(64, 256, 32), ints(64), empty(64, 256, 64)),
    ),
}  # fmt: skip
PRODUCTS = {"ProductTiles", "PersistentProduct"}
"""These are asked for by name: see test_products.py."""
SYMBOLIC = {"HeldIfShort"}
"""This one is for symbolic sizes: see test_rows.py."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_kind_is_what_some_program_gets(name: str) -> None:
    fn, inputs = PROGRAMS[name]
    assert type(cut(fn, *inputs)).__name__ == name


def test_every_kind_is_among_them_and_has_a_printer() -> None:
    kinds = [kind for listed in schedules.KINDS.values() for kind in listed]
    assert {kind.__name__ for kind in kinds} == PROGRAMS.keys() | PRODUCTS | SYMBOLIC
    assert set(kinds) == printers.PRINTERS.keys()
    assert all(kind.name and kind.meaning.endswith(".") for kind in kinds)


def test_where_nothing_fits_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schedules.KINDS, "points", ())
    with pytest.raises(CodegenError, match="no schedule fits exp"):
        cut(*_flat(PROGRAMS["Points"]))


def _flat(program: Program) -> tuple[Any, ...]:
    return program[0], *program[1]


# -- adding a schedule ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Alone(Schedule):
    """One program does it all: the schedule's own file."""

    name = "alone"
    meaning = "One program does it all."

    @classmethod
    def fit(cls, work: Work) -> Self | None:
        return cls(configs=()) if not work.values.nest.axes else None


class AloneNest(nests.TritonNest):
    """The printer's own file."""

    def write(self) -> None:
        p = self.printer([])
        p.out.add("# nobody else is here")
        self.store_all(p, self.values.stores, {})
        self.add(self.symbol, p, ["1"], [nests.Config({}, 1)])


def test_a_new_schedule_takes_two_classes_and_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(schedules.KINDS, "points", (Alone, *schedules.KINDS["points"]))
    monkeypatch.setitem(printers.PRINTERS, Alone, AloneNest)
    _, source = generated(aten_of_fake(lambda x: x.exp(), lambda: (torch.empty(()),)), H100)
    (kernel,) = source.kernels
    assert kernel.schedule == "alone" and "# nobody else is here" in kernel.text
    _, source = generated(aten_of_fake(lambda x: x.exp(), lambda: (torch.empty(4),)), H100)
    assert source.kernels[0].schedule == "pointwise"


def test_no_other_module_names_a_kind() -> None:
    """What prints the program knows the two tables alone, and the base of printers no printer."""
    kinds = {kind.__name__ for kind in printers.PRINTERS}
    classes = {printer.__name__ for printer in printers.PRINTERS.values()}
    assert not (kinds | classes) & (vars(groups_to_triton).keys() | vars(nests).keys())

"""Where a new value is made: in its input's memory only where nobody needs the old one any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from nbcompile.compiler.codegen.source import is_repeatable
from nbcompile.compiler.fuse.limits import limits_of
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.storage import with_storage
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.versions import verify_versions
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.errors import VerifyError
from nbcompile.options import Options
from tests.compiler.codegen.running import aten_of

UNFUSED = Options(fuse=False, cache=False, verify=True)


def read_late() -> FusedProgram:
    """``y = x * 2`` stands behind the kernel of ``x += 1``, as fusion may order the two."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.ops.aten.copy_(x, x + 1)
        return y

    fused = loops_to_groups(aten_to_loops(aten_of(function, torch.rand(4)), UNFUSED), UNFUSED)
    last = next(item for item in fused.items if isinstance(item, Group) and "mul" in item.stored)
    return replace(fused, items=(*(item for item in fused.items if item is not last), last))


def test_what_is_read_later_is_not_overwritten() -> None:
    placed = with_storage(read_late(), limits_of(UNFUSED.chip))
    verify_versions(placed)
    assert "later" in placed.decisions[-1].reason
    where = [bool(item.in_place) for item in placed.items if isinstance(item, Group)]
    assert where == [False] * (len(where) - 1) + [True]  # by a copy, at the end


def test_the_verifier_refuses_what_overwrites_too_early() -> None:
    fused = read_late()
    ((old, new),) = fused.program.updates.items()
    items = [
        replace(item, in_place={new: old}) if isinstance(item, Group) and new in item.stored else item
        for item in fused.items
    ]
    with pytest.raises(VerifyError, match=f"reads {old}, but its memory holds {new}"):
        verify_versions(replace(fused, items=tuple(items)))


def test_what_overwrites_is_not_run_again() -> None:
    """Its second run would find the new values for the old."""
    fused = read_late()
    assert not is_repeatable(fused)
    assert is_repeatable(replace(fused, program=replace(fused.program, updates={})))


def reused(function: Callable[..., Any], *args: torch.Tensor) -> dict[str, str]:
    """Buffer → the memory it lies in, of the kernels of a function; which are run, and agree with eager."""
    fused = loops_to_groups(aten_to_loops(aten_of(function, *args), PLAIN), PLAIN)
    placed = verify_versions(with_storage(fused, limits_of(PLAIN.chip)))
    assert not any(item.reuses for item in with_storage(fused, limits_of(PLAIN.chip), apart=True).groups)
    compiled = torch.compile(function, backend="nbcompile", options={"verify": True, "cache": False})
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), function(*args), rtol=1e-4, atol=1e-5)
    return {new: old for group in placed.groups for new, old in group.reuses.items()}


PLAIN = Options(cache=False, verify=True)
X, W = torch.randn(6, 6), torch.randn(6, 6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, w: torch.relu(x @ w), {"relu": "mm"}),
        (lambda x, w: torch.softmax(x @ w, -1), {"_softmax": "mm"}),
        (lambda x, w: torch.cumsum(x, 1) * 2 + w, {"add": "cumsum"}),
        (lambda x, w: (torch.relu(x @ w) @ w).exp(), {"relu": "mm", "exp": "mm_1"}),
        (lambda x, w: torch.sin(x @ w) + (x @ w.t()), {"add": "mm"}),  # of two, one
    ],
)
def test_who_reads_a_value_last_writes_in_its_place(function: Any, expected: dict[str, str]) -> None:
    assert reused(function, X, W) == expected


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, w: [y := x @ w, torch.relu(y)], id="returned"),
        pytest.param(lambda x, w: [y := x @ w, torch.relu(y), y[1:]][1:], id="a part is returned"),
        pytest.param(lambda x, w: torch.relu(y := x @ w) @ y, id="read later by a call"),
        pytest.param(lambda x, w: (y := x @ w) + y.t(), id="read at other points too"),
        pytest.param(lambda x, w: (y := x @ w) + y[0], id="read by every row"),
        pytest.param(lambda x, w: (x @ w).relu().half(), id="of another type"),
        pytest.param(lambda x, w: (x @ w)[:, :3].exp(), id="a part is read"),
        pytest.param(lambda x, w: torch.relu(x) * w, id="inputs"),
        pytest.param(lambda x, w: (x @ w).flip(0), id="in another order"),
    ],
)
def test_what_is_needed_elsewhere_is_not_written_over(function: Any) -> None:
    assert not reused(function, X, W)


def test_memory_of_an_input_is_not_reused_for_another_value() -> None:
    """``x``'s new value is there, and the kernel that reads it last makes another."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        torch.ops.aten.copy_(x, x + 1)
        return torch.exp(x @ w) + torch.sin(x)

    fused = loops_to_groups(aten_to_loops(aten_of(function, X.clone(), W), PLAIN), PLAIN)
    placed = verify_versions(with_storage(fused, limits_of(PLAIN.chip)))
    lies_in = {old for group in placed.groups for old in group.reuses.values()}
    updates = fused.program.updates
    assert lies_in and lies_in.isdisjoint({*updates, *updates.values()})


def test_the_verifier_refuses_what_is_written_over_too_early() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = x @ w
        return torch.relu(y) @ y

    fused = loops_to_groups(aten_to_loops(aten_of(function, X, W), PLAIN), PLAIN)
    items = [
        replace(item, reuses={"relu": "mm"}) if isinstance(item, Group) else item for item in fused.items
    ]
    with pytest.raises(VerifyError, match="reads mm, but its memory holds relu"):
        verify_versions(replace(fused, items=tuple(items)))

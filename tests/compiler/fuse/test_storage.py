"""Where a new value is made: in its input's memory only where nobody needs the old one any more."""

from __future__ import annotations

from dataclasses import replace

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

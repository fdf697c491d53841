"""Copies for measuring are bounded by the memory that is free."""

from __future__ import annotations

import pytest
import torch

from nbcompile.bench.measure import room
from nbcompile.bench.measure.state import Snapshot
from nbcompile.errors import MeasureError


def test_what_is_free_is_known() -> None:
    known = room.free(torch.device("cpu"))
    assert known is None or known > 0
    assert room.free(torch.device("meta")) is None


def test_copies_that_would_fill_the_memory_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free", lambda device: 1 << 20)
    small, large = torch.zeros(1000), torch.zeros(1 << 18)
    assert Snapshot({"x": small}).bytes == 4000
    with pytest.raises(MeasureError, match=r"would be copied, and 1.*of memory are free"):
        Snapshot({"x": small, "y": large})
    assert Snapshot({"y": large}, copies=False).bytes == 0
    with pytest.raises(MeasureError):
        Snapshot({"array": large.numpy()})


def test_of_a_group_its_limit_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 5\ninactive_file 100\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert room._of_group(tmp_path) == 400
    (tmp_path / "memory.max").write_text("max")
    assert room._of_group(tmp_path) is None and room._of_group(tmp_path / "none") is None

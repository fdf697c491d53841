"""Cold compiles: empty caches, here and in a fresh process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nbcompile.bench.measure.cold import CACHE_VARIABLES, ProgramSpec, fresh_caches, in_fresh_process
from nbcompile.errors import MeasureError

PROGRAM = """
import os, torch

def build(fail=False):
    weight = torch.ones(4, requires_grad=True)
    if fail:
        raise ValueError("asked to fail")
    assert os.environ["TMPDIR"] in os.environ["NBCOMPILE_CACHE_DIR"].replace("nbcompile_cache_dir", "tmp")
    assert os.listdir(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == []
    return (lambda x: (x * weight).sin()), (torch.ones(4),)
"""


def test_fresh_caches_are_empty_and_everything_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", "/somewhere")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with pytest.raises(KeyboardInterrupt), fresh_caches() as folder:
        for name in CACHE_VARIABLES:
            place = Path(os.environ[name])
            assert place.is_dir() and not any(place.iterdir()) and folder in place.parents
        raise KeyboardInterrupt
    assert os.environ["NBCOMPILE_CACHE_DIR"] == "/somewhere" and "TRITON_CACHE_DIR" not in os.environ
    assert not folder.exists()


def test_fresh_process_compiles_with_empty_caches_and_says_how_long(tmp_path: Path) -> None:
    file = tmp_path / "zoo.py"
    file.write_text(PROGRAM)
    times = in_fresh_process(ProgramSpec(str(file), "build", train=True), "aot_eager", threads=1)
    assert times.ran_compiled and times.reason == ""
    assert 0 < times.first < times.compile < 60 and times.imports > 0
    with pytest.raises(MeasureError, match="asked to fail"):
        in_fresh_process(ProgramSpec(str(file), "build", {"fail": True}), "aot_eager")
    with pytest.raises(MeasureError, match=r"more than 0\.01 s"):
        in_fresh_process(ProgramSpec(str(file), "build"), "aot_eager", timeout=0.01)

"""The views on a record that the compiler itself made, read back from JSON as from a saved notebook."""

from __future__ import annotations

import pytest

from nbcompile import view
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.view.facts.cell_lines import cell_lines
from nbcompile.view.facts.facts import calls_of
from tests.view.fixtures_real import real


@pytest.fixture(scope="module")
def record() -> Compilation:
    return real()


def test_every_computing_line_has_its_kernels(record: Compilation) -> None:
    links = Links(record)
    rows = {row.number: row for row in cell_lines(record, calls_of(record, links), links)}
    assert rows[1].fate is None
    assert rows[2].fate == "library" and rows[2].chips[0].label == "mm"
    assert rows[3].fate == "fused" and rows[3].chips[0].label == "k0"
    assert rows[4].fate == "fused"
    assert sum(row.share for row in rows.values()) == pytest.approx(1, abs=1e-6)


def test_the_kernels_and_their_places_are_shown(record: Compilation) -> None:
    page = view.to_page(record, "real")
    for kernel in record.kernels:
        assert f"<b>{kernel.name}</b>" in page
    assert "x [64,32]</text>" in page, "the argument's own name, not arg0_1"
    assert ">mm</text>" in page and "#pragma" in page
    for step in ("Capture", "AOTAutograd", "Lower", "Fuse", "Codegen", "Build"):
        assert f">{step}</b>" in page


def test_the_text_names_decisions_by_loops(record: Compilation) -> None:
    text = view.to_text(record)
    assert "pairs fused" in text and "library call" in text
    assert all(len(line) <= 100 for line in text.splitlines())

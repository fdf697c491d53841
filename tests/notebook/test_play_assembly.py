"""The machine code of a C kernel, which the explorer asks for."""

from __future__ import annotations

import re
from typing import Any

import pytest

from nbcompile.compiler.runtime.c import toolchain
from nbcompile.errors import EditError, PlayError
from tests.notebook.conftest import Notebook
from tests.notebook.test_play import Player

SETUP = "torch.manual_seed(0)\nx = torch.randn(2048, 256)"
CELL = "y = torch.softmax(x, -1)\nz = (y + 1).relu()"


def checked(found: dict[str, Any], c: str) -> dict[int, list[str]]:
    """The instructions for each line of the C text."""
    assert set(found) == {"text", "lines", "compiler"}
    rows, source = found["text"].split("\n"), c.split("\n")
    places = [at for at, _ in found["lines"]]
    assert places == sorted(set(places)) and places[-1] <= len(rows)
    entry = next(n for n, line in enumerate(source, 1) if line.startswith("void "))
    made: dict[int, list[str]] = {}
    for at, line in found["lines"]:
        assert entry <= line <= len(source)
        made.setdefault(line, []).append(rows[at - 1])
    return made


def test_the_lines_of_a_kernel_and_of_its_parallel_part(notebook: Notebook) -> None:
    player = Player(notebook)
    kernel = player.cell(CELL, SETUP).kernels[0]
    found = player.ask("assembly", kernel=kernel.id)
    assert found["compiler"] == toolchain.find_toolchain().version
    assert player.told[-1] == f"compiling {kernel.name}"
    c = kernel.sources["c"]
    made = checked(found, c)
    lines = found["text"].split("\n")
    (symbol,) = re.findall(r"^void (\w+)\(", c, re.MULTILINE)
    assert [line for line in lines if re.match(rf"_?{symbol}:$", line)]
    assert not [line for line in lines if re.match(r"\s*\.(?:loc|cfi|file|section)|\.?Ltmp|\.LV?[FB]", line)]
    assert "omp parallel" in c and toolchain.find_toolchain().openmp
    (body,) = {line for line in lines if re.match(rf"_?{symbol}\.\S*omp\S*:$", line)}
    inside = range(lines.index(body) + 2, len(lines) + 1)
    loops = {line for at, line in found["lines"] if at in inside}
    stores = [n for n, line in enumerate(c.split("\n"), 1) if re.match(r"\s+\w+\[[^]]*\] = ", line)]
    assert stores[-1] in loops  # of the result: one of what is kept for a while may go
    if toolchain.find_toolchain().processor.startswith("x86_64"):
        assert any(re.search(r"%[xyz]mm\d", row) for row in made[stores[-1]])


def test_labels_are_kept_where_something_names_them(notebook: Notebook) -> None:
    player = Player(notebook)
    kernel = player.cell(CELL, SETUP).kernels[0]
    text = player.ask("assembly", kernel=kernel.id)["text"]
    labels = re.findall(r"^(\.?L\w+):", text, re.MULTILINE)
    assert labels
    for label in labels:
        assert len(re.findall(rf"{re.escape(label)}\b", text)) > 1, label


@pytest.mark.nightly
def test_an_edited_kernel_has_its_own(notebook: Notebook) -> None:
    player = Player(notebook)
    record = player.cell("y = x * 2 + 1", "x = torch.randn(30, 40)")
    kernel = record.kernels[0]
    c = kernel.sources["c"]
    end = c.rindex("}")
    text = f'{c[:end]}\n\n\n  __asm__ volatile("nop");\n}}'
    edited = player.ask("edit", kernel=kernel.id, language="c", source=text)
    after = player.ask("assembly", record=edited["payload"]["id"], kernel=kernel.id)
    before = player.ask("assembly", kernel=kernel.id)
    last = c[:end].count("\n") + 4
    (row,) = [at for at, line in enumerate(after["text"].split("\n"), 1) if line.strip() == "nop"]
    assert [row, last] in after["lines"]
    assert last not in {line for _, line in before["lines"]}


def test_what_cannot_be_had(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    player = Player(notebook)
    kernel = player.cell(CELL, SETUP).kernels[0]
    with pytest.raises(PlayError, match="has no kernel"):
        player.ask("assembly", kernel="g0.fw.k7")
    with pytest.raises(PlayError, match="does not hold"):
        player.ask("assembly", record="gone", kernel=kernel.id)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("NBCOMPILE_CC", "/nowhere/cc")
    with pytest.raises(PlayError, match="/nowhere/cc"):
        player.ask("assembly", kernel=kernel.id)


def test_a_triton_kernel_has_none(notebook: Notebook) -> None:
    pytest.importorskip("triton")
    player = Player(notebook)
    kernel = player.cell(CELL, "x = torch.randn(4, 8)", "--no-bench --interpret").kernels[0]
    with pytest.raises(EditError, match="is no C"):
        player.ask("assembly", kernel=kernel.id)

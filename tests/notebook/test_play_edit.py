"""A kernel edited in the explorer: right, wrong, refused by the compiler, crashing, never ending."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.attempt import Attempt
from nbcompile.compiler.runtime.edit import trial
from nbcompile.errors import EditError, PlayError
from nbcompile.record.compilation import Compilation
from tests.nightly import few
from tests.notebook.conftest import Notebook, plain
from tests.notebook.test_play import Player, pairs_of

SETUP = """
torch.manual_seed(0)
x = torch.randn(64, 50, requires_grad=True)
w = torch.randn(50)
"""
CELL = "y = torch.softmax(x * w, -1)\nz = (y + 1).relu()"


class Editor(Player):
    def edit(self, source: str, kernel: int = 0, **more: Any) -> dict[str, Any]:
        item = self.record.kernels[kernel]
        return self.ask("edit", kernel=item.id, language=next(iter(item.sources)), source=source, **more)

    @property
    def text(self) -> str:
        return next(iter(self.record.kernels[0].sources.values()))

    def changed(self, old: str, new: str) -> str:
        assert old in self.text, self.text
        return self.text.replace(old, new, 1)


@pytest.fixture
def editor(notebook: Notebook) -> Editor:
    made = Editor(notebook)
    made.cell(CELL, SETUP)
    return made


def test_an_edit_that_is_right(editor: Editor) -> None:
    before = plain({name: editor.names[name] for name in ("x", "w", "y", "z")})
    state = torch.get_rng_state()
    found = editor.edit(editor.changed("{\n", "{\n  // by hand\n"))
    assert found["agrees"] and found["message"].startswith("All outputs agree")
    assert [row["name"] for row in found["outputs"]] == ["output[0]", "output[1]"]
    assert all(row["error"] < 1e-6 for row in found["outputs"])
    assert len(found["original"]) == len(found["edited"]) >= 5
    assert all(0 < seconds < 1 for seconds in found["original"] + found["edited"])
    record = Compilation.from_dict(found["payload"])
    (kernel,) = record.kernels
    assert "// by hand" in kernel.sources["c"] and record.id != editor.record.id
    assert any("edited by hand" in note for note in record.notes)
    moved = {link.line - 1: link.origins for link in kernel.line_map if link.line > 3}
    kept = {link.line: link.origins for link in editor.record.kernels[0].line_map if link.line > 2}
    assert moved.items() <= kept.items() and moved
    assert editor.ask("controls", record=record.id)["edited"] == [kernel.id]
    assert plain({name: editor.names[name] for name in ("x", "w", "y", "z")}) == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.nightly
def test_an_edit_that_is_slower_says_so(editor: Editor) -> None:
    text = editor.changed("{\n", "{\n  for (volatile int k = 0; k < 3000000; k++) {}\n")
    found = editor.edit(text)
    assert found["agrees"] and "times as slow as the original" in found["message"]
    assert min(found["edited"]) > 2 * sorted(found["original"])[len(found["original"]) // 2]


def test_an_edit_that_is_wrong_says_where_and_by_how_much(editor: Editor) -> None:
    found = editor.edit(editor.changed(" + 1", " - 1"))
    assert not found["agrees"] and found["message"].startswith("output[1] differs from eager by up to ")
    one, two = found["outputs"]
    assert one["agrees"] and not two["agrees"] and two["max_difference"] > 1 and two["reason"]
    assert found["original"] == found["edited"] == []


def test_what_an_edit_does_not_write_is_not_taken_for_right() -> None:
    # The memory of the result is that of the run before, with the right numbers in it.
    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    x = torch.randn(512, 1000)
    compiled = nbcompile.compile(softmax)
    expected = compiled(x).clone()
    (kernel,) = compiled.compilation.kernels
    before, loop, after = kernel.sources["c"].rpartition("j < 1000")
    attempt = Attempt([(kernel.id, f"{before}j < 990{after}")])
    got = nbcompile.compile(softmax, compile_aten=attempt.compile_aten)(x)
    attempt.check()
    assert loop and got[:, 990:].isnan().all() and torch.equal(got[:, :990], expected[:, :990])


@pytest.mark.nightly
def test_an_edit_that_does_not_compile_names_its_line(editor: Editor) -> None:
    lines = editor.text.split("\n")
    place = next(n for n, line in enumerate(lines) if "relu[" in line)
    lines[place] = lines[place].replace(";", " + nothing;")
    with pytest.raises(EditError, match="'nothing' undeclared") as caught:
        editor.edit("\n".join(lines))
    assert caught.value.line == place + 1
    assert caught.value.advice.endswith(f"is yours: correct line {place + 1} of it, and try again.")
    with pytest.raises(EditError, match=r"parameters of .* are not what they were"):
        editor.edit(editor.changed("(const float *x, ", "("))
    with pytest.raises(EditError, match="is no longer there"):
        editor.edit("// nothing")
    assert editor.edit(editor.text)["agrees"], "and the next edit is well"


@few(1)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("i < 64", "i < 65", "SIGSEGV"),
        ("j < 50", "j < 51", "SIGSEGV"),
        ("{\n", "{\n  __builtin_trap();\n", "SIGILL"),
        ("{\n", "{\n  relu[-1] = 0;\n", "before the start"),
    ],
    ids=["a row too far", "an element too far", "trap", "an element before"],
)
def test_an_edit_that_crashes_leaves_the_session_alive(editor: Editor, old: str, new: str, told: str) -> None:
    before = plain({name: editor.names[name] for name in ("x", "w", "y", "z")})
    with pytest.raises(EditError, match=told):
        editor.edit(editor.changed(old, new))
    assert plain({name: editor.names[name] for name in ("x", "w", "y", "z")}) == before


def test_an_edit_that_never_ends(editor: Editor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.outcome, "__defaults__", (0.5,))
    fork, children = os.fork, []

    def noted() -> int:
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(EditError, match=r"did not end within 0 s|did not end within 1 s"):
        editor.edit(editor.changed("{\n", "{\n  for (volatile int k = 0; k < 1; ) {}\n"))
    (child,) = children
    with pytest.raises(ChildProcessError):  # it is not left over
        os.waitpid(child, os.WNOHANG)


@pytest.mark.nightly
def test_a_kernel_of_a_backward_pass(notebook: Notebook) -> None:
    editor = Editor(notebook)
    cell = "loss = (torch.tanh(x * w) * 3).sum()\nloss.backward()"
    editor.cell(cell, SETUP)
    (place,) = [n for n, item in enumerate(editor.record.kernels) if item.id.startswith("g0.bw")]
    text = editor.record.kernels[place].sources["c"]
    assert editor.edit(text.replace("{\n", "{\n  // kept\n", 1), place)["agrees"]
    wrong = editor.edit(text.replace("1.0f - ", "1.0f + ").replace("1.0f + -", "1.0f - -"), place)
    assert not wrong["agrees"], text
    assert any(row["name"].endswith("x.grad") and not row["agrees"] for row in wrong["outputs"])


@pytest.mark.nightly
def test_two_edits_of_one_program(notebook: Notebook) -> None:
    editor = Editor(notebook)
    editor.cell(CELL, SETUP)
    apart = editor.change(no_fuse=pairs_of(editor.record, accepted=True)[-1:])
    assert len(apart.kernels) == 2
    editor.record = apart
    texts = [item.sources["c"].replace("{\n", "{\n  // mine\n", 1) for item in apart.kernels]
    first = editor.edit(texts[0])["payload"]
    second = editor.ask(
        "edit", record=first["id"], kernel=apart.kernels[1].id, language="c", source=texts[1]
    )["payload"]  # fmt: skip
    kernels = Compilation.from_dict(second).kernels
    assert all("// mine" in kernel.sources["c"] for kernel in kernels)


def test_what_is_no_kernel_or_no_text_of_one(editor: Editor) -> None:
    with pytest.raises(PlayError, match=r"no kernel 'g9\.fw\.k0'"):
        editor.ask("edit", kernel="g9.fw.k0", language="c", source="")
    with pytest.raises(PlayError, match="ptx"):
        editor.ask("edit", kernel="g0.fw.k0", language="ptx", source="")
    with pytest.raises(PlayError, match="no triton text"):
        editor.ask("edit", kernel="g0.fw.k0", language="triton", source="")


def test_triton_in_the_interpreter(notebook: Notebook) -> None:
    pytest.importorskip("triton")
    editor = Editor(notebook)
    editor.cell(CELL, SETUP.replace("64, 50", "4, 50"), "--no-bench --interpret")
    right = editor.edit(editor.changed(":\n", ":\n    # by hand\n"))
    assert right["agrees"] and right["original"] == []
    wrong = editor.edit(editor.changed("softmax + 1.0", "softmax - 1.0"))
    assert [row["agrees"] for row in wrong["outputs"]] == [True, False]
    with pytest.raises(EditError, match="loads element") as caught:
        editor.edit(editor.changed("x_ptr + i*50 + j", "x_ptr + i*51 + j"))
    assert editor.text.split("\n")[caught.value.line - 1].strip().startswith("x = tl.load")
    assert "The error is in the text of the kernel, which is yours" in str(caught.value)
    with pytest.raises(EditError, match="no Python") as caught:
        editor.edit(editor.changed("tl.sum(", "tl.sum(("))
    assert caught.value.line == next(n for n, s in enumerate(editor.text.split("\n"), 1) if "tl.sum(" in s)


def test_triton_for_a_chip_that_is_not_here(notebook: Notebook) -> None:
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    editor = Editor(notebook)
    editor.cell(CELL, SETUP, "--no-bench --target cuda:90")
    with pytest.raises(EditError, match="not here"):
        editor.edit(editor.text)

"""The project around the code: metadata, commands, documents and the demo notebook agree."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def _script(name: str) -> object:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_version_is_the_installed_one() -> None:
    assert metadata.version("nbcompile") == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_backend_is_found_through_its_entry_point() -> None:
    (point,) = metadata.entry_points(group="torch_dynamo_backends", name="nbcompile")
    assert callable(point.load())


def test_the_command_and_the_pytest_plugin_are_where_they_are_said_to_be() -> None:
    (command,) = PROJECT["scripts"].values()
    (plugin,) = PROJECT["entry-points"]["pytest11"].values()
    module, function = command.split(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert hasattr(importlib.import_module(plugin), "assert_compiles")


def test_jupyter_is_an_extra() -> None:
    names = {re.split(r"[<>=!~\[ ]", line)[0].lower() for line in PROJECT["dependencies"]}
    assert not names & {"ipython", "ipywidgets", "jupyterlab", "ipykernel", "plotly", "nbformat"}
    extra = {re.split(r"[<>=!~\[ ]", line)[0].lower() for line in PROJECT["optional-dependencies"]["jupyter"]}
    assert {"ipython", "ipywidgets", "ipykernel", "jupyterlab"} <= extra


def test_each_use_has_an_extra_and_what_it_asks_for_is_used() -> None:
    extras = PROJECT["optional-dependencies"]
    assert {"jupyter", "gpu", "bench", "ranks", "backends", "sweep", "triton", "decompile"} <= set(extras)
    wanted = {re.split(r"[<>=!~\[ ]", line)[0].lower() for line in extras["jupyter"]} - {"nbcompile"}
    apps = {"jupyterlab", "ipykernel"}  # run, not imported
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "nbcompile").rglob("*.py"))
    for name in wanted - apps:
        module = {"ipython": "IPython"}.get(name, name)
        assert re.search(rf"\b(import|from) {module}\b", sources), f"[jupyter] asks for {name}"


def test_no_advice_installs_this_package_over_itself() -> None:
    """Whoever has a wheel or a checkout would get whatever PyPI has under the name."""
    for path in sorted((ROOT / "nbcompile").rglob("*.py")):
        assert not re.search(r"pip install [^`\n]*nbcompile", path.read_text(encoding="utf-8")), path


def test_the_pinned_torch_is_in_range_and_installed() -> None:
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned
    low, high = re.search(r"torch>=([\d.]+),<([\d.]+)", " ".join(PROJECT["dependencies"])).groups()

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(".")[:2]]

    assert numbers(low) <= numbers(pinned[1]) < numbers(high)
    assert numbers(low) <= numbers(metadata.version("torch")) < numbers(high)


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_in_the_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M))
    assert named <= _targets()
    for path in re.findall(r"(?:^|[\s`(])((?:scripts|tests|notebooks|nbcompile|docs)/[\w./-]*\w/?)", text):
        assert (ROOT / path).exists(), f"{name} names {path}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), f"{name} links {link}"


def test_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text


TARGETS = "setup demo test coverage lab audit release clean-install bench opdb notebooks table clean".split()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_targets_run_files_that_exist(target: str) -> None:
    run = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for path in re.findall(r"(?:scripts|notebooks)/[\w.-]+\.(?:py|ipynb)", run.stdout):
        assert (ROOT / path).exists(), path


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "make test" in script.read_text()
    for path in (script, ROOT / "binder" / "postBuild"):
        assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


def test_plain_python_example_in_the_readme_runs() -> None:
    (code,) = re.findall(r"```python\n(import torch\n.*?)```", (ROOT / "README.md").read_text(), re.S)
    run = subprocess.run([sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "torch.Size([8, 64])" in run.stdout


# -- scripts ----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_code_in_the_bench_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/bench.md").read_text(), re.S)
    assert len(blocks) >= 2
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "max_autotune" in done.stdout and "nbcompile" in done.stdout


def test_a_machine_without_a_compiler_gets_one_line_of_advice(tmp_path: Path) -> None:
    script = str(ROOT / "scripts" / "check_machine.py")
    bare = {"PATH": str(tmp_path)}
    run = subprocess.run([sys.executable, script], env=bare, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert run.stderr.startswith("No C compiler:") and "apt install gcc" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.stdout.startswith("C compiler: ") and not run.stderr


def test_an_old_python_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = _script("check_machine")
    monkeypatch.setattr(module, "MINIMUM", (99, 0))
    assert "too old" in module.missing() and "make PYTHON=" in module.missing()


def test_readme_table() -> None:
    module = _script("readme_table")
    figures = "On a laptop.\n\n| program | ratio |\n|---|---:|\n| gelu | 1.5 |\n"
    page = f"one\n{module.BEGIN}\nold\n{module.END}\ntwo\n"
    new = module.insert(page, figures)
    assert new.startswith("one\n") and new.endswith("\ntwo\n")
    assert figures.strip() in new and "old" not in new
    assert module.insert(new, figures) == new
    with pytest.raises(ValueError, match="once each"):
        module.insert("nothing", figures)
    with pytest.raises(ValueError, match="no Markdown table"):
        module.insert(page, "Traceback | most recent call last")
    module.insert((ROOT / "README.md").read_text(), figures)  # the marks are there


# -- notebooks --------------------------------------------------------------------------------


@pytest.mark.nightly
def test_demo_writes_a_notebook_and_a_page(tmp_path: Path) -> None:
    source = tmp_path / "small.ipynb"
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("print(6 * 7)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    out = tmp_path / "out"
    assert _demo(source, out) == (0, "")
    assert nbformat.read(out / "small.ipynb", 4).cells[1].outputs[0].text == "42\n"
    page = (out / "small.html").read_text()
    assert "42" in page and "Title" in page
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?:", page), (
        "the page loads from elsewhere"
    )


@pytest.mark.nightly
def test_demo_says_which_cell_failed_and_keeps_what_ran(tmp_path: Path) -> None:
    source = tmp_path / "small.ipynb"
    cells = [nbformat.v4.new_code_cell(code) for code in ("print('ran')", "1 / 0", "print('not reached')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    status, messages = _demo(source, tmp_path / "out")
    assert status == 1 and "ZeroDivisionError" in messages
    kept = nbformat.read(tmp_path / "out" / "small.ipynb", 4)
    assert kept.cells[0].outputs[0].text == "ran\n" and not kept.cells[2].outputs


def _demo(source: Path, out: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), str(source), "--out", str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert run.returncode in (0, 1), f"{shlex.join(command)}: {run.stderr}"
    return run.returncode, run.stderr if run.returncode else ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo(tmp_path: Path) -> None:
    """What `make demo` runs, every cell with its own assertions."""
    status, messages = _demo(ROOT / "notebooks" / "01-first-compile.ipynb", tmp_path)
    assert status == 0, messages
    page = (tmp_path / "01-first-compile.html").read_text()
    assert "largest distance between the curves" in page

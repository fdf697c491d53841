"""The documentation: its code runs, its commands and magics exist, and what is made for it is complete.

That it builds, and how it looks, is tested in tests/browser/test_docs.py.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.from_scripts import load

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [*PAGES, ROOT / "README.md"]
ELSEWHERE = {"bench"}  # tests/test_package.py runs it


docs, docs_run, docs_generated = (load(name) for name in ("docs", "docs_run", "docs_generated"))


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- code -----------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_named(page))
        for page in PAGES
        if page.stem not in ELSEWHERE and docs_run.blocks(page.read_text(encoding="utf-8"))
    ],
)
def test_the_code_of_a_page_runs(page: Path) -> None:
    found = docs_run.blocks(page.read_text(encoding="utf-8"))
    outputs = docs_run.run_page(page, fresh=True)
    assert len(outputs) == len(found)
    text = docs.with_outputs(page.read_text(encoding="utf-8"), outputs)
    assert docs.OUTPUT not in text
    for block, output in zip(found, outputs, strict=True):
        if page.read_text(encoding="utf-8")[block.end :].lstrip("\n").startswith(docs.OUTPUT):
            assert output, f"this block is to print something:\n{block.text}"


def test_the_notebook_example_in_the_readme_runs() -> None:
    """`%load_ext`, and the first compiled cell; the plain Python one is run by tests/test_package.py."""
    fences = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    load, cell = (block for block in fences if block.startswith("%"))
    before = (
        "import torch\nx, w = torch.randn(64, 32), torch.randn(32, 16)\n%config NbCompile.bench = False\n"
    )
    after = "assert z.shape == (64, 16) and torch.allclose(z, torch.softmax(x @ w, -1) * 2)\n"
    found = [docs_run.Block("ipython", text, 0, 0) for text in (load, before, cell, after)]
    outputs = docs_run._run("README.md", found)
    assert "1 kernel" in outputs[2]


def test_a_block_that_fails_says_which_page_and_why(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nprint(1)\n```\n\n```python\n1 / 0\n```\n")
    with pytest.raises(docs_run.PageError, match=r"(?s)page\.md.*ZeroDivisionError"):
        docs_run.run_page(page, fresh=True)


def test_outputs_stand_in_the_place_of_their_comment() -> None:
    text = "```python\nprint(1)\n```\n\n<!-- output -->\n\n```python\nx = 2\n```\n\nEnd.\n"
    made = docs.with_outputs(text, ["1", ""])
    assert made.count("~~~~{code-block} text") == 1 and "\n1\n~~~~" in made
    assert made.endswith("```python\nx = 2\n```\n\nEnd.\n") and docs.OUTPUT not in made


def test_every_page_says_which_version_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBCOMPILE_ROOT", str(ROOT))
    made: dict[str, Any] = {}
    exec((DOCS / "conf.py").read_text(encoding="utf-8"), made)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert made["html_title"] == f"nbcompile {version}" and made["release"] == version


# -- commands and magics ----------------------------------------------------------------------------


def _commands() -> list[Any]:
    found = []
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
            lines = [line for line in block.splitlines() if line.startswith("$ ")]
            assert lines, f"{page.name}: a console block without a command"
            found += [pytest.param(line[2:], id=f"{page.stem}: {line[2:]}"[:60]) for line in lines]
    return found


@pytest.mark.parametrize("line", _commands())
def test_commands_exist(line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
        assert {word for word in words if "=" not in word} <= targets
    elif program == "nbcompile":
        from nbcompile.cli import _parser

        _parser().parse_args(words)
    elif program == "jupyter":
        assert importlib.util.find_spec({"lab": "jupyterlab"}.get(words[0], words[0]))
    else:
        assert program == "pip" and words[0] == "install"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_docs_runs_the_script() -> None:
    run = subprocess.run(["make", "-n", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and not run.stderr, run.stderr
    assert "scripts/docs.py" in run.stdout and ".[docs]" in (ROOT / "Makefile").read_text()


_MAGIC = re.compile(r"(?:^|`)[ ]*(%%?compile)((?: [^`\n]*)?)", re.M)


def _magics() -> list[Any]:
    found = set()
    for page in DOCUMENTS:
        for magic, rest in _MAGIC.findall(page.read_text(encoding="utf-8")):
            words = rest.split("  #")[0].split("   ")[0].strip()
            if "--list-options" not in words and "OPTIONS" not in words:
                found.add((magic, words))
    return sorted(found)


@pytest.mark.parametrize(("magic", "line"), _magics())
def test_magic_lines_parse(magic: str, line: str) -> None:
    from nbcompile.notebook.arguments import split_expression
    from nbcompile.notebook.magics import NbCompile

    parse = vars(NbCompile)["compile"].parser.parse_argstring
    expression = split_expression(line, parse)[1] if magic == "%compile" else parse(line) and ""
    assert (
        magic == "%%compile"
        or expression
        or not line
        or line in ("--ranks-stop", "--runs", "--cache", "--help")
    )


def test_the_cheat_sheet_names_what_there_is() -> None:
    import dataclasses

    import nbcompile

    text = (DOCS / "cheat-sheet.md").read_text(encoding="utf-8")
    known = docs_generated.magic()
    for flag in set(re.findall(r"(?<!\w)--[a-z-]+[a-z]", text)) - {"--save"}:
        assert f"`{flag}" in known, flag
    fields = {field.name for field in dataclasses.fields(nbcompile.Compilation)}
    assert set(re.findall(r"`r\.(\w+)`", text)) <= fields
    assert set(re.findall(r"nbcompile\.(\w+)\(", text)) <= set(nbcompile.__all__)


# -- what is made -------------------------------------------------------------------------------------


def test_every_public_name_is_in_the_reference() -> None:
    import nbcompile

    text = "".join((DOCS / "reference" / name).read_text() for name in ("api.md", "record.md"))
    named = {found.rsplit(".", 1)[1] for found in re.findall(r"nbcompile[\w.]*\.\w+", text)}
    assert set(nbcompile.__all__) <= named


def test_every_page_is_reached_from_the_index() -> None:
    def toctrees(name: str) -> set[str]:
        page = DOCS / f"{name}.md"
        found = set()
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in block.splitlines():
                if line and not line.startswith(":"):
                    inner = str((Path(name).parent / line).as_posix())
                    found |= {inner, *toctrees(inner)}
        return found

    names = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - {"screenshots/README"}
    assert names == {"index", *toctrees("index")}


@pytest.mark.parametrize("name", sorted(docs_generated.TEXTS))
def test_generated_texts_say_something_and_are_asked_for(name: str) -> None:
    assert len(docs_generated.TEXTS[name]()) > 40
    assert any(f"<!-- generated: {name} -->" in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.nightly
def test_generated_tables_have_all_there_is() -> None:
    from nbcompile.backends import registry
    from nbcompile.compiler.fuse.legality import COST
    from nbcompile.record.compilation import json_schema

    assert all(f"`{code}`" in docs_generated.refusals() for code in COST)
    assert all(f"## {name}" in docs_generated.schema() for name in json_schema()["$defs"])
    assert all(f"`{name}`" in docs_generated.backends() for name in registry.backends())
    assert "Undefined" not in docs_generated.config()
    assert "## nbcompile diff" in docs_generated.command_line()


def test_links_lead_to_pages_or_become_text() -> None:
    page = DOCS / "quick-start.md"
    assert docs.linked("[a](bench.md#ranks)", page) == "[a](/bench.md#ranks)"
    assert (
        docs.linked("[nb](../notebooks/01-first-compile.ipynb)", page)
        == "[nb](/notebooks/01-first-compile.md)"
    )
    assert docs.linked("[x.py](../nbcompile/options.py)", page) == "`x.py`"
    assert docs.linked("`[a](b.md)`", page) == "`[a](b.md)`"
    for document in PAGES:
        text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
        for path in re.findall(r"\]\(([^)#:\s]+)(?:#[\w-]+)?\)", text):
            assert (document.parent / path).exists(), f"{document.name} links {path}"


# -- the tour of the house ----------------------------------------------------------------------------

GUIDES = [DOCS / "architecture.md", DOCS / "glossary.md", ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
_PATH = re.compile(r"`([\w./-]+(?:\.(?:py|c|ts|tsx)|/))`")
_MADE = {"nbcompile/view/static/", "out/"}  # by a build, not in the repository


def _sections(text: str) -> list[tuple[int, str, str]]:
    """(level of its heading, heading, text) of each section; code is left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found = re.split(r"^(##+) (.*)$", text, flags=re.M)
    return [(1, "", found[0]), *zip(map(len, found[1::3]), found[2::3], found[3::3], strict=True)]


def _not_there(text: str) -> list[str]:
    """The paths named in a guide that do not exist. One that begins at no folder of the repository lies in a
    folder that its section names, or the section that this one belongs to."""
    folders: dict[int, set[Path]] = {}
    missing = []
    for level, heading, body in _sections(text):
        folders = {above: found for above, found in folders.items() if 1 < above < level}
        words = _PATH.findall(body)
        whole = [ROOT / word for word in words if (ROOT / word).exists()]
        folders[level] = {path if path.is_dir() else path.parent for path in whole} - {ROOT}
        outer = set[Path]().union(*folders.values())
        inner = {place / word for place in outer for word in words if word.endswith("/")}
        places = [ROOT, *outer, *inner]
        for word in words:
            if word not in _MADE and not any((place / word).exists() for place in places):
                missing.append(f"{heading}: {word}")
    return missing


@pytest.mark.parametrize("page", GUIDES, ids=_named)
def test_the_files_that_a_guide_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert _PATH.findall(text) and not _not_there(text)
    # also where a path stands in a command or a listing
    words = set(re.findall(r"nbcompile/[\w./-]*(?:\.py\b|/(?=[`\s:]))", text)) - _MADE
    assert not [word for word in words if not (ROOT / word).exists()]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("## Fusion\n`nbcompile/compiler/fuse/` and `legality.py`\n", []),
        ("## Fusion\n`nbcompile/compiler/fuse/` and `leniency.py`\n", ["Fusion: leniency.py"]),
        ("## Fusion\n`nbcompile/fuse/`\n", ["Fusion: nbcompile/fuse/"]),
        ("## Fusion\n`nbcompile/compiler/fuse/`\n## Views\n`legality.py`\n", ["Views: legality.py"]),
        ("## Fusion\n`nbcompile/compiler/fuse/`\n### Rules\n`legality.py`\n", []),
    ],
)
def test_a_path_that_leads_nowhere_is_found(text: str, missing: list[str]) -> None:
    assert _not_there(text) == missing


def test_the_tour_shows_what_the_compiler_says() -> None:
    """Its listings are lines of the record of the cell that it compiles."""
    import torch

    import nbcompile

    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(re.findall(r"(def cell.*?)\n\n\n", text, re.S)[0], {"torch": torch}, scope)
    compiled = nbcompile.compile(scope["cell"])
    compiled(torch.randn(64, 32), torch.randn(32, 16), torch.randn(16))
    record = compiled.compilation
    said = [graph.text for graph in record.graphs] + [kernel.sources["c"] for kernel in record.kernels]
    lines = {line for part in said for line in part.splitlines()}
    listings = "".join(re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)).splitlines()
    assert len(listings) > 10 and [line for line in listings if line not in lines] == []


def test_a_notebook_becomes_a_page() -> None:
    made = docs_generated.notebook_page(ROOT / "notebooks" / "01-first-compile.ipynb")
    text = made["notebooks/01-first-compile.md"]
    assert isinstance(text, str) and text.startswith("# A first compile")
    assert "%%compile --into first" in text

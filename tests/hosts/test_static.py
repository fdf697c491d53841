"""What is left of a record where no script runs and a site takes out what it does not trust: GitHub,
nbviewer, nbconvert, documentation. And which of the three forms of an output each host takes."""

from __future__ import annotations

import html
import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter, LatexExporter, MarkdownExporter, SlidesExporter

from nbcompile import view
from nbcompile.record.compilation import Compilation
from tests.view import fixtures

RECORDS = {"transformer": fixtures.transformer(), "break": fixtures.with_break(), "failed": fixtures.failed()}

# What GitHub's html-pipeline lets through: https://github.com/gjtorikian/html-pipeline, SanitizationFilter.
_GITHUB_TAGS = set(
    "h1 h2 h3 h4 h5 h6 br b i strong em a pre code img tt div ins del sup sub p picture ol ul table thead "
    "tbody tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details "
    "caption figure figcaption abbr bdo cite dfn mark small source span time wbr".split()
)
_GITHUB_ATTRIBUTES = set(
    "abbr align alt border cellpadding cellspacing char cols colspan compact datetime dir height hreflang "
    "href id label lang name open rel rows rowspan scope span src start summary title type valign value "
    "width".split()
)
_EMPTY = {"br", "img", "hr", "wbr", "source"}


class GitHub(html.parser.HTMLParser):
    """HTML as GitHub would show it: no style, no script, no class, images by https alone."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.out: list[str] = []
        self._silent = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._silent += 1
        elif tag in _GITHUB_TAGS:
            kept = [(k, v or "") for k, v in attrs if k in _GITHUB_ATTRIBUTES]
            kept = [(k, v) for k, v in kept if k not in ("src", "href") or v.startswith("https:")]
            self.out.append(f"<{tag}{''.join(f' {k}={json.dumps(v)}' for k, v in kept)}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._silent -= 1
        elif tag in _GITHUB_TAGS - _EMPTY:
            self.out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.out.append(html.escape(data))

    @property
    def text(self) -> str:
        return "".join(self.out)


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ").split())


def notebook(record: Compilation) -> nbformat.NotebookNode:
    output = nbformat.v4.new_output("display_data", data=view.mime_bundle(record))
    cell = nbformat.v4.new_code_cell("%%compile\nz = 1", outputs=[output], execution_count=1)
    return nbformat.v4.new_notebook(cells=[cell])


@pytest.fixture(params=RECORDS, scope="module")
def record(request: pytest.FixtureRequest) -> Compilation:
    return RECORDS[request.param]


def test_github_shows_the_verdict_the_cell_and_the_tables(record: Compilation) -> None:
    fragment = view.to_html(record)
    shown = GitHub(fragment).text
    verdict = view.to_text(record).splitlines()[0].strip()
    assert verdict[:40] in words(shown)
    assert "<style" not in shown and "script" not in re.sub(r"TorchScript|description", "", shown.lower())
    if record.cell is not None:
        for line in filter(None, (line.strip() for line in record.cell.source.splitlines())):
            assert " ".join(line.split()) in words(shown), line
    if record.kernels:
        assert shown.count("<table") >= 2 and all(kernel.name in words(shown) for kernel in record.kernels)
    # Without styles, words that stood in columns of their own must not run into each other.
    for row in re.findall(r"<tr.*?</tr>", shown, re.S):
        assert re.search(r"<t[dh]", row)


def test_nbviewer_shows_what_nbconvert_makes(record: Compilation) -> None:
    """nbviewer runs nbconvert: its page has the fragment as it is, and no record."""
    page, _ = HTMLExporter().from_notebook_node(notebook(record))
    fragment = view.to_html(record)
    assert words(fragment) in words(page)
    assert page.count(' style="') >= fragment.count(' style="') > 10 and page.count(
        "<img "
    ) == fragment.count("<img ")
    assert view.MIME not in page and "deflate" not in page


def test_nbconvert_that_trusts_nobody_leaves_text_and_tables(record: Compilation) -> None:
    page, _ = HTMLExporter(sanitize_html=True).from_notebook_node(notebook(record))
    verdict = view.to_text(record).splitlines()[0].strip()
    assert verdict[:40] in words(page)
    assert not record.kernels or all(kernel.name in words(page) for kernel in record.kernels)


def test_slides_markdown_and_print_have_it_too(record: Compilation) -> None:
    verdict = view.to_text(record).splitlines()[0].strip()
    slides, _ = SlidesExporter().from_notebook_node(notebook(record))
    assert verdict[:40] in words(slides)
    markdown, _ = MarkdownExporter().from_notebook_node(notebook(record))
    assert verdict[:40] in words(markdown)
    latex, _ = LatexExporter().from_notebook_node(notebook(record))
    assert re.sub(r"\W", "", verdict)[:20] in re.sub(r"\W", "", latex), "LaTeX takes the plain text"


# Each host takes the first of these that an output has. nbconvert's list is its own; those of VS Code, Colab
# and Quarto, which are not on this machine, are written down from what is known of them: what they share is
# that a type which they do not know is passed over.
HOSTS = {
    "JupyterLab and Notebook 7, with our extension": (view.MIME, "text/html", "text/plain"),
    "JupyterLab without it": ("application/vnd.jupyter.widget-view+json", "text/html", "text/plain"),
    "VS Code": ("application/vnd.jupyter.widget-view+json", "text/html", "image/svg+xml", "text/plain"),
    "Colab": ("application/vnd.jupyter.widget-view+json", "text/html", "text/plain"),
    "nbconvert, nbviewer": tuple(HTMLExporter().default_config.NbConvertBase.display_data_priority),
    "Quarto": ("text/html", "image/svg+xml", "image/png", "text/markdown", "text/plain"),
    "a terminal": ("text/plain",),
}


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_finds_a_form_that_it_knows(host: str) -> None:
    bundle = view.mime_bundle(RECORDS["transformer"])
    taken = next((form for form in HOSTS[host] if form in bundle), None)
    expected = {"JupyterLab and Notebook 7, with our extension": view.MIME, "a terminal": "text/plain"}
    assert taken == expected.get(host, "text/html")


def test_vs_code_and_colab_run_nothing_and_load_nothing_for_it(record: Compilation) -> None:
    """Both put text/html into a frame with a policy of its own: a fragment that needs neither script nor
    style sheet, nor anything from elsewhere, is the same in every one of them."""
    fragment = view.to_html(record)
    assert not re.search(r"<(script|style|link|iframe|object|embed|form|base|meta)\b", fragment, re.I)
    assert not re.search(r"\son\w+\s*=", re.sub(r">[^<]*<", "><", fragment), re.I)
    assert all(src.startswith("data:image/") for src in re.findall(r'\bsrc="([^"]*)"', fragment))
    assert "--jp-" not in fragment or re.search(r"var\(--jp-[\w-]+, ?[^)]+\)", fragment)
    for used in re.findall(r"var\(--jp-[^)]*\)?", fragment):
        assert "," in used, f"{used}: outside of JupyterLab there is no such variable"


def test_each_host_in_the_docs_names_a_test_that_is_there() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "hosts.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert named and all((root / name).exists() for name in named), row


# -- documentation: tools of their own, by night ----------------------------------------------------


def tools(folder: Path, *packages: str) -> str:
    """The Python of a new environment with these packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
    return python


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_myst_shows_the_html(tmp_path: Path) -> None:
    """MyST-NB, which Jupyter Book 1 is made of: a page of a stored notebook."""
    python = tools(tmp_path / "tools", "myst-nb")
    source = tmp_path / "book"
    source.mkdir()
    (source / "conf.py").write_text("extensions = ['myst_nb']\nnb_execution_mode = 'off'\n")
    made = notebook(RECORDS["transformer"])
    made.cells.insert(0, nbformat.v4.new_markdown_cell("# Title"))
    nbformat.write(made, source / "index.ipynb")
    command = [python, "-m", "sphinx", "-q", "-b", "html", str(source), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert words(view.to_html(RECORDS["transformer"])) in words(page)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_marimo_shows_the_html(tmp_path: Path) -> None:
    """marimo has no magics: a record is shown as the value of a cell."""
    python = tools(
        tmp_path / "tools", "marimo", "pydantic", "pygments", "markupsafe", "jinja2", "platformdirs"
    )
    (tmp_path / "record.json").write_text(RECORDS["transformer"].to_json())
    code = (
        "import sys; from marimo._output.formatting import try_format\n"
        "from nbcompile.view.saved import read_saved\n"
        "made = try_format(read_saved('record.json')[0]); print(made.mimetype); print(made.data)"
    )
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PYTHONPATH": str(Path(view.__file__).parents[2]), "PATH": "/usr/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict = view.to_text(RECORDS["transformer"]).splitlines()[0].strip()
    assert "text/html" in done.stdout and verdict in words(done.stdout)

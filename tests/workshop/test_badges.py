"""One line of pyproject.toml puts badges on the README and on every notebook; without it there are none."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pytest

from tests.from_scripts import SCRIPTS, load

badges, notebooks = load("badges"), load("notebooks")
ADDRESS = "https://github.com/somebody/nbcompile"
ROOT = SCRIPTS.parent
SOURCE = ROOT / "notebooks" / "07-reductions.py"


def test_the_readme_is_as_pyproject_says() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == badges.readme(text, badges.repository()), "run `make notebooks`"


def test_a_badge_opens_a_notebook_that_is_there() -> None:
    text = badges.readme((ROOT / "README.md").read_text(encoding="utf-8"), ADDRESS)
    binder, colab = re.findall(r"\)\]\((https://\S+)\)$", text[: text.index(badges.END)], re.M)
    assert urlsplit(binder).path == f"/v2/gh/somebody/nbcompile/{badges.BRANCH}"
    path = unquote(urlsplit(binder).query.removeprefix("labpath="))
    assert (ROOT / path).is_file()
    assert colab.endswith(f"github/somebody/nbcompile/blob/{badges.BRANCH}/{path}")
    assert badges.readme(text, ADDRESS) == text, "a second time changes nothing"
    assert "mybinder" not in badges.readme(text, None)


@pytest.mark.parametrize(
    "address", ["git@github.com:a/b.git", "https://gitlab.com/a/b", "https://github.com/a"]
)
def test_an_address_that_neither_service_would_find(address: str) -> None:
    with pytest.raises(ValueError, match="address of a repository"):
        badges.badges(address, badges.TOUR)


def test_a_notebook_with_badges_keeps_its_outputs() -> None:
    """And its setup cell is code that IPython takes."""
    from IPython.core.inputtransformer2 import TransformerManager

    kept = notebooks.nbformat.read(SOURCE.with_suffix(".ipynb"), as_version=4)
    made = notebooks.with_outputs(notebooks.rendered(SOURCE, ADDRESS), kept)
    assert "labpath=notebooks%2F07-reductions.ipynb" in made.cells[0].source
    assert made.metadata["nbcompile_run"] == kept.metadata["nbcompile_run"]
    assert notebooks.digest(made) == notebooks.digest(notebooks.rendered(SOURCE))
    assert [cell.outputs for cell in notebooks.lesson(made)] == [c.outputs for c in notebooks.lesson(kept)]
    back = notebooks.with_outputs(notebooks.rendered(SOURCE), made)
    assert notebooks.text_of(back) == notebooks.text_of(
        notebooks.with_outputs(notebooks.rendered(SOURCE), kept)
    )
    setup = made.cells[1]
    assert setup.metadata["tags"] == ["setup"] and not setup.outputs
    exec(
        compile(TransformerManager().transform_cell(setup.source), "setup", "exec"), {}
    )  # nothing is missing here


def test_on_pypi_links_lead_to_this_version_or_are_words() -> None:
    text = "See [docs](docs/a.md), [there](https://x.org), [below](#b), `[c](d)`.\n![A picture](e.png)\n"
    made = badges.published(text, ADDRESS, "1.2.3")
    assert "[docs](https://github.com/somebody/nbcompile/blob/v1.2.3/docs/a.md)" in made
    assert "![A picture](https://raw.githubusercontent.com/somebody/nbcompile/v1.2.3/e.png)" in made
    assert "[there](https://x.org), [below](#b), `[c](d)`." in made
    assert badges.published(text, None, "1.2.3") == (
        "See docs, [there](https://x.org), [below](#b), `[c](d)`.\n*[Picture: A picture]*\n"
    )
    code = "```python\nx = y[0](a)\n```\n"
    assert badges.published(code, None, "1") == code


def test_the_readme_as_published_has_no_link_that_leads_nowhere() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for address in (None, ADDRESS):
        made = badges.published(text, address, "1.2.3")
        assert not re.findall(
            r"\]\((?!https://|#)[^)\s]*\)", re.sub(r"(?ms)^```.*?^```$|`[^`\n]+`", "", made)
        )

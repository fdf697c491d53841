"""Where the project is on the web: badges for Binder and Colab, and the links of README.md as PyPI shows it.

    python scripts/badges.py        README.md's badges, anew; `make notebooks` does this and each notebook's

All of it follows from one line of pyproject.toml, ``Repository`` under ``[project.urls]``, an address on
GitHub. While there is none there are no badges, Binder and Colab fetch what they open from there, and on
PyPI no links to files of the project and no pictures. Imports the standard library alone: a wheel's build
uses it (hatch_build.py).
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
BRANCH = "main"
TOUR = "notebooks/00-tour.ipynb"
BEGIN, END = "<!-- badges -->", "<!-- end of badges -->"


def repository() -> str | None:
    """The project's address on GitHub, if pyproject.toml has one. ValueError if it is of another host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository")
    return None if address is None else owner_and_name(address) and address.removesuffix("/")


def owner_and_name(address: str) -> str:
    """``owner/name`` of an address on GitHub. ValueError for any other: neither service would find it."""
    parts = urlsplit(address)
    path = parts.path.strip("/").removesuffix(".git")
    if parts.scheme != "https" or parts.netloc != "github.com" or path.count("/") != 1:
        raise ValueError(f"{address!r} is not the address of a repository: https://github.com/OWNER/NAME")
    return path


def badges(address: str, notebook: str) -> str:
    """Markdown that opens ``notebook``, a path in the repository, on Binder and on Colab."""
    project = owner_and_name(address)
    binder = f"https://mybinder.org/v2/gh/{project}/{BRANCH}?labpath={quote(notebook, safe='')}"
    colab = f"https://colab.research.google.com/github/{project}/blob/{BRANCH}/{quote(notebook)}"
    return (
        f"[![Open on Binder](https://mybinder.org/badge_logo.svg)]({binder})\n"
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})"
    )


def setup(address: str) -> str:
    """The first cell of a notebook that is opened from a badge: Colab has torch and Jupyter, but not us."""
    project = owner_and_name(address)
    return f"""\
# Where nbcompile is missing, as on Colab, it is installed from its repository.
import importlib.util

if importlib.util.find_spec("nbcompile") is None:
    %pip install -q "nbcompile[triton] @ git+https://github.com/{project}@{BRANCH}" "anywidget>=0.9.13"
    if importlib.util.find_spec("google.colab"):
        from google.colab import output

        output.enable_custom_widget_manager()"""


def readme(text: str, address: str | None) -> str:
    """README.md with its badges as they are to be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    inside = f"\n{badges(address, TOUR)}\n" if address else "\n"
    return f"{before}{BEGIN}{inside}{END}{after}"


_FENCE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.M | re.S)
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\n]*)\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")


def published(text: str, address: str | None, version: str) -> str:
    """README.md for PyPI, which knows nothing of its neighbours: links to the files of this version, or,
    while nobody knows where those are, none: their words, and for a picture what it shows."""
    project = owner_and_name(address) if address else None

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link["picture"], link["text"], link["path"]
        if project is None:
            return f"*[Picture: {words}]*" if picture else words
        host = "https://raw.githubusercontent.com" if picture else "https://github.com"
        middle = "" if picture else "blob/"
        return f"{picture}[{words}]({host}/{project}/{middle}v{version}/{path})"

    parts, place = [], 0
    for code in _FENCE.finditer(text):  # as it is: a list of lists in it is no link
        parts += [_LINK.sub(absolute, text[place : code.start()]), code[0]]
        place = code.end()
    return "".join([*parts, _LINK.sub(absolute, text[place:])])


def main() -> int:
    path = ROOT / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(readme(text, repository()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

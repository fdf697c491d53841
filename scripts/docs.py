"""Build the documentation into ``out/docs``: ``docs/``, and what compiler, parsers and notebooks say today.

    python scripts/docs.py               what `make docs` runs
    python scripts/docs.py --fresh       run the code of all pages again, and build all of them

The pages are put together in ``out/docs-src``, from which Sphinx builds; a warning fails the build. In a page
of ``docs/``, these comments stand for what is made here, and are invisible on GitHub:

    <!-- output -->               what the block of code above printed when it was run for this build
    <!-- generated: NAME -->      one of the texts of docs_generated.py
    <!-- include: FILE MARK -->   the part of a file between the comments that name MARK

Links to files outside ``docs/`` become plain text, those to notebooks lead to their pages.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import docs_generated
from docs_run import PageError, blocks, run_page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCE = ROOT / "out" / "docs-src"
TARGET = ROOT / "out" / "docs"
OUTPUT = "<!-- output -->"
_GENERATED = re.compile(r"<!-- generated: ([\w-]+) -->")
_INCLUDE = re.compile(r"<!-- include: (\S+) ([\w ]+) -->")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[\w-]+)?\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\((screenshots/[\w-]+-light\.png)\)")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.M | re.S)


def pages() -> list[Path]:
    """The pages of ``docs/``, those of its folders too."""
    return sorted(DOCS.rglob("*.md"))


def with_outputs(text: str, outputs: list[str]) -> str:
    """The page with what each block printed in the place of its comment."""
    found = blocks(text)
    pieces, last = [], 0
    for block, output in zip(found, outputs, strict=True):
        rest = text[block.end :]
        if not rest.lstrip("\n").startswith(OUTPUT):
            continue
        place = text.index(OUTPUT, block.end)
        shown = f"~~~~{{code-block}} text\n:class: output\n\n{output}\n~~~~"
        pieces += [text[last:place], shown]
        last = place + len(OUTPUT)
    return "".join([*pieces, text[last:]])


def included(file: Path, mark: str) -> str:
    """The part of a file between the comments that name ``mark``. ValueError if it has none."""
    text = file.read_text(encoding="utf-8")
    for begin, end in (
        (f"<!-- {mark} -->", f"<!-- /{mark} -->"),
        (f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"),
    ):
        if begin in text:
            inner = text.split(begin, 1)[1].split(end, 1)[0]
            inner = re.sub(r"^## .*$", "", inner, flags=re.M).strip()
            return inner.replace("\n- * ", "\n- \\* ")  # a note on a star, not a list in a list
    raise ValueError(f"{file} has no part {mark}")


def linked(text: str, page: Path) -> str:
    """Links as the site can follow them."""

    def target(match: re.Match[str]) -> str:
        label, path = match[1], match[2]
        if re.match(r"[a-z]+:|/", path):
            return match[0]
        file = (page.parent / path).resolve()
        if file.suffix == ".ipynb":
            return f"[{label}](/notebooks/{file.stem}.md)"
        if file.is_relative_to(DOCS) and file.suffix == ".md":
            return f"[{label}](/{file.relative_to(DOCS)}{match[3] or ''})"
        return label if label.startswith("`") or " " in label else f"`{label}`"

    text = _PICTURE.sub(_both, text)
    parts = _CODE.split(text)
    return "".join(part if place % 2 else _LINK.sub(target, part) for place, part in enumerate(parts))


def _both(match: re.Match[str]) -> str:
    """A picture in the theme of the page, where there are two of it."""
    if not (DOCS / match[2]).with_name(f"{Path(match[2]).stem.removesuffix('-light')}-dark.png").exists():
        return match[0]
    dark = match[2].replace("-light.png", "-dark.png")
    return f"![{match[1]}]({match[2]}){{.only-light}}\n![{match[1]}]({dark}){{.only-dark}}"


def rendered(page: Path, outputs: list[str], texts: Mapping[str, Callable[[], str]]) -> str:
    """What Sphinx gets for a page of ``docs/``."""
    text = with_outputs(page.read_text(encoding="utf-8"), outputs)
    text = _INCLUDE.sub(lambda match: linked(included(ROOT / match[1], match[2]), ROOT / match[1]), text)
    text = linked(text, page)
    return _GENERATED.sub(lambda match: texts[match[1]](), text)


def assemble(source: Path = SOURCE, run: Callable[[Path], list[str]] = run_page) -> float:
    """Write the source tree; seconds. ``run`` says what the blocks of a page print. Files that stay as they
    are keep their times."""
    start = time.perf_counter()
    wanted: dict[Path, str | bytes] = {}
    shown = [page for page in pages() if OUTPUT in page.read_text(encoding="utf-8")]
    with ThreadPoolExecutor(2) as pool:
        outputs = dict(zip(shown, pool.map(run, shown)))
    for page in pages():
        none = [""] * len(blocks(page.read_text(encoding="utf-8")))
        wanted[page.relative_to(DOCS)] = rendered(page, outputs.get(page, none), docs_generated.TEXTS)
    for path in (DOCS / "conf.py", *DOCS.glob("_static/*"), *DOCS.glob("screenshots/*.png")):
        wanted[path.relative_to(DOCS)] = path.read_bytes()
    for name, text in docs_generated.files().items():
        wanted[Path(name)] = text
    _write(source, wanted)
    return time.perf_counter() - start


def _write(source: Path, wanted: Mapping[Path, str | bytes]) -> None:
    for old in [path for path in source.rglob("*") if path.is_file()]:
        if old.relative_to(source) not in wanted:
            old.unlink()
    for name, content in wanted.items():
        data = content.encode() if isinstance(content, str) else content
        file = source / name
        if file.exists() and file.read_bytes() == data:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def build(source: Path = SOURCE, target: Path = TARGET) -> subprocess.CompletedProcess[str]:
    """Run Sphinx. A warning is an error, but all of them are told."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    return subprocess.run(
        [*command, str(source), str(target)],
        cwd=ROOT,
        env={**os.environ, "NBCOMPILE_ROOT": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--fresh", action="store_true")
    asked = parser.parse_args()
    if asked.fresh:
        shutil.rmtree(TARGET, ignore_errors=True)
    try:
        seconds = assemble(run=partial(run_page, fresh=asked.fresh))
    except PageError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(pages())} pages put together in {seconds:.0f} s")
    start = time.perf_counter()
    done = build()
    print(done.stderr, file=sys.stderr, end="")
    if not done.returncode:
        index = TARGET.relative_to(ROOT) / "index.html"
        print(f"built in {time.perf_counter() - start:.0f} s: {index}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

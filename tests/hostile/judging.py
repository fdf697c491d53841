"""Everything that Python does with a record that was saved, done to one of a stranger's: each is to give a
result, or an error of ours, in time, and no markup."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbcompile import view
from nbcompile.bench.regressions.bench import SuiteRun
from nbcompile.bench.regressions.findings import compare_benches
from nbcompile.bench.regressions.report import FORMATS, bench_text
from nbcompile.errors import NbcompileError
from nbcompile.notebook.display import save
from nbcompile.notebook.runs import SessionRuns
from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.view.facts.parts import PARTS
from nbcompile.view.figures.charts import CHARTS
from tests.hostile import base
from tests.hostile.reading import faults

SECONDS = 20.0
"""For any one thing that is done with a record; most take a hundredth."""


class TooLong(BaseException):
    """It took longer than it may. No `except Exception` stops it."""


@dataclasses.dataclass
class Verdict:
    """What came of a record: why it was refused (empty: it was read), what went wrong, the slowest step."""

    refused: str = ""
    faults: list[str] = dataclasses.field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")


def judge(
    text: str, seconds: float = SECONDS, uses: dict[str, Callable[[Compilation], Any]] | None = None
) -> Verdict:
    """Read a file of a stranger's and use what was read in every way there is."""
    verdict = Verdict()
    with _watched(verdict, "read", seconds):
        try:
            record = Compilation.from_json(text)
        except NbcompileError as error:
            verdict.refused = error.message
            return verdict
    if verdict.faults:
        return verdict
    for name, use in (USES if uses is None else uses).items():
        with _watched(verdict, name, seconds):
            try:
                found = use(record)
            except NbcompileError:
                continue
            verdict.faults += [f"{name}: {fault}" for fault in found or ()]
    return verdict


@contextlib.contextmanager
def _watched(verdict: Verdict, name: str, seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    try:
        with limited(seconds):
            yield
    except TooLong as error:
        place = next(
            (
                f"{each.filename}:{each.lineno}"
                for each in reversed(traceback.extract_tb(error.__traceback__))
                if "/nbcompile/" in each.filename
            ),
            "",
        )
        verdict.faults.append(f"{name}: longer than {seconds} s, in {place}")
    except Exception as error:
        place = next(
            (
                f"{each.filename}:{each.lineno}"
                for each in reversed(traceback.extract_tb(error.__traceback__))
                if "/nbcompile/" in each.filename
            ),
            "",
        )
        verdict.faults.append(f"{name}: {type(error).__name__}: {str(error)[:200]}, in {place}")
    verdict.slowest = max(verdict.slowest, (time.monotonic() - begun, name))


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooLong after so many seconds of work, in the main thread: other processes' work is not counted."""

    def stop(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# -- what is done with a record -------------------------------------------------------------------------


def _again(record: Compilation) -> list[str]:
    """What is written of it is read again."""
    again = Compilation.from_json(record.to_json())
    return [] if again.to_json() == record.to_json() else ["written and read it is another"]


def _payload(record: Compilation) -> list[str]:
    text = json.dumps(view.payload(record), allow_nan=False)
    Compilation.from_json(text)
    return []


def _text(record: Compilation) -> list[str]:
    lines = view.to_text(record).rstrip("\n").split("\n")
    wide = [line for line in lines if len(line) > 100]
    moving = [line for line in lines if not line.isprintable()]
    return [f"not printable: {line!r}" for line in moving] + [f"too wide: {line!r}" for line in wide]


def _html(record: Compilation) -> list[str]:
    return faults(view.to_html(record))


def _parts(record: Compilation) -> list[str]:
    found = []
    for part in PARTS:
        found += faults(view.to_html(record, (part,)))
        view.to_text(record, (part,))
    return found


def _page(record: Compilation) -> list[str]:
    page = view.to_page(record, record.id, script=False)
    page.encode()
    return faults(page, page=True)


def _save(record: Compilation) -> list[str]:
    """Where the reader says and nowhere else, whatever the record calls itself."""
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer) / "folder"
        folder.mkdir()
        names = {"record.nbcompile.json", "page.html"}
        for name in sorted(names):
            save(record, str(folder / name))
        made = {path.relative_to(outer).as_posix() for path in Path(outer).rglob("*") if path.is_file()}
        Compilation.from_json((folder / "record.nbcompile.json").read_bytes())
    return [] if made == {f"folder/{name}" for name in names} else [f"wrote {sorted(made)}"]


def _links(record: Compilation) -> list[str]:
    links = Links(record)
    for line in range(1, 10):
        links.at_line(line)
    for id in list(links.nodes)[:200]:
        links.up(id), links.down(id), links.lines(id)
    return []


def _charts(record: Compilation) -> list[str]:
    for chart in CHARTS:
        with contextlib.suppress(NbcompileError):
            record.plot(chart).to_json()
    return []


def _runs(record: Compilation) -> list[str]:
    runs = SessionRuns()
    found = []
    for before, after in (
        (base.record(), record),
        (record, base.record()),
        (record, dataclasses.replace(record, id="z")),
    ):
        runs.remember("cell", before)
        since = runs.since("cell", after)
        runs.remember("cell", since)
        found += faults(view.to_html(since, ("times",)))
        index = runs.index()
        found += faults(index._repr_html_()) + [
            f"not printable: {line!r}" for line in repr(index).splitlines() if not line.isprintable()
        ]
    return found


def _diff(record: Compilation) -> list[str]:
    """``nbcompile diff`` of two files, in every format."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = Path(folder) / "mine.json", Path(folder) / "theirs.json"
        mine.write_text(_base_text(), encoding="utf-8")
        theirs.write_text(json.dumps(record.to_dict()), encoding="utf-8")
        for before, after in ((mine, theirs), (theirs, mine), (theirs, theirs)):
            findings = compare_benches(SuiteRun.read(before), SuiteRun.read(after))
            for name, write in FORMATS.items():
                text = write(findings, frozenset())
                text.encode()
                if name == "text":
                    found += [
                        f"not printable: {line!r}" for line in text.splitlines() if not line.isprintable()
                    ]
        bench_text(SuiteRun.read(theirs)).encode()
    return found


@lru_cache(maxsize=1)
def _base_text() -> str:
    return json.dumps(base.record().to_dict())


USES: dict[str, Callable[[Compilation], Any]] = {
    "write and read": _again,
    "payload": _payload,
    "text": _text,
    "html": _html,
    "parts": _parts,
    "page": _page,
    "save": _save,
    "links": _links,
    "charts": _charts,
    "runs": _runs,
    "diff": _diff,
}

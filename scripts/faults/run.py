"""Provoke faults and count them: ``scripts/faults/run.py --out out/faults.jsonl --write docs/faults.md``.

Each fault of the table (``kinds.py``) is provoked again and again, each time in a folder and sessions of its
own, and a trial is survived if the user's program gives the right numbers, in that session and in the next,
and the user is told where something was given up. Exits with 1 if a trial is lost. ``--out`` keeps counts of
each kind as it is over; ``--write`` puts all that a file holds into a page.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import compilers  # noqa: F401
import damage  # noqa: F401
import disks  # noqa: F401
import others  # noqa: F401
import processes  # noqa: F401
import sessions  # noqa: F401
import torch
from kinds import KINDS, Kind
from lab import CannotTry, Lab, folder_of_trials, warm_up


@dataclass(frozen=True)
class Tally:
    """What became of the trials of one kind."""

    name: str
    tried: int
    lost: int
    cannot: str
    seconds: float

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]


def tally(kind: Kind, trials: int, folder: Path, filled: Path) -> Tally:
    """One kind of fault, tried so often."""
    start, tried, lost, cannot = time.perf_counter(), 0, 0, ""
    for number in range(-(-trials // kind.each)):
        home = folder / f"{kind.run.__name__}-{number}"
        home.mkdir(mode=0o755)
        try:
            kind.run(Lab(home, number, filled))
        except CannotTry as error:
            cannot = str(error)
            break
        except Exception as error:
            lost += 1
            tried += 1
            print(f"      LOST {kind.name}, trial {number}: {type(error).__name__}: {error}", flush=True)
        else:
            tried += kind.each
        _remove(home)
    return Tally(kind.name, tried, lost, cannot, time.perf_counter() - start)


def _remove(home: Path) -> None:
    for each in [home, *home.rglob("*")]:
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o700)
    shutil.rmtree(home, ignore_errors=True)


def table(found: Sequence[Tally]) -> str:
    """As Markdown."""
    lines = ["| | fault | tried | survived | lost | expected |", "|---|---|---:|---:|---:|---|"]
    group = ""
    for each in found:
        first, group = ("" if each.kind.group == group else each.kind.group), each.kind.group
        tried = f"{each.tried:,}" if not each.cannot else f"0 ({each.cannot})"
        survived = each.tried - each.lost
        lines.append(f"| {first} | {each.name} | {tried} | {survived:,} | {each.lost} | {each.kind.about} |")
    tried, lost = sum(each.tried for each in found), sum(each.lost for each in found)
    count = sum(each.tried > 0 for each in found)
    kinds = f"{count} kinds" if count == len(found) else f"{count} kinds of {len(found)}"
    lines.append(f"| | **{kinds}** | **{tried:,}** | **{tried - lost:,}** | **{lost}** | |")
    return "\n".join(lines)


BEGIN, END = "<!-- the table: make faults -->", "<!-- end of the table -->"


def write(page: Path, text: str, where: str) -> None:
    """Put the table into the page, between its marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{where}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="kinds with one of these words (commas) in name or group")
    parser.add_argument(
        "--trials", type=int, default=0, help="so many of each kind, or fewer; -1: none, only --write"
    )
    parser.add_argument("--out", type=Path, help="a file of JSON lines, one a kind")
    parser.add_argument("--write", type=Path, help="the page whose table is written anew, from --out")
    parsed = parser.parse_args(arguments)
    words = [word.strip() for word in parsed.only.split(",") if word.strip()]
    chosen = [k for k in KINDS.values() if not words or any(w in f"{k.group} {k.name}" for w in words)]
    found = [] if parsed.write and parsed.trials < 0 else _all(chosen, parsed.trials, parsed.out)
    kept = {each.name: each for each in (_read(parsed.out) if parsed.out else found)}
    rows = KINDS if parsed.write else kept
    text = table([kept.get(name, Tally(name, 0, 0, "not run", 0.0)) for name in KINDS if name in rows])
    print(text)
    if parsed.write:
        minutes = sum(each.seconds for each in kept.values()) / 60
        where = f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()}"
        write(parsed.write, text, f"{where}; {minutes:.0f} minutes on one core of {os.cpu_count()}.")
    return 1 if any(each.lost for each in found) else 0


def _all(chosen: Sequence[Kind], trials: int, out: Path | None) -> list[Tally]:
    found = []
    with folder_of_trials() as folder:
        filled = warm_up(folder)
        for kind in chosen:
            each = tally(kind, min(kind.trials, trials) if trials else kind.trials, folder, filled)
            found.append(each)
            state = each.cannot or f"{each.tried - each.lost} of {each.tried}"
            print(f"{kind.group:>10}  {kind.name}: {state}, {each.seconds:.1f} s", flush=True)
            if out is not None:
                out.parent.mkdir(exist_ok=True)
                with out.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps(dataclasses.asdict(each)) + "\n")
    return found


def _read(out: Path) -> list[Tally]:
    """The last count of each kind that there still is."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return [each for each in (Tally(**json.loads(line)) for line in lines) if each.name in KINDS]


if __name__ == "__main__":
    raise SystemExit(main())

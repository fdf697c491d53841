"""Traces measured: tlparse beside ours, a thousand ranks, and a large file.

    python scripts/traces.py --tlparse /tmp/v/bin/tlparse    # what tlparse lists of three traces, and ours
    python scripts/traces.py --ranks 1000                    # one trace as 1,000 ranks, one of which diverges
    python scripts/traces.py --ranks 200 --dask 2            # the same read by two Dask workers
    python scripts/traces.py --large 300                     # MB of one trace again and again, in one file
    python scripts/traces.py --tlparse … --write docs/traces.md

tlparse is no dependency: `python -m venv /tmp/v && /tmp/v/bin/pip install tlparse`. Traces are made by
running the programs of tests/traces/programs.py. Exit status 1 where ours lacks what tlparse lists,
or a limit is passed.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nbcompile
from nbcompile.traces.trace import Trace
from nbcompile.traces.trace_set import TraceSet
from tests.traces.programs import CAPTURES, TRAINING, artifact, traced

MOST_SECONDS = 60.0
BEGIN, END = "<!-- tlparse: begin -->", "<!-- tlparse: end -->"
TRACES = {
    "breaks, recompiles, failure (Inductor)": (CAPTURES, "inductor"),
    "two training steps, cached (Inductor)": (TRAINING, "inductor"),
    "breaks, recompiles, failure (nbcompile)": (CAPTURES, "nbcompile"),
}
STATUSES = {"ok": "ok", "break": "restarted", "empty": "empty", "error": "failed", "missing": "unfinished"}
NUMBERS = {
    "Entire Frame": "entire_frame_compile_time_s",
    "Backend": "backend_compile_time_s",
    "Inductor": "inductor_compile_time_s",
    "Code Gen Time": "code_gen_time_s",
    "Dynamo Time Before Restart": "dynamo_time_before_restart_s",
    "Cache Size": "cache_size",
    "Accumulated Cache Size": "accumulated_cache_size",
    "Guard Count": "guard_count",
    "Shape Env Guards": "shape_env_guard_count",
    "Graph Ops": "graph_op_count",
    "Graph Nodes": "graph_node_count",
    "Graph Inputs": "graph_input_count",
}


@dataclass(frozen=True)
class Compared:
    """One thing that tlparse lists: how many, and which of them ours does not."""

    what: str
    theirs: int
    missing: tuple[str, ...]
    ours: int


# -- beside tlparse ------------------------------------------------------------------------------------


def beside(tlparse: str, file: Path, out: Path) -> list[Compared]:
    subprocess.run([tlparse, str(file), "-o", str(out), "--no-browser", "--overwrite"], check=True,
                   capture_output=True)  # fmt: skip
    trace = nbcompile.open(file)
    assert isinstance(trace, Trace)
    index = (out / "index.html").read_text()
    pages = {path: path.read_text() for path in sorted(out.glob("*/*compilation_metrics_*.html"))}
    return [
        _artifacts(trace, json.loads((out / "compile_directory.json").read_text())),
        _statuses(trace, index),
        _frames(trace, index),
        _failures(trace, out / "failures_and_restarts.html"),
        _numbers(trace, pages),
        _sizes(trace, pages),
        _events(trace, json.loads((out / "chromium_events.json").read_text())),
    ]


def _plain(id: str) -> str:
    """Without the run: tlparse has what a reset began anew under the same id."""
    return id.partition("#")[0]


def _counted(what: str, theirs: Counter[str], ours: Counter[str]) -> Compared:
    missing = theirs - ours
    return Compared(what, theirs.total(), tuple(missing.elements()), ours.total())


def _artifacts(trace: Trace, directory: dict[str, dict[str, list[dict[str, str]]]]) -> Compared:
    theirs: Counter[str] = Counter()
    for id, told in directory.items():
        for each in told["artifacts"]:
            name = re.sub(r"_\d+(\.\w+)?$", "", each["name"])
            name = re.sub(r"^(inductor_output_code)_.*", r"\1", name)
            theirs[f"{id.strip('[]')} {name}"] += 1
    ours: Counter[str] = Counter(f"-/- {each.name}" for each in trace.index.outside)
    for compile in trace:
        for each in compile.artifacts:
            attempt = f"_{each.attempt}" if each.attempt else ""
            ours[f"{_plain(compile.id)}{attempt} {each.name}"] += 1
    return _counted("artifacts, by compilation and attempt", theirs, ours)


def _statuses(trace: Trace, index: str) -> Compared:
    found = re.findall(r"<a href='#\[([^\]]+)\]' class='status-(\w+)'", index)
    theirs = Counter(f"{id} {STATUSES[status]}" for id, status in found)
    # tlparse shows the status of an id's first run at each of its runs; ours has one for each.
    ours = Counter(f"{_plain(each.id)} {each.status}" for each in trace)
    distinct = {f"{_plain(each.id)} {each.status}" for each in trace}
    missing = tuple(sorted(set(theirs) - distinct))
    return Compared("compilations with their status", theirs.total(), missing, ours.total())


def _frames(trace: Trace, index: str) -> Compared:
    part = index[index.index("class='stack-trie'") : index.index("IR dumps")]
    text = html.unescape(re.sub(r"<[^>]*>", "\n", part.replace("&nbsp;", " ")))
    theirs = set(re.findall(r"^ ?(\S.*:\d+ in .*?)\s*$", text, re.MULTILINE))
    ours = {str(frame) for each in trace for frame in each.stack}
    return Compared("frames of stacks", len(theirs), tuple(sorted(theirs - ours)), len(ours))


def _failures(trace: Trace, page: Path) -> Compared:
    text = page.read_text() if page.exists() else ""
    rows = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)[1:]
    cells = [[html.unescape(re.sub(r"<[^>]*>", "", cell)).strip()
              for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)] for row in rows]  # fmt: skip
    theirs = Counter(
        f"{re.sub(r'_[0-9]+$', '', row[0].strip('[]'))} {row[1]} {row[2].splitlines()[0]}"
        for row in cells
        if row
    )
    ours = Counter[str]()
    for each in trace:
        ours.update(f"{_plain(each.id)} RestartAnalysis {reason.splitlines()[0]}" for reason in each.restarts)
        if each.failure is not None:
            ours[f"{_plain(each.id)} {each.failure.type} {each.failure.reason.strip().splitlines()[0]}"] += 1
    return _counted("restarts and failures, with the reason", theirs, ours)


def _numbers(trace: Trace, pages: dict[Path, str]) -> Compared:
    theirs: Counter[str] = Counter()
    for path, page in pages.items():
        if path.name.startswith("compilation_metrics"):
            text = html.unescape(re.sub(r"<[^>]*>", " ", page))
            for name, key in NUMBERS.items():
                found = re.search(rf"(?<!\w ){name}\s*(?:\[\?\])?\s*:\s*([\d.e-]+)", text)
                if found:
                    theirs[f"{key} {float(found[1]):.9g}"] += 1
    ours = Counter(
        f"{key} {float(each.metrics[key]):.9g}"
        for each in trace
        for key in NUMBERS.values()
        if key in each.metrics
    )
    return _counted("figures of compilations (times, counts, cache sizes)", theirs, ours)


def _sizes(trace: Trace, pages: dict[Path, str]) -> Compared:
    theirs: Counter[str] = Counter()
    for page in pages.values():
        for title in ("Symbolic shape specializations", "Guards added fast"):
            part = page.partition(title)[2].partition("</table>")[0]
            theirs[title] += max(0, len(re.findall(r"<tr>", part)) - 1)
    kinds = Counter(fact.kind for each in trace for fact in each.shapes)
    ours = Counter(
        {"Symbolic shape specializations": kinds["specialization"], "Guards added fast": kinds["guard"]}
    )
    return _counted("specialized sizes and guards of sizes", +theirs, ours)


def _events(trace: Trace, events: list[object]) -> Compared:
    missing = ("events",) if trace.index.events < len(events) else ()
    return Compared("events of compile time", len(events), missing, trace.index.events)


def compare(tlparse: str, folder: Path) -> tuple[str, bool]:
    """The table of the docs, and whether everything that tlparse lists is in ours."""
    lines, complete = [], True
    version = subprocess.run(
        [tlparse, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for number, (name, (program, backend)) in enumerate(TRACES.items()):
        place = folder / f"trace{number}"
        place.mkdir()
        file = traced(program, place, backend)
        rows = beside(tlparse, file, place / "out")
        size = file.stat().st_size / 1e6
        heads = f"| what | {version} | ours | of theirs not in ours |"
        lines += ["", f"**{name}**, {size:.1f} MB", "", heads, "| --- | --: | --: | --- |"]
        for row in rows:
            complete = complete and not row.missing
            left = ", ".join(row.missing[:5]) or "none"
            lines.append(f"| {row.what} | {row.theirs:,} | {row.ours:,} | {left} |")
    return "\n".join(lines), complete


# -- a thousand ranks, and a large file ----------------------------------------------------------------


def ranks(count: int, folder: Path) -> tuple[Path, int]:
    """One trace as many ranks: another rank, process and address of every object in each, and one that has
    another operator in one graph. The folder, and which one that is."""
    source = traced(CAPTURES, folder, "inductor").read_bytes()
    ids = sorted(set(re.findall(rb"(?<=, )1[34]\d{13}(?=[,)])", source)))
    out, odd = folder / "ranks", count * 2 // 3
    out.mkdir()
    plain = source.replace(b'"frame_id"', b'"rank": RANK, "frame_id"')
    other = plain.replace(b"= l_x_.sin();", b"= l_x_.tan();", 1)
    for rank in range(count):
        text = (other if rank == odd else plain).replace(b"RANK", str(rank).encode())
        for id in ids[:8]:
            text = text.replace(id, str(int(id) + 16 * rank).encode())
        (out / f"dedicated_log_torch_trace_rank_{rank}_{rank:08x}.log").write_bytes(text)
    return out, odd


def measure_ranks(count: int, folder: Path, workers: int) -> bool:
    made, odd = ranks(count, folder)
    size = sum(path.stat().st_size for path in made.iterdir())
    how, executor = "processes of this machine", None
    if workers:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        executor = Client(cluster).get_executor()
        how = f"{workers} Dask workers"
    begun = time.perf_counter()
    traces = nbcompile.open(made, executor=executor)
    seconds = time.perf_counter() - begun
    assert isinstance(traces, TraceSet)
    begun = time.perf_counter()
    shown = traces._repr_html_()
    report = time.perf_counter() - begun
    compiles = sum(len(each.compiles) for each in traces.ranks.values())
    print(f"{count:,} ranks, {compiles:,} compilations, {size / 1e9:.2f} GB, by {how}")
    print(f"indexed in {seconds:.1f} s, compared and shown in {report:.1f} s ({len(shown) / 1e3:.0f} kB)")
    print(f"most memory of this process: {_peak():.0f} MB")
    print(f"diverging: {traces.diverging}, made so: {odd}; notes: {traces.notes}")
    print("\n".join(map(str, traces.divergences[:4])))
    print(traces.diff(traces.divergences[0]))
    return traces.diverging == (str(odd),) and seconds <= MOST_SECONDS


def _peak() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 1e6 if sys.platform == "darwin" else used / 1024


_OPEN = """
import pathlib, re, sys, time, nbcompile
begun = time.perf_counter()
trace = nbcompile.open(sys.argv[1])
seconds = time.perf_counter() - begun
text = trace._repr_html_()
record = trace.compilation(trace.compilations[-1].id)
print(f"opened in {seconds:.1f} s: {len(trace):,} compilations, {trace.index.records:,} records, "
      f"{trace.index.damaged} damaged, unread {trace.index.unread}")
# Of this program alone: getrusage counts what its parent had when it was started.
most = int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
print(f"most memory: {most / 1024:.0f} MB; "
      f"{len(text) / 1e3:.0f} kB of HTML, the last record has {len(record.graphs)} graphs")
"""


def measure_large(megabytes: int, folder: Path) -> bool:
    """The same compilations under other ids, and one payload of 100 MB among them."""
    source = traced(CAPTURES, folder, "inductor").read_text()
    path = folder / "large.log"
    with path.open("w") as stream:
        for number in _until(path, megabytes):
            stream.write(_elsewhere(source, 10 * number))
            stream.flush()
        stream.write(artifact("long", "0123456789" * 10_000_000))
    print(f"{path.stat().st_size / 1e6:.0f} MB, one payload of 100 MB")
    run = subprocess.run(
        [sys.executable, "-c", _OPEN, str(path)], capture_output=True, text=True, check=False
    )
    print(run.stdout + run.stderr, end="")
    return run.returncode == 0


def _elsewhere(source: str, more: int) -> str:
    return re.sub(r'"frame_id": (\d+)', lambda found: f'"frame_id": {int(found[1]) + more}', source)


def _until(path: Path, megabytes: int) -> Iterator[int]:
    number = 0
    while path.stat().st_size < megabytes * 1e6:
        yield number
        number += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tlparse", metavar="PATH")
    parser.add_argument("--write", metavar="FILE", help="put tlparse's table into this page")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--dask", type=int, default=0, metavar="WORKERS")
    parser.add_argument("--large", type=int, default=0, metavar="MB")
    parsed = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory(prefix="nbcompile-traces-") as name:
        folder = Path(name)
        if parsed.tlparse:
            table, good = compare(parsed.tlparse, folder)
            print(table)
            if parsed.write:
                page = Path(parsed.write)
                before, _, rest = page.read_text().partition(BEGIN)
                page.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{rest.partition(END)[2]}")
        if parsed.ranks:
            good = measure_ranks(parsed.ranks, folder, parsed.dask) and good
        if parsed.large:
            place = folder / "large"
            place.mkdir()
            good = measure_large(parsed.large, place) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

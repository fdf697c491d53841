"""One table of everything measured, with each goal met or not met.

    python scripts/gpu/table.py [FILES]        by default $OUT/gpu-*.jsonl, or out/gpu-*.jsonl

Of two records of the same thing, the later one counts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from contestants import OURS, PEER, PEER_MAX
from runner import out_folder, read

Record = dict[str, Any]
ERROR_SLACK = 2.0
LARGE = 20e-6  # seconds: what is below it is a matter of launches
GOALS = {
    "kernels over inductor": 1.4, "kernels over inductor-max": 1.25, "kernels worst": 0.98,
    "models": 1.10, "models worst": 0.97, "small model": 2.0,
    "corpus": 1.25, "corpus worst": 3.0, "cold": 0.5, "edited cell": 0.25,
    "memory": 0.35, "time": 1.05,
}  # fmt: skip


def report(records: Iterable[Record]) -> str:
    """Markdown: a section a script, then the goals."""
    kept = latest(records)
    sections: list[Callable[[list[Record]], list[str]]] = [
        _machine, _kernels, _models, _corpus, _linear, _edits, _cold, _failures,
    ]  # fmt: skip
    parts = ["\n".join(lines) for section in sections if (lines := section(kept))]
    return "\n\n".join(parts)


def latest(records: Iterable[Record]) -> list[Record]:
    """The last record of each thing; a failure is forgotten once its item was measured after it."""
    found: dict[tuple[Any, ...], Record] = {}
    for record in records:
        key = (record["script"], record["kind"], record.get("item"), record.get("contestant"))
        found.pop(key, None)
        found[key] = record
        for name in record.get("times", ()):
            found.pop((record["script"], "failure", record.get("item"), name), None)
    return list(found.values())


def of(records: list[Record], script: str, kind: str) -> list[Record]:
    return [record for record in records if record["script"] == script and record["kind"] == kind]


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def median(record: Record, name: str) -> float | None:
    times = record["times"].get(name)
    return float(times["median"]) if times else None


def spread(record: Record, name: str) -> str:
    """Median and half the distance from the 10th to the 90th percentile, in µs or ms."""
    times = record["times"].get(name)
    if not times:
        return "-"
    scale, unit = (1e6, "µs") if times["median"] < 1e-3 else (1e3, "ms")
    off = (times["p90"] - times["p10"]) / 2
    return f"{times['median'] * scale:.4g} ± {off * scale:.1g} {unit}"


def ratios(records: list[Record], slow: str, fast: str = OURS) -> list[float]:
    """How many times as fast ``fast`` is, of the items that both have a time for."""
    pairs = [(median(record, slow), median(record, fast)) for record in records]
    return [one / two for one, two in pairs if one and two]


def verdict(met: bool) -> str:
    return "met" if met else "**not met**"


def at_least(what: str, value: float, goal: float, count: int) -> str:
    return f"- {what}: {value:.2f} over {count} (goal at least {goal:g}): {verdict(value >= goal)}"


def at_most(what: str, value: float, goal: float, count: int) -> str:
    return f"- {what}: {value:.2f} over {count} (goal at most {goal:g}): {verdict(value <= goal)}"


def markdown(header: list[str], lines: list[list[str]]) -> list[str]:
    rows = [header, ["---", *["---:"] * (len(header) - 1)], *lines]
    return ["| " + " | ".join(row) + " |" for row in rows]


# -- sections ----------------------------------------------------------------------------------


def _machine(records: list[Record]) -> list[str]:
    for record in records:
        if record["kind"] == "machine":
            tiny = "; **tiny sizes: the figures mean nothing**" if record.get("tiny") else ""
            return [
                f"{record['device']}, torch {record['torch']}, Triton {record['triton'] or 'none'}, Python "
                f"{record['python']}; device-to-device copy {record['copy_bandwidth'] / 1e9:.0f} GB/s, one "
                f"launch after the other {record['launch_floor'] * 1e6:.1f} µs{tiny}."
            ]
    return []


def _kernels(records: list[Record]) -> list[str]:
    rows = of(records, "kernels", "steady")
    if not rows:
        return []
    others = [name for name in ("eager", PEER, PEER_MAX) if any(name in row["times"] for row in rows)]
    mine = [name for name in (OURS, "nbcompile-max") if any(name in row["times"] for row in rows)]
    names = [*others, *mine]
    lines = [_kernel_line(row, names) for row in rows]
    header = ["kernel: share of copy bandwidth", *names, "goal", "", f"{OURS} error", f"{PEER}", "eager"]
    return ["## Kernels", "", *markdown(header, lines), "", *_kernel_goals(rows)]


def _kernel_line(row: Record, names: list[str]) -> list[str]:
    shares = {name: row["limit"] / each["median"] for name, each in row["times"].items()}
    best = max((share for name, share in shares.items() if name.startswith(OURS)), default=None)
    errors = row["errors"]
    return [
        row["item"],
        *(f"{shares[name]:.2f} ({spread(row, name)})" if name in shares else "-" for name in names),
        f"{row['goal']:.2f}",
        verdict(best is not None and round(best, 3) >= row["goal"]),
        *(f"{errors[name]:.1e}" if name in errors else "-" for name in (OURS, PEER, "eager")),
    ]


def _kernel_goals(rows: list[Record]) -> list[str]:
    said = []
    for other in (PEER, PEER_MAX):
        if faster := ratios(rows, other):
            goal = GOALS[f"kernels over {other}"]
            said.append(
                at_least(
                    f"kernels: times as fast as {other}, geomean", geometric_mean(faster), goal, len(faster)
                )
            )
    worst = {row["item"]: value for row in rows if (value := _of_better(row)) is not None}
    if worst:
        item = min(worst, key=lambda name: worst[name])
        goal = GOALS["kernels worst"]
        said.append(
            at_least(f"kernels: worst against the better Inductor ({item})", worst[item], goal, len(worst))
        )
    return said + _errors(rows)


def _of_better(row: Record) -> float | None:
    peers = [time for name in (PEER, PEER_MAX) if (time := median(row, name))]
    mine = median(row, OURS)
    return min(peers) / mine if peers and mine else None


def _errors(rows: list[Record]) -> list[str]:
    """Whether each result is within twice Inductor's error, or, where it has none, eager's."""
    compared, over = 0, []
    for row in rows:
        errors = row.get("errors") or {}
        mine, other = errors.get(OURS), errors.get(PEER, errors.get("eager"))
        if mine is None or other is None:
            continue
        compared += 1
        if not mine <= ERROR_SLACK * other + 1e-12:
            over.append(f"{row['item']} ({mine:.1e} against {other:.1e})")
    if not compared:
        return []
    more = f": {', '.join(over)}" if over else ""
    return [
        f"- errors over twice Inductor's against float64: {len(over)} of {compared}{more}: "
        f"{verdict(not over)}"
    ]


def _models(records: list[Record]) -> list[str]:
    rows = of(records, "models", "steady")
    if not rows:
        return []
    named = {name for row in rows for name in row["times"]}
    names = [
        name
        for name in ("eager", PEER, PEER_MAX, OURS, "nbcompile-graphs", "inductor-graphs")
        if name in named
    ]
    lines = []
    for row in rows:
        faster = ratios([row], PEER)
        lines.append(
            [row["item"], *(spread(row, name) for name in names), f"{faster[0]:.2f}" if faster else "-"]
        )
    said = ["## Models", "", *markdown(["model", *names, f"{OURS} over {PEER}"], lines), ""]
    # A model whose goal is another's (the small one) is not in the mean.
    compared = [row for row in rows if not row.get("small")]
    if faster := ratios(compared, PEER):
        said.append(
            at_least(
                f"models: times as fast as {PEER}, geomean",
                geometric_mean(faster),
                GOALS["models"],
                len(faster),
            )
        )
        said.append(at_least("models: slowest", min(faster), GOALS["models worst"], len(faster)))
    small = [row for row in rows if row.get("small")]
    if faster := ratios(small, "eager", "nbcompile-graphs"):
        said.append(
            at_least(
                "small model, reduce-overhead over eager, worst",
                min(faster),
                GOALS["small model"],
                len(faster),
            )
        )
    if faster := ratios(small, "eager"):
        said.append(at_least("small model, default mode over eager, worst", min(faster), 1.0, len(faster)))
    return said + _errors(rows)


def _corpus(records: list[Record]) -> list[str]:
    rows = of(records, "corpus", "steady")
    if not rows:
        return []
    said = ["## Fused regions of real graphs", ""]
    for name in (OURS, PEER):
        times = sorted(row["times"][name]["median"] / row["limit"] for row in rows if name in row["times"])
        if not times:
            continue
        p90 = times[min(int(0.9 * len(times)), len(times) - 1)]
        over = sum(value > GOALS["corpus worst"] for value in times)
        summary = f"{name}: times the byte limit, geomean"
        if name == OURS:
            said.append(at_most(summary, geometric_mean(times), GOALS["corpus"], len(times)))
            said.append(
                f"- {name}: p90 {p90:.2f}, above {GOALS['corpus worst']:g}: {over}: {verdict(over == 0)}"
            )
        else:
            said.append(
                f"- {summary} {geometric_mean(times):.2f} over {len(times)}, p90 {p90:.2f}, above 3: {over}"
            )
    slow = sorted(
        (row["times"][OURS]["median"] / row["limit"], row["item"], row.get("what", ""))
        for row in rows
        if OURS in row["times"]
    )[-12:]
    said += [
        f"- furthest from the limit: {item} {value:.2f} ({what})"
        for value, item, what in reversed(slow)
        if value > 1.25
    ]
    said += _against_peer(rows)
    compiled = [
        (row["compile"][OURS], row["compile"][PEER])
        for row in rows
        if {OURS, PEER} <= set(row.get("compile", ()))
    ]
    if compiled:
        mine, theirs = (sum(pair[place] for pair in compiled) / len(compiled) for place in (0, 1))
        shares = geometric_mean(one / two for one, two in compiled)
        said.append(f"- seconds to compile one, mean: {OURS} {mine:.2f}, {PEER} {theirs:.2f}")
        said.append(
            at_most("corpus: compile time over Inductor's, geomean", shares, GOALS["cold"], len(compiled))
        )
    return said + _errors(rows)


def _against_peer(rows: list[Record]) -> list[str]:
    """How regions compare with Inductor's, all of them and those whose limit is over :data:`LARGE`."""
    both = [row for row in rows if {OURS, PEER} <= set(row["times"])]
    said = []
    for what, chosen in (
        ("regions", both),
        (f"regions whose limit is over {LARGE * 1e6:g} µs", [row for row in both if row["limit"] > LARGE]),
    ):
        if not chosen:
            continue
        fast = {row["item"]: row["times"][PEER]["median"] / row["times"][OURS]["median"] for row in chosen}
        slower = sorted((value, item) for item, value in fast.items() if value < 1 / 1.1)
        limits = sorted(row["times"][OURS]["median"] / row["limit"] for row in chosen)
        said.append(
            f"- {len(chosen)} {what}: {geometric_mean(fast.values()):.2f} times as fast as {PEER}, slower by "
            f"over 10%: {len(slower)}; {geometric_mean(limits):.2f} times the limit, "
            f"p90 {limits[min(int(0.9 * len(limits)), len(limits) - 1)]:.2f}"
        )
        said += [f"  - {item}: {value:.2f}" for value, item in slower[:8]]
    return said


def _linear(records: list[Record]) -> list[str]:
    rows = of(records, "linear_cross_entropy", "steady")
    if not rows:
        return []
    lines, said = [], []
    for row in rows:
        for name, each in row["times"].items():
            lines.append(
                [
                    row["item"],
                    name,
                    spread(row, name),
                    f"{row['memory'][name] / 2**30:.2f} GiB",
                    f"{each['samples']}",
                ]
            )
        for name in (OURS, "nbcompile-max"):
            mine, eager = median(row, name), median(row, "eager")
            if mine is None or eager is None:
                continue
            said.append(at_most(f"{name}: time over the unfused one's", mine / eager, GOALS["time"], 1))
            if row["memory"]["eager"]:
                share = row["memory"][name] / row["memory"]["eager"]
                said.append(at_most(f"{name}: peak memory over the unfused one's", share, GOALS["memory"], 1))
    header = ["linear + cross_entropy", "contestant", "time", "peak memory", "samples"]
    return ["## Linear + cross_entropy", "", *markdown(header, lines), "", *said, *_errors(rows)]


def _edits(records: list[Record]) -> list[str]:
    rows = of(records, "edits", "steady")
    said = []
    for row in rows:
        for name in row["times"]:
            seconds = median(row, name)
            assert seconds is not None
            if name == OURS:
                said.append(
                    at_most(
                        f"{row['item']}, {name}, s",
                        seconds,
                        GOALS["edited cell"],
                        row["times"][name]["samples"],
                    )
                )
            else:
                said.append(f"- {row['item']}, {name}: {seconds:.2f} s")
    return ["## An edited cell", "", *said] if said else []


def _cold(records: list[Record]) -> list[str]:
    rows: dict[str, dict[str, float]] = {}
    for record in records:
        if record["kind"] == "cold" and "seconds" in record:
            rows.setdefault(f"{record['script']}: {record['item']}", {})[record["contestant"]] = record[
                "seconds"
            ]
    both = {item: each for item, each in rows.items() if OURS in each and PEER in each}
    if not rows:
        return []
    lines = [
        [item, *(f"{each[name]:.2f}" if name in each else "-" for name in (PEER, OURS)),
         f"{each[OURS] / each[PEER]:.2f}" if item in both else "-"]
        for item, each in rows.items()
    ]  # fmt: skip
    said = [
        "## Cold compiles",
        "",
        *markdown(["seconds to the first result", PEER, OURS, "ratio"], lines),
        "",
    ]
    if both:
        share = geometric_mean(each[OURS] / each[PEER] for each in both.values())
        said.append(at_most("cold compile time over Inductor's, geomean", share, GOALS["cold"], len(both)))
    return said


def _failures(records: list[Record]) -> list[str]:
    said = []
    for record in records:
        if record["kind"] == "failure" or (record["kind"] == "cold" and "reason" in record):
            said.append(f"- {record['script']}: {record['item']}: {record['contestant']}: {record['reason']}")
        if record["kind"] == "left-out":
            names = record.get("items") or [f"cold {item} {name}" for item, name in record.get("cold", ())]
            said.append(f"- {record['script']}: left out, the budget was spent: {', '.join(names)}")
    return ["## Not measured", "", *said] if said else []


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    files = [Path(name) for name in given] or sorted(out_folder().glob("gpu-*.jsonl"))
    if not files:
        print(f"nothing measured yet in {out_folder()}", file=sys.stderr)
        return 1
    print(report(record for file in files for record in read(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The doctor against a sweep of every combination of what it turns: does it find the best, in what part of
the time?

    python scripts/doctor.py --only softmax,mlp --without xla,tvm --out out/doctor.jsonl

Each of the two starts with empty caches, but for the headers that Inductor compiles once. The sweep measures
every combination of the switches that the doctor is given (a larger batch excepted: it is other work), each
in a process of its own, beside the present state, as the doctor's own trials are. What a sweep takes is the
sum of its points, also where several are measured at once (`--workers`). `--most` ends a sweep early: it has
then measured the doctor's winners and as many others as there was time for, in no order, and what the whole
would take is told by its mean point.

A sweep of a hundred points has its winner by luck: a process is up to a fifth faster than the next one of the
same program, for where its memory lies. So the sweep's three best of each effect, and the doctor's winners,
are measured in two more processes each; the median of the three counts, and the interval is from the least to
the largest. The doctor has found the best if its winner is as fast as the sweep's within 5 %, or the two
intervals overlap. What it recommends is never slower if its interval is not below 1 as a whole."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

from nbcompile.bench.doctor.candidates import compilers, suggestions
from nbcompile.bench.doctor.examination import SAMPLES, Examination
from nbcompile.bench.doctor.examine import examined
from nbcompile.bench.doctor.patient import Patient, Surroundings
from nbcompile.bench.doctor.switches import Combination, Switch
from nbcompile.bench.doctor.trial import TrialTask, run_trial
from nbcompile.bench.doctor.ward import Ward
from nbcompile.bench.measure.cold import CACHE_VARIABLES, cache_environment
from nbcompile.bench.processes import ProcessEndedError
from nbcompile.record.advice.doctor import DoctorReport, DoctorRow
from nbcompile.settings import CompileSettings

NEAR = 0.95


class Block(nn.Module):
    """A transformer's."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            each.view(b, t, self.heads, d // self.heads).transpose(1, 2)
            for each in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def loss_of(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(model(x), target)


def training(model: nn.Module, x: Tensor, out: int) -> Patient:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    return Patient(loss_of, (model, x, torch.randn(x.shape[0], out)), {}, True, optimizer)


def chain(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.tanh(x * y + 0.5) * torch.sigmoid(x) - y
    return x


def tiny(x: Tensor) -> Tensor:
    for _ in range(12):
        x = (x + 1).relu() * 0.5
    return x


def breaks(x: Tensor, w: Tensor) -> Tensor:
    y = torch.softmax(x @ w, -1)
    if y.sum().item() > 0:
        y = y * 2
    return torch.log1p(y).mean(0)


def recurrent(x: Tensor, h: Tensor, c: Tensor, w: Tensor) -> Tensor:
    for step in x.unbind(0):
        i, f, g, o = (torch.cat([step, h], -1) @ w).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def normalised(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b) * torch.sigmoid(x)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 0.5, -1)


def products(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(x @ w) @ w.T


def embedded(table: Tensor, index: Tensor) -> Tensor:
    return F.embedding(index, table).mean(1)


r = torch.randn
PROGRAMS: dict[str, Callable[[], Patient]] = {
    "softmax": lambda: Patient(softmax, (r(1024, 1024),)),
    "mlp": lambda: Patient(mlp().eval(), (r(32, 256),)),
    "mlp training": lambda: training(mlp(), r(32, 256), 256),
    "convnet": lambda: Patient(convnet().eval(), (r(4, 3, 48, 48),)),
    "convnet training": lambda: training(convnet(), r(4, 3, 32, 32), 10),
    "transformer": lambda: Patient(Block(128, 4).eval(), (r(2, 64, 128),)),
    "tiny": lambda: Patient(tiny, (r(16),)),
    "chain": lambda: Patient(chain, (r(512, 512), r(512, 512))),
    "embedding": lambda: Patient(embedded, (r(5000, 64), torch.randint(0, 5000, (256, 32)))),
    "break": lambda: Patient(breaks, (r(256, 128), r(128, 256))),
    "recurrent": lambda: Patient(recurrent, (r(8, 16, 32), r(16, 64), r(16, 64), r(96, 256))),
    "products": lambda: Patient(products, (r(256, 512), r(512, 512))),
    "normalisation": lambda: Patient(normalised, (r(512, 768), r(768), r(768))),
}


@contextmanager
def empty_caches() -> Iterator[None]:
    """New folders for all caches, of what is started meanwhile too."""
    before = {name: os.environ.get(name) for name in CACHE_VARIABLES}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(cache_environment(Path(folder)))
        try:
            with Ward() as ward:
                # What Inductor compiles once a machine is not of a program's compile.
                data = Patient(tiny, (torch.ones(64),)).packed()
                task = TrialTask(data, CompileSettings("inductor"), Surroundings.here(), (), 0.01)
                ward.run(run_trial, task, timeout=300.0)
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def combinations(switches: list[Switch]) -> list[Combination]:
    """Every choice of at most one switch of each axis, that means something to its compiler."""
    axes: dict[str, list[Switch | None]] = {}
    for switch in switches:
        if switch.axis != "batch":
            axes.setdefault(switch.axis, [None]).append(switch)
    chosen = itertools.product(*axes.values())
    every = [Combination.of(filter(None, each)) for each in chosen]
    return [on for on in every if on.switches and on.fits(CompileSettings())]


def swept(
    patient: Patient, without: set[str], limit: float, workers: int, most: float, first: set[str]
) -> tuple[dict[Combination, DoctorRow], float, int]:
    """A row of every combination, or of as many as are begun within ``most`` seconds: those named ``first``,
    and others in no order; the seconds that they took, one after the other, and how many combinations there
    are."""
    here, present, data = Surroundings.here(), CompileSettings(), patient.packed()
    with empty_caches():
        with Ward() as ward:
            exam = Examination(data, present, here, ward, limit, lambda text: None)
            eager = next(s for s in compilers(present, "cpu", patient.train).switches if s.backend == "eager")
            record = exam.describe(eager)
            spent = [exam.spent]
        found = suggestions(patient, present, here, record).switches
        points = combinations([s for s in found if not {s.name, s.axis, s.backend, s.mode} & without])
        random.Random(0).shuffle(points)
        points.sort(key=lambda on: on.name not in first)
        end = time.monotonic() + most

        def share(worker: int) -> dict[Combination, DoctorRow]:
            """Every so many of the points, on cores of this worker's own: its processes inherit them."""
            os.sched_setaffinity(0, own_cores(worker, here.threads))
            rows = {}
            with Ward() as ward:
                for on in points[worker::workers]:
                    begun = time.monotonic()
                    if begun > end:
                        break
                    rows[on] = point(ward, TrialTask(data, present, here, (on,), SAMPLES, race=False), limit)
                    spent.append(time.monotonic() - begun)
                    print(f"{len(spent) - 1} of {len(points)}: {on.name} {rows[on].speedup}", flush=True)
            return rows

        with ThreadPoolExecutor(workers) as pool:
            rows = {on: row for each in pool.map(share, range(workers)) for on, row in each.items()}
        swept_in = sum(spent)
        with Ward() as ward:
            for on in contenders(rows, first):
                task = TrialTask(data, present, here, (on,), SAMPLES, race=False)
                rows[on] = of_processes([rows[on], *(point(ward, task, limit) for _ in range(2))])
                print(f"again: {on.name} {rows[on].speedup}", flush=True)
    return rows, swept_in, len(points)


def contenders(rows: dict[Combination, DoctorRow], first: set[str]) -> list[Combination]:
    """Those that may be the best of their effect, and those named ``first``."""
    found = [on for on in rows if on.name in first]
    for effect in ("same", "precision"):
        paying = [on for on, row in rows.items() if row.status == "pays" and row.effect == effect]
        found += sorted(paying, key=lambda on: -(rows[on].speedup or 0))[:3]
    return list(dict.fromkeys(found))


def of_processes(rows: Sequence[DoctorRow]) -> DoctorRow:
    """One row of those that one combination had in several processes."""
    speeds = sorted(row.speedup for row in rows if row.speedup is not None)
    if not speeds:
        return rows[0]
    speed, low, high = statistics.median(speeds), speeds[0], speeds[-1]
    status = "pays" if speed > 1 and rows[0].status in ("pays", "level", "slower") else rows[0].status
    return dataclasses.replace(rows[0], status=status, speedup=speed, low=low, high=high)


def own_cores(worker: int, threads: int) -> set[int]:
    """As many as there are threads; all that there are, where they do not suffice for one."""
    every = sorted(os.sched_getaffinity(os.getpid()))
    return set(every[worker * threads : (worker + 1) * threads]) or set(every)


def point(ward: Ward, task: TrialTask, limit: float) -> DoctorRow:
    (on,) = task.combinations
    try:
        return ward.run(run_trial, task, timeout=limit).rows[0]
    except ProcessEndedError as error:
        return DoctorRow(on.name, on.effect, "failed", str(error))


def judged(report: DoctorReport, rows: dict[Combination, DoctorRow], effect: str) -> dict[str, Any]:
    """The doctor's winner of an effect, the sweep's, and how they stand in the sweep."""
    own = {"same": report.pays, "precision": report.less_precise}[effect]
    by_name = {row.name: row for row in rows.values()}
    paying = [row for row in rows.values() if row.status == "pays" and row.effect == effect]
    best = max(paying, key=lambda row: row.speedup or 0, default=None)
    mine = by_name.get(own[0].name) if own else None
    speed, whole = (row.speedup or 1.0 if row is not None else 1.0 for row in (mine, best))
    overlap = mine is not None and best is not None and (mine.high or 0) >= (best.low or math.inf)
    return {
        "doctor": own[0].name if own else "nothing",
        "claimed": own[0].speedup if own else 1.0,
        "sweep": best.name if best else "nothing",
        "speed": speed,
        "best_speed": whole,
        "found": bool(speed >= NEAR * whole or overlap),
        "slower": bool(mine is not None and mine.high is not None and mine.high < 1),
    }


def one(
    name: str, without: set[str], budget: float, limit: float, workers: int, most: float
) -> dict[str, Any]:
    torch.manual_seed(0)
    patient = PROGRAMS[name]()
    with torch.set_grad_enabled(patient.train):
        with empty_caches():
            begun = time.monotonic()
            report = examined(patient, CompileSettings(), budget, lambda text: None, without=without)
            spent = time.monotonic() - begun
        print(report, file=sys.stderr, flush=True)
        winners = {row.name for row in (*report.pays[:1], *report.less_precise[:1])}
        rows, spent_there, every = swept(patient, without, limit, workers, most, winners)
    return {
        "program": name, "threads": torch.get_num_threads(), "load": os.getloadavg()[0], "points": len(rows),
        "every": every,
        "doctor_seconds": spent, "sweep_seconds": spent_there, "budget": budget,
        "same": judged(report, rows, "same"), "precision": judged(report, rows, "precision"),
        "rows": {row.name: [row.status, row.speedup, row.low, row.high, row.reason] for row in rows.values()},
    }  # fmt: skip


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: a line for each program, and the sums."""
    out = [
        "| program | doctor's best | sweep's best | in the sweep: doctor's, best | found "
        "| fewer digits: found | doctor | sweep | part |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in results:
        whole = each["sweep_seconds"] * each["every"] / each["points"]
        same, less = each["same"], each["precision"]
        out.append(
            f"| {each['program']} | {same['doctor']} | {same['sweep']} "
            f"| {same['speed']:.2f}×, {same['best_speed']:.2f}× "
            f"| {'yes' if same['found'] else 'no'} | {'yes' if less['found'] else 'no'} "
            f"| {each['doctor_seconds']:.0f} s "
            f"| {each['points']} of {each['every']} points in {each['sweep_seconds']:.0f} s, "
            f"all in {whole:.0f} s "
            f"| {each['doctor_seconds'] / whole:.0%} |"
        )
    found = sum(each["same"]["found"] for each in results)
    slower = sum(each["same"]["slower"] or each["precision"]["slower"] for each in results)
    return "\n".join([*out, "", f"Best found: {found} of {len(results)}; recommended and slower: {slower}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="programs, between commas")
    parser.add_argument("--without", default="", help="switches, axes, backends or modes, between commas")
    parser.add_argument("--budget", type=float, default=60.0, help="the doctor's seconds for each program")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a point of the sweep")
    parser.add_argument("--most", type=float, default=math.inf, help="seconds after which no point is begun")
    parser.add_argument("--workers", type=int, default=1, help="points of a sweep at once, each on own cores")
    parser.add_argument("--out", default="out/doctor.jsonl", help="where results are added, a line each")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    out = Path(asked.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {each["program"] for each in known}
    names = [name for name in (asked.only.split(",") if asked.only else PROGRAMS) if name not in done]
    for name in [] if asked.table else names:
        without = set(filter(None, asked.without.split(",")))
        known.append(one(name, without, asked.budget, asked.limit, asked.workers, asked.most))
        with out.open("a") as file:
            file.write(json.dumps(known[-1]) + "\n")
        print(table(known[-1:]), flush=True)
    print(table(known))


if __name__ == "__main__":
    main()

"""Times alternatives to the schedules that codegen picks, region by region: where the numbers in
``nbcompile/compiler/schedule/`` come from.

    python scripts/gpu/sweep.py [--only REGIONS] [--budget SECONDS]       on a GPU
    python scripts/gpu/sweep.py --check [--only REGIONS]                  compile all for cuda:90, anywhere
    python scripts/gpu/sweep.py --device cpu --most 3 --only REGIONS      in the interpreter, to see it run

Each alternative is another block, number of warps, of blocks under way or of programs, within the schedule
that the kernel has. Its results are compared with those of the tiling that codegen picks. A kernel that has
no alternative of a name keeps its own tiling, so that a region of several kernels varies one at a time or all
of one kind together. Times are medians, in terms of the region's limit (see corpus.py).
"""

from __future__ import annotations

import contextlib
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import regions
import runner
import torch
from contestants import OURS, compile_with, first_line, warm_up
from gpu_timing import in_turn, input_sets, interleaved, relative_error, synchronize
from items import copies
from regions import Region
from runner import Run, say

from corpus import MOST_SETS, TINY_BYTES
from nbcompile.compiler.codegen.triton import groups_to_triton
from nbcompile.compiler.schedule import choose as choice
from nbcompile.compiler.schedule.points import Bands, ByRows, Points, Square
from nbcompile.compiler.schedule.row_shapes import MOST_SLABS, SHARED_BUDGET, RowShape, splittable, sums_vary
from nbcompile.compiler.schedule.rows import Held, RowSchedule
from nbcompile.compiler.schedule.scans import HeldScan, SplitScan, WalkedScan
from nbcompile.compiler.schedule.schedule import Schedule, Work
from nbcompile.compiler.schedule.shared_rows import SharedRows, SharedWalks
from nbcompile.compiler.schedule.summed_rows import OwnedRows, WalkedSums
from nbcompile.compiler.schedule.tiling import power
from nbcompile.compiler.schedule.walked_rows import SplitRows, SteppedColumns, WalkedRows
from nbcompile.compiler.stages import Config
from nbcompile.targets import Target

Choose = Callable[[Work, Schedule], Schedule]
TOLERANCE = 0.03  # of results, relative: half types added up in another order
WORTH = 0.95  # an alternative that takes at most so much of the time is named in the summary


# -- alternatives ------------------------------------------------------------------------------------


def alternatives(work: Work, plan: Schedule) -> dict[str, Schedule]:
    """Other ways to cut up a kernel of this schedule, by a name that says what is different."""
    found: Iterator[Schedule] = iter(())
    if isinstance(plan, RowSchedule):
        found = _rows(work, plan, work.shape)
    elif isinstance(plan, Bands):
        found = _bands(plan)
    elif isinstance(plan, Points):
        found = _points(plan)
    elif isinstance(plan, Square):
        found = _squares(plan)
    elif isinstance(plan, ByRows):
        found = _lines(plan)
    return {named(item): item for item in found}


def named(plan: Schedule) -> str:
    rows = "held" if isinstance(plan, Held | SharedRows) else "walked"
    words = [rows if isinstance(plan, RowSchedule) else type(plan).__name__.removeprefix("By").lower()]
    if isinstance(plan, Square | Bands):
        sides = (plan.outer if isinstance(plan, Bands) else (), plan.y, plan.x)
        words.append("x".join("".join(axis.name for axis in side) for side in sides if side))
    if plan.configs:
        words += [f"{name}={value}" for name, value in plan.configs[0].constants.items()]
    if isinstance(plan, RowSchedule):
        counts = (("slabs", plan.slabs), ("parts", plan.parts if isinstance(plan, SharedRows) else 1))
        words += [f"{word}={count}" for word, count in counts if count > 1]
    return " ".join([*words, *(f"warps={config.warps}" for config in plan.configs[:1])])


def _config(warps: int, **constants: int) -> tuple[Config, ...]:
    return (Config(constants, warps),)


def _held_by_thread(tile: int, warps: int) -> int:
    return tile // (32 * warps)


def _points(plan: Points) -> Iterator[Schedule]:
    for block, warps in product((256, 512, 1024, 2048, 4096), (1, 2, 4, 8)):
        if plan.x and 2 <= _held_by_thread(block, warps) <= 32:
            yield replace(plan, configs=_config(warps, XBLOCK=block))


def _lines(plan: ByRows) -> Iterator[Schedule]:
    for block, warps in product((256, 512, 1024, 2048, 4096), (1, 2, 4, 8)):
        if 4 <= _held_by_thread(block, warps) <= 32:
            yield replace(plan, configs=_config(warps, RBLOCK=block))


def _bands(plan: Bands) -> Iterator[Schedule]:
    length = plan.x[0].extent.hint()
    for width, block, warps in product((32, 64, 128, 256, 512), (256, 512, 1024, 2048, 4096), (1, 2, 4, 8)):
        if width <= block and -(-length // width) * width <= length * 1.3:
            if 4 <= _held_by_thread(block, warps) <= 32:
                yield replace(plan, configs=_config(warps, YBLOCK=block // width, XBLOCK=width))
    for block, warps in ((256, 2), (256, 4), (512, 2), (512, 4), (1024, 8), (1024, 4), (1024, 2), (2048, 8)):
        yield Points(x=(*plan.outer, *plan.y, *plan.x), configs=_config(warps, XBLOCK=block))


def _squares(plan: Square) -> Iterator[Schedule]:
    """Other squares: turned, with the outer axes beside the lane or by themselves, and in another order."""
    outer, other = plan.y[:-1], plan.y[-1:]
    kinds: list[Square | Bands] = [plan, replace(plan, y=plan.x, x=plan.y)]
    kinds += [Bands(y=plan.y, x=plan.x, configs=()), Bands(y=plan.x, x=plan.y, configs=())]
    if outer and len(plan.x) == 1:
        kinds.append(replace(plan, y=other, x=(*outer, *plan.x)))
        kinds.append(Bands(y=other, x=plan.x, outer=outer, configs=()))
        kinds.append(Bands(y=plan.x, x=other, outer=outer, configs=()))
    shapes = ((64, 64, 8), (32, 64, 4), (64, 32, 2), (64, 32, 8), (32, 32, 4), (64, 64, 4), (32, 32, 1))
    for kind, (y, x, warps) in product(kinds, shapes):
        yield replace(kind, configs=_config(warps, YBLOCK=y, XBLOCK=x))


def _rows(work: Work, plan: RowSchedule, shape: RowShape) -> Iterator[Schedule]:
    target, reduces = work.target, bool(work.values.reductions)
    for lane in plan.lanes if isinstance(plan, SplitRows) else ():
        shape = shape.across(lane)
    if isinstance(plan, OwnedRows | WalkedSums):
        owned = isinstance(plan, OwnedRows) and sums_vary(work.values)
        return _owned(plan, shape, target) if owned else iter(())
    if isinstance(plan, Held):
        return _held(plan, shape) if shape.along else _held_columns(plan, shape, reduces)
    if not shape.along:
        return _walked_columns(plan, shape, target)
    return _walked(plan, shape, target, parted=_parted(work, plan), shared=reduces)


def _parted(work: Work, plan: RowSchedule) -> bool:
    """Whether rows can be shared out in slabs."""
    return splittable(work.values) if work.values.reductions else plan.slabs > 1


def _slabbed(plan: RowSchedule, slabs: int, one_row: bool, configs: tuple[Config, ...]) -> Schedule:
    """Rows walked in so many slabs each."""
    if isinstance(plan, WalkedScan | HeldScan):
        kind: type[RowSchedule] = SplitScan if slabs > 1 else WalkedScan
        return kind(x=plan.x, r=plan.r, one_row=one_row, slabs=slabs, configs=configs)
    if isinstance(plan, SplitRows) and plan.lanes:
        return replace(plan, slabs=slabs, one_row=one_row, configs=configs)
    kind = SplitRows if slabs > 1 else WalkedRows
    return kind(x=plan.x, r=plan.r, one_row=one_row, slabs=slabs, configs=configs)


def _held(plan: RowSchedule, shape: RowShape) -> Iterator[Schedule]:
    for each, warps in product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32)):
        tile = each * shape.whole
        if 256 <= tile <= 32768 and 4 <= _held_by_thread(tile, warps) <= 64:
            yield replace(plan, one_row=each == 1, configs=_config(warps, XBLOCK=each))


def _held_columns(plan: RowSchedule, shape: RowShape, reduces: bool) -> Iterator[Schedule]:
    for each, warps in product((8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 16)):
        if 512 <= each * shape.whole <= 16384:
            yield replace(plan, configs=_config(warps, XBLOCK=each))
    for each, warps in product((128, 256, 512, 1024), (1, 2, 4, 8)):
        if reduces and shape.length <= 64:
            yield SteppedColumns(x=plan.x, r=plan.r, configs=_config(warps, XBLOCK=each, RBLOCK=1))


def _owned(plan: RowSchedule, shape: RowShape, target: Target) -> Iterator[Schedule]:
    """Rows of a program that adds up over its rows too."""
    for each, points, stages, per in product(
        (1, 2, 4, 8, 16, 32, 64), (8, 16, 32), (1, 2, 3, 4), (1, 2, 3, 4, 8)
    ):
        tile = each * shape.whole
        warps = max(1, min(16, tile // (32 * points)))
        if not 1024 <= tile <= 8192 or _held_by_thread(tile, warps) != points:
            continue
        if stages > 1 and shape.row_bytes * tile * stages * per > SHARED_BUDGET:
            continue
        slabs = min(target.multiprocessors * per, -(-shape.rows // each))
        yield replace(
            plan, one_row=each == 1, slabs=slabs, configs=_config(warps, XBLOCK=each, STAGES=stages)
        )


def _walked_columns(plan: RowSchedule, shape: RowShape, target: Target) -> Iterator[Schedule]:
    for each, block, warps, stages in product((64, 128, 256), (8, 16, 32, 64), (1, 2, 4, 8), (1, 3)):
        tile = each * block
        if each > power(shape.rows) or block > shape.whole or not 1024 <= tile <= 8192:
            continue
        if not 16 <= _held_by_thread(tile, warps) <= 64:
            continue
        for share in (4, 12) if plan.slabs > 1 else (0,):
            slabs = _slabs(target.multiprocessors * share // max(1, shape.rows // each), shape, block)
            configs = _config(warps, XBLOCK=each, RBLOCK=block, STAGES=stages)
            yield _slabbed(plan, slabs, plan.one_row, configs)


def _walked(
    plan: RowSchedule, shape: RowShape, target: Target, *, parted: bool, shared: bool
) -> Iterator[Schedule]:
    """Walks of a program a row, of several in slabs, and (``shared``) of several that walk together."""
    for block, warps, stages in product((1024, 2048, 4096, 8192), (4, 8, 16), (1, 2, 3, 4, 6)):
        if not 4 <= _held_by_thread(block, warps) <= 32:
            continue
        if stages > 1 and shape.row_bytes * block * stages > SHARED_BUDGET:
            continue
        for share in (0, 4, 8, 16) if parted else (0,):
            slabs = _slabs(-(-target.multiprocessors * share // shape.rows), shape, block)
            yield _slabbed(plan, slabs, True, _config(warps, XBLOCK=1, RBLOCK=block, STAGES=stages))
    if not shared or parted:
        return
    for groups, warps, block, per, stages in product(
        (16, 66, 132, 256), (4, 8), (1024, 2048, 4096), (4, 6, 8), (2, 3, 4)
    ):
        blocks = -(-shape.length // block)
        parts = min(target.multiprocessors * per // groups, blocks // 2)
        if parts < 2 or groups > shape.rows or per * warps > 32:
            continue
        parts = -(-blocks // -(-blocks // parts))
        yield SharedWalks(
            x=plan.x, r=plan.r, one_row=True, parts=parts,
            configs=_config(warps, RBLOCK=block, STAGES=stages, GROUPS=groups),
        )  # fmt: skip


def _slabs(wanted: int, shape: RowShape, block: int) -> int:
    return max(1, min(wanted, -(-shape.length // block) // 2, MOST_SLABS))


# -- choosing ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def tilings(choose: Choose) -> Iterator[None]:
    """Kernels compiled in here are cut up as ``choose`` says, given what codegen would do."""

    def chosen(group: Any, buffers: Any, target: Target) -> tuple[Work, Schedule]:
        work, plan = choice(group, buffers, target)
        return work, choose(work, plan)

    with mock.patch.object(groups_to_triton, "choose", chosen):
        yield


class Collecting:
    """Chooses what codegen does, and remembers the alternatives of every kernel."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.plans: list[str] = []

    def __call__(self, work: Work, plan: Schedule) -> Schedule:
        self.names |= dict.fromkeys(alternatives(work, plan))
        self.plans.append(f"{plan.title}: {named(plan)}")
        return plan

    def some(self, most: int) -> list[str]:
        """At most so many of the alternatives, of every kind."""
        names = list(self.names)
        return names[:: -(-len(names) // most)] if names else []


def choosing(name: str) -> Choose:
    def choose(work: Work, plan: Schedule) -> Schedule:
        return alternatives(work, plan).get(name, plan)

    return choose


# -- measuring ---------------------------------------------------------------------------------------


def measure(region: Region, run: Run, machine: dict[str, Any]) -> float:
    """Compile every alternative, check it, then time all in turns; the best one's time in the default's."""
    options = {"cache": False, "interpret": run.device == "cpu"}
    sets = input_sets(lambda seed: region.arguments(run.device, seed), run.device, most=MOST_SETS)
    random = re.search(r"dropout|bernoulli|rand", "\n".join(region.code))
    calls: dict[str, Any] = {}
    reference: Any = None

    def compiled(name: str, choose: Choose) -> Any:
        contestant = compile_with(OURS, region.function(run.device), **options)
        args = copies(sets[0])
        with tilings(choose):
            results = contestant.fn(*args)
        synchronize(run.device)
        if reason := contestant.why_eager():
            run.failed(region.id, OURS, f"{name}: {reason}")
            return None
        calls[name] = in_turn([_bound(contestant.fn, args) for args in sets])
        return [_finite(each) for each in results]

    collecting = Collecting()
    reference = compiled("default", collecting)
    if reference is None:
        return 1.0
    for name in collecting.some(run.arguments.most):
        results = run.attempt(region.id, OURS, lambda name=name: compiled(name, choosing(name)))
        if results is None or random:
            continue
        error = relative_error(results, reference)
        if error > TOLERANCE:
            run.failed(region.id, OURS, f"{name}: its results are {error:.2g} off the default's")
            del calls[name]
    samples = interleaved(
        calls, run.device, budget=0.1 if run.arguments.quick else 0.4, kernels=True, min_rounds=3, warm_up=1
    )
    limit = region.bytes / machine["copy_bandwidth"] + machine["launch_floor"]
    times = {name: statistics.median(values) / limit for name, values in samples.items()}
    run.write(
        "sweep", item=region.id, what=region.what, plans=collecting.plans, limit=limit, times=times
    )  # fmt: skip
    best = sorted(times.items(), key=lambda item: item[1])[:5]
    say(
        f"{region.id} {region.what} [{'; '.join(collecting.plans)}]: default {times['default']:.2f} of "
        f"{len(times)}; " + ", ".join(f"{name} {time:.2f}" for name, time in best)
    )
    return best[0][1] / times["default"]


def _finite(result: Any) -> Any:
    """A copy to compare: what is not finite (of a region that takes roots, say) as 0."""
    if isinstance(result, torch.Tensor) and result.is_floating_point():
        return torch.nan_to_num(result, 0.0, 0.0, 0.0)
    return result.clone() if isinstance(result, torch.Tensor) else result


def _bound(fn: Any, args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: fn(*args)


def check(region: Region, run: Run) -> None:
    """Compile every alternative of a region for ``cuda:90``, without running it."""
    from region_capture import OPTIONS, graphs_of_region

    from nbcompile.compiler.compile_graph import compile_graph
    from nbcompile.record.recorder import Recorder

    options = replace(OPTIONS, cache=False)

    def compile_all(choose: Choose) -> None:
        with tilings(choose):
            for graph in graphs_of_region(region):
                compile_graph(graph, options, Recorder(options))

    collecting = Collecting()
    compile_all(collecting)
    names = collecting.some(run.arguments.most)
    failed = 0
    for name in names:
        try:
            compile_all(choosing(name))
        except Exception as error:  # each is reported, and counted
            failed += 1
            run.failed(region.id, OURS, f"{name}: {first_line(error)}")
    plans = "; ".join(collecting.plans)
    say(f"{region.id} {region.what} [{plans}]: {len(names)} alternatives, {failed} failed")


def main(argv: Sequence[str] | None = None) -> int:
    def extra(parser: Any) -> None:
        parser.add_argument("--check", action="store_true", help="compile for cuda:90, run nothing")
        parser.add_argument("--most", type=int, default=1000, help="alternatives of a region, at most")
        parser.add_argument("--regions", type=Path, default=regions.CORPUS, help="file of regions")

    run = runner.start("sweep", __doc__ or "", argv, (OURS,), extra=extra)
    most = TINY_BYTES if run.arguments.tiny else math.inf
    known = {region.id: region for region in regions.load(run.arguments.regions) if region.bytes <= most}
    if run.arguments.list:
        say("\n".join(known))
        return 0
    if run.arguments.check:
        for name in run.items(known):
            run.attempt(name, OURS, lambda name=name: check(known[name], run))
        return int(run.failures > 0)
    machine = runner.describe_machine(run)
    warm_up([OURS], run.device)
    gains: dict[str, float] = {}
    # every alternative is the same function to Dynamo
    many = torch._dynamo.config.patch(recompile_limit=100_000, accumulated_recompile_limit=100_000)
    with torch.no_grad(), many:
        for name in run.items(known):
            share = run.attempt(name, OURS, lambda name=name: measure(known[name], run, machine))
            gains |= {name: share} if share is not None else {}
    better = sorted((share, name) for name, share in gains.items() if share <= WORTH)
    say(f"\n{len(gains)} regions; of {len(better)} an alternative takes at most {WORTH} of the time:")
    for share, name in better:
        say(f"  {name} {share:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

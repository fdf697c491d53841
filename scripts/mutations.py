"""Breaks the compiler on purpose, one small change at a time, and sees that a verifier or a test refuses it.

    python scripts/mutations.py [--only NAME ...] [--jobs 2] [--out out/mutations.jsonl]

Each mutation is a copy of the tree with one text replaced, on which tests are run until one fails; what
passes them all survives, and tells of a test that is missing. Tests that fail as it is on this machine do not
count."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("nbcompile", "tests", "scripts", "pyproject.toml", "constraints.txt", "README.md")
SUITES = (  # the quickest that refuse most come first
    [
        "tests/compiler/codegen/test_overwriting.py",
        "tests/compiler/codegen/test_overwritten_then_read.py",
        "tests/compiler/fuse",
    ],
    ["tests/compiler/loop_ir", "tests/fuzz"],
    ["tests/golden"],
    ["tests/compiler/codegen"],
    ["tests/compiler/lower"],
    ["tests/compiler/capture", "tests/compiler/runtime"],
)
"""Arguments of pytest, run one after the other until a test fails."""
QUICK = 3


@dataclass(frozen=True)
class Mutation:
    """``old``, which stands once in ``file`` (below nbcompile/), becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = (
    # -- versions and whose memory a value lies in
    Mutation("a later reader is not asked about", "compiler/fuse/storage.py",
             "        if old in _named(item):\n", "        if old in _named(item) and not items:\n"),
    Mutation("what is read later still is written over", "compiler/fuse/storage.py",
             "for name in made if last[name] == place}", "for name in made}"),
    Mutation("what is returned is written over", "compiler/fuse/storage.py",
             "made |= {out.name: out for out in _made(item) if out.name not in kept}",
             "made |= {out.name: out for out in _made(item)}"),
    Mutation("a read at other points is let in", "compiler/fuse/storage.py",
             "    if any(place != written for place in places):\n", "    if not places:\n"),
    Mutation("a read by every row is let in", "compiler/fuse/storage.py",
             "    if any(axis.extent != ONE for axis in others - here):\n", "    if not others:\n"),
    Mutation("what is computed again is not followed", "compiler/fuse/alignment.py",
             "                pending.append((maker, dict(zip(maker.kept, places, strict=True)), pins))\n",
             "                pass\n"),
    Mutation("C: overwriting stores come first", "compiler/codegen/c/kernel.py",
             "ordered = sorted(stores, key=lambda item: item.last)",
             "ordered = sorted(stores, key=lambda item: not item.last)"),
    Mutation("C: a row is overwritten in the walk that makes it", "compiler/codegen/c/nests.py",
             "if self.is_full(item) and (self.top_level if item.last else self.level(item.value)) == level",
             "if self.is_full(item) and self.level(item.value) == level"),
    Mutation("C: a row's value is overwritten before the last walk", "compiler/codegen/c/rows.py",
             "        if item.last:\n            scope = nests.made",
             "        if not item:\n            scope = nests.made"),
    Mutation("C: columns are overwritten before the last walk", "compiler/codegen/c/columns.py",
             "[item for item in once.stores if not item.last]", "once.stores"),
    Mutation("Triton: walks store where they make", "compiler/codegen/triton/schedules/walked_rows.py",
             "stores = [item for item in full if (last if item.last else self.level(item.value)) == number]",
             "stores = [item for item in full if self.level(item.value) == number]"),
    Mutation("the copy at the end is left out", "compiler/fuse/storage.py",
             "        items.append(_alone(copies[-1], old))\n", ""),
    Mutation("the copy reads what it is to replace", "compiler/fuse/storage.py",
             "    body = Load(new, tuple(map(index, axes)), made.dtype)\n",
             "    body = Load(new.removesuffix('_new'), tuple(map(index, axes)), made.dtype)\n"),
    Mutation("a result shares memory that it should not", "compiler/lower/outputs.py",
             "        may = owner == storage or (saved and buffer.name not in self.returned)\n",
             "        may = True\n"),
    Mutation("a result shows an input that is overwritten", "compiler/lower/outputs.py",
             "        if buffer.name in self.builder.updates:\n            return False\n", ""),
    Mutation("what is saved loses the gaps between its rows", "compiler/lower/outputs.py",
             "made = self._copied(item, value)", "made = self.builder.copy(value)"),
    Mutation("a new value has no name for who reads it", "compiler/codegen/wrapper.py",
             "            if self._is_read(name):\n", "            if name in self.shown:\n"),
    Mutation("memory goes before its last use", "compiler/codegen/wrapper.py",
             "                last[name] = place\n", "                last.setdefault(name, place)\n"),
    Mutation("memory that is in use is handed out", "compiler/runtime/pool.py",
             "if self._use_count(storage._cdata) == 1 and storage.nbytes() == size",
             "if storage.nbytes() == size"),
    # -- fusion
    Mutation("a cycle through a third kernel is not seen", "compiler/fuse/loops_to_groups.py",
             "        return self._reaches(a, b) or self._reaches(b, a)\n", "        return False\n"),
    Mutation("a sum over the rows is read before it is whole", "compiler/fuse/legality.py",
             "            if maker.id in group.split:\n", "            if False:\n"),
    Mutation("a row's result is read at other rows", "compiler/fuse/legality.py",
             "            if not computable.at(load, binding):\n", "            if False:\n"),
    Mutation("a shifted placement counts as one to one", "compiler/fuse/alignment.py",
             "    return rest == ZERO and expected == extent\n", "    return expected == extent\n"),
    Mutation("a dependence is dropped", "compiler/fuse/dependencies.py",
             "{makers[name] for name in reads(item) if name in makers}",
             "{makers[name] for name in reads(item)[:1] if name in makers}"),
    Mutation("what only returns need is not stored", "compiler/fuse/legality.py",
             "            if out.name in self.results or not", "            if not"),
    # -- bounds and masks
    Mutation("C: a loop goes one too far", "compiler/codegen/c/kernel.py",
             'f"for (long {local} = {low}; {local} < {high}; {local}++)"',
             'f"for (long {local} = {low}; {local} <= {high}; {local}++)"'),
    Mutation("Triton: a mask is off by one", "compiler/codegen/triton/nests.py",
             'p.out.add(f"{dim.mask} = {dim.name} < {self.size(p, dim.extent)}")',
             'p.out.add(f"{dim.mask} = {dim.name} <= {self.size(p, dim.extent)}")'),
    Mutation("C: the last column of a tile is left out", "compiler/codegen/c/columns.py",
             'low, high = "0", self.width\n', 'low, high = "0", f"({self.width} - 1)"\n'),
    Mutation("a guard begins one late", "compiler/codegen/c/kernel.py",
             'f"{self.place(item, scope)} >= {self.place(low, scope)}"',
             'f"{self.place(item, scope)} > {self.place(low, scope)}"'),
    Mutation("Triton: a guard ends one late", "compiler/codegen/triton/tile_printer.py",
             'for holds, sign, bound in ((above, ">=", low), (below, "<", high)):',
             'for holds, sign, bound in ((above, ">=", low), (below, "<=", high)):'),
    Mutation("pieces of a loop are cut one off", "compiler/kernel_ir/guard_ranges.py",
             "            found.append(ceil(first))\n", "            found.append(ceil(first) + 1)\n"),
    Mutation("padding ends one early", "compiler/lower/operators/joining.py",
             "            (at, left, left + extent)\n", "            (at, left, left + extent - 1)\n"),
    Mutation("rolled the other way", "compiler/lower/operators/joining.py",
             "moved(extent - start), moved(-start))", "moved(extent - start), moved(-start + 1))"),
    Mutation("replaced by steps that start one late", "compiler/lower/operators/overwrite.py",
             "        along = floordiv(shifted, pace) - earlier\n",
             "        along = floordiv(shifted + pace - 1, pace) - earlier\n"),
    Mutation("Triton: slabs that are not there are added up",
             "compiler/codegen/triton/schedules/summed_rows.py",
             "        if count.constant is None or count.constant % slab_block:\n",
             "        if count.constant is None:\n"),
    # -- values
    Mutation("two values of other constants are one", "compiler/kernel_ir/group_to_values.py",
             'fields.get("op"), repr(literal), fields.get("buffer")',
             'fields.get("op"), fields.get("buffer")'),
    Mutation("axes are merged that are walked apart", "compiler/kernel_ir/group_to_values.py",
             "    return outer is not None and inner is not None and outer == inner * right.extent\n",
             "    return outer is not None and inner is not None\n"),
    Mutation("reductions of other kinds are one", "compiler/kernel_ir/group_to_values.py",
             "self.reduced.setdefault((kind, value.number, loop.outputs[0].dtype), output)",
             'self.reduced.setdefault(("", value.number, loop.outputs[0].dtype), output)'),
    Mutation("a half is not rounded where it is stored", "compiler/kernel_ir/group_to_values.py",
             "            value = self._op(_ROUND[dtype], (value,), target)\n", "            pass\n"),
    Mutation("a row buffer is read before it is written", "compiler/codegen/c/row_buffers.py",
             "            made_in.setdefault(number, level)\n",
             "            made_in.setdefault(number, level + 1)\n"),
    Mutation("a maximum forgets NaN", "compiler/codegen/c/helpers.py",
             "  return b != b ? a : m;\n}\"\"\"),\n    \"fmin\"", "  return m;\n}\"\"\"),\n    \"fmin\""),
    Mutation("integers are divided towards zero", "compiler/codegen/c/helpers.py",
             "  return quotient - (quotient * b != a && (a < 0) != (b < 0));\n", "  return quotient;\n"),
    Mutation("threads add to one sum at once", "compiler/codegen/c/nests.py",
             '" reduction({sign}:{\', \'.join(names)})" for sign, names in by_operator.items())',
             '" reduction({sign}:{\', \'.join(names)})" for sign, names in [*by_operator.items()][1:])'),
    Mutation("the squares are taken about nothing", "compiler/kernel_ir/group_to_values.py",
             '            deviation = self._op("sub", (value, mean), value.dtype)\n',
             "            deviation = value\n"),
    Mutation("a cached graph of other shapes is found", "compiler/runtime/graph_cache.py",
             '_described(node.meta.get("val")), ', ""),
    Mutation("what overwrites is run again when it fails", "compiler/codegen/source.py",
             "    return not (program.program.updates or program.program.become) and not any(\n",
             "    return not any(\n"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="parts of names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="not the last of the suites, which take longest")
    parser.add_argument("--passing", action="store_true", help="all tests are known to pass here as it is")
    parser.add_argument(
        "--timeout", type=float, default=900, help="seconds a suite may take; longer is refused"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutations.jsonl")
    args = parser.parse_args()
    chosen = [item for item in MUTATIONS if not args.only or any(part in item.name for part in args.only)]
    for item in chosen:
        _mutated((ROOT / "nbcompile" / item.file).read_text(), item)  # all apply, before the first is run
    args.out.parent.mkdir(exist_ok=True)
    known = frozenset() if args.passing else failing(args.jobs)
    print(
        f"{len(known)} tests fail here as it is" + "".join(f"\n  {name}" for name in sorted(known)),
        flush=True,
    )
    with ThreadPoolExecutor(args.jobs) as pool, args.out.open("w") as out:
        found = list(pool.map(lambda item: _report(item, args.timeout, known, out, args.quick), chosen))
    refused = sum(found)
    print(f"{refused} of {len(found)} mutations refused")
    sys.exit(refused < len(found))


def failing(jobs: int) -> frozenset[str]:
    """The tests that fail without any mutation."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder, ThreadPoolExecutor(jobs) as pool:
        tree = _tree(Path(folder))
        runs = list(pool.map(lambda suite: _tests(tree, suite, ["-q"], None), SUITES))
    lines = [line for run in runs for line in run.stdout.splitlines()]
    return frozenset(line.split()[1] for line in lines if line.startswith(("FAILED", "ERROR")))


def _report(item: Mutation, timeout: float, known: frozenset[str], out: TextIO, quick: bool) -> bool:
    start = time.perf_counter()
    by = refused_by(item, timeout, known, quick)
    seconds = time.perf_counter() - start
    print(
        f"{'refused' if by else 'SURVIVED':<9} {seconds:5.0f} s  {item.name}: {by or 'no test fails'}",
        flush=True,
    )
    print(json.dumps({**asdict(item), "by": by, "seconds": seconds}), file=out, flush=True)
    return bool(by)


def refused_by(item: Mutation, timeout: float, known: frozenset[str], quick: bool) -> str:
    """The first test that fails with the mutation, or what else ends the run; empty if nothing does."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = _tree(Path(folder))
        file = tree / "nbcompile" / item.file
        file.write_text(_mutated(file.read_text(), item))
        less = [f"--deselect={name}" for name in known]
        for suite in (_near(tree, item), *SUITES[: QUICK if quick else None]):
            if not suite:
                continue
            try:
                run = _tests(tree, suite, ["-xq", *less], timeout)
            except subprocess.TimeoutExpired:
                return f"{' '.join(suite)} does not end"
            if run.returncode < 0:
                return f"{' '.join(suite)} dies of signal {-run.returncode}"
            if run.returncode:
                lines = run.stdout.splitlines()
                return next(
                    (line for line in lines if line.startswith(("FAILED", "ERROR"))), run.stdout[-200:]
                )
    return ""


def _near(tree: Path, item: Mutation) -> list[str]:
    """The test files that speak of the module that is changed, smallest first."""
    module = item.file.removesuffix(".py")
    named = (module.replace("/", "."), f"test_{Path(module).name}")
    files = [path for path in (tree / "tests").rglob("test_*.py") if "notebooks" not in path.parts]
    files = [path for path in files if path.parent.name != "golden" and path.name != "test_docs.py"]
    near = [path for path in files if named[1] in path.name or named[0] in path.read_text()]
    return [str(path.relative_to(tree)) for path in sorted(near, key=lambda path: path.stat().st_size)]


def _tree(folder: Path) -> Path:
    """A copy of what tests need."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)
    return folder


def _tests(
    tree: Path, suite: Sequence[str], more: Sequence[str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "NBCOMPILE_CACHE_DIR": str(tree / "cache")}
    there = [part for part in suite if (tree / part).exists()]
    command = [sys.executable, "-m", "pytest", "--show-capture=no", "--tb=no", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *more, *there], cwd=tree, env=environment, capture_output=True, text=True, timeout=timeout,
        check=False,
    )  # fmt: skip


def _mutated(text: str, item: Mutation) -> str:
    if text.count(item.old) != 1:
        raise SystemExit(f"{item.name}: {text.count(item.old)} places in {item.file} say {item.old!r}")
    return text.replace(item.old, item.new)


if __name__ == "__main__":
    main()

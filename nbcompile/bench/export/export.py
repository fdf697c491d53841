"""``nbcompile.export``: a program saved as a file, tried in a fresh process, held against compiling it."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from nbcompile.api import compile, plain
from nbcompile.bench.export.blocked import export_error, quiet_export
from nbcompile.bench.export.fresh import Inputs, Package, Run, loader, run_fresh
from nbcompile.bench.export.program import DynamicDim, ExportedFunction
from nbcompile.bench.export.report import Check, ExportReport, contestant_of
from nbcompile.bench.measure.accuracy import check
from nbcompile.bench.measure.compare import Audience, Measuring, arguments_of, compare_with
from nbcompile.bench.measure.contestant import CompiledFunction
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step, quiet, timed
from nbcompile.errors import ExportError, OptionError, in_one_line
from nbcompile.record.compilation import Compilation
from nbcompile.record.recorder import KernelStopwatch
from nbcompile.settings import CompileSettings

_PACKAGES = ("pt2", "aoti")


def export(
    fn: Callable[..., Any],
    inputs: Any,
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Mapping[int, DynamicDim]] | None = None,
    package: Package = "pt2",
    compilers: Sequence[str] = ("nbcompile",),
    budget: float = 1.0,
    threads: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> ExportReport:
    """Export ``fn(*inputs)``, a function or module, to ``path``, and try the file in a fresh process.

    inputs:    a tuple or list of arguments, a mapping of keyword arguments, or one argument.
    kwargs:    further keyword arguments.
    dynamic:   dimensions that may have other sizes, named: ``{"x": {0: "batch"}}``, or with bounds
               ``("batch", 2, 64)``. One name is one size. All others are fixed.
    package:   ``"pt2"``: ``torch.export``'s own file, run by ATen. ``"aoti"``: code by AOTInductor (needs a
               C++ compiler), forward only. The name of both ends in ``.pt2``.
    compilers: contestants of :func:`nbcompile.compare` to hold the file against; none: no times of them.
    budget:    seconds of samples in the fresh process, and as many of the compilers together.
    threads:   of torch, in all of it (default: as it is here).

    The file's answers are compared with eager and float64 at these sizes and, with ``dynamic``, at others.
    Everything reachable from ``fn`` and ``inputs`` is afterwards what it was. Raises what ``fn`` itself
    raises, OptionError for what cannot be meant, and ExportError, with each blocking line, if it cannot be
    exported.
    """
    how = Measuring(budget=budget, threads=threads, accuracy=False)
    target = _target(path, package)
    tell = progress or (lambda text: None)
    fn = plain(fn)
    args, named = arguments_of(inputs)
    named.update(kwargs or {})
    program = ExportedFunction.of(fn, args, named, dynamic or {})
    snapshot = Snapshot({"fn": fn, "args": args, "kwargs": named})
    with torch.no_grad():
        try:
            with quiet(threads, silent=True) as used, quiet_export():
                spent = _exported(program, target, package, snapshot, tell)
        finally:
            snapshot.restore()
        tries, names = _tries(program)
        tell("running it in a fresh process…")
        run = run_fresh(target, package, tries, threads=used, budget=budget)
        checks = tuple(_check(fn, each, name, got) for each, name, got in zip(tries, names, run.outputs))
        record = _beside(program, target, package, compilers, how, progress) if compilers else None
    return _report(program, target, package, used, spent, run, checks, record)


def _target(path: str | Path, package: str) -> Path:
    if package not in _PACKAGES:
        raise OptionError(f"package {package!r} is unknown.", advice="There are pt2 and aoti.")
    target = Path(path)
    if target.suffix != ".pt2":
        raise OptionError(f"{path}: the name must end in .pt2.")
    if not target.resolve().parent.is_dir():
        raise OptionError(f"{path}: there is no such folder.")
    return target


def _exported(
    program: ExportedFunction, target: Path, package: Package, snapshot: Snapshot, tell: Callable[[str], None]
) -> tuple[float, float]:
    """Write the file; seconds to capture the program, and to write it."""
    program.fn(*program.args, **program.kwargs)  # what it raises is its own affair: it goes out first
    snapshot.restore()
    tell("exporting…")
    try:
        exporting, exported = timed(program.export)
    except Exception as error:
        snapshot.restore()
        raise export_error(program, error) from error
    snapshot.restore()
    tell("writing the file…")
    building, _ = timed(lambda: _write(exported, target, package))
    return exporting, building


def _beside(
    program: ExportedFunction,
    target: Path,
    package: Package,
    compilers: Sequence[str],
    how: Measuring,
    progress: Callable[[str], None] | None,
) -> Compilation:
    """The record of the program compiled here, timed in turns with eager and the file."""
    fn, args, named = program.fn, program.args, dict(program.kwargs)
    file = contestant_of(package)
    contestants = ("eager", file, *(name for name in compilers if name != "eager"))
    # A comparison takes arguments of one kind.
    called = fn if not (args and named) else lambda *args: fn(*args, **named)
    make = _or_loaded(called, file, lambda: loader(package)(str(target)), named if args else {})
    return compare_with(
        called, args or named, contestants, CompileSettings(), how, compile=make, audience=Audience(progress)
    )


class _Loaded:
    """A loaded file, as :func:`compare` knows a compiled function."""

    ran_compiled, eager_reason = True, None
    stopwatches: Mapping[str, KernelStopwatch] = types.MappingProxyType({})
    compilation = Compilation("exported", backend="exported")

    def __init__(self, program: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        self._program, self._kwargs = program, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program(*args, **kwargs, **self._kwargs)


def _or_loaded(
    program: Callable[..., Any], name: str, load: Callable[[], Callable[..., Any]], kwargs: Mapping[str, Any]
) -> Callable[..., CompiledFunction]:
    """What compiles for :func:`compare`: the contestant ``name`` is ``program`` as ``load`` gives it."""

    def make(fn: Callable[..., Any], *, backend: str, **settings: Any) -> CompiledFunction:
        if backend != name:
            return compile(fn, backend=backend, **settings)
        # Before a compiler's first program it is given a tiny one, for its imports: that has no file.
        return _Loaded(load(), kwargs) if fn is program else _Loaded(fn, {})

    return make


def _write(exported: torch.export.ExportedProgram, path: Path, package: Package) -> None:
    if package == "pt2":
        torch.export.save(exported, path)
        return
    from torch._inductor import aoti_compile_and_package, config

    # Precompiling headers takes longer than it saves one file: 34 s of a processor instead of 20.
    known = hasattr(config.aot_inductor, "precompile_headers")
    configs: dict[str, Any] = {"aot_inductor.precompile_headers": False} if known else {}
    try:
        aoti_compile_and_package(exported, package_path=str(path), inductor_configs=configs)
    except Exception as error:
        raise ExportError(
            f"AOTInductor cannot compile this: {in_one_line(error)}",
            advice='It needs a C++ compiler; package="pt2" needs none.',
        ) from error


def _tries(program: ExportedFunction) -> tuple[list[Inputs], list[str]]:
    """The inputs as exported and, with dynamic dimensions, at other sizes; and what these are called."""
    tries: list[Inputs] = [(program.args, dict(program.kwargs))]
    names = ["as exported"]
    if program.dims:
        args, kwargs, sizes = program.resized()
        tries.append((args, kwargs))
        names.append(", ".join(f"{name}={size}" for name, size in sizes.items()))
    return tries, names


def _check(fn: Callable[..., Any], inputs: Inputs, sizes: str, got: Any) -> Check:
    """The file's answer beside eager's and float64's."""
    if isinstance(got, Exception):
        return Check(sizes, error=str(got).strip().split("\n")[0])
    args, kwargs = inputs
    snapshot = Snapshot({"fn": fn, "args": args, "kwargs": kwargs})
    with quiet(silent=True):
        eager = Step(fn, args, kwargs)
        found = check(eager, {"exported": Step(lambda *args, **kwargs: got, args, kwargs)}, snapshot)
    # What the program changes in place is not seen from here: the file was run elsewhere.
    return Check(sizes, tuple(item for item in found if item.output.startswith("output")))


def _report(
    program: ExportedFunction,
    path: Path,
    package: Package,
    threads: int,
    spent: tuple[float, float],
    run: Run,
    checks: tuple[Check, ...],
    record: Compilation | None,
) -> ExportReport:
    leaves = _pytree.tree_leaves((program.args, dict(program.kwargs)))
    devices = {str(leaf.device) for leaf in leaves if isinstance(leaf, torch.Tensor)}
    return ExportReport(
        path=str(path),
        package=package,
        bytes=path.stat().st_size,
        dims=program.dims,
        device=", ".join(sorted(devices)) or "cpu",
        threads=threads,
        export=spent[0],
        build=spent[1],
        load=run.load,
        first=run.first,
        steady=run.steady,
        checks=checks,
        compilation=record,
    )

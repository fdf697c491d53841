"""Cold compiles: from nothing in a fresh process, or with empty caches in this one.

Two kinds of cold, and they differ. *Process-cold* (:func:`in_fresh_process`): a new Python, every
cache folder and the temporary folder empty, so that even Inductor's precompiled header is built again.
Imports are timed apart from the compile, for every backend alike. *Kernel-cold*
(:func:`fresh_caches`): this process, warm imports and toolchain, but no cache entry: what a person in
a notebook feels when a cell is new. ``Measurement.cold`` is kernel-cold; the benchmark prints both.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nbcompile.bench.measure.timing import Step, quiet, timed
from nbcompile.bench.processes import ProcessEndedError, in_process
from nbcompile.errors import MeasureError

CACHE_VARIABLES = ("NBCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")
# Modules a backend imports on its first compile: imported ahead, so that the compile is timed alone.
_IMPORTS = {
    "nbcompile": ("nbcompile.compiler.capture.function_to_fx", "nbcompile.compiler.compile_graph"),
    "inductor": ("torch._inductor.compile_fx", "torch._inductor.codegen.cpp", "torch._inductor.codecache"),
}


@contextlib.contextmanager
def fresh_caches() -> Iterator[Path]:
    """Empty cache folders for every compiler, and empty in-memory caches of Inductor's, in this
    process; the folders go away afterwards. Yields the folder that holds them.

    Inductor's precompiled header stays where it is: it lives in the temporary folder and its path is
    fixed at import. For that, use :func:`in_fresh_process`.
    """
    folder = Path(tempfile.mkdtemp(prefix="nbcompile-cold-"))
    before = {name: os.environ.get(name) for name in CACHE_VARIABLES}
    _clear_inductor()
    try:
        os.environ.update(cache_environment(folder))
        yield folder
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _clear_inductor()
        shutil.rmtree(folder, ignore_errors=True)


def cache_environment(folder: Path) -> dict[str, str]:
    """The variables that move every compiler's caches into (new) folders below ``folder``."""
    places = {name: folder / name.lower() for name in CACHE_VARIABLES}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return {name: str(place) for name, place in places.items()}


def _clear_inductor() -> None:
    # Only where Inductor is loaded: loading it takes a second. torch 2.11 to 2.15 have this hook.
    utils = sys.modules.get("torch._inductor.utils")
    clear = getattr(utils, "clear_caches", None)
    if clear is not None:
        clear()


@dataclass(frozen=True)
class ProgramSpec:
    """A program another process can build: ``factory(**arguments)`` in the Python file ``file``
    returns ``(callable, args)``."""

    file: str
    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    train: bool = False


@dataclass(frozen=True)
class ProcessTimes:
    """Seconds in one fresh process: ``imports`` of the compiler, ``compile`` up to the first result
    (``train``: up to the first gradients), ``first`` the call after it."""

    imports: float
    compile: float
    first: float
    ran_compiled: bool
    reason: str = ""


def in_fresh_process(
    program: ProgramSpec,
    backend: str,
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    threads: int | None = None,
    folder: Path | None = None,
    timeout: float = 600.0,
) -> ProcessTimes:
    """Compile ``program`` in a new Python process, with caches and temporary files below ``folder``.

    Without ``folder`` an empty one is used and removed: a cold compile. The same folder twice makes
    the second one warm. MeasureError if the process fails or takes more than ``timeout`` seconds.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="nbcompile-cold-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        temporary = folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        environment = {**cache_environment(folder), "TMPDIR": str(temporary)}
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        asked = (program, backend, dict(options) if options else None, mode, threads)
        try:
            return in_process(_times, *asked, timeout=timeout, environment=environment)
        except ProcessEndedError as error:
            raise MeasureError(f"{backend} in a fresh process: {error}") from error


def _times(
    program: ProgramSpec,
    backend: str,
    options: dict[str, Any] | None,
    mode: str | None,
    threads: int | None,
) -> ProcessTimes:
    """What the fresh process does."""
    fn, args = _load(program)
    start = time.perf_counter()
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.utils import counters

    importlib.import_module("torch._functorch.aot_autograd")
    for module in _IMPORTS.get(backend, ()):
        importlib.import_module(module)
    lookup_backend(backend)
    imports = time.perf_counter() - start
    leaves = tuple(fn.parameters()) if isinstance(fn, torch.nn.Module) else ()
    with quiet(threads):
        start = time.perf_counter()
        compiled = torch.compile(fn, backend=backend, options=options, mode=mode)
        step = Step(compiled, tuple(args), train=program.train, leaves=leaves)
        step()
        seconds = time.perf_counter() - start
        first, _ = timed(step)
    graphs = counters["stats"]["unique_graphs"]
    return ProcessTimes(imports, seconds, first, graphs > 0, "" if graphs else "no graph was captured")


def _load(program: ProgramSpec) -> tuple[Any, tuple[Any, ...]]:
    name = Path(program.file).stem
    spec = importlib.util.spec_from_file_location(name, program.file)
    if spec is None or spec.loader is None:
        raise MeasureError(f"{program.file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    fn, args = getattr(module, program.factory)(**program.arguments)
    return fn, args

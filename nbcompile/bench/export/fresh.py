"""An exported file in a fresh process: does it load, what does it give, how long does it take?

The process gets the file and inputs, not the program: nothing of its Python source can help there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nbcompile.bench.measure.timing import interleaved, quiet, timed
from nbcompile.bench.processes import ProcessEndedError, in_process
from nbcompile.errors import ExportError

Package = Literal["pt2", "aoti"]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Run:
    """What a fresh process said. Seconds, imports left out: ``load`` of the file, ``first`` call, ``steady``
    samples of a call. ``outputs``: what each of the inputs gave, or the error."""

    load: float
    first: float
    steady: tuple[float, ...]
    outputs: tuple[Any, ...]


def run_fresh(
    path: Path,
    package: Package,
    inputs: Sequence[Inputs],
    *,
    threads: int,
    budget: float,
    timeout: float = 600.0,
) -> Run:
    """Load ``path`` in a new process and call it with each of ``inputs``; the first one is timed. ExportError
    if it cannot be loaded, or the process dies or takes more than ``timeout`` seconds."""
    asked = (str(path), package, list(inputs), threads, budget)
    try:
        return in_process(_run, *asked, timeout=timeout, environment={"OMP_NUM_THREADS": str(threads)})
    except ProcessEndedError as error:
        raise ExportError(f"{path.name} in a fresh process: {error}") from error


def _run(path: str, package: Package, inputs: list[Inputs], threads: int, budget: float) -> Run:
    """What the fresh process does."""
    load = loader(package)
    torch.set_num_threads(threads)
    with torch.no_grad(), quiet(threads):
        load(path)  # what the first load imports: compiles are timed without theirs, too
        seconds, program = timed(lambda: load(path))
        args, kwargs = inputs[0]
        first, output = timed(lambda: program(*args, **kwargs))
        outputs = [output]
        for more, named in inputs[1:]:
            try:
                outputs.append(program(*more, **named))
            except Exception as error:  # told beside the size that it refused
                outputs.append(error if _plain(error) else RuntimeError(str(error)))
        steady = interleaved({"exported": lambda: program(*args, **kwargs)}, budget=budget)["exported"]
    return Run(seconds, first, steady, tuple(outputs))


def _plain(error: Exception) -> bool:
    return type(error).__module__ == "builtins"


def loader(package: Package) -> Callable[[str], Any]:
    """What loads such a file."""
    if package == "aoti":
        from torch._inductor import aoti_load_package

        return aoti_load_package
    return lambda path: torch.export.load(path).module()

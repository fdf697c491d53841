"""An exported file in a fresh process: does it load, what does it give, how long does it take?

The process gets the file and inputs, not the program: nothing of its Python source can help there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nbcompile.bench.measure.timing import interleaved, quiet, timed
from nbcompile.errors import ExportError

Package = Literal["pt2", "aoti"]
Inputs = tuple[tuple[Any, ...], dict[str, Any]]
_PACKAGE = str(Path(__file__).parents[3])  # so that the process finds this very nbcompile


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
    with tempfile.TemporaryDirectory(prefix="nbcompile-export-") as folder:
        given, out, answer = (Path(folder) / name for name in ("inputs.pt", "outputs.pt", "answer.json"))
        torch.save(list(inputs), given)
        asked = {
            "path": str(path), "package": package, "threads": threads, "budget": budget,
            "inputs": str(given), "outputs": str(out), "answer": str(answer),
        }  # fmt: skip
        paths = [_PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "nbcompile.bench.export.fresh", json.dumps(asked)]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ExportError(f"{path.name} took more than {timeout:g} s in a fresh process.") from error
        if not answer.exists():
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ExportError(f"{path.name} does not run in a fresh process: {last}")
        times = json.loads(answer.read_text())
        return Run(**{**times, "steady": tuple(times["steady"])}, outputs=tuple(_loaded(out)))


def _loaded(path: Path) -> Any:
    return torch.load(path, weights_only=False)  # written by our own process


def _answer(request: Mapping[str, Any]) -> None:
    load = loader(request["package"])
    inputs: list[Inputs] = _loaded(Path(request["inputs"]))
    torch.set_num_threads(request["threads"])
    with torch.no_grad(), quiet(request["threads"]):
        load(request["path"])  # what the first load imports: compiles are timed without theirs, too
        seconds, program = timed(lambda: load(request["path"]))
        args, kwargs = inputs[0]
        first, output = timed(lambda: program(*args, **kwargs))
        outputs = [output]
        for more, named in inputs[1:]:
            try:
                outputs.append(program(*more, **named))
            except Exception as error:  # told beside the size that it refused
                outputs.append(error if _plain(error) else RuntimeError(str(error)))
        call = {"exported": lambda: program(*args, **kwargs)}
        steady = interleaved(call, budget=request["budget"])["exported"]
    torch.save(outputs, request["outputs"])
    times = {"load": seconds, "first": first, "steady": steady}
    Path(request["answer"]).write_text(json.dumps(times))


def _plain(error: Exception) -> bool:
    return type(error).__module__ == "builtins"


def loader(package: Package) -> Callable[[str], Any]:
    """What loads such a file."""
    if package == "aoti":
        from torch._inductor import aoti_load_package

        return aoti_load_package
    return lambda path: torch.export.load(path).module()


if __name__ == "__main__":
    _answer(json.loads(sys.argv[1]))

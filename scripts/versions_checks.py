"""What ``scripts/versions.py`` runs in each environment: one JSON line a check, on stdout.

    python versions_checks.py [--no-compiler] [--notebooks FOLDER]

It imports nbcompile as it is installed there, and ``programs.py`` beside it. A check passes, fails with the
last line of what went wrong, or is left out with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BIG = ("Linear(4096)", "TransformerLayer(1024, 16)")  # the same code again, for longer
TOLERANCE = 1e-4


class Shell:
    """A plain IPython shell with the extension loaded."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        self.shell = InteractiveShell.instance()
        self.run("%load_ext nbcompile\nimport torch\ntorch.manual_seed(0)\nx = torch.randn(64, 50)")

    def run(self, cell: str) -> None:
        done = self.shell.run_cell(cell)
        done.raise_error()

    def record(self, cell: str, flags: str = "") -> Any:
        self.run(f"%%compile --no-bench {flags} --into record\n{cell}")
        return self.shell.user_ns["record"]

    def __getitem__(self, name: str) -> Any:
        return self.shell.user_ns[name]


def functions() -> str:
    """Twelve programs, forward and backward, against eager."""
    import torch

    import nbcompile
    import programs

    chosen = [program for program in programs.PROGRAMS if program.name not in BIG]
    for program in chosen:
        fn, args = program.build()
        plain, ours = copy.deepcopy((fn, args)), copy.deepcopy((fn, args))
        compiled = nbcompile.compile(ours[0])
        for what, (call, given) in {"eager": plain, "ours": (compiled, ours[1])}.items():
            with contextlib.redirect_stdout(io.StringIO()):
                result = call(*given)
            result.square().sum().backward()
            found = [result, *_gradients(plain if what == "eager" else ours)]
            if what == "eager":
                expected = found
        assert compiled.graphs_run, f"{program.name}: nothing was compiled"
        assert program.breaks or compiled.ran_compiled, f"{program.name}: {compiled.eager_reason}"
        assert len(found) == len(expected) > 1, program.name
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE)
    assert len(chosen) == 12
    return f"{len(chosen)} programs"


def _gradients(built: tuple[Any, tuple[Any, ...]]) -> list[Any]:
    fn, args = built
    leaves = [*(fn.parameters() if hasattr(fn, "parameters") else ()), *args]
    return [leaf.grad for leaf in leaves if getattr(leaf, "grad", None) is not None]


def cell() -> str:
    """``%%compile`` in a plain shell: C kernels, and every FX node with its line and columns."""
    shell = Shell()
    record = shell.record("h = torch.softmax(x, -1)\ny = h * 2 + x")
    import torch

    assert record.kernels and "c" in record.kernels[0].sources, "no C kernel"
    assert torch.allclose(shell["y"], torch.softmax(shell["x"], -1) * 2 + shell["x"], atol=1e-6)
    nodes = [n for graph in record.graphs if graph.id.endswith(".fx") for n in graph.nodes if n.spans]
    bare = [n.text for n in nodes if n.spans[-1].column is None]
    assert nodes and not bare, f"no columns: {bare or record.graphs}"
    return f"{len(record.kernels)} kernels, {len(nodes)} nodes with columns"


def limit() -> str:
    """``--recompile-limit``: the cell runs and is compiled."""
    record = Shell().record("z = x + 1", "--recompile-limit 4")
    assert record.kernels
    return ""


def interpret() -> str:
    """``--interpret``: Triton kernels on the CPU, and the same numbers."""
    shell = Shell()
    record = shell.record("y = torch.softmax(x, -1)\nz = (y + 1).relu()", "--interpret")
    import torch

    assert record.kernels and "triton" in record.kernels[0].sources, "no Triton kernel"
    assert torch.allclose(shell["z"], torch.softmax(shell["x"], -1) + 1, atol=1e-6)
    return f"{len(record.kernels)} kernels"


def edit() -> str:
    """A Triton kernel edited in the explorer, and tried."""
    shell = Shell()
    record = shell.record("z = torch.relu(x) * 2 + x.sum(-1, keepdim=True)", "--interpret")
    kernel = record.kernels[0]
    source = kernel.sources["triton"]
    answer = _ask(shell, record, "edit", kernel=kernel.id, language="triton", source=source + "\n# tried\n")
    assert answer, "no answer"
    return ""


def script() -> str:
    """The script of one Triton kernel, in a process that has no nbcompile."""
    shell = Shell()
    record = shell.record("z = torch.softmax(x, -1)", "--interpret")
    text = _ask(shell, record, "script", kernel=record.kernels[0].id)["text"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "nbcompile.py").write_text("raise ImportError('the script must not need this')")
        file = Path(folder) / "alone.py"
        file.write_text(text)
        done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "median" in done.stdout, done.stdout
    return ""


def _ask(shell: Shell, record: Any, method: str, **params: Any) -> Any:
    from nbcompile.notebook import magics

    plays = magics._loaded[id(shell.shell)].plays
    return plays.answer(method, {"record": record.id, **params}, lambda *told: None)


def limits_of_types() -> str:
    """Bounds that an integer type does not hold: what this torch's eager does with them."""
    import torch

    import nbcompile

    for clamp in (lambda x: torch.clamp_min(x, -1) + 1, lambda x: torch.clamp(x, max=300) + 1):
        x = torch.tensor([0, 3, 200], dtype=torch.uint8)
        compiled = nbcompile.compile(clamp)
        try:
            expected = clamp(x)
        except RuntimeError:
            try:
                given = compiled(x)
            except RuntimeError:
                continue
            raise AssertionError(f"eager refuses it, ours gives {given}") from None
        else:
            assert torch.equal(compiled(x), expected), (compiled(x), expected)
    return ""


def without_compiler() -> str:
    """No C compiler on the PATH: the cell runs eagerly, and a note says what to install."""
    shell = Shell()
    record = shell.record("y = torch.softmax(x, -1)")
    import torch

    assert torch.allclose(shell["y"], torch.softmax(shell["x"], -1))
    assert not record.kernels or record.notes
    said = " ".join(record.notes)
    assert "compiler" in said, f"nothing is said: {record.notes}"
    return ""


def first_cells(folder: Path) -> str:
    """The first cell of each of the project's notebooks: what a notebook imports is installed."""
    files = sorted(folder.glob("*.ipynb"))
    assert files, f"no notebooks in {folder}"
    shell = Shell()
    for file in files:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        first = next("".join(each["source"]) for each in cells if each["cell_type"] == "code")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                shell.run(first)
        except Exception as error:
            raise AssertionError(f"{file.name}: {type(error).__name__}: {error}") from error
    return f"{len(files)} notebooks"


def private_names() -> str:
    """The private names of torch and Triton that the package needs."""
    import private_names

    names = json.loads(Path("private_names.json").read_text(encoding="utf-8"))
    lacking = private_names.missing(names)
    assert names and not lacking, ", ".join(lacking)
    return f"{len(names)} names"


def checks(asked: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    if asked.no_compiler:
        yield "without a compiler", without_compiler
    else:
        yield "12 programs", functions
        yield "%%compile", cell
        yield "recompile limit", limit
        yield "integer bounds", limits_of_types
        yield "private names", private_names
    yield "--interpret", interpret
    yield "a Triton edit", edit
    yield "a Triton script", script
    if asked.notebooks and not asked.no_compiler:
        yield "notebooks begin", lambda: first_cells(asked.notebooks)


def versions() -> dict[str, str]:
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    try:
        import triton
    except ImportError:
        return found
    return {**found, "triton": triton.__version__}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--no-compiler", action="store_true", help="the PATH has none: check what is said")
    parser.add_argument("--notebooks", type=Path, help="a folder whose notebooks' first cells are run")
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    out = os.fdopen(os.dup(1), "w")  # what cells print goes elsewhere
    os.dup2(2, 1)
    print(json.dumps({"versions": versions()}), file=out, flush=True)
    for name, check in checks(asked):
        try:
            found = {"check": name, "passed": True, "said": check()}
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            told = f"{type(error).__name__}: {lines[0]}"
            if len(lines) > 1:
                told += f" ... {lines[-1]}"
            found = {"check": name, "passed": False, "said": told[:300]}
        print(json.dumps(found), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Who may import whom, and what the package needs to be imported at all."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "nbcompile"
STAGES = {"capture", "rewrite", "lower", "fuse", "kernel_ir", "schedule", "codegen", "runtime", "measure",
          "tracers", "view", "notebook", "distributed", "sweep"}  # fmt: skip
SHARED = {"stages", "compilation", "errors", "options", "loop_ir", "provenance", "environment", "recorder",
          "targets", "limits", "in_aten", "fx_values", "operators", "findings", "modes", "ranks"}  # fmt: skip
# What a package may import beyond SHARED and itself: a printer prints what a schedule makes of a kernel;
# measuring and the notebook stand above the compiler, and call it.
ALLOWED = {
    "capture": {"rewrite"},
    "schedule": {"fuse", "kernel_ir"},
    "codegen": {"kernel_ir", "schedule"},
    "measure": {"api", "backends"},
    "tracers": {"api", "capture", "measure"},
    "distributed": {"api", "capture", "measure"},
    "sweep": {"api", "backends", "measure", "view"},
    "notebook": {"api", "pipeline", "editing", "view", "measure", "capture", "backends", "distributed",
                 "exporting", "sweep"},
}  # fmt: skip
MODULES = sorted(PACKAGE.rglob("*.py"))


def _name(path: Path) -> str:
    """Dotted name within the package, e.g. ``lower.builder``; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of every import in a file, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            module = node.module or ""
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def _breaches(path: Path) -> list[str]:
    """Each import of a stage package's file that the rules forbid, as ``file:line: what``."""
    here = _name(path)
    stage = here.partition(".")[0]
    out = []
    for line, target in _imports(path):
        package, _, inner = target.partition(".")
        first = inner.partition(".")[0]
        if package != "nbcompile" or not inner or first == stage or first in SHARED:
            continue
        allowed = ALLOWED.get(stage, set())
        if stage in STAGES and not any(inner == a or inner.startswith(a + ".") for a in allowed):
            out.append(f"{path.relative_to(ROOT)}:{line}: {stage} imports {inner}")
    return out


@pytest.mark.parametrize("path", MODULES, ids=lambda path: _name(path) or "nbcompile")
def test_stage_packages_do_not_import_each_other(path: Path) -> None:
    assert _breaches(path) == []


MOST_FILES = 16
# Rooms that are still to be laid out, and how many files each may have till then; operator families are many.
LARGER = {"": 26, "lower.operators": 22, "workshop": 21, "backends.xla": 17, "view": 31, "notebook": 24}


def test_no_folder_is_a_heap() -> None:
    counted: dict[str, int] = {}
    for path in MODULES:
        if path.name != "__init__.py":
            folder = ".".join(path.parent.relative_to(PACKAGE).parts)
            counted[folder] = counted.get(folder, 0) + 1
    too_many = {name: count for name, count in counted.items() if count > LARGER.get(name, MOST_FILES)}
    assert not too_many
    assert not {name for name, most in LARGER.items() if counted[name] <= MOST_FILES}, "laid out: strike it"


def test_the_rule_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "lower").mkdir()
    bad = tmp_path / "lower" / "x.py"
    bad.write_text("def f():\n    from nbcompile.fuse.cost import weigh\n")
    assert _breaches(bad) == ["lower/x.py:2: lower imports fuse.cost.weigh"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: _name(path) or "nbcompile")
def test_only_the_notebook_package_knows_jupyter(path: Path) -> None:
    jupyter = {"IPython", "ipywidgets", "anywidget", "traitlets", "ipykernel", "jupyterlab"}
    used = {target.partition(".")[0] for _, target in _imports(path)} & jupyter
    assert not used or _name(path).startswith("notebook"), f"{path}: {used}"


@pytest.mark.parametrize(
    "name", ["view", "compilation", "provenance", "errors", "limits", "findings", "modes", "ranks"]
)
def test_a_record_is_read_without_torch(name: str) -> None:
    files = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else (PACKAGE / name).rglob("*.py")
    checked = 0
    for path in files:
        checked += 1
        for line, target in _imports(path):
            assert target.partition(".")[0] not in ("torch", "numpy", "triton"), f"{path}:{line}: {target}"
    assert checked


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )


_BLOCK = """
import sys, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.mark.parametrize(
    "missing",
    [("IPython", "ipywidgets", "traitlets", "ipykernel"), ("triton",), ("pydantic",), ("jinja2", "pygments")],
    ids=lambda names: names[0],
)
def test_the_package_imports_without(missing: tuple[str, ...]) -> None:
    run = _python(_BLOCK.format(names=missing) + "import nbcompile")
    assert run.returncode == 0, run.stderr


def test_the_package_imports_without_a_compiler() -> None:
    run = _python("import nbcompile", PATH="", NBCOMPILE_CC="/nowhere/cc")
    assert run.returncode == 0, run.stderr


def test_reading_a_record_imports_no_torch() -> None:
    code = (
        "import nbcompile.compilation as c, nbcompile.view, sys\n"
        "made = c.Compilation(id='x')\n"
        "assert c.Compilation.from_json(made.to_json()) == made\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    run = _python(_BLOCK.format(names=("torch", "IPython", "ipywidgets")) + code)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("folder", ["nbcompile", "tests", "scripts"])
def test_files_stay_short(folder: str) -> None:
    long = {}
    for path in (ROOT / folder).rglob("*.py"):
        count = len(path.read_text(encoding="utf-8").splitlines())
        if count >= 500:
            long[str(path.relative_to(ROOT))] = count
    assert not long


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in MODULES}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert (PACKAGE / "py.typed").exists()

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
# The floors, from the ground up: a module imports what stands on its own floor or below.
FLOORS = (
    ("errors", "guard_words", "near", "options", "syntax", "targets", "tf32", "units"),
    ("record",),
    ("compiler",),
    ("api", "backends", "settings"),
    ("view",),
    ("bench",),
    ("traces",),
    ("coach",),
    ("workshop", "notebook", "cli", "testing", "__main__"),
)
# Rooms of the compiler: what each may import of the others. SHARED is open to all.
ROOMS = {"capture", "rewrite", "lower", "fuse", "kernel_ir", "schedule", "codegen", "runtime",
         "linear_cross_entropy", "warm"}  # fmt: skip
SHARED = {
    "stages",
    "other_devices",
    "small_filters",
    "passes",
    "loop_ir",
    "fx_values",
    "in_aten",
    "marked",
    "rare_collections",
}
ALLOWED = {
    "capture": {"rewrite", "linear_cross_entropy"},
    "rewrite": {"linear_cross_entropy.operator"},
    "schedule": {"fuse", "kernel_ir"},
    "codegen": {"kernel_ir", "schedule", "linear_cross_entropy.operator"},
    "linear_cross_entropy": {"lower.registry", "rewrite", "runtime"},
    "warm": {"capture", "lower.registry", "runtime"},
}
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


def _floor(name: str) -> int:
    """The number of the floor that a module of the package stands on; the package itself is the roof."""
    first = name.partition(".")[0]
    return next((n for n, rooms in enumerate(FLOORS) if first in rooms), len(FLOORS))


def _breaches(path: Path) -> list[str]:
    """Each import that the rules forbid, as ``file:line: what``: of a floor above, of the same floor's other
    rooms where these do not belong together, of another room of the compiler."""
    here = _name(path)
    out = []
    for line, target in _imports(path):
        package, _, inner = target.partition(".")
        if package != "nbcompile" or not inner or not here:
            continue
        if _floor(inner) > _floor(here):
            out.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {inner}, which stands above it")
            continue
        (_, room, *_), (_, other, *_) = ([*name.split("."), ""] for name in (here, inner))
        rooms = here.startswith("compiler.") and room in ROOMS and inner.startswith("compiler.")
        if not rooms or other == room or other in SHARED:
            continue
        allowed = [f"compiler.{name}" for name in ALLOWED.get(room, ())]
        if not any(inner == name or inner.startswith(f"{name}.") for name in allowed):
            out.append(f"{path.relative_to(ROOT)}:{line}: {here} imports {inner}")
    return out


@pytest.mark.parametrize("path", MODULES, ids=lambda path: _name(path) or "nbcompile")
def test_who_imports_whom(path: Path) -> None:
    assert _breaches(path) == []


def test_every_module_stands_on_a_floor() -> None:
    names = {_name(path).partition(".")[0] for path in MODULES} - {""}
    assert names == {room for rooms in FLOORS for room in rooms}
    inside = {_name(path).split(".")[1] for path in MODULES if _name(path).startswith("compiler.")}
    assert inside > ROOMS | SHARED


MOST_FILES = 16
# Operator families and exercises are many by nature.
LARGER = {"compiler.lower.operators": 22, "workshop": 21}


def test_no_folder_is_a_heap() -> None:
    counted: dict[str, int] = {}
    for path in MODULES:
        if path.name != "__init__.py":
            folder = ".".join(path.parent.relative_to(PACKAGE).parts)
            counted[folder] = counted.get(folder, 0) + 1
    too_many = {name: count for name, count in counted.items() if count > LARGER.get(name, MOST_FILES)}
    assert not too_many
    assert not {name for name, most in LARGER.items() if counted[name] <= MOST_FILES}, "laid out: strike it"


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("compiler/lower/x.py", "def f():\n    from nbcompile.compiler.fuse.cost import weigh\n", "fuse"),
        ("record/x.py", "import typing\nif typing.TYPE_CHECKING:\n    from nbcompile import api\n", "above"),
        ("compiler/fuse/x.py", "from nbcompile.view import scene\n", "above"),
        ("options.py", "import nbcompile.record.diff\n", "above"),
    ],
)
def test_the_rule_can_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, said: str
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad = tmp_path / file
    bad.parent.mkdir(parents=True, exist_ok=True)
    bad.write_text(text)
    (breach,) = _breaches(bad)
    assert breach.startswith(file) and said in breach


@pytest.mark.parametrize("path", MODULES, ids=lambda path: _name(path) or "nbcompile")
def test_only_the_notebook_package_knows_jupyter(path: Path) -> None:
    jupyter = {"IPython", "ipywidgets", "anywidget", "traitlets", "ipykernel", "jupyterlab"}
    used = {target.partition(".")[0] for _, target in _imports(path)} & jupyter
    assert not used or _name(path).startswith("notebook"), f"{path}: {used}"


@pytest.mark.parametrize("name", ["view", "record", "traces", "errors", "units"])
def test_a_record_is_read_without_torch(name: str) -> None:
    live = {"recorder.py", "environment.py"}  # what makes a record, and what it says of this machine
    found = [PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists() else (PACKAGE / name).rglob("*.py")
    files = [path for path in found if path.name not in live]
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
        "import nbcompile.record.compilation as c, nbcompile.view, sys\n"
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

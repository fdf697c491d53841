"""The recipe for conda-forge says what pyproject.toml says, and is one that rattler-build can read."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ROOT / "conda" / "recipe.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDAS = {"torch": "pytorch"}
"""Names that conda-forge has for packages."""


def recipe() -> dict:
    return yaml.safe_load(RECIPE.read_text(encoding="utf-8"))


def bounds(lines: list[str]) -> dict[str, SpecifierSet]:
    pairs = (line.partition(" ")[::2] for line in lines)
    return {name: SpecifierSet(spec) for name, spec in pairs if not name.startswith("python") and spec}


def wanted(lines: list[str]) -> dict[str, SpecifierSet]:
    found = (Requirement(line) for line in lines)
    return {CONDAS.get(each.name, each.name): each.specifier for each in found if each.name != "nbcompile"}


def test_version_licence_and_entry_point() -> None:
    made = recipe()
    assert made["context"]["version"] == PROJECT["version"]
    assert f">={made['context']['python_min']}" == PROJECT["requires-python"]
    assert (made["about"]["license"], made["about"]["summary"]) == (
        PROJECT["license"],
        PROJECT["description"],
    )
    (entry,) = made["build"]["python"]["entry_points"]
    assert entry == f"nbcompile = {PROJECT['scripts']['nbcompile']}"
    for file in made["about"]["license_file"]:
        assert (ROOT / file).exists()


def test_what_it_runs_with() -> None:
    needs = recipe()["requirements"]
    assert bounds(needs["run"]) == wanted(PROJECT["dependencies"])
    jupyter = wanted(PROJECT["optional-dependencies"]["jupyter"])
    constraints = bounds(needs["run_constraints"])
    assert constraints == {name: jupyter[name] for name in constraints} and len(constraints) > 5
    (build,) = (line for line in needs["host"] if line.startswith("hatchling"))
    system = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert [build.replace(" ", "")] == system["requires"]


@pytest.mark.nightly
def test_rattler_build_reads_it(tmp_path: Path) -> None:
    """conda-forge's own linter is not on PyPI; the builder that its recipes are for is."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tools")], check=True)
    python = str(tmp_path / "tools" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-qq", "py-rattler-build"], check=True)
    code = (
        "import sys; from rattler_build import Stage0Recipe\n"
        "made = Stage0Recipe.from_file(sys.argv[1]).render()\n"
        "print(len(made), made[0].recipe.package.name, made[0].recipe.package.version)"
    )
    done = subprocess.run([python, "-c", code, str(RECIPE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "nbcompile", PROJECT["version"]]

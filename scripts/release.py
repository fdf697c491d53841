"""Build a release, check it, install it in a clean environment, and tag it: `make release`.

    python scripts/release.py [--out FOLDER] [--no-install] [--tag]

1. The checkout: nothing uncommitted, one version everywhere, a date in CHANGELOG.md, no such tag yet.
2. An sdist, and from it the wheel; a second wheel straight from the checkout has to be the same bytes.
3. `twine check --strict`, check-wheel-contents, validate-pyproject, at most 3 MB, third parties' notices.
4. A new environment with only Python: the wheel in it, `nbcompile --version`, a function compiled; and from
   there an SBOM (CycloneDX) of what pip installed and of the JavaScript in the wheel. ``--no-install`` leaves
   this out.
5. With ``--tag``, and only then, an annotated tag ``vVERSION``. Nothing is ever pushed or uploaded: the last
   lines say how.

What 1. asks for is only reported without ``--tag``: so one sees beforehand what is still to be done.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 3_000_000
NOTICES = "nbcompile/view/static/THIRD-PARTY.txt"
OF_LAB = "share/jupyter/labextensions/nbcompile/static/third-party-licenses.json"
PROGRAM = """
import torch, nbcompile
f = nbcompile.compile(lambda x: torch.softmax(x * 2, -1))
x = torch.randn(64, 64)
torch.testing.assert_close(f(x), torch.softmax(x * 2, -1))
assert f.compilation.kernels, "nothing was compiled"
"""


class ReleaseError(Exception):
    """What is wrong with the release."""


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """What a program printed. ReleaseError with it if the program fails."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, text=True, check=False, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command[:6]))} failed:\n{done.stdout[-4000:]}")
    return done.stdout


# -- 1. the checkout ------------------------------------------------------------------------------


def version(root: Path = ROOT) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"])


def still_to_do(root: Path = ROOT) -> Iterator[str]:
    """What a release wants of the checkout and does not find, a line each."""
    wanted = version(root)
    front_end = root / "labextension"
    said = {
        "labextension/package.json": json.loads((front_end / "package.json").read_text("utf-8"))["version"],
        "labextension/package-lock.json": json.loads((front_end / "package-lock.json").read_text("utf-8"))[
            "version"
        ],
    }
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text("utf-8"), re.M)
    said["CITATION.cff"] = cited[1] if cited else ""
    yield from (
        f"{file} says version {its}, pyproject.toml {wanted}" for file, its in said.items() if its != wanted
    )
    heading = re.search(rf"^## {re.escape(wanted)}(.*)$", (root / "CHANGELOG.md").read_text("utf-8"), re.M)
    if heading is None:
        yield f"CHANGELOG.md has no section of {wanted}"
    elif not re.fullmatch(r", \d{4}-\d\d-\d\d", heading[1]):
        yield f"CHANGELOG.md: `## {wanted}{heading[1]}` is to say the day, as in `## {wanted}, 2026-01-31`"
    if run("git", "status", "--porcelain", cwd=root).strip():
        yield "there are changes that are not committed"
    if run("git", "tag", "--list", f"v{wanted}", cwd=root).strip():
        yield f"the tag v{wanted} is there already"


# -- 2. and 3. the files --------------------------------------------------------------------------


def build(out: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, new in ``out``. ReleaseError if the checkout makes another wheel."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    hatchling = (sys.executable, "-m", "hatchling", "build")
    run(*hatchling, "-t", "sdist", "-d", out)
    (sdist,) = out.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as temporary:
        shutil.unpack_archive(sdist, temporary, filter="data")
        (unpacked,) = Path(temporary).iterdir()
        run(*hatchling, "-t", "wheel", "-d", out, cwd=unpacked)
        run(*hatchling, "-t", "wheel", "-d", Path(temporary) / "again")
        (wheel,) = out.glob("*.whl")
        if (Path(temporary) / "again" / wheel.name).read_bytes() != wheel.read_bytes():
            raise ReleaseError("the sdist makes another wheel than the checkout")
    return sdist, wheel


def check(sdist: Path, wheel: Path) -> None:
    """ReleaseError for what PyPI, pip or a lawyer would not like."""
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    run(sys.executable, "-m", "validate_pyproject", ROOT / "pyproject.toml")
    size = wheel.stat().st_size
    if size > LARGEST:
        raise ReleaseError(f"the wheel has {size:,} bytes, at most {LARGEST:,} are wanted")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (NOTICES, OF_LAB, "nbcompile/py.typed", "licenses/LICENSE"):
        if not any(name.endswith(wanted) for name in names):
            raise ReleaseError(f"the wheel has no {wanted}")


# -- 4. a clean environment -----------------------------------------------------------------------


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """The Python of a new environment with the wheel in it, and nothing else but what it asks for."""
    clean = {"PYTHONPATH": "", "NBCOMPILE_CACHE_DIR": str(folder / "cache")}  # pip counts what it sees there
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    (torch,) = re.findall(r"^torch==\S+$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, torch, **clean)  # that build of torch, and not one with CUDA's libraries
    run(*pip, f"{wheel}[{extra}]" if extra else wheel, **clean)
    said = run(folder / "bin" / "nbcompile", "--version", cwd=folder, **clean)
    if f"nbcompile {version()}," not in said:
        raise ReleaseError(f"nbcompile --version says {said}")
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    run(python, folder / "program.py", cwd=folder, **clean)
    return python


def bundled(wheel: Path) -> list[dict[str, Any]]:
    """The JavaScript packages whose code is in the wheel, as components of an SBOM."""
    archive = zipfile.ZipFile(wheel)
    found = re.findall(r"^(\S+) (\d\S*) \(([^)]+)\)", archive.read(NOTICES).decode(), re.M)
    (of_lab,) = (name for name in archive.namelist() if name.endswith(OF_LAB))
    for each in json.loads(archive.read(of_lab))["packages"]:
        if each["extractedText"]:  # the others are folders of these
            found.append((each["name"], each["versionInfo"], each["licenseId"]))
    return [
        {"type": "library", "bom-ref": f"npm:{name}@{its}", "name": name, "version": its,
         "purl": f"pkg:npm/{name.replace('@', '%40')}@{its}", "licenses": [{"license": {"id": licence}}]}
        for name, its, licence in sorted(set(found))
    ]  # fmt: skip


def bill_of_materials(python: Path, wheel: Path, file: Path) -> int:
    """Write a CycloneDX document; the number of its components. ReleaseError if it is not a valid one."""
    tool = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON")
    run(*tool, "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "-o", file, python)
    document = json.loads(file.read_text("utf-8"))
    document["metadata"]["component"]["components"] = bundled(wheel)
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if problem := _invalid(text):
        raise ReleaseError(f"the SBOM is not valid CycloneDX: {problem}")
    file.write_text(text, encoding="utf-8")
    return len(document["components"]) + len(document["metadata"]["component"]["components"])


def _invalid(text: str) -> Any:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    given = SchemaVersion.from_version(json.loads(text)["specVersion"])
    return JsonStrictValidator(given).validate_str(text)


# -- all of it --------------------------------------------------------------------------------------


def _step(what: str, begun: float) -> None:
    print(f"{time.monotonic() - begun:6.1f} s  {what}", flush=True)


def release(out: Path, installed: bool, tag: bool) -> None:
    begun, number = time.monotonic(), version()
    missing = list(still_to_do())
    if missing and tag:
        raise ReleaseError("not to be tagged:\n  " + "\n  ".join(missing))
    for each in missing:
        print(f"  before it is tagged: {each}")
    sdist, wheel = build(out)
    _step(f"{sdist.name} {sdist.stat().st_size:,} bytes, {wheel.name} {wheel.stat().st_size:,} bytes", begun)
    check(sdist, wheel)
    _step("checked", begun)
    if installed:
        with tempfile.TemporaryDirectory(prefix="nbcompile-release-") as temporary:
            python = install(wheel, Path(temporary) / "environment")
            _step("installed in a new environment, a function compiled there", begun)
            count = bill_of_materials(python, wheel, out / f"nbcompile-{number}.cdx.json")
            _step(f"SBOM of {count} components", begun)
    if tag:
        run("git", "tag", "-a", f"v{number}", "-m", f"nbcompile {number}")
    done = "is" if tag else "would be"
    print(f"v{number} {done} tagged. What is left to you, nothing of it was done:")
    print(f"  git push origin v{number} && twine upload {sdist} {wheel}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="emptied first (default: dist)")
    parser.add_argument("--no-install", action="store_true", help="no clean environment, and no SBOM")
    parser.add_argument("--tag", action="store_true", help="make the tag")
    asked: argparse.Namespace = parser.parse_args()
    try:
        release(asked.out.resolve(), not asked.no_install, asked.tag)
    except ReleaseError as error:
        print(f"No release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

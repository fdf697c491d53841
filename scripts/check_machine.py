"""Say in one line what this machine lacks, before anything long is started.

    python scripts/check_machine.py [--browser]

Runs with any Python 3 and nothing installed. Ends with status 1 if the package cannot be installed; a
missing C compiler is only a warning, because cells then still run, eagerly. With ``--browser``, Chromium is
looked for as well, and installed where apt-get may be used; status 1 if there is none afterwards.
"""

import os
import shlex
import shutil
import subprocess
import sys

MINIMUM = (3, 11)


def missing():
    """What prevents an install, one line; an empty string if nothing does."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < MINIMUM:
        return f"Python {version} is too old: 3.11 is needed. Name a newer one: `make PYTHON=python3.12`."
    try:
        import ensurepip  # noqa: F401  (Debian packages it apart)
        import venv  # noqa: F401
    except ImportError:
        name = f"python3.{sys.version_info[1]}-venv"
        return f"This Python cannot make a virtual environment. Install it: `apt install {name}`."
    return ""


def compiler():
    """The first line of the C compiler's --version; an empty string if there is none that runs."""
    for name in (os.environ.get("NBCOMPILE_CC", ""), os.environ.get("CC", ""), "gcc", "cc", "clang"):
        command = shlex.split(name)
        if command and shutil.which(command[0]):
            run = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
            if run.returncode == 0 and run.stdout:
                return run.stdout.splitlines()[0]
    return ""


INSTALL_CHROMIUM = (
    "Install Chromium, which the browser tests drive: `apt-get install chromium` (Debian, Ubuntu), "
    "`dnf install chromium` (Fedora), `brew install --cask chromium` (macOS), or "
    "`playwright install chromium`."
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium():
    """Path of the first browser that runs; an empty string if there is none on the PATH."""
    for name in BROWSERS:
        path = shutil.which(name)
        # Ubuntu's chromium-browser without snap is a script that only says so.
        if path and run_quietly([path, "--version"]):
            return path
    return ""


def playwrights_own():
    """Whether Playwright has fetched a browser of its own."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return False
    with sync_playwright() as playwright:
        return os.path.exists(playwright.chromium.executable_path)


def install_chromium():
    """By the system's packages, where that is allowed: as root of a Debian or an Ubuntu."""
    if not shutil.which("apt-get") or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    print("Installing Chromium for the browser tests (apt-get)", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", *command], env=quiet, stdout=subprocess.DEVNULL, check=False)


def run_quietly(command):
    """Whether a command runs and ends well."""
    try:
        run = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0


def check_browser():
    """The status to end with: 0 if there is a Chromium, found or installed just now."""
    if not chromium() and not playwrights_own():
        install_chromium()
        if not chromium():
            print(INSTALL_CHROMIUM, file=sys.stderr)
            return 1
    return 0


def main():
    problem = missing()
    if problem:
        print(problem, file=sys.stderr)
        return 1
    found = compiler()
    if found:
        print(f"C compiler: {found}")
    else:
        print(
            "No C compiler: cells will run eagerly. Install one: `apt install gcc libc6-dev` "
            "(Debian, Ubuntu), `dnf install gcc` (Fedora), "
            "`xcode-select --install` (macOS), or `pip install ziglang`.",
            file=sys.stderr,
        )
    return check_browser() if "--browser" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())

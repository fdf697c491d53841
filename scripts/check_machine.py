"""Say in one line what this machine lacks, before anything long is started.

Runs with any Python 3 and nothing installed. Ends with status 1 if the package cannot be installed; a
missing C compiler is only a warning, because cells then still run, eagerly.
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
    return 0


if __name__ == "__main__":
    sys.exit(main())

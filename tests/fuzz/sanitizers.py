"""The C compiler of the kernels, with other flags than the package's own: through a small command that adds
them.

Sanitizers: a kernel built with AddressSanitizer needs its run time in the process first (LD_PRELOAD), where
it also takes over malloc; so tensors, which torch allocates by posix_memalign, have red zones around them,
and a kernel that reaches beyond its tensor's memory ends the process with a report.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def environment(folder: Path, compiler: str, level: str, sanitize: str) -> dict[str, str]:
    """Variables that make a process build its kernels so; nothing where nothing is asked for."""
    if not (compiler or level or sanitize):
        return {}
    command = shutil.which(compiler or "gcc")
    if command is None:
        raise SystemExit(f"there is no {compiler or 'gcc'} here")
    flags = [f"-{level.lstrip('-')}"] if level else []
    found: dict[str, str] = {}
    if sanitize:
        flags += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", "-g", "-fno-omit-frame-pointer"]
        # Kernels wrap on purpose (-fwrapv), and load vectors from any address that holds a number.
        flags += ["-fno-sanitize=signed-integer-overflow"] if "undefined" in sanitize else []
        libraries = [_library(command, name) for name in _runtimes(command, sanitize)]
        found["LD_PRELOAD"] = " ".join(libraries)
        found["ASAN_OPTIONS"] = (
            "detect_leaks=0:handle_segv=0:allocator_may_return_null=1:verify_asan_link_order=0"
        )
        found["UBSAN_OPTIONS"] = "print_stacktrace=1"
        if "clang" in compiler and "address" in sanitize:
            flags.append("-shared-libasan")
    script = folder / ("fuzz-clang" if "clang" in command else "fuzz-gcc")
    script.write_text(f'#!/bin/sh\nexec {command} "$@" {" ".join(flags)}\n')
    script.chmod(0o755)
    found["NBCOMPILE_CC"] = str(script)
    return found


def _runtimes(command: str, sanitize: str) -> list[str]:
    if "clang" in command:
        return ["libclang_rt.asan-x86_64.so"] if "address" in sanitize else []
    return [
        name for kind, name in (("address", "libasan.so"), ("undefined", "libubsan.so")) if kind in sanitize
    ]


def _library(command: str, name: str) -> str:
    run = subprocess.run([command, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return str(Path(run.stdout.strip()).resolve())

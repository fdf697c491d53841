"""The C compiler of this machine: which one, with which flags, and how to run it.

Nothing here runs at import. :func:`find_toolchain` looks once a process (a few milliseconds: one
``cc --version``, one line of ``/proc/cpuinfo``, some ``dlsym``) and returns a frozen
:class:`Toolchain`. Searched in this order: the environment variables ``NBCOMPILE_CC`` and ``CC``, then
``gcc``, ``cc``, ``clang`` on the path, then the ``ziglang`` package of this Python.

Kernels are header-free C, so a compiler and a linker are enough. Import torch before a kernel is
loaded: torch ships ``libgomp.so.1`` under its standard name, so a kernel built with ``-fopenmp`` binds
to that copy, shares its threads, and obeys ``torch.set_num_threads``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nbcompile.compiler.runtime import scratch
from nbcompile.compiler.runtime.c.if_conversion import needed_flags
from nbcompile.compiler.runtime.c.one_result import widest, with_one_result
from nbcompile.errors import OUR_BUG, ToolchainError

TIMEOUT = 180.0
"""Seconds one compiler run may take."""

INSTALL_ADVICE = (
    "Install one: `apt install gcc libc6-dev` (Debian, Ubuntu), `dnf install gcc` (Fedora), "
    "`xcode-select --install` (macOS), `conda install c-compiler`, or `pip install ziglang`; "
    "or name one in NBCOMPILE_CC."
)

# Never -ffast-math: it makes NaN and infinity undefined. The next two only drop errno and traps. A product
# and a sum stay two instructions: made one in this loop and not in that, a value computed twice is two
# numbers, and a minimum is not found among the values that it was taken of.
_COMMON = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fPIC", "-shared")
_NO_HALF_ARITHMETIC = "-mno-avx512fp16"
"""gcc 12 moves halves by instructions that its assembler does not know (a vmovsh to memory that zeroes). Ours
compute in float: all they need is conversions, which AVX-512 has without."""

_GATHERS = "-mtune-ctrl=use_gather"
"""gcc tunes code for a processor that it does not know as for any: without instructions that gather. On
Intel's of 2023 on, known by their arithmetic of halves, they are 1.5 times as fast as plain code."""

_NO_DOMINATORS = "-fno-tree-dominator-opts"
"""gcc 13.3 loses ``j >= n - 2 && j <= n - 2`` in a vectorized loop beside a clamp to what depends on ``n``
(the gradient of a reflecting pad): that pass takes it for never true, at -O2 and on any processor. 12.2 does
not; of later ones nobody here knows."""

_UNARY = (
    *("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "cbrt", "erf", "erfc"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
_BINARY = ("atan2", "hypot", "pow")


@dataclass(frozen=True)
class Toolchain:
    """A C compiler that works here, and the flags our kernels are built with.

    command:     the compiler as an argument list, e.g. ``("/usr/bin/gcc",)``.
    version:     first line of its ``--version``.
    kind:        ``"gcc"`` honours ``__attribute__((simd))``; ``"clang"`` ignores it and has -fveclib.
    flags:       compile flags.   libraries: linker flags that follow the source.
    openmp:      whether ``#pragma omp parallel`` makes threads; without it kernels run serially.
    vector_math: C functions (``"expf"``, ``"pow"``) of which the C library has a SIMD version in every
                 width the compiler may pick, so that declaring them ``simd`` links.
    widest:      the letter of the widest of these versions (``"d"`` is AVX2's), which the others are sent
                 to; empty: each is its own.
    processor:   identifies the instruction set that ``-march=native`` stood for, so that a cache on a
                 shared home never hands one machine another's binary.
    """

    command: tuple[str, ...]
    version: str
    kind: Literal["gcc", "clang"]
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    openmp: bool
    vector_math: frozenset[str]
    processor: str
    widest: str = ""

    @property
    def fingerprint(self) -> tuple[str, ...]:
        """Everything about the toolchain that can change a binary: a part of every cache key."""
        return (*self.command, self.version, self.processor, *self.flags, *self.libraries)

    def compile(
        self, source: str, out: Path, extra: Sequence[str] = (), *, timeout: float = TIMEOUT
    ) -> tuple[str, ...]:
        """Compile C text to the shared library ``out``, which appears whole or not at all.

        ``timeout`` is in seconds. Returns the flags without which this compiler makes wrong code of that
        text: it was built with them. Raises ToolchainError with the compiler's first error line if the
        compiler refuses, takes too long, has gone, or cannot write ``out``.
        """
        text = with_one_result(source, self.widest)
        arguments = [*self.flags, *extra, "-x", "c", "-"]
        if self.kind != "gcc":
            self._make(out, arguments, text, timeout)
            return ()
        with scratch.temporary() as folder:
            dump = folder / "ifcvt"
            self._make(out, [*arguments, f"-fdump-tree-ifcvt={dump}"], text, timeout)
            needed = needed_flags(dump.read_text(errors="replace")) if dump.exists() else ()
        if needed:
            self._make(out, [*arguments, *needed], text, timeout)
        return needed

    def link(self, objects: Sequence[Path], out: Path, *, timeout: float = TIMEOUT) -> None:
        """Link object files (made by :meth:`compile` with ``-c``) to the shared library ``out``; raises
        as :meth:`compile` does."""
        self._make(out, [*self.flags, *map(str, objects)], "", timeout)

    def _make(self, out: Path, arguments: Sequence[str], source: str, timeout: float) -> None:
        try:
            handle, name = tempfile.mkstemp(prefix=out.name + ".", dir=out.parent)
        except OSError as error:
            raise ToolchainError(
                f"cannot write {out}: {error.strerror or error}.",
                advice="Set NBCOMPILE_CACHE_DIR to a folder that can be written.",
            ) from error
        os.close(handle)
        partial = Path(name)
        command = [*self.command, *arguments, "-o", name, *self.libraries]
        try:
            run = _run(command, timeout=timeout, text=source, folder=out.parent)
            if _killed(run):  # by somebody, or for want of memory: it may be there again
                run = _run(command, timeout=timeout, text=source, folder=out.parent)
            if killed := _killed(run):
                raise ToolchainError(
                    f"{self.command[0]} was ended by a signal ({killed}), twice.",
                    advice="The machine may be short of memory; call again when there is more.",
                )
            if run.returncode != 0:
                line = first_error(run.stderr)
                refused = ToolchainError(f"{self.command[0]}: {line}.", advice=_advice_for(line))
                if re.search(r"\berror\b", run.stderr, re.IGNORECASE):  # else it says nothing of the text
                    refused.output = run.stderr
                raise refused
            partial.chmod(0o755)  # mkstemp's 0600 would hide a shared cache from its other readers
            os.replace(partial, out)
        except OSError as error:
            raise ToolchainError(f"cannot make {out}: {error.strerror or error}.") from error
        finally:
            partial.unlink(missing_ok=True)


def find_toolchain() -> Toolchain:
    """The C compiler to use. Raises ToolchainError, with what to install, if there is none.

    A success is remembered for the process and the current PATH, NBCOMPILE_CC and CC; a failure is
    not, so a compiler installed meanwhile is found.
    """
    chosen = os.environ.get("NBCOMPILE_CC", "")
    return _find(chosen, os.environ.get("CC", ""), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, cc: str, path: str) -> Toolchain:
    for command in _candidates(chosen, cc, path):
        version = _version(command)
        if version is not None:
            kind: Literal["gcc", "clang"] = "clang" if "clang" in version.lower() else "gcc"
            return _describe(command, version.splitlines()[0], kind)
    if chosen:
        raise ToolchainError(
            f"NBCOMPILE_CC={chosen} is no C compiler that runs here.",
            advice="Unset it, or name gcc or clang.",
        )
    raise ToolchainError("no C compiler was found.", advice=INSTALL_ADVICE)


def _candidates(chosen: str, cc: str, path: str) -> Iterable[tuple[str, ...]]:
    named = [chosen] if chosen else [cc, "gcc", "cc", "clang"]
    for words in (_words(name) for name in named):
        if words and (program := shutil.which(words[0], path=path)):
            yield (program, *words[1:])
    if not chosen and importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _words(name: str) -> list[str]:
    try:
        return shlex.split(name)  # CC may carry arguments, as in "ccache gcc"
    except ValueError:  # an open quote: not a command
        return []


def _version(command: tuple[str, ...]) -> str | None:
    """What ``--version`` says, or None unless this is a gcc or a clang that runs."""
    try:
        run = _run([*command, "--version"], timeout=30.0)
    except (OSError, ToolchainError):
        return None
    known = "clang" in run.stdout.lower() or "Free Software Foundation" in run.stdout
    return run.stdout if run.returncode == 0 and known else None


def _describe(command: tuple[str, ...], version: str, kind: Literal["gcc", "clang"]) -> Toolchain:
    machine = platform.machine()
    features = _cpu_features()
    flags = [*_COMMON, "-mcpu=native" if machine in ("arm64", "aarch64") else "-march=native"]
    avx512 = "avx512f" in features
    if avx512:
        flags.append("-mprefer-vector-width=512")
    if kind == "gcc" and "avx512_fp16" in features and _takes(command, _NO_HALF_ARITHMETIC):
        flags.append(_NO_HALF_ARITHMETIC)
    if kind == "gcc" and "avx512_fp16" in features and _gathers_fast() and _takes(command, _GATHERS):
        flags.append(_GATHERS)
    if kind == "gcc" and _generation(version) >= 13:
        flags.append(_NO_DOMINATORS)
    vector_math = frozenset[str]()
    if sys.platform == "linux":
        # A compiler with its own, older C library (conda's) must not be told of newer functions.
        linked = _run([*command, "-print-file-name=libmvec.so"], timeout=30.0).stdout.strip()
        if "/" in linked:  # with no such file, the compiler prints the bare name back
            vector_math = vector_functions(linked, machine, avx512) & vector_functions(
                "libmvec.so.1", machine, avx512
            )
    libraries = ["-lmvec"] if vector_math else []
    libraries.append("-lm")
    if kind == "clang" and vector_math and machine == "x86_64":
        flags.append("-fveclib=libmvec")
    if kind == "gcc" and vector_math:
        # Else the sine and the cosine of one value become one call of sincosf, which has no vector form.
        flags += ["-fno-builtin-sin", "-fno-builtin-sinf"]
    openmp = _has_openmp(command, kind)
    if openmp:
        flags.append("-fopenmp")
    return Toolchain(
        command=command,
        version=version,
        kind=kind,
        flags=tuple(flags),
        libraries=tuple(libraries),
        openmp=openmp,
        vector_math=vector_math,
        processor=_processor(machine, features),
        widest=widest(machine, features) if vector_math else "",
    )


def _generation(version: str) -> int:
    """The first number of gcc's version, behind who built it (in parentheses, with numbers of its own); a
    large one where that is not said."""
    found = re.search(r"\) (\d+)\.", version)
    return int(found[1]) if found else 1 << 16


def _gathers_fast() -> bool:
    """Whether a gathering instruction is one: against the fault that Linux calls gather_data_sampling some
    processors take its elements one by one, and more slowly than plain code does."""
    try:
        known = Path("/sys/devices/system/cpu/vulnerabilities/gather_data_sampling")
        return known.read_text(encoding="utf-8").startswith("Not affected")
    except OSError:
        return False


def _takes(command: tuple[str, ...], flag: str) -> bool:
    """Whether the compiler knows a flag."""
    try:
        return _run([*command, flag, "-E", "-x", "c", "-"], timeout=30.0).returncode == 0
    except ToolchainError:
        return False


def _has_openmp(command: tuple[str, ...], kind: Literal["gcc", "clang"]) -> bool:
    """gcc has OpenMP if it finds its libgomp.spec (asking takes 2 ms); of clang only a trial tells."""
    if kind == "gcc":
        run = _run([*command, "-print-file-name=libgomp.spec"], timeout=30.0)
        return "/" in run.stdout
    with scratch.temporary() as folder:
        trial = "int omp_get_max_threads(void);\nint trial(void) { return omp_get_max_threads(); }\n"
        out = str(folder / "trial.so")
        command_line = [
            *command,
            "-fPIC",
            "-shared",
            "-fopenmp",
            "-Wl,--no-undefined",
            "-x",
            "c",
            "-",
            "-o",
            out,
        ]
        try:
            return _run(command_line, timeout=60.0, text=trial).returncode == 0
        except ToolchainError:
            return False


@functools.lru_cache(maxsize=8)
def vector_functions(library_name: str, machine: str, avx512: bool) -> frozenset[str]:
    """Names of libm functions that this libmvec has in each SIMD width used on ``machine``."""
    # Vector ABI: _ZGV<isa>N<lanes><one v per argument>_<name>; b, d, e are SSE, AVX2, AVX-512, n is NEON.
    lanes = {"x86_64": [("b", 4), ("d", 8)], "aarch64": [("n", 4)]}.get(machine, [])
    if machine == "x86_64" and avx512:
        lanes = [*lanes, ("e", 16)]
    if not lanes:
        return frozenset()
    try:
        library = ctypes.CDLL(library_name)
    except OSError:  # not glibc, one older than 2.22, or another machine's
        return frozenset()
    found = set()
    for name in (*_UNARY, *_BINARY):
        arguments = "vv" if name in _BINARY else "v"
        for suffix, divide in (("f", 1), ("", 2)):
            symbols = (f"_ZGV{isa}N{count // divide}{arguments}_{name}{suffix}" for isa, count in lanes)
            if all(hasattr(library, symbol) for symbol in symbols):
                found.add(name + suffix)
    return frozenset(found)


@functools.lru_cache(maxsize=1)
def _cpu_features() -> frozenset[str]:
    """Instruction-set flags of the first processor as Linux names them; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:  # the first processor is enough: reading all takes long on big machines
                label, _, value = line.partition(":")
                if label.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        return frozenset()
    return frozenset()


def _processor(machine: str, features: frozenset[str]) -> str:
    told = " ".join(sorted(features)) or platform.processor()
    return f"{machine}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _run(
    command: Sequence[str], *, timeout: float, text: str = "", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler, its temporary files in ``folder``. It is in a group of its own: an interrupt of the
    session (Ctrl-C and the stop button reach every process of its group) is not the compiler's, and one that
    takes too long ends with all that it has started."""
    environment = {**os.environ, "LC_ALL": "C"}  # messages in English, for first_error
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", env=environment, process_group=0 if os.name == "posix" else None,
    )  # fmt: skip
    try:
        out, errors = process.communicate(text, timeout)
    except BaseException as error:
        _end(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise ToolchainError(
            f"{command[0]} took longer than {timeout:.0f} s.",
            advice="Try again, or name another in NBCOMPILE_CC.",
        ) from error
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """End a compiler and what it has started."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # of what could not be sent any more
                stream.close()


def _killed(run: subprocess.CompletedProcess[str]) -> str:
    """The signal that ended a compiler or what it started, which says nothing of the text; empty if none."""
    if run.returncode < 0:
        return signal.Signals(-run.returncode).name
    found = re.search(r"\b(\w{1,20}) signal terminated program", run.stderr)
    return found[1] if found else ""


def first_error(messages: str) -> str:
    """The line of a compiler's messages that says what is wrong."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    lines = [
        line for line in lines if "ld returned" not in line
    ] or lines  # the linker's own line is above it
    for mark in ("error:", "cannot find", "undefined reference", "fatal"):
        for line in lines:
            if mark in line:
                return line.rstrip(".")
    return lines[0].rstrip(".") if lines else "failed without a message"


def _advice_for(line: str) -> str:
    if any(
        word in line for word in ("cannot find -l", "crti.o", "cannot find libc", "unable to find library")
    ):
        return "The C library's development files are missing: `apt install libc6-dev` (Debian, Ubuntu)."
    if any(word in line for word in ("cannot execute", "cc1", "`ld'")):
        return "The compiler is not wholly installed. " + INSTALL_ADVICE
    if "No space left" in line:
        return "The disk is full: free some, or set TMPDIR."
    return OUR_BUG

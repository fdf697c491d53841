"""Triton itself, and what is read off the binaries that it makes: registers, spills, disassembly.

The only place that imports Triton. It is a package of its own, so everything here says what to install
where it is missing.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbcompile.errors import ToolchainError
from nbcompile.targets import Target

ADVICE = "`pip install triton` (Linux only; 3.6 or newer); it needs no GPU."
DISASSEMBLE_SECONDS = 60.0

_REGISTERS, _FRAME_SIZE = 0x2F, 0x11  # attributes of a cubin's .nv.info section
_PAIR = 4  # the form of an attribute that has a payload


@dataclass(frozen=True)
class Resources:
    """What one compiled function takes of a chip: 32-bit registers and bytes of spills, each a thread."""

    registers: int | None = None
    spill_bytes: int | None = None


def triton_module(name: str = "triton") -> Any:
    """The module ``name`` of Triton. ToolchainError, with what to install, where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if not is_installed():
            raise ToolchainError("Triton is not installed.", advice=ADVICE) from error
        raise ToolchainError(
            f"Triton has no {name}, or it cannot be loaded: {error}.", advice=ADVICE
        ) from error


def is_installed() -> bool:
    """Whether Triton is there; it is not imported."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def triton_version() -> str:
    """Triton's version, without importing it where its metadata tells."""
    for distribution in ("triton", "pytorch-triton", "pytorch-triton-rocm"):
        try:
            return f"{distribution} {importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(triton_module().__version__)


def gpu_target(target: Target) -> Any:
    """Triton's own value for a chip. ToolchainError for one that is no GPU."""
    if not target.is_gpu:
        raise ToolchainError(f"Triton makes no code for {target.name}.", advice="Name a chip, e.g. cuda:90.")
    compiler = triton_module("triton.backends.compiler")
    arch = int(target.arch) if target.kind == "cuda" else target.arch
    return compiler.GPUTarget(target.kind, arch, target.warp)


def cubin_resources(cubin: bytes) -> Resources:
    """Registers and stack bytes of a cubin's one function, read from its ELF sections; unknown where
    they are not as expected. Triton's functions have no other use of a stack than spills."""
    registers: int | None = None
    frame: int | None = None
    try:
        for name, start, size in _sections(cubin):
            if name != ".nv.info":
                continue
            at, end = start, start + size
            while at + 4 <= end:
                form, attribute, value = struct.unpack_from("<BBH", cubin, at)
                at += 4
                if form != _PAIR:
                    continue
                if attribute == _REGISTERS:
                    registers = max(registers or 0, struct.unpack_from("<II", cubin, at)[1])
                elif attribute == _FRAME_SIZE:
                    frame = max(frame or 0, struct.unpack_from("<II", cubin, at)[1])
                at += value
    except (struct.error, ValueError, IndexError):
        return Resources()
    return Resources(registers, frame)


def _sections(elf: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, offset, bytes) of each section of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    width, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * width) for n in range(count)]
    names = headers[names_at][4]
    for header in headers:
        begin = names + header[0]
        yield elf[begin : elf.index(b"\0", begin)].decode("ascii"), header[4], header[5]


def amdgcn_resources(text: str) -> Resources:
    """Vector registers and scratch bytes of the one kernel in AMD assembly, from its metadata."""

    def number(label: str) -> int | None:
        found = re.search(rf"^\s*\.{label}:\s*(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else None

    return Resources(number("vgpr_count"), number("private_segment_fixed_size"))


def find_disassembler() -> str | None:
    """``nvdisasm``: that of Triton, of a CUDA toolkit, or on the path; None if there is none."""
    spec = importlib.util.find_spec("triton")
    places = (
        [Path(folder) / "backends/nvidia/bin" for folder in (spec.submodule_search_locations or ())]
        if spec
        else []
    )
    places += [Path(os.environ[name]) / "bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for place in (*places, Path("/usr/local/cuda/bin")):
        if os.access(place / "nvdisasm", os.X_OK):
            return str(place / "nvdisasm")
    return shutil.which("nvdisasm")


def sass(cubin: bytes, symbol: str) -> str:
    """The machine code of one function as text, with ``//## File "...", line N`` above what was made for
    a source line; empty where no disassembler is found or it refuses the file. Takes 0.02 to 0.5 s."""
    tool = find_disassembler()
    if tool is None:
        return ""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            run = subprocess.run(
                [tool, "-c", "-g", file.name],
                capture_output=True,
                text=True,
                timeout=DISASSEMBLE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    if run.returncode != 0:
        return ""
    lines = run.stdout.splitlines()
    starts = [n for n, line in enumerate(lines) if line.strip() == f"{symbol}:"]
    body = lines[starts[0] :] if starts else lines
    ends = [n for n, line in enumerate(body) if n and line.startswith("//-----")]
    return "\n".join(body[: ends[0]] if ends else body).rstrip() + "\n"

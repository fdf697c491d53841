"""The chips that code is made for: what a schedule must know of them, and their published rates.

A target is named as Triton names it: ``cpu``, ``cuda:90`` (compute capability 9.0), ``hip:gfx942``.
Rates are those of the vendor's datasheet for the part named; a measured ceiling replaces them where
there is a device (see :mod:`nbcompile.bench.measure.roofline`).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Literal

from nbcompile.errors import OptionError


@dataclass(frozen=True)
class Target:
    """One chip. Bytes per second, operations per second (a fused multiply-add counts as two)."""

    kind: Literal["cpu", "cuda", "hip"]
    arch: str = ""
    part: str = ""  # the product that the numbers are of
    warp: int = 32
    multiprocessors: int = 1  # of a CPU the threads that a kernel runs with
    registers: int = 65_536  # 32-bit, a multiprocessor
    shared_bytes: int = 0  # the most that one program may have
    l2_bytes: int = 0
    bandwidth: float = 0.0
    float32_rate: float = 0.0
    matrix_rate: float = 0.0  # dense bf16

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.arch}" if self.arch else self.kind

    @property
    def is_gpu(self) -> bool:
        return self.kind != "cpu"

    @property
    def launches_early(self) -> bool:
        """Whether a kernel can be launched while the one before it still runs, and wait for its end itself
        (CUDA's programmatic dependent launch)."""
        return self.kind == "cuda" and int(self.arch) >= 90


CPU = Target("cpu")


def _chip(
    name: str, part: str, multiprocessors: int, shared_kb: int, l2_mb: int, tb_s: float, float32: float,
    matrix: float,
) -> Target:  # fmt: skip
    """A row of the table: kB a program, MB, TB/s, Tera-operations/s of float32 and of dense bf16."""
    kind, _, arch = name.partition(":")
    amd = kind == "hip"
    return Target(
        "hip" if amd else "cuda", arch, part, 64 if amd else 32, multiprocessors, 131_072 if amd else 65_536,
        shared_kb << 10, l2_mb << 20, tb_s * 1e12, float32 * 1e12, matrix * 1e12,
    )  # fmt: skip


CHIPS = {
    target.name: target
    for target in (
        _chip("cuda:80", "NVIDIA A100 80GB", 108, 163, 40, 2.039, 19.5, 312),
        _chip("cuda:86", "NVIDIA A10", 72, 99, 6, 0.6, 31.2, 125),
        _chip("cuda:89", "NVIDIA RTX 4090", 128, 99, 72, 1.008, 82.6, 165),
        _chip("cuda:90", "NVIDIA H100 SXM", 132, 227, 50, 3.35, 66.9, 989),
        _chip("cuda:100", "NVIDIA B200", 148, 227, 126, 8.0, 75, 2250),
        _chip("cuda:120", "NVIDIA RTX 5090", 170, 99, 96, 1.792, 105, 210),
        _chip("hip:gfx90a", "AMD MI250X (one die)", 110, 64, 8, 1.6, 23.9, 191),
        _chip("hip:gfx942", "AMD MI300X", 304, 64, 256, 5.3, 163.4, 1307),
    )
}

PARTS = {
    "H200": {"part": "NVIDIA H200", "bandwidth": 4.8e12},
    "GH200": {"part": "NVIDIA GH200", "bandwidth": 4.0e12},
    "H100 PCIe": {
        "part": "NVIDIA H100 PCIe",
        "bandwidth": 2.0e12,
        "float32_rate": 51e12,
        "matrix_rate": 756e12,
    },
}
"""What other products with a chip of the table have otherwise, by a word of the device's name."""


def parse(name: str) -> Target:
    """The target called ``name``. Raises OptionError for one that is not in the table."""
    if name == "cpu":
        return CPU
    found = CHIPS.get(name)
    if found is None:
        known = ", ".join(("cpu", *CHIPS))
        advice = f"Targets: {known}; or auto, for where the tensors are."
        raise OptionError(f"target {name!r} is unknown.", advice=advice)
    return found


def of_part(chip: Target, name: str) -> Target:
    """``chip`` with the rates of the product that calls itself ``name``, such as ``NVIDIA H200``."""
    for word, own in PARTS.items():
        if word in name:
            chip = replace(chip, **own)  # type: ignore[arg-type]
    return replace(chip, part=chip.part if chip.part and chip.part in name else name)


@functools.cache
def of_device(index: int) -> Target:
    """The target that CUDA (or ROCm) device ``index`` of this machine is, with its own numbers."""
    import torch

    facts = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        name = f"hip:{facts.gcnArchName.partition(':')[0]}"
    else:
        name = f"cuda:{facts.major}{facts.minor}"
    kind, _, arch = name.partition(":")
    base = CHIPS.get(name) or Target(kind, arch, warp=64 if kind == "hip" else 32)  # type: ignore[arg-type]
    return replace(
        of_part(base, facts.name),
        multiprocessors=facts.multi_processor_count,
        l2_bytes=facts.L2_cache_size,
        shared_bytes=getattr(facts, "shared_memory_per_block_optin", base.shared_bytes) or base.shared_bytes,
    )


def is_here(name: str) -> bool:
    """Whether code for the target ``name`` runs on this machine: ``auto`` and ``cpu`` always, a GPU if
    one of that architecture is installed."""
    target = CPU if name == "auto" else parse(name)
    if not target.is_gpu:
        return True
    import torch

    return torch.cuda.is_available() and any(
        of_device(index).name == target.name for index in range(torch.cuda.device_count())
    )

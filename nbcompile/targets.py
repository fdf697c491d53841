"""The chips that code is made for: what a schedule must know of them, and their published rates.

A target is named as Triton names it: ``cpu``, ``cuda:90`` (compute capability 9.0), ``hip:gfx942``.
Rates are those of the vendor's datasheet for the part named; a measured ceiling replaces them where
there is a device (see :mod:`nbcompile.measure.roofline`).
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
    multiprocessors: int = 1
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


CPU = Target("cpu")

CHIPS = {
    target.name: target
    for target in (
        Target("cuda", "80", "NVIDIA A100 80GB", 32, 108, 65_536, 166_912, 40 << 20, 2.039e12, 19.5e12, 312e12),
        Target("cuda", "86", "NVIDIA A10", 32, 72, 65_536, 101_376, 6 << 20, 0.6e12, 31.2e12, 125e12),
        Target("cuda", "89", "NVIDIA RTX 4090", 32, 128, 65_536, 101_376, 72 << 20, 1.008e12, 82.6e12, 165e12),
        Target("cuda", "90", "NVIDIA H100 SXM", 32, 132, 65_536, 232_448, 50 << 20, 3.35e12, 66.9e12, 989e12),
        Target("cuda", "100", "NVIDIA B200", 32, 148, 65_536, 232_448, 126 << 20, 8.0e12, 75e12, 2250e12),
        Target("cuda", "120", "NVIDIA RTX 5090", 32, 170, 65_536, 101_376, 96 << 20, 1.792e12, 105e12, 210e12),
        Target("hip", "gfx90a", "AMD MI250X (one die)", 64, 110, 131_072, 65_536, 8 << 20, 1.6e12, 23.9e12, 191e12),
        Target("hip", "gfx942", "AMD MI300X", 64, 304, 131_072, 65_536, 256 << 20, 5.3e12, 163.4e12, 1307e12),
    )
}  # fmt: skip

PARTS = {
    "H200": {"part": "NVIDIA H200", "bandwidth": 4.8e12},
    "GH200": {"part": "NVIDIA GH200", "bandwidth": 4.0e12},
    "H100 PCIe": {"part": "NVIDIA H100 PCIe", "bandwidth": 2.0e12, "float32_rate": 51e12, "matrix_rate": 756e12},
}  # fmt: skip
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
    for word, own in PARTS.items():
        if word in facts.name:
            base = replace(base, **own)  # type: ignore[arg-type]
    return replace(
        base,
        part=base.part if base.part and base.part in facts.name else facts.name,
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

"""All programs whose Triton kernels are golden files: each file below registers its own."""

from __future__ import annotations

from tests.golden import (
    triton_group_programs,
    triton_odd_row_programs,
    triton_order_programs,
    triton_scan_programs,
    triton_scatter_programs,
    triton_sum_programs,
)
from tests.golden.triton_programs import GPU_PROGRAMS

__all__ = [
    "GPU_PROGRAMS", "triton_group_programs", "triton_odd_row_programs", "triton_order_programs",
    "triton_scan_programs", "triton_scatter_programs", "triton_sum_programs",
]  # fmt: skip

# kernel amax (columns) over 4096 × 4096 points, each of 32:
#   → amax[i, k] = max x[i, j, k]  over j<32
# k0_amax[cdiv(16777216, XBLOCK)](XBLOCK=64, RBLOCK=32), 1 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# amax
@triton.jit
def k0_amax(x_ptr, amax_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 4096
    k = row % 4096
    j = tl.arange(0, RBLOCK)[None, :]
    x = tl.load(x_ptr + i*131072 + j*4096 + k)
    amax = max_nan(x, 1)[:, None]
    tl.store(amax_ptr + row, amax)

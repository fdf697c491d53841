# kernel amax_sum (rows and split sums) over 16384 points, each of 16384:
#   → amax[i] = max x[i, j]  over j<16384
#   → sum_1[j] = sum x[i, j]  over i<16384
# k0_amax_sum[132](STAGES=3, RBLOCK=16384), 32 warps
# k0_amax_sum_finish[cdiv(16384, XBLOCK)](XBLOCK=32, SBLOCK=64), 4 warps
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


# amax, sum
@triton.jit
def k0_amax_sum(x_ptr, amax_ptr, sum_1_parts_ptr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)
    sum_1 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in tl.range(tl.program_id(0), 16384, 132, num_stages=STAGES):
        i = start
        x = tl.load(x_ptr + i*16384 + j)
        amax = max_nan(x, 0)
        sum_1 = sum_1 + x
        tl.store(amax_ptr + i, amax)
    tl.store(sum_1_parts_ptr + tl.program_id(0) * 16384 + j, sum_1)


@triton.jit
def k0_amax_sum_finish(sum_1_parts_ptr, sum_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_1 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 132, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_1 = sum_1 + tl.load(sum_1_parts_ptr + slab * 16384 + j, mask=(slab < 132), other=0.0)
    tl.store(sum_1_ptr + j, tl.sum(sum_1, axis=1)[:, None])

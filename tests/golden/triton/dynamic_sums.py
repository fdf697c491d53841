# kernel mul_sum_amax (rows and split sums) over s77 points, each of s27:
#     mul[i, j] = x[i, j] * 2
#   → sum_1[j] = sum mul[i, j]  over i<s77
#   → amax[i] = max x[i, j]  over j<s27
# k0_mul_sum_amax[cdiv(s77, XBLOCK)](XBLOCK=16, RBLOCK=512, STAGES=2), 8 warps
# k0_mul_sum_amax_finish[cdiv(s27, XBLOCK)](XBLOCK=8, SBLOCK=256), 4 warps
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


# mul, sum, amax
# s77 is x.shape[0], s27 is x.shape[1]
@triton.jit
def k0_mul_sum_amax(x_ptr, sum_1_parts_ptr, amax_ptr, s77, s27, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < s77
    amax = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    for start in tl.range(0, s27, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        j_in = j < s27
        x = tl.load(x_ptr + i*s27 + j, mask=i_in & j_in)
        amax = maximum_nan(amax, tl.where(j_in, x, float("-inf")))
        sum_1 = tl.sum(tl.where(i_in, x * 2.0, 0.0), axis=0)[None, :]
        tl.store(sum_1_parts_ptr + tl.program_id(0) * s27 + j, sum_1, mask=j_in)
    amax = max_nan(amax, 1)[:, None]
    tl.store(amax_ptr + i, amax, mask=i_in)


@triton.jit
def k0_mul_sum_amax_finish(sum_1_parts_ptr, sum_1_ptr, s27, s77, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j_in = j < s27
    sum_1 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, ((s77 + 15) // 16), SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_1 = sum_1 + tl.load(sum_1_parts_ptr + slab * s27 + j, mask=j_in & (slab < ((s77 + 15) // 16)), other=0.0)
    tl.store(sum_1_ptr + j, tl.sum(sum_1, axis=1)[:, None], mask=j_in)

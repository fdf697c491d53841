# kernel softmax (columns) over 4096 points, each of 8192:
#   → max[j] = max x[i, j]  over i<8192
# kernel softmax_2 (columns) over 4096 points, each of 8192:
#   → exp[i, j] = exp(x[i, j] - max[j])
#   → sum[j] = sum exp[i, j]  over i<8192
# kernel softmax_3 (pointwise) over 8192 × 4096 points:
#   → _softmax[i, j] = exp[i, j] / sum[j]
# k0_softmax[cdiv(4096, XBLOCK), 8](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_softmax_finish[cdiv(4096, XBLOCK)](XBLOCK=32, SBLOCK=8), 1 warps
# k1_softmax_2[cdiv(4096, XBLOCK), 8](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k1_softmax_2_finish[cdiv(4096, XBLOCK)](XBLOCK=32, SBLOCK=8), 1 warps
# k2_softmax_3[cdiv(33554432, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended
from triton.language.extra import libdevice


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# _softmax
@triton.jit
def k0_softmax(x_ptr, max_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 1024
    first = slab * chunk
    end = tl.minimum(first + chunk, 8192)
    max_ = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*4096 + j)
        max_ = maximum_nan(max_, x)
    max_ = max_nan(max_, 1)[:, None]
    tl.store(max_parts_ptr + slab * 4096 + j, max_)


@triton.jit
def k0_softmax_finish(max_parts_ptr, max_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    max_parts = tl.load(max_parts_ptr + slab * 4096 + j)
    max_ = max_nan(max_parts, 1)[:, None]
    tl.store(max_ptr + j, max_)


# _softmax
@triton.jit
def k1_softmax_2(max_ptr, x_ptr, exp_ptr, sum_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 1024
    first = slab * chunk
    end = tl.minimum(first + chunk, 8192)
    max_ = tl.load(max_ptr + j)
    sum_ = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*4096 + j)
        exp = libdevice.exp((x - max_))
        sum_ = sum_ + exp
        tl.store(exp_ptr + i*4096 + j, exp)
    sum_ = tl.sum(sum_, axis=1)[:, None]
    tl.store(sum_parts_ptr + slab * 4096 + j, sum_)


@triton.jit
def k1_softmax_2_finish(sum_parts_ptr, sum_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_parts = tl.load(sum_parts_ptr + slab * 4096 + j)
    sum_ = tl.sum(sum_parts, axis=1)[:, None]
    tl.store(sum_ptr + j, sum_)


# _softmax
@triton.jit
def k2_softmax_3(exp_ptr, sum_ptr, softmax_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    j = point % 4096
    exp = tl.load(exp_ptr + point)
    sum_ = tl.load(sum_ptr + j)
    tl.store(softmax_ptr + point, exp / sum_)

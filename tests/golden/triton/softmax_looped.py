# kernel softmax (rows) over 256 points, each of 4194304:
#     _to_copy[i, j] = float32(x[i, j])
#     max[i] = max _to_copy[i, j]  over j<4194304
#     exp[i, j] = exp(_to_copy[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<4194304
#   → _softmax[i, j] = exp[i, j] / sum[i]
# k0_softmax[256](RBLOCK=4096, STAGES=6), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# _to_copy, _softmax
@triton.jit
def k0_softmax(x_ptr, softmax_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    max_ = tl.full((), float("-inf"), tl.float32)
    sum_ = tl.full((), 0, tl.float32)
    for start in tl.range(0, 4194304, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        to_copy = tl.load(x_ptr + i*4194304 + j, eviction_policy="evict_last").to(tl.float32)
        block = to_copy
        higher = maximum_nan(max_, max_nan(block, 0))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        sum_ = sum_ * tl.exp(max_ - pivot) + tl.sum(tl.exp(block - pivot), axis=0)
        max_ = higher
    sum_ = tl.where(max_ == float("-inf"), float("nan"), sum_)
    for start in tl.range(0, 4194304, RBLOCK, num_stages=STAGES):
        j = (tl.cdiv(4194304, RBLOCK) - 1) * RBLOCK - start + tl.arange(0, RBLOCK)
        to_copy_2 = tl.load(x_ptr + i*4194304 + j, eviction_policy="evict_first").to(tl.float32)
        exp = libdevice.exp((to_copy_2 - max_))
        tl.store(softmax_ptr + i*4194304 + j, exp / sum_)

# kernel log_softmax (rows) over 8192 points, each of 50257:
#     _to_copy[i, j] = float32(x[i, j])
#     max[i] = max _to_copy[i, j]  over j<50257
#     exp[i, j] = exp(_to_copy[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<50257
#   → _log_softmax[i, j] = (_to_copy[i, j] - max[i]) - log(sum[i])
# k0_log_softmax[8192](RBLOCK=4096, STAGES=6), 4 warps
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


# _to_copy, _log_softmax
@triton.jit
def k0_log_softmax(x_ptr, log_softmax_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    line = (i*50257 + 63) // 64 * 64
    whole = 50194 // RBLOCK * RBLOCK
    max_ = tl.full((), float("-inf"), tl.float32)
    sum_ = tl.full((), 0, tl.float32)
    for start in tl.range(0, whole, RBLOCK, num_stages=STAGES):
        j_line = start + tl.arange(0, RBLOCK)
        to_copy = tl.load(x_ptr + line + j_line, eviction_policy="evict_last").to(tl.float32)
        block = to_copy
        higher = maximum_nan(max_, max_nan(block, 0))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        sum_ = sum_ * tl.exp(max_ - pivot) + tl.sum(tl.exp(block - pivot), axis=0)
        max_ = higher
    for start in range(whole, 50257, RBLOCK):
        j = start + tl.arange(0, RBLOCK)
        j_in = j < 50257
        j = tl.where(j < whole + line - (i*50257), j - whole, j)
        to_copy_2 = tl.load(x_ptr + i*50257 + j, mask=j_in, eviction_policy="evict_last").to(tl.float32)
        block_2 = tl.where(j_in, to_copy_2, float("-inf"))
        higher_2 = maximum_nan(max_, max_nan(block_2, 0))
        pivot_2 = tl.where(higher_2 == float("-inf"), 0.0, higher_2)
        sum_ = sum_ * tl.exp(max_ - pivot_2) + tl.sum(tl.exp(block_2 - pivot_2), axis=0)
        max_ = higher_2
    sum_ = tl.where(max_ == float("-inf"), float("nan"), sum_)
    t = tl.log(sum_)
    for start in range(whole, 50257, RBLOCK):
        j = start + tl.arange(0, RBLOCK)
        j_in_2 = j < 50257
        j = tl.where(j < whole + line - (i*50257), j - whole, j)
        to_copy_3 = tl.load(x_ptr + i*50257 + j, mask=j_in_2, eviction_policy="evict_first").to(tl.float32)
        tl.store(log_softmax_ptr + i*50257 + j, (to_copy_3 - max_) - t, mask=j_in_2)
    for start in tl.range(0, whole, RBLOCK, num_stages=STAGES):
        j_line = whole - RBLOCK - start + tl.arange(0, RBLOCK)
        to_copy_4 = tl.load(x_ptr + line + j_line, eviction_policy="evict_first").to(tl.float32)
        tl.store(log_softmax_ptr + line + j_line, (to_copy_4 - max_) - t)

# kernel logsumexp (rows) over 256 points, each of 4194304:
#     max[i] = max float32(x[i, j])  over j<4194304
#     finite_max[i] = where(isinf(max[i]), 0, max[i])
#     exp[i, j] = exp(float32(x[i, j]) - finite_max[i])
#     sum[i] = sum exp[i, j]  over j<4194304
#   → logsumexp[i] = log(sum[i]) + finite_max[i]
# k0_logsumexp[256](RBLOCK=4096, STAGES=3), 4 warps
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


# logsumexp
@triton.jit
def k0_logsumexp(x_ptr, logsumexp_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    max_ = tl.full((), float("-inf"), tl.float32)
    sum_ = tl.full((), 0, tl.float32)
    for start in tl.range(0, 4194304, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i*4194304 + j).to(tl.float32)
        block = x
        higher = maximum_nan(max_, max_nan(block, 0))
        pivot = tl.where(tl.abs(higher) == float("inf"), 0.0, higher)
        sum_ = sum_ * tl.exp(max_ - pivot) + tl.sum(tl.exp(block - pivot), axis=0)
        max_ = higher
    finite_max = tl.where((tl.abs(max_) == float("inf")), 0.0, max_)
    tl.store(logsumexp_ptr + i, tl.log(sum_) + finite_max)

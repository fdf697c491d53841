# kernel softmax (rows) over 16384 points, each of 8192:
#     max[i] = max float32(x[i, j])  over j<8192
#     exp[i, j] = exp(float32(x[i, j]) - max[i])
#     sum[i] = sum exp[i, j]  over j<8192
#   → _softmax[i, j] = exp[i, j] / sum[i]
# k0_softmax[16384](RBLOCK=8192), 16 warps
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


# _softmax
@triton.jit
def k0_softmax(x_ptr, softmax_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    x = tl.load(x_ptr + i*8192 + j).to(tl.float32)
    max_ = max_nan(x, 0)
    exp = tl.exp((x - max_))
    sum_ = tl.sum(exp, axis=0)
    tl.store(softmax_ptr + i*8192 + j, exp / sum_)

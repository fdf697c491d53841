# kernel softmax (rows) over 262144 points, each of 100:
#     max[i] = max x[i, j]  over j<100
#     exp[i, j] = exp(x[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<100
#   → _softmax[i, j] = exp[i, j] / sum[i]
# k0_softmax[cdiv(262144, XBLOCK)](XBLOCK=4, RBLOCK=128), 1 warps
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


# _softmax
@triton.jit
def k0_softmax(x_ptr, softmax_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 100
    x = tl.load(x_ptr + i*100 + j, mask=j_in)
    max_ = max_nan(tl.where(j_in, x, float("-inf")), 1)[:, None]
    exp = libdevice.exp((x - max_))
    sum_ = tl.sum(tl.where(j_in, exp, 0.0), axis=1)[:, None]
    tl.store(softmax_ptr + i*100 + j, exp / sum_, mask=j_in)

# kernel mul_softmax (rows) over 16384 points, each of 4096:
#     mul[i, j] = x[i, j] * 0.125
#     scalar_tensor = -inf
#     where[i, j] = where(mask[i, j], mul[i, j], scalar_tensor)
#     max[i] = max where[i, j]  over j<4096
#     exp[i, j] = exp(where[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<4096
#   → _softmax[i, j] = exp[i, j] / sum[i]
# k0_mul_softmax[16384](RBLOCK=4096), 8 warps
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


# mul, scalar_tensor, where, _softmax
@triton.jit
def k0_mul_softmax(mask_ptr, x_ptr, softmax_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    mask = tl.load(mask_ptr + i*4096 + j).to(tl.int1)
    x = tl.load(x_ptr + i*4096 + j)
    mul = x * 0.125
    where = tl.where(mask, mul, float("-inf"))
    max_ = max_nan(where, 0)
    exp = libdevice.exp((where - max_))
    sum_ = tl.sum(exp, axis=0)
    tl.store(softmax_ptr + i*4096 + j, exp / sum_)

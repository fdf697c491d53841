# kernel mul_softmax (rows) over s77 points, each of s27:
#     mul[i, j] = x[i, j] * float32(s77)
#     max[i] = max mul[i, j]  over j<s27
#     exp[i, j] = exp(mul[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<s27
#   → _softmax[i, j] = exp[i, j] / sum[i]
# k0_mul_softmax[cdiv(s77, XBLOCK)](XBLOCK=2, RBLOCK=1024), 4 warps
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


# mul, _softmax
# s77 is x.shape[0], s27 is x.shape[1]
@triton.jit
def k0_mul_softmax(x_ptr, softmax_ptr, s77, s27, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < s77
    if s27 <= RBLOCK:
        j = tl.arange(0, RBLOCK)[None, :]
        j_in = j < s27
        x = tl.load(x_ptr + i*s27 + j, mask=i_in & j_in)
        mul = x * s77.to(tl.int64).to(tl.float32)
        max_ = max_nan(tl.where(j_in, mul, float("-inf")), 1)[:, None]
        exp = libdevice.exp((mul - max_))
        sum_ = tl.sum(tl.where(j_in, exp, 0.0), axis=1)[:, None]
        tl.store(softmax_ptr + i*s27 + j, exp / sum_, mask=i_in & j_in)
    else:
        t = s77.to(tl.int64).to(tl.float32)
        max__2 = tl.full([XBLOCK, 1], float("-inf"), tl.float32)
        sum__2 = tl.full([XBLOCK, 1], 0, tl.float32)
        for start in range(0, s27, RBLOCK):
            j = start + tl.arange(0, RBLOCK)[None, :]
            j_in_2 = j < s27
            x_2 = tl.load(x_ptr + i*s27 + j, mask=i_in & j_in_2, eviction_policy="evict_last")
            block = tl.where(j_in_2, x_2 * t, float("-inf"))
            higher = maximum_nan(max__2, max_nan(block, 1)[:, None])
            pivot = tl.where(higher == float("-inf"), 0.0, higher)
            sum__2 = sum__2 * tl.exp(max__2 - pivot) + tl.sum(tl.exp(block - pivot), axis=1)[:, None]
            max__2 = higher
        sum__2 = tl.where(max__2 == float("-inf"), float("nan"), sum__2)
        for start in range(0, s27, RBLOCK):
            j = (tl.cdiv(s27, RBLOCK) - 1) * RBLOCK - start + tl.arange(0, RBLOCK)[None, :]
            j_in_3 = j < s27
            x_3 = tl.load(x_ptr + i*s27 + j, mask=i_in & j_in_3, eviction_policy="evict_first")
            mul_2 = x_3 * t
            exp_2 = libdevice.exp((mul_2 - max__2))
            tl.store(softmax_ptr + i*s27 + j, exp_2 / sum__2, mask=i_in & j_in_3)

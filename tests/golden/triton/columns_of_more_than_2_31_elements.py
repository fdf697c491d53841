# kernel sum_argmax (columns) over 67108864 points, each of 64:
#   → sum_1[j] = sum x[i, j]  over i<64
#   → argmax_place[j] = argmax x[i, j]  over i<64
# k0_sum_argmax[cdiv(67108864, XBLOCK)](XBLOCK=32, RBLOCK=64), 1 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def argmax_combine(a, i, b, j):
    """The larger of two with its position; NaN is above all, and of equals the first is taken."""
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def arg_max(value, position, axis: tl.constexpr):
    """The largest along an axis and its first position."""
    return tl.reduce((value, position), axis, argmax_combine)


# sum, argmax
@triton.jit
def k0_sum_argmax(x_ptr, sum_1_ptr, argmax_place_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0).to(tl.int64) * XBLOCK + tl.arange(0, XBLOCK).to(tl.int64)[:, None]
    i = tl.arange(0, RBLOCK).to(tl.int64)[None, :]
    x = tl.load(x_ptr + i*67108864 + j)
    sum_1 = tl.sum(x, axis=1)[:, None]
    value = tl.broadcast_to(x, [XBLOCK, RBLOCK])
    position = tl.broadcast_to(i, [XBLOCK, RBLOCK])
    best, argmax_place = arg_max(value, position, 1)
    argmax_place = argmax_place[:, None].to(tl.int64)
    tl.store(sum_1_ptr + j, sum_1)
    tl.store(argmax_place_ptr + j, argmax_place)

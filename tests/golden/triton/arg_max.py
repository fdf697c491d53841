# kernel argmax (rows) over 4096 points, each of 131072:
#   → argmax_place[i] = argmax x[i, j]  over j<131072
# k0_argmax[4096](RBLOCK=4096, STAGES=3), 4 warps
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


# argmax
@triton.jit
def k0_argmax(x_ptr, argmax_place_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    argmax_place = tl.full([RBLOCK], float("-inf"), tl.float32)
    argmax_place_at = tl.full([RBLOCK], 0, tl.int64)
    for start in tl.range(0, 131072, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i*131072 + j)
        value = x
        better = (value > argmax_place) | ((value != value) & (argmax_place == argmax_place))
        argmax_place_at = tl.where(better, (j).to(tl.int64), argmax_place_at)
        argmax_place = tl.where(better, value, argmax_place)
    best, argmax_place_at = arg_max(argmax_place, argmax_place_at, 0)
    argmax_place_at = argmax_place_at.to(tl.int64)
    tl.store(argmax_place_ptr + i, argmax_place_at)

# kernel cummax (scan) over 4096 points, each of 131072:
#   → cummax, cummax_1[i, j] = running max x[i, j]  along j<131072
# k0_cummax[4096](RBLOCK=4096, STAGES=3), 16 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def later_max(a, i, b, j):
    """The larger of two with its position; NaN is above all, and of equals the last is taken."""
    second = (b > a) | ((b != b) & (a == a)) | (((b == a) | ((b != b) & (a != a))) & (j > i))
    return tl.where(second, b, a), tl.where(second, j, i)


@triton.jit
def at_end(x, end, axis: tl.constexpr):
    """What stands along an axis where end is true: one lane. As bits, for a sum makes 0.0 of -0.0."""
    if x.dtype == tl.float32:
        return tl.sum(tl.where(end, x.to(tl.int32, bitcast=True), 0), axis).to(tl.float32, bitcast=True)
    elif x.dtype == tl.float64:
        return tl.sum(tl.where(end, x.to(tl.int64, bitcast=True), 0), axis).to(tl.float64, bitcast=True)
    else:
        return tl.sum(tl.where(end, x, 0), axis).to(x.dtype)


# cummax
@triton.jit
def k0_cummax(x_ptr, cummax_ptr, cummax_1_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    cummax_before = tl.full((), float("-inf"), tl.float32)
    cummax_before_at = tl.full((), -1, tl.int32)
    last = tl.arange(0, RBLOCK) == RBLOCK - 1
    for start in tl.range(0, 131072, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i*131072 + j)
        cummax, cummax_at = tl.associative_scan((x, j), 0, later_max)
        cummax, cummax_at = later_max(cummax_before, cummax_before_at, cummax, cummax_at)
        cummax_before = at_end(cummax, last, 0)
        cummax_before_at = at_end(cummax_at, last, 0)
        tl.store(cummax_ptr + i*131072 + j, cummax)
        tl.store(cummax_1_ptr + i*131072 + j, cummax_at.to(tl.int64))

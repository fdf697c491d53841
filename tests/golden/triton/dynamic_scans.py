# kernel mul_cumsum (scan) over s77 points, each of s27:
#     mul[i, j] = x[i, j] * 2
#   → cumsum[i, j] = running sum mul[i, j]  along j<s27
# kernel cummax (scan) over s27 points, each of s77:
#   → cummax, cummax_1[i, j] = running max x[i, j]  along i<s77
# k0_mul_cumsum[cdiv(s77, XBLOCK)](XBLOCK=8, RBLOCK=512, STAGES=3), 8 warps
# k1_cummax_totals[cdiv(s27, XBLOCK), 31](XBLOCK=64, RBLOCK=64, STAGES=3), 8 warps
# k1_cummax[cdiv(s27, XBLOCK), 31](XBLOCK=64, RBLOCK=64, STAGES=3), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def at_end(x, end, axis: tl.constexpr):
    """What stands along an axis where end is true: one lane. As bits, for a sum makes 0.0 of -0.0."""
    if x.dtype == tl.float32:
        return tl.sum(tl.where(end, x.to(tl.int32, bitcast=True), 0), axis).to(tl.float32, bitcast=True)
    elif x.dtype == tl.float64:
        return tl.sum(tl.where(end, x.to(tl.int64, bitcast=True), 0), axis).to(tl.float64, bitcast=True)
    else:
        return tl.sum(tl.where(end, x, 0), axis).to(x.dtype)


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# mul, cumsum
# s77 is x.shape[0], s27 is x.shape[1]
@triton.jit
def k0_mul_cumsum(x_ptr, cumsum_ptr, s77, s27, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < s77
    cumsum_before = tl.full([XBLOCK, 1], 0.0, tl.float32)
    last = (tl.arange(0, RBLOCK) == RBLOCK - 1)[None, :]
    for start in tl.range(0, s27, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        j_in = j < s27
        x = tl.load(x_ptr + i*s27 + j, mask=i_in & j_in)
        mul = x * 2.0
        cumsum = cumsum_before + tl.associative_scan(mul, 1, plus)
        cumsum_before = at_end(cumsum, last, 1)[:, None]
        tl.store(cumsum_ptr + i*s27 + j, cumsum, mask=i_in & j_in)


# cummax
# s77 is x.shape[0], s27 is x.shape[1]
@triton.jit
def k1_cummax_totals(x_ptr, cummax_totals_ptr, s27, s77, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < s27
    slab = tl.program_id(1)
    chunk = tl.cdiv(s77, 1984) * 64
    first = slab * chunk
    end = tl.minimum(first + chunk, s77)
    cummax_total = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        j_in = j < end
        x = tl.load(x_ptr + j*s27 + i, mask=i_in & j_in, eviction_policy="evict_last")
        cummax_total = maximum_nan(cummax_total, tl.where(j_in, x, tl.full((), float("-inf"), tl.float32)))
    cummax_total = max_nan(cummax_total, 1)
    tl.store(cummax_totals_ptr + slab * s27 + i, cummax_total[:, None], mask=i_in)


@triton.jit
def k1_cummax(cummax_totals_ptr, x_ptr, cummax_ptr, s27, s77, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < s27
    slab = 30 - tl.program_id(1)
    chunk = tl.cdiv(s77, 1984) * 64
    first = slab * chunk
    end = tl.minimum(first + chunk, s77)
    before = tl.arange(0, 32)[None, :]
    cummax_before = tl.load(cummax_totals_ptr + before * s27 + i, mask=i_in & (before < slab), other=float("-inf"))
    cummax_before = max_nan(cummax_before, 1)
    cummax_before = cummax_before[:, None]
    last = (tl.arange(0, RBLOCK) == RBLOCK - 1)[None, :]
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        j_in = j < end
        x = tl.load(x_ptr + j*s27 + i, mask=i_in & j_in, eviction_policy="evict_first")
        cummax = maximum_nan(cummax_before, tl.associative_scan(x, 1, maximum_nan))
        cummax_before = at_end(cummax, last, 1)[:, None]
        tl.store(cummax_ptr + j*s27 + i, cummax, mask=i_in & j_in)

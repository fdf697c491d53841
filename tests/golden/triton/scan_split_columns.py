# kernel cummin (scan) over 64 points, each of 262144:
#   → cummin, cummin_1[i, j] = running min x[i, j]  along i<262144
# k0_cummin_totals[cdiv(64, XBLOCK), 256](XBLOCK=64, RBLOCK=64, STAGES=3), 16 warps
# k0_cummin[cdiv(64, XBLOCK), 256](XBLOCK=64, RBLOCK=64, STAGES=3), 16 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def later_min(a, i, b, j):
    """The smaller of two with its position; NaN is below all, and of equals the last is taken."""
    second = (b < a) | ((b != b) & (a == a)) | (((b == a) | ((b != b) & (a != a))) & (j > i))
    return tl.where(second, b, a), tl.where(second, j, i)


@triton.jit
def last_min(value, position, axis: tl.constexpr):
    """The smallest along an axis and its last position."""
    return tl.reduce((value, position), axis, later_min)


@triton.jit
def at_end(x, end, axis: tl.constexpr):
    """What stands along an axis where end is true: one lane. As bits, for a sum makes 0.0 of -0.0."""
    if x.dtype == tl.float32:
        return tl.sum(tl.where(end, x.to(tl.int32, bitcast=True), 0), axis).to(tl.float32, bitcast=True)
    elif x.dtype == tl.float64:
        return tl.sum(tl.where(end, x.to(tl.int64, bitcast=True), 0), axis).to(tl.float64, bitcast=True)
    else:
        return tl.sum(tl.where(end, x, 0), axis).to(x.dtype)


# cummin
@triton.jit
def k0_cummin_totals(x_ptr, cummin_totals_ptr, cummin_totals_at_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 1024
    first = slab * chunk
    end = tl.minimum(first + chunk, 262144)
    cummin_total = tl.full([XBLOCK, RBLOCK], 2147483647, tl.int32)
    cummin_total_at = tl.full([XBLOCK, RBLOCK], -1, tl.int32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + j*64 + i, eviction_policy="evict_last")
        cummin_total, cummin_total_at = later_min(cummin_total, cummin_total_at, x, tl.broadcast_to(j, [XBLOCK, RBLOCK]))
    cummin_total, cummin_total_at = last_min(cummin_total, cummin_total_at, 1)
    tl.store(cummin_totals_ptr + slab * 64 + i, cummin_total[:, None])
    tl.store(cummin_totals_at_ptr + slab * 64 + i, cummin_total_at[:, None])


@triton.jit
def k0_cummin(cummin_totals_ptr, cummin_totals_at_ptr, x_ptr, cummin_ptr, cummin_1_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = 255 - tl.program_id(1)
    chunk = 1024
    first = slab * chunk
    end = tl.minimum(first + chunk, 262144)
    before = tl.arange(0, 256)[None, :]
    cummin_before = tl.load(cummin_totals_ptr + before * 64 + i, mask=(before < slab), other=2147483647)
    cummin_before_at = tl.load(cummin_totals_at_ptr + before * 64 + i, mask=(before < slab), other=-1)
    cummin_before, cummin_before_at = last_min(cummin_before, cummin_before_at, 1)
    cummin_before = cummin_before[:, None]
    cummin_before_at = cummin_before_at[:, None]
    last = (tl.arange(0, RBLOCK) == RBLOCK - 1)[None, :]
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + j*64 + i, eviction_policy="evict_first")
        cummin, cummin_at = tl.associative_scan((x, tl.broadcast_to(j, [XBLOCK, RBLOCK])), 1, later_min)
        cummin, cummin_at = later_min(cummin_before, cummin_before_at, cummin, cummin_at)
        cummin_before = at_end(cummin, last, 1)[:, None]
        cummin_before_at = at_end(cummin_at, last, 1)[:, None]
        tl.store(cummin_ptr + j*64 + i, cummin)
        tl.store(cummin_1_ptr + j*64 + i, cummin_at.to(tl.int64))

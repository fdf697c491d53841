# kernel mul_cumsum_add (scan) over 1 points, each of 16777216:
#     mul[i] = x[i] * 2
#     cumsum[i] = running sum mul[i]  along i<16777216
#   → add[i] = cumsum[i] + 1
# k0_mul_cumsum_add_totals[1, 1024](RBLOCK=4096, STAGES=3), 8 warps
# k0_mul_cumsum_add[1, 1024](RBLOCK=4096, STAGES=3), 8 warps
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


# mul, cumsum, add
@triton.jit
def k0_mul_cumsum_add_totals(x_ptr, cumsum_totals_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    slab = tl.program_id(1)
    chunk = 16384
    first = slab * chunk
    end = tl.minimum(first + chunk, 16777216)
    cumsum_total = tl.full([RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i)
        mul = x * 2.0
        cumsum_total = cumsum_total + mul
    cumsum_total = tl.sum(cumsum_total, axis=0)
    tl.store(cumsum_totals_ptr + slab, cumsum_total)


@triton.jit
def k0_mul_cumsum_add(cumsum_totals_ptr, x_ptr, add_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    slab = 1023 - tl.program_id(1)
    chunk = 16384
    first = slab * chunk
    end = tl.minimum(first + chunk, 16777216)
    before = tl.arange(0, 1024)
    cumsum_before = tl.load(cumsum_totals_ptr + before, mask=(before < slab), other=0.0)
    cumsum_before = tl.sum(cumsum_before, axis=0)
    last = tl.arange(0, RBLOCK) == RBLOCK - 1
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i)
        mul = x * 2.0
        cumsum = cumsum_before + tl.associative_scan(mul, 0, plus)
        cumsum_before = at_end(cumsum, last, 0)
        tl.store(add_ptr + i, cumsum + 1.0)

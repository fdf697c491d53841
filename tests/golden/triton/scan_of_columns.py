# kernel cumsum_mul_exp (scan) over 64 × 2048 points, each of 8192:
#     cumsum[i, j, k] = running sum x[i, j, k]  along j<8192
#     mul[i, j, k] = cumsum[i, j, k] * -0.1
#   → exp[i, j, k] = exp(mul[i, j, k])
# k0_cumsum_mul_exp[cdiv(131072, XBLOCK)](XBLOCK=64, RBLOCK=64, STAGES=3), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
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


# cumsum, mul, exp
@triton.jit
def k0_cumsum_mul_exp(x_ptr, exp_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 2048
    j = row % 2048
    cumsum_before = tl.full([XBLOCK, 1], 0.0, tl.float32)
    last = (tl.arange(0, RBLOCK) == RBLOCK - 1)[None, :]
    for start in tl.range(0, 8192, RBLOCK, num_stages=STAGES):
        k = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*16777216 + k*2048 + j)
        cumsum = cumsum_before + tl.associative_scan(x, 1, plus)
        cumsum_before = at_end(cumsum, last, 1)[:, None]
        mul = cumsum * (-0.1)
        tl.store(exp_ptr + i*16777216 + k*2048 + j, libdevice.exp(mul))

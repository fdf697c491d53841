# kernel logcumsumexp (scan) over 262144 points, each of 100:
#   → logcumsumexp[i, j] = running logsumexp x[i, j]  along j<100
# k0_logcumsumexp[cdiv(262144, XBLOCK)](XBLOCK=16, RBLOCK=128), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def minimum_nan(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)) without overflow; NaN if either is. Infinities of one sign have no difference."""
    low = minimum_nan(a, b)
    high = maximum_nan(a, b)
    same = (low == high) & (tl.abs(low) == float("inf"))
    return tl.where(same, low, high + libdevice.log1p(tl.exp(low - high)))


# logcumsumexp
@triton.jit
def k0_logcumsumexp(x_ptr, logcumsumexp_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 100
    x = tl.load(x_ptr + i*100 + j, mask=j_in)
    logcumsumexp = tl.associative_scan(x, 1, log_add_exp)
    tl.store(logcumsumexp_ptr + i*100 + j, logcumsumexp, mask=j_in)

# kernel exp (pointwise) over 1 points:
#   → exp = exp(x)
# kernel add (pointwise) over 0 × 5 points:
#   → add[i, j] = 0
# kernel sum (columns) over 5 points, each of 0:
#   → sum_1[j] = sum 0  over i<0
# k0_exp[1](), 1 warps
# k1_add[cdiv(0, XBLOCK)](XBLOCK=128), 1 warps
# k2_sum[cdiv(5, XBLOCK)](XBLOCK=8, RBLOCK=1), 1 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# exp
@triton.jit
def k0_exp(x_ptr, exp_ptr):
    gdc_wait()
    x = tl.load(x_ptr + 0)
    tl.store(exp_ptr + 0, libdevice.exp(x))


# add
@triton.jit
def k1_add(add_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    i = start + tl.arange(0, XBLOCK)
    i_in = i < 0
    tl.store(add_ptr + 0, 0.0, mask=False)


# sum
@triton.jit
def k2_sum(sum_1_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j_in = j < 5
    i = tl.arange(0, RBLOCK)[None, :]
    i_in = i < 0
    sum_1 = tl.sum(tl.where(i_in, tl.full([1, RBLOCK], tl.full((), 0.0, tl.float32), tl.float32), 0.0), axis=1)[:, None]
    tl.store(sum_1_ptr + j, sum_1, mask=j_in)

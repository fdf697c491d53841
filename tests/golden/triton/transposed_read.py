# kernel mul (pointwise) over 8192 × 8192 points:
#   → mul[i, j] = x[j, i] * y[i, j]
# k0_mul[cdiv(8192, YBLOCK), cdiv(8192, XBLOCK)](YBLOCK=64, XBLOCK=64), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# mul
@triton.jit
def k0_mul(x_ptr, y_ptr, mul_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(1) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + j + i*8192)
    y = tl.load(y_ptr + j*8192 + i)
    tl.store(mul_ptr + j + i*8192, x * y)

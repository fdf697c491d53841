# kernel add_mul (pointwise) over 16384 × 4096 points:
#     add[i, j] = x[i, j] + bias[j]
#   → mul[i, j] = add[i, j] * scale[i, 0]
# k0_add_mul[cdiv(16384, YBLOCK) * cdiv(4096, XBLOCK)](YBLOCK=1, XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# add, mul
@triton.jit
def k0_add_mul(x_ptr, bias_ptr, scale_ptr, mul_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(4096, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(4096, XBLOCK) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + i*4096 + j)
    bias = tl.load(bias_ptr + j)
    add = x + bias
    scale = tl.load(scale_ptr + i)
    tl.store(mul_ptr + i*4096 + j, add * scale)

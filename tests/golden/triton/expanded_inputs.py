# kernel mul_add (pointwise) over 5000 × 7000 points:
#     mul[i, j] = x[i, j] * y[i, j]
#   → add[i, j] = mul[i, j] + 1
# k0_mul_add[cdiv(5000, YBLOCK) * cdiv(7000, XBLOCK)](YBLOCK=1, XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# mul, add
@triton.jit
def k0_mul_add(x_ptr, y_ptr, add_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(7000, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(7000, XBLOCK) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    j_in = j < 7000
    x = tl.load(x_ptr + j, mask=j_in)
    y = tl.load(y_ptr + i)
    mul = x * y
    tl.store(add_ptr + i*7000 + j, mul + 1.0, mask=j_in)

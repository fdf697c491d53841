# kernel cumprod (scan) over 4096 × 4096 points, each of 32:
#   → cumprod[i, j, k] = running prod x[i, j, k]  along j<32
# k0_cumprod[cdiv(16777216, XBLOCK)](XBLOCK=64, RBLOCK=32), 2 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def multiply(a, b):
    return a * b


# cumprod
@triton.jit
def k0_cumprod(x_ptr, cumprod_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 4096
    j = row % 4096
    k = tl.arange(0, RBLOCK)[None, :]
    x = tl.load(x_ptr + i*131072 + k*4096 + j)
    cumprod = tl.associative_scan(x, 1, multiply)
    tl.store(cumprod_ptr + i*131072 + k*4096 + j, cumprod)

# kernel roll (pointwise) over 64 × 14 × 4 × 14 × 4 × 96 points:
#     roll[i, j, k, l] = ((x[i, j + 3, k + 3, l] if 0 <= k < 53 else x[i, j + 3, k - 53, l]) if 0 <= j < 53 else (x[i, j - 53, k + 3, l] if 0 <= k < 53 else x[i, j - 53, k - 53, l]))
#   → clone[i, j, k, l, m, n] = roll[i, 4*j + l, 4*k + m, n]
# k0_roll[cdiv(200704, YBLOCK) * cdiv(96, XBLOCK)](YBLOCK=32, XBLOCK=32), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# roll, clone
@triton.jit
def k0_roll(clone_ptr, x_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) // tl.cdiv(96, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    k = (row % 224) // 56
    l = (row % 56) // 4
    m = row % 4
    start = tl.program_id(0) % tl.cdiv(96, XBLOCK) * XBLOCK
    n = start + tl.arange(0, XBLOCK)[None, :]
    tl.store(clone_ptr + (row // 224)*21504 + k*384 + l*1536 + m*96 + n, tl.load(x_ptr + row*96 + n + tl.where((((row % 3136) // 56) < 53), tl.where(((row % 56) < 53), 16416, 11040), tl.where(((row % 56) < 53), -284640, -290016))))

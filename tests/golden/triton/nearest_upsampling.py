# kernel index_add (pointwise) over 16 × 128 × 64 × 64 points:
#     index[i, j, k, l] = x[i, j, (k//2), (l//2)]
#   → add[i, j, k, l] = index[i, j, k, l] + 1
# k0_index_add[cdiv(8388608, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# index, add
@triton.jit
def k0_index_add(x_ptr, add_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    i = point // 4096
    j = (point % 4096) // 64
    k = point % 64
    index = tl.load(x_ptr + ((j) // 2)*32 + ((k) // 2) + i*1024)
    tl.store(add_ptr + point, index + 1.0)

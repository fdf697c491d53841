# kernel arange_abs_sub_index (pointwise) over 16 × 128 × 66 × 66 points:
#     arange[i] = (i - 1)
#     abs_1[i] = abs(arange[i])
#     sub[i] = 63 - abs_1[i]
#     abs_2[i] = abs(sub[i])
#     sub_1[i] = 63 - abs_2[i]
#     index[i, j, k, l] = float32(x[i, j, [sub_1[k]], l])
#   → index_1[i, j, k, l] = float32(index[i, j, k, [sub_1[l]]])
# k0_arange_abs_sub_index[cdiv(8921088, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# arange, abs, sub, index
@triton.jit
def k0_arange_abs_sub_index(x_ptr, index_1_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    i = point // 4356
    j = (point % 4356) // 66
    k = point % 66
    index = tl.load(x_ptr + ((63 - tl.abs((63 - tl.abs((j - 1))))))*64 + ((63 - tl.abs((63 - tl.abs((k - 1)))))) + i*4096).to(tl.float32)
    tl.store(index_1_ptr + point, index)

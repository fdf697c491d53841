# kernel neg_cat_mul_add (pointwise) over 64 × 2048 × 16 × 128 points:
#     neg[i, j, k, l] = -float32(x[i, j, k, l + 64])
#     cat[i, j, k, l] = (float32(neg[i, j, k, l]) if 0 <= l < 64 else float32(x[i, j, k, l - 64]))
#     mul[i, j, k, l] = float32(x[i, j, k, l]) * float32(cos[j, l])
#     mul_1[i, j, k, l] = float32(cat[i, j, k, l]) * float32(sin[j, l])
#   → add[i, j, k, l] = float32(mul[i, j, k, l]) + float32(mul_1[i, j, k, l])
# k0_neg_cat_mul_add[131072 * cdiv(16, YBLOCK) * cdiv(128, XBLOCK)](YBLOCK=16, XBLOCK=128), 2 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# neg, cat, mul, add
@triton.jit
def k0_neg_cat_mul_add(x_ptr, cos_ptr, sin_ptr, add_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    outside = tl.program_id(0) // tl.cdiv(128, XBLOCK) // tl.cdiv(16, YBLOCK)
    j = outside % 2048
    k = tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(16, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(128, XBLOCK) * XBLOCK
    l = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + outside*2048 + k*128 + l).to(tl.float32)
    cos = tl.load(cos_ptr + j*128 + l).to(tl.float32)
    mul = x * cos
    cat = tl.where((l < 64), (-1.0 * tl.load(x_ptr + outside*2048 + k*128 + l + 64, mask=((l < 64))).to(tl.float32)), tl.load(x_ptr + outside*2048 + k*128 + l - 64, mask=~((l < 64))).to(tl.float32))
    sin = tl.load(sin_ptr + j*128 + l).to(tl.float32)
    mul_1 = cat * sin
    tl.store(add_ptr + outside*2048 + k*128 + l, mul + mul_1)

# kernel copy (pointwise) over 64 × 768 × 7 × 7 points:
#   → first_turned[i0, i1, i2, i3] = first[i0, i1, i2, i3]
# kernel add_mul_sum (rows) over 768 points, each of 64 × 7 × 7:
#   → add_turned[i, j, k, l] = float32(first_turned[i, j, k, l]) + float32(second[i, j, k, l])
#     mul[i, j, k, l] = float32(bfloat16(add_turned[i, j, k, l])) * float32(x[i, j, k, l])
#   → sum_1[j] = sum float32(mul[i, j, k, l])  over i<64, k<7, l<7
#     mul_1[i, j, k, l] = float32(bfloat16(add_turned[i, j, k, l])) * float32(scale[j, 0, 0])
#   → clone[i, j, k, l] = mul_1[i, l, j, k]
# kernel copy_2 (pointwise) over 64 × 768 × 7 × 7 points:
#   → add[i0, i1, i2, i3] = add_turned[i0, i1, i2, i3]
# k0_copy[64 * cdiv(49, YBLOCK) * cdiv(768, XBLOCK)](YBLOCK=32, XBLOCK=64), 4 warps
# k1_add_mul_sum[cdiv(768, XBLOCK), 44](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k1_add_mul_sum_finish[cdiv(768, XBLOCK)](XBLOCK=32, SBLOCK=64), 8 warps
# k2_copy_2[64 * cdiv(768, YBLOCK) * cdiv(49, XBLOCK)](YBLOCK=32, XBLOCK=64), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# copy
@triton.jit
def k0_copy(first_ptr, first_turned_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(768, XBLOCK) // tl.cdiv(49, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(768, XBLOCK) % tl.cdiv(49, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    j_in = j < 49
    start = tl.program_id(0) % tl.cdiv(768, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    first_turned = tl.load(first_ptr + i*37632 + k*49 + j, mask=j_in).to(tl.float32)
    tl.store(first_turned_ptr + i*37632 + k + j*768, first_turned, mask=j_in)


# add, mul, sum, clone
@triton.jit
def k1_add_mul_sum(scale_ptr, first_turned_ptr, second_ptr, x_ptr, add_turned_ptr, clone_ptr, sum_1_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 96
    first = slab * chunk
    end = tl.minimum(first + chunk, 3136)
    scale = tl.load(scale_ptr + j).to(tl.float32)
    sum_1 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        first_turned = tl.load(first_turned_ptr + i*768 + j).to(tl.float32)
        second = tl.load(second_ptr + i*768 + j).to(tl.float32)
        add_turned = first_turned + second
        t = add_turned.to(tl.bfloat16).to(tl.float32)
        x = tl.load(x_ptr + i*768 + j).to(tl.float32)
        sum_1 = sum_1 + (t * x)
        tl.store(add_turned_ptr + i*768 + j, add_turned)
        tl.store(clone_ptr + i*768 + j, t * scale)
    sum_1 = tl.sum(sum_1, axis=1)[:, None]
    tl.store(sum_1_parts_ptr + slab * 768 + j, sum_1)


@triton.jit
def k1_add_mul_sum_finish(sum_1_parts_ptr, sum_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_1_parts = tl.load(sum_1_parts_ptr + slab * 768 + j, mask=(slab < 44), other=0.0)
    sum_1 = tl.sum(sum_1_parts, axis=1)[:, None]
    tl.store(sum_1_ptr + j, sum_1)


# copy
@triton.jit
def k2_copy_2(add_turned_ptr, add_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(49, XBLOCK) // tl.cdiv(768, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(49, XBLOCK) % tl.cdiv(768, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(49, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 49
    add = tl.load(add_turned_ptr + i*37632 + j + k*768, mask=k_in).to(tl.float32)
    tl.store(add_ptr + i*37632 + j*49 + k, add, mask=k_in)

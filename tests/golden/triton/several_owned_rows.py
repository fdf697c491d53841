# kernel mul_sum (rows and split sums) over 16384 points, each of 128:
#     _to_copy[i, j] = float32(grad[i, j])
#     _to_copy_1[i, j] = float32(x[i, j])
#     mul[i, j] = _to_copy[i, j] * _to_copy_1[i, j]
#     mul_1[i, j] = mul[i, j] * scale[i, 0]
#   → sum_1[i] = sum mul_1[i, j]  over j<128
#   → sum_2[j] = sum mul_1[i, j]  over i<16384
#     _to_copy_2[i, j] = float32(grad[i, j])
#   → sum_3[j] = sum _to_copy_2[i, j]  over i<16384
# k0_mul_sum[1056](XBLOCK=8, STAGES=3, RBLOCK=128), 1 warps
# k0_mul_sum_finish[cdiv(128, XBLOCK)](XBLOCK=4, SBLOCK=512), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# _to_copy, mul, sum
@triton.jit
def k0_mul_sum(grad_ptr, x_ptr, scale_ptr, sum_1_ptr, sum_2_parts_ptr, sum_3_parts_ptr, XBLOCK: tl.constexpr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)[None, :]
    sum_2 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    sum_3 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(tl.program_id(0) * XBLOCK, 16384, 1056 * XBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, XBLOCK)[:, None]
        to_copy = tl.load(grad_ptr + i*128 + j).to(tl.float32)
        to_copy_1 = tl.load(x_ptr + i*128 + j).to(tl.float32)
        mul = to_copy * to_copy_1
        scale = tl.load(scale_ptr + i)
        mul_1 = mul * scale
        sum_1 = tl.sum(mul_1, axis=1)[:, None]
        sum_2 = sum_2 + mul_1
        sum_3 = sum_3 + to_copy
        tl.store(sum_1_ptr + i, sum_1)
    sum_2 = tl.sum(sum_2, axis=0)[None, :]
    tl.store(sum_2_parts_ptr + tl.program_id(0) * 128 + j, sum_2)
    sum_3 = tl.sum(sum_3, axis=0)[None, :]
    tl.store(sum_3_parts_ptr + tl.program_id(0) * 128 + j, sum_3)


@triton.jit
def k0_mul_sum_finish(sum_2_parts_ptr, sum_3_parts_ptr, sum_2_ptr, sum_3_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_2 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    sum_3 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 1056, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_2 = sum_2 + tl.load(sum_2_parts_ptr + slab * 128 + j, mask=(slab < 1056), other=0.0)
        sum_3 = sum_3 + tl.load(sum_3_parts_ptr + slab * 128 + j, mask=(slab < 1056), other=0.0)
    tl.store(sum_2_ptr + j, tl.sum(sum_2, axis=1)[:, None])
    tl.store(sum_3_ptr + j, tl.sum(sum_3, axis=1)[:, None])

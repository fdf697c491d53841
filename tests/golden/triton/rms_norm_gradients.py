# kernel mul_sum_pow_sub (rows and split sums) over 8192 points, each of 1152:
#     mul[i, j] = grad[i, j] * weight[j]
#     mul_1[i, j] = mul[i, j] * x[i, j]
#     sum_1[i] = sum mul_1[i, j]  over j<1152
#     pow_1[i, j] = (rstd[i, 0] * rstd[i, 0]) * rstd[i, 0]
#     mul_2[i, j] = sum_1[i] * pow_1[i, 0]
#     div[i, j] = mul_2[i, 0] / 1152
#     mul_3[i, j] = mul[i, j] * rstd[i, 0]
#     add[i, j] = residual[i, j] + mul_3[i, j]
#     mul_4[i, j] = x[i, j] * div[i, 0]
#   → sub[i, j] = add[i, j] - mul_4[i, j]
#     mul_5[i, j] = grad[i, j] * x[i, j]
#     mul_6[i, j] = mul_5[i, j] * rstd[i, 0]
#   → sum_2[j] = sum mul_6[i, j]  over i<8192
# k0_mul_sum_pow_sub[1056](STAGES=1, RBLOCK=2048), 2 warps, 128 registers
# k0_mul_sum_pow_sub_finish[cdiv(1152, XBLOCK)](XBLOCK=16, SBLOCK=128), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# mul, sum, pow, div, add, sub
@triton.jit
def k0_mul_sum_pow_sub(weight_ptr, grad_ptr, x_ptr, rstd_ptr, residual_ptr, sub_ptr, sum_2_parts_ptr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)
    j_in = j < 1152
    sum_2 = tl.full([RBLOCK], 0.0, tl.float32)
    weight = tl.load(weight_ptr + j, mask=j_in)
    for start in tl.range(tl.program_id(0), 8192, 1056, num_stages=STAGES):
        i = start
        grad = tl.load(grad_ptr + i*1152 + j, mask=j_in)
        mul = grad * weight
        x = tl.load(x_ptr + i*1152 + j, mask=j_in)
        mul_1 = mul * x
        sum_1 = tl.sum(tl.where(j_in, mul_1, 0.0), axis=0)
        mul_5 = grad * x
        rstd = tl.load(rstd_ptr + i)
        mul_6 = mul_5 * rstd
        sum_2 = sum_2 + mul_6
        residual = tl.load(residual_ptr + i*1152 + j, mask=j_in)
        mul_3 = mul * rstd
        add = residual + mul_3
        pow_1 = (rstd * rstd) * rstd
        mul_2 = sum_1 * pow_1
        div = mul_2 / 1152.0
        mul_4 = x * div
        tl.store(sub_ptr + i*1152 + j, add - mul_4, mask=j_in)
    tl.store(sum_2_parts_ptr + tl.program_id(0) * 1152 + j, sum_2, mask=j_in)


@triton.jit
def k0_mul_sum_pow_sub_finish(sum_2_parts_ptr, sum_2_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_2 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 1056, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_2 = sum_2 + tl.load(sum_2_parts_ptr + slab * 1152 + j, mask=(slab < 1056), other=0.0)
    tl.store(sum_2_ptr + j, tl.sum(sum_2, axis=1)[:, None])

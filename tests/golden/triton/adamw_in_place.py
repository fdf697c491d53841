# kernel mul_add_sqrt_sub (pointwise) over 67108864 points:
#     mul[i] = mean[i] * 0.9
#     mul_1[i] = grad[i] * 0.1
#   → add[i] = mul[i] + mul_1[i]   in place of mean
#     mul_2[i] = square[i] * 0.999
#     mul_3[i] = grad[i] * grad[i]
#     mul_4[i] = mul_3[i] * 0.001
#   → add_1[i] = mul_2[i] + mul_4[i]   in place of square
#     mul_5[i] = weight[i] * 0.9999
#     mul_6[i] = add[i] * 0.001
#     sqrt[i] = sqrt(add_1[i])
#     add_2[i] = sqrt[i] + 1e-08
#     div[i] = mul_6[i] / add_2[i]
#   → sub[i] = mul_5[i] - div[i]   in place of weight
# k0_mul_add_sqrt_sub[cdiv(67108864, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# mul, add, sqrt, div, sub
@triton.jit
def k0_mul_add_sqrt_sub(mean_ptr, grad_ptr, square_ptr, weight_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    i = start + tl.arange(0, XBLOCK)
    mean = tl.load(mean_ptr + i)
    mul = mean * 0.9
    grad = tl.load(grad_ptr + i)
    mul_1 = grad * 0.1
    add = mul + mul_1
    square = tl.load(square_ptr + i)
    mul_2 = square * 0.999
    mul_3 = grad * grad
    mul_4 = mul_3 * 0.001
    add_1 = mul_2 + mul_4
    weight = tl.load(weight_ptr + i)
    mul_5 = weight * 0.9999
    mul_6 = add * 0.001
    sqrt = tl.sqrt_rn(add_1)
    add_2 = sqrt + 1e-08
    div = mul_6 / add_2
    sub = mul_5 - div
    tl.store(mean_ptr + i, add)
    tl.store(square_ptr + i, add_1)
    tl.store(weight_ptr + i, sub)

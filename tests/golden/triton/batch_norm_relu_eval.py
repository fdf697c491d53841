# kernel add_sqrt_reciprocal_relu (pointwise) over 64 × 256 × 56 × 56 points:
#     _to_copy[i] = mean[i]
#     _to_copy_1[i] = variance[i]
#     add[i] = _to_copy_1[i] + 1e-05
#     sqrt[i] = sqrt(add[i])
#     reciprocal[i] = reciprocal(sqrt[i])
#     mul[i] = reciprocal[i] * 1
#     sub[i, j, k, l] = x[i, j, k, l] - _to_copy[j]
#     mul_1[i, j, k, l] = sub[i, j, k, l] * mul[j]
#     mul_2[i, j, k, l] = mul_1[i, j, k, l] * weight[j]
#     add_1[i, j, k, l] = mul_2[i, j, k, l] + bias[j]
#   → relu[i, j, k, l] = maximum(add_1[i, j, k, l], 0)
# k0_add_sqrt_reciprocal_relu[cdiv(16384, YBLOCK) * cdiv(3136, XBLOCK)](YBLOCK=4, XBLOCK=256), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# _to_copy, add, sqrt, reciprocal, mul, sub, relu
@triton.jit
def k0_add_sqrt_reciprocal_relu(x_ptr, mean_ptr, variance_ptr, weight_ptr, bias_ptr, relu_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) // tl.cdiv(3136, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    j = row % 256
    start = tl.program_id(0) % tl.cdiv(3136, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 3136
    x = tl.load(x_ptr + row*3136 + k, mask=k_in)
    to_copy = tl.load(mean_ptr + j)
    sub = x - to_copy
    to_copy_1 = tl.load(variance_ptr + j)
    add = to_copy_1 + 1e-05
    sqrt = tl.sqrt_rn(add)
    reciprocal = 1.0 / sqrt
    mul = reciprocal * 1.0
    mul_1 = sub * mul
    weight = tl.load(weight_ptr + j)
    mul_2 = mul_1 * weight
    bias = tl.load(bias_ptr + j)
    add_1 = mul_2 + bias
    tl.store(relu_ptr + row*3136 + k, maximum_nan(add_1, tl.full((), 0.0, tl.float32)), mask=k_in)

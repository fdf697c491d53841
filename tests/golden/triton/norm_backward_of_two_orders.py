# kernel copy (pointwise) over 64 × 28 × 28 × 192 points:
#   → x_turned[i0, i1, i2, i3] = x[i0, i1, i2, i3]
# kernel native_layer_norm_backward (rows and split sums) over 64 × 28 × 28 points, each of 192:
#     sum_gx[i, j, k] = sum (float32(grad[i, j, k, l]) * weight[l]) * ((float32(x_turned[i, j, k, l]) - mean[i, j, k, 0]) * rstd[i, j, k, 0])  over l<192
#     sum_g[i, j, k] = sum float32(grad[i, j, k, l]) * weight[l]  over l<192
#   → grad_input[i, j, k, l] = (((float32(grad[i, j, k, l]) * weight[l]) - (((float32(x_turned[i, j, k, l]) - mean[i, j, k, 0]) * rstd[i, j, k, 0]) * (sum_gx[i, j, k] / 192))) - (sum_g[i, j, k] / 192)) * rstd[i, j, k, 0]
#   → grad_weight[l] = sum float32(grad[i, j, k, l]) * ((float32(x_turned[i, j, k, l]) - mean[i, j, k, 0]) * rstd[i, j, k, 0])  over i<64, j<28, k<28
#   → grad_bias[l] = sum float32(grad[i, j, k, l])  over i<64, j<28, k<28
# k0_copy[64 * cdiv(784, YBLOCK) * cdiv(192, XBLOCK)](YBLOCK=32, XBLOCK=64), 4 warps
# k1_native_layer_norm_backward[1056](XBLOCK=4, STAGES=3, RBLOCK=256), 1 warps
# k1_native_layer_norm_backward_finish[cdiv(192, XBLOCK)](XBLOCK=4, SBLOCK=512), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# copy
@triton.jit
def k0_copy(x_ptr, x_turned_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(192, XBLOCK) // tl.cdiv(784, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(192, XBLOCK) % tl.cdiv(784, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    j_in = j < 784
    start = tl.program_id(0) % tl.cdiv(192, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 192
    x_turned = tl.load(x_ptr + i*150528 + j + k*784, mask=j_in & k_in).to(tl.float32)
    tl.store(x_turned_ptr + i*150528 + j*192 + k, x_turned, mask=j_in & k_in)


# native_layer_norm_backward
@triton.jit
def k1_native_layer_norm_backward(weight_ptr, grad_ptr, x_turned_ptr, mean_ptr, rstd_ptr, grad_input_ptr, grad_weight_parts_ptr, grad_bias_parts_ptr, XBLOCK: tl.constexpr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 192
    grad_weight = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    weight = tl.load(weight_ptr + j, mask=j_in)
    for start in tl.range(tl.program_id(0) * XBLOCK, 50176, 1056 * XBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, XBLOCK)[:, None]
        grad = tl.load(grad_ptr + i*192 + j, mask=j_in).to(tl.float32)
        x_turned = tl.load(x_turned_ptr + i*192 + j, mask=j_in).to(tl.float32)
        mean = tl.load(mean_ptr + i)
        rstd = tl.load(rstd_ptr + i)
        t = (grad * weight) * ((x_turned - mean) * rstd)
        sum_gx = tl.sum(tl.where(j_in, t, 0.0), axis=1)[:, None]
        t_2 = grad * weight
        sum_g = tl.sum(tl.where(j_in, t_2, 0.0), axis=1)[:, None]
        t_3 = grad * ((x_turned - mean) * rstd)
        grad_weight = grad_weight + t_3
        grad_bias = grad_bias + grad
        tl.store(grad_input_ptr + i*192 + j, ((t_2 - (((x_turned - mean) * rstd) * (sum_gx / 192.0))) - (sum_g / 192.0)) * rstd, mask=j_in)
    grad_weight = tl.sum(grad_weight, axis=0)[None, :]
    tl.store(grad_weight_parts_ptr + tl.program_id(0) * 192 + j, grad_weight, mask=j_in)
    grad_bias = tl.sum(grad_bias, axis=0)[None, :]
    tl.store(grad_bias_parts_ptr + tl.program_id(0) * 192 + j, grad_bias, mask=j_in)


@triton.jit
def k1_native_layer_norm_backward_finish(grad_weight_parts_ptr, grad_bias_parts_ptr, grad_weight_ptr, grad_bias_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    grad_weight = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 1056, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        grad_weight = grad_weight + tl.load(grad_weight_parts_ptr + slab * 192 + j, mask=(slab < 1056), other=0.0)
        grad_bias = grad_bias + tl.load(grad_bias_parts_ptr + slab * 192 + j, mask=(slab < 1056), other=0.0)
    tl.store(grad_weight_ptr + j, tl.sum(grad_weight, axis=1)[:, None])
    tl.store(grad_bias_ptr + j, tl.sum(grad_bias, axis=1)[:, None])

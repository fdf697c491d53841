# kernel native_layer_norm_backward_add (rows and split sums) over 128 × 196 points, each of 768:
#     sum_gx[i, j] = sum (float32(grad[i, j, k]) * weight[k]) * ((float32(x[i, j, k]) - mean[i, j, 0]) * rstd[i, j, 0])  over k<768
#     sum_g[i, j] = sum float32(grad[i, j, k]) * weight[k]  over k<768
#     grad_input[i, j, k] = (((float32(grad[i, j, k]) * weight[k]) - (((float32(x[i, j, k]) - mean[i, j, 0]) * rstd[i, j, 0]) * (sum_gx[i, j] / 768))) - (sum_g[i, j] / 768)) * rstd[i, j, 0]
#   → grad_weight[k] = sum float32(grad[i, j, k]) * ((float32(x[i, j, k]) - mean[i, j, 0]) * rstd[i, j, 0])  over i<128, j<196
#   → grad_bias[k] = sum float32(grad[i, j, k])  over i<128, j<196
#     add[i, j, k] = float32(other[i, j, k]) + float32(grad_input[i, j, k])
#   → clone_turned[i, j, k] = add[i, k, j]
# kernel copy (pointwise) over 128 × 768 × 196 points:
#   → clone[i0, i1, i2] = clone_turned[i0, i1, i2]
# k0_native_layer_norm_backward_add[528](XBLOCK=2, STAGES=3, RBLOCK=1024), 2 warps
# k0_native_layer_norm_backward_add_finish[cdiv(768, XBLOCK)](XBLOCK=8, SBLOCK=256), 4 warps
# k1_copy[128 * cdiv(768, YBLOCK) * cdiv(196, XBLOCK)](YBLOCK=32, XBLOCK=64), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# native_layer_norm_backward, add, clone
@triton.jit
def k0_native_layer_norm_backward_add(weight_ptr, grad_ptr, x_ptr, mean_ptr, rstd_ptr, other_ptr, clone_turned_ptr, grad_weight_parts_ptr, grad_bias_parts_ptr, XBLOCK: tl.constexpr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 768
    grad_weight = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    weight = tl.load(weight_ptr + j, mask=j_in)
    for start in tl.range(tl.program_id(0) * XBLOCK, 25088, 528 * XBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, XBLOCK)[:, None]
        grad = tl.load(grad_ptr + i*768 + j, mask=j_in).to(tl.float32)
        x = tl.load(x_ptr + i*768 + j, mask=j_in).to(tl.float32)
        mean = tl.load(mean_ptr + i)
        rstd = tl.load(rstd_ptr + i)
        t = (grad * weight) * ((x - mean) * rstd)
        sum_gx = tl.sum(tl.where(j_in, t, 0.0), axis=1)[:, None]
        t_2 = grad * weight
        sum_g = tl.sum(tl.where(j_in, t_2, 0.0), axis=1)[:, None]
        t_3 = grad * ((x - mean) * rstd)
        grad_weight = grad_weight + t_3
        grad_bias = grad_bias + grad
        other = tl.load(other_ptr + i*768 + j, mask=j_in).to(tl.float32)
        grad_input = ((t_2 - (((x - mean) * rstd) * (sum_gx / 768.0))) - (sum_g / 768.0)) * rstd
        tl.store(clone_turned_ptr + i*768 + j, other + grad_input, mask=j_in)
    grad_weight = tl.sum(grad_weight, axis=0)[None, :]
    tl.store(grad_weight_parts_ptr + tl.program_id(0) * 768 + j, grad_weight, mask=j_in)
    grad_bias = tl.sum(grad_bias, axis=0)[None, :]
    tl.store(grad_bias_parts_ptr + tl.program_id(0) * 768 + j, grad_bias, mask=j_in)


@triton.jit
def k0_native_layer_norm_backward_add_finish(grad_weight_parts_ptr, grad_bias_parts_ptr, grad_weight_ptr, grad_bias_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    grad_weight = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 528, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        grad_weight = grad_weight + tl.load(grad_weight_parts_ptr + slab * 768 + j, mask=(slab < 528), other=0.0)
        grad_bias = grad_bias + tl.load(grad_bias_parts_ptr + slab * 768 + j, mask=(slab < 528), other=0.0)
    tl.store(grad_weight_ptr + j, tl.sum(grad_weight, axis=1)[:, None])
    tl.store(grad_bias_ptr + j, tl.sum(grad_bias, axis=1)[:, None])


# copy
@triton.jit
def k1_copy(clone_turned_ptr, clone_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(196, XBLOCK) // tl.cdiv(768, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(196, XBLOCK) % tl.cdiv(768, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(196, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 196
    clone = tl.load(clone_turned_ptr + i*150528 + j + k*768, mask=k_in).to(tl.float32)
    tl.store(clone_ptr + i*150528 + j*196 + k, clone, mask=k_in)

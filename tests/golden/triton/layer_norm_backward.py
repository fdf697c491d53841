# kernel native_layer_norm_backward (rows and split sums) over 32768 points, each of 4096:
#     sum_gx[i] = sum (float32(grad[i, j]) * weight[j]) * ((float32(x[i, j]) - mean[i, 0]) * rstd[i, 0])  over j<4096
#     sum_g[i] = sum float32(grad[i, j]) * weight[j]  over j<4096
#   → grad_input[i, j] = (((float32(grad[i, j]) * weight[j]) - (((float32(x[i, j]) - mean[i, 0]) * rstd[i, 0]) * (sum_gx[i] / 4096))) - (sum_g[i] / 4096)) * rstd[i, 0]
#   → grad_weight[j] = sum float32(grad[i, j]) * ((float32(x[i, j]) - mean[i, 0]) * rstd[i, 0])  over i<32768
#   → grad_bias[j] = sum float32(grad[i, j])  over i<32768
# k0_native_layer_norm_backward[264](STAGES=3, RBLOCK=4096), 8 warps
# k0_native_layer_norm_backward_finish[cdiv(4096, XBLOCK)](XBLOCK=32, SBLOCK=64), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# native_layer_norm_backward
@triton.jit
def k0_native_layer_norm_backward(weight_ptr, grad_ptr, x_ptr, mean_ptr, rstd_ptr, grad_input_ptr, grad_weight_parts_ptr, grad_bias_parts_ptr, STAGES: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)
    grad_weight = tl.full([RBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([RBLOCK], 0.0, tl.float32)
    weight = tl.load(weight_ptr + j)
    for start in tl.range(tl.program_id(0), 32768, 264, num_stages=STAGES):
        i = start
        grad = tl.load(grad_ptr + i*4096 + j).to(tl.float32)
        x = tl.load(x_ptr + i*4096 + j).to(tl.float32)
        mean = tl.load(mean_ptr + i)
        rstd = tl.load(rstd_ptr + i)
        t = (grad * weight) * ((x - mean) * rstd)
        sum_gx = tl.sum(t, axis=0)
        t_2 = grad * weight
        sum_g = tl.sum(t_2, axis=0)
        t_3 = grad * ((x - mean) * rstd)
        grad_weight = grad_weight + t_3
        grad_bias = grad_bias + grad
        tl.store(grad_input_ptr + i*4096 + j, ((t_2 - (((x - mean) * rstd) * (sum_gx / 4096.0))) - (sum_g / 4096.0)) * rstd)
    tl.store(grad_weight_parts_ptr + tl.program_id(0) * 4096 + j, grad_weight)
    tl.store(grad_bias_parts_ptr + tl.program_id(0) * 4096 + j, grad_bias)


@triton.jit
def k0_native_layer_norm_backward_finish(grad_weight_parts_ptr, grad_bias_parts_ptr, grad_weight_ptr, grad_bias_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    grad_weight = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 264, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        grad_weight = grad_weight + tl.load(grad_weight_parts_ptr + slab * 4096 + j, mask=(slab < 264), other=0.0)
        grad_bias = grad_bias + tl.load(grad_bias_parts_ptr + slab * 4096 + j, mask=(slab < 264), other=0.0)
    tl.store(grad_weight_ptr + j, tl.sum(grad_weight, axis=1)[:, None])
    tl.store(grad_bias_ptr + j, tl.sum(grad_bias, axis=1)[:, None])

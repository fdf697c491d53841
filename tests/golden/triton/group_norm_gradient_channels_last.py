# kernel native_group_norm_backward (rows) over 16 × 256 points, each of 64 × 64:
#   → sum_gx[i, j] = sum float32(grad[i, j, k, l]) * ((float32(x[i, j, k, l]) - float32(mean[i, (j//8)])) * float32(rstd[i, (j//8)]))  over k<64, l<64
#   → sum_g[i, j] = sum float32(grad[i, j, k, l])  over k<64, l<64
# kernel native_group_norm_backward_2 (rows) over 16 × 32 points, each of 8:
#   → group_sum[i, j] = sum sum_gx[i, 8*j + k] * float32(weight[8*j + k])  over k<8
#   → group_sum_1[i, j] = sum sum_g[i, 8*j + k] * float32(weight[8*j + k])  over k<8
# kernel native_group_norm_backward_3 (pointwise) over 16 × 256 × 64 × 64 points:
#   → grad_input[i, j, k, l] = (((float32(grad[i, j, k, l]) * float32(weight[j])) - (((float32(x[i, j, k, l]) - float32(mean[i, (j//8)])) * float32(rstd[i, (j//8)])) * (group_sum[i, (j//8)] / 32768))) - (group_sum_1[i, (j//8)] / 32768)) * float32(rstd[i, (j//8)])
# kernel native_group_norm_backward_4 (columns) over 256 points, each of 16:
#   → grad_weight[j] = sum sum_gx[i, j]  over i<16
#   → grad_bias[j] = sum sum_g[i, j]  over i<16
# k0_native_group_norm_backward[cdiv(4096, XBLOCK), 8](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_native_group_norm_backward_finish[cdiv(4096, XBLOCK)](XBLOCK=32, SBLOCK=8), 1 warps
# k1_native_group_norm_backward_2[cdiv(512, XBLOCK)](XBLOCK=256, RBLOCK=8), 4 warps
# k2_native_group_norm_backward_3[16 * cdiv(4096, YBLOCK) * cdiv(256, XBLOCK)](YBLOCK=32, XBLOCK=128), 4 warps
# k3_native_group_norm_backward_4[cdiv(256, XBLOCK)](XBLOCK=256, RBLOCK=1), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# native_group_norm_backward
@triton.jit
def k0_native_group_norm_backward(mean_ptr, rstd_ptr, grad_ptr, x_ptr, sum_gx_parts_ptr, sum_g_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 256
    k = row % 256
    slab = tl.program_id(1)
    chunk = 512
    first = slab * chunk
    end = tl.minimum(first + chunk, 4096)
    mean = tl.load(mean_ptr + ((k) // 8) + i*32).to(tl.float32)
    rstd = tl.load(rstd_ptr + ((k) // 8) + i*32).to(tl.float32)
    sum_gx = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    sum_g = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        grad = tl.load(grad_ptr + i*1048576 + k + j*256).to(tl.float32)
        x = tl.load(x_ptr + i*1048576 + k + j*256).to(tl.float32)
        sum_gx = sum_gx + (grad * ((x - mean) * rstd))
        sum_g = sum_g + grad
    sum_gx = tl.sum(sum_gx, axis=1)[:, None]
    sum_g = tl.sum(sum_g, axis=1)[:, None]
    tl.store(sum_gx_parts_ptr + slab * 4096 + row, sum_gx)
    tl.store(sum_g_parts_ptr + slab * 4096 + row, sum_g)


@triton.jit
def k0_native_group_norm_backward_finish(sum_gx_parts_ptr, sum_g_parts_ptr, sum_gx_ptr, sum_g_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_gx_parts = tl.load(sum_gx_parts_ptr + slab * 4096 + row)
    sum_g_parts = tl.load(sum_g_parts_ptr + slab * 4096 + row)
    sum_gx = tl.sum(sum_gx_parts, axis=1)[:, None]
    sum_g = tl.sum(sum_g_parts, axis=1)[:, None]
    tl.store(sum_gx_ptr + row, sum_gx)
    tl.store(sum_g_ptr + row, sum_g)


# native_group_norm_backward
@triton.jit
def k1_native_group_norm_backward_2(sum_gx_ptr, weight_ptr, sum_g_ptr, group_sum_ptr, group_sum_1_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j = row % 32
    k = tl.arange(0, RBLOCK)[None, :]
    sum_gx = tl.load(sum_gx_ptr + row*8 + k)
    weight = tl.load(weight_ptr + j*8 + k).to(tl.float32)
    t = sum_gx * weight
    group_sum = tl.sum(t, axis=1)[:, None]
    sum_g = tl.load(sum_g_ptr + row*8 + k)
    t_2 = sum_g * weight
    group_sum_1 = tl.sum(t_2, axis=1)[:, None]
    tl.store(group_sum_ptr + row, group_sum)
    tl.store(group_sum_1_ptr + row, group_sum_1)


# native_group_norm_backward
@triton.jit
def k2_native_group_norm_backward_3(grad_ptr, weight_ptr, x_ptr, mean_ptr, rstd_ptr, group_sum_ptr, group_sum_1_ptr, grad_input_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(256, XBLOCK) // tl.cdiv(4096, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(256, XBLOCK) % tl.cdiv(4096, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(256, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    grad = tl.load(grad_ptr + i*1048576 + k + j*256).to(tl.float32)
    weight = tl.load(weight_ptr + k).to(tl.float32)
    x = tl.load(x_ptr + i*1048576 + k + j*256).to(tl.float32)
    mean = tl.load(mean_ptr + ((k) // 8) + i*32).to(tl.float32)
    rstd = tl.load(rstd_ptr + ((k) // 8) + i*32).to(tl.float32)
    group_sum = tl.load(group_sum_ptr + ((k) // 8) + i*32)
    group_sum_1 = tl.load(group_sum_1_ptr + ((k) // 8) + i*32)
    tl.store(grad_input_ptr + i*1048576 + k + j*256, (((grad * weight) - (((x - mean) * rstd) * (group_sum * 3.0517578e-05))) - (group_sum_1 * 3.0517578e-05)) * rstd)


# native_group_norm_backward
@triton.jit
def k3_native_group_norm_backward_4(sum_gx_ptr, sum_g_ptr, grad_weight_ptr, grad_bias_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    grad_weight = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    grad_bias = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.static_range(0, 16, RBLOCK):
        i = start + tl.arange(0, RBLOCK)[None, :]
        sum_gx = tl.load(sum_gx_ptr + i*256 + j)
        sum_g = tl.load(sum_g_ptr + i*256 + j)
        grad_weight = grad_weight + sum_gx
        grad_bias = grad_bias + sum_g
    grad_weight = tl.sum(grad_weight, axis=1)[:, None]
    grad_bias = tl.sum(grad_bias, axis=1)[:, None]
    tl.store(grad_weight_ptr + j, grad_weight)
    tl.store(grad_bias_ptr + j, grad_bias)

# kernel var_mean_add_rsqrt (rows) over 256 points, each of 64 × 56 × 56:
#   → var_mean_mean, var_mean_m2[j] = welford x[i, j, k, l]  over i<64, k<56, l<56
#     var_mean[i] = var_mean_m2[i] / 200704
#     add[i, j, k, l] = var_mean[j] + 1e-05
#   → rsqrt[i, j, k, l] = rsqrt(add[0, j, 0, 0])
# kernel sub_mul_add_relu (pointwise) over 64 × 256 × 56 × 56 points:
#     sub[i, j, k, l] = x[i, j, k, l] - var_mean_mean[j]
#     mul[i, j, k, l] = sub[i, j, k, l] * rsqrt[0, j, 0, 0]
#     mul_1[i, j, k, l] = mul[i, j, k, l] * weight[j]
#     add_1[i, j, k, l] = mul_1[i, j, k, l] + bias[j]
#   → relu[i, j, k, l] = maximum(add_1[i, j, k, l], 0)
# k0_var_mean_add_rsqrt[cdiv(256, XBLOCK), 132](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_var_mean_add_rsqrt_finish[cdiv(256, XBLOCK)](XBLOCK=16, SBLOCK=256), 8 warps
# k1_sub_mul_add_relu[cdiv(200704, YBLOCK) * cdiv(256, XBLOCK)](YBLOCK=32, XBLOCK=128), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# var_mean, add, rsqrt
@triton.jit
def k0_var_mean_add_rsqrt(x_ptr, var_mean_mean_parts_ptr, var_mean_m2_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 1536
    first = slab * chunk
    end = tl.minimum(first + chunk, 200704)
    var_mean_mean = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    var_mean_mean_squares = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*256 + j)
        step = 1.0 / ((start - first) // RBLOCK + 1)
        delta = x - var_mean_mean
        var_mean_mean += delta * step
        var_mean_mean_squares += delta * (delta - delta * step)
    counts = tl.maximum((end - (first + tl.arange(0, RBLOCK)[None, :]) + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
    var_mean_mean_whole = tl.sum(var_mean_mean * counts, axis=1)[:, None] / tl.maximum(end - first, 1)
    var_mean_mean_squares = tl.sum(var_mean_mean_squares + counts * (var_mean_mean - var_mean_mean_whole) * (var_mean_mean - var_mean_mean_whole), axis=1)[:, None]
    var_mean_mean = var_mean_mean_whole
    tl.store(var_mean_mean_parts_ptr + slab * 256 + j, var_mean_mean)
    tl.store(var_mean_m2_parts_ptr + slab * 256 + j, var_mean_mean_squares)


@triton.jit
def k0_var_mean_add_rsqrt_finish(var_mean_mean_parts_ptr, var_mean_m2_parts_ptr, var_mean_mean_ptr, rsqrt_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    var_mean_mean_parts = tl.load(var_mean_mean_parts_ptr + slab * 256 + j, mask=(slab < 132), other=0.0)
    var_mean_m2_parts = tl.load(var_mean_m2_parts_ptr + slab * 256 + j, mask=(slab < 132), other=0.0)
    chunk = 1536
    counts = tl.minimum(tl.maximum(200704 - slab * chunk, 0), chunk).to(tl.float32)
    var_mean_mean_whole = tl.sum(var_mean_mean_parts * counts, axis=1)[:, None] / 200704.0
    var_mean_m2_parts = tl.sum(var_mean_m2_parts + counts * (var_mean_mean_parts - var_mean_mean_whole) * (var_mean_mean_parts - var_mean_mean_whole), axis=1)[:, None]
    var_mean_mean_parts = var_mean_mean_whole
    tl.store(var_mean_mean_ptr + j, var_mean_mean_parts)
    var_mean = var_mean_m2_parts / 200704.0
    add = var_mean + 1e-05
    tl.store(rsqrt_ptr + j, tl.rsqrt(add))


# sub, mul, add, relu
@triton.jit
def k1_sub_mul_add_relu(x_ptr, var_mean_mean_ptr, rsqrt_ptr, weight_ptr, bias_ptr, relu_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(256, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(256, XBLOCK) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + i*256 + j)
    var_mean_mean = tl.load(var_mean_mean_ptr + j)
    sub = x - var_mean_mean
    rsqrt = tl.load(rsqrt_ptr + j)
    mul = sub * rsqrt
    weight = tl.load(weight_ptr + j)
    mul_1 = mul * weight
    bias = tl.load(bias_ptr + j)
    add_1 = mul_1 + bias
    tl.store(relu_ptr + i*256 + j, maximum_nan(add_1, tl.full((), 0.0, tl.float32)))

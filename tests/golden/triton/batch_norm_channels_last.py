# kernel var_mean_add_rsqrt_relu (rows) over 256 points, each of 64 × 56 × 56:
#     var_mean_mean, var_mean_m2[j] = welford x[i, j, k, l]  over i<64, k<56, l<56
#     var_mean[i] = var_mean_m2[i] / 200704
#     add[i, j, k, l] = var_mean[j] + 1e-05
#     rsqrt[i, j, k, l] = rsqrt(add[0, j, 0, 0])
#     sub[i, j, k, l] = x[i, j, k, l] - var_mean_mean[j]
#     mul[i, j, k, l] = sub[i, j, k, l] * rsqrt[0, j, 0, 0]
#     mul_1[i, j, k, l] = mul[i, j, k, l] * weight[j]
#     add_1[i, j, k, l] = mul_1[i, j, k, l] + bias[j]
#   → relu[i, j, k, l] = maximum(add_1[i, j, k, l], 0)
# k0_var_mean_add_rsqrt_relu[cdiv(256, XBLOCK)](XBLOCK=64, RBLOCK=64, STAGES=3), 8 warps
# made by nbcompile
import triton
import triton.language as tl


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# var_mean, add, rsqrt, sub, mul, relu
@triton.jit
def k0_var_mean_add_rsqrt_relu(x_ptr, weight_ptr, bias_ptr, relu_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    var_mean_mean = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    var_mean_mean_squares = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in tl.range(0, 200704, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*256 + j, eviction_policy="evict_last")
        step = 1.0 / (start // RBLOCK + 1)
        delta = x - var_mean_mean
        var_mean_mean += delta * step
        var_mean_mean_squares += delta * (delta - delta * step)
    counts = tl.maximum((200704 - tl.arange(0, RBLOCK)[None, :] + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
    var_mean_mean_whole = tl.sum(var_mean_mean * counts, axis=1)[:, None] / 200704.0
    var_mean_mean_squares = tl.sum(var_mean_mean_squares + counts * (var_mean_mean - var_mean_mean_whole) * (var_mean_mean - var_mean_mean_whole), axis=1)[:, None]
    var_mean_mean = var_mean_mean_whole
    var_mean = var_mean_mean_squares / 200704.0
    add = var_mean + 1e-05
    rsqrt = tl.rsqrt(add)
    weight = tl.load(weight_ptr + j)
    bias = tl.load(bias_ptr + j)
    for start in tl.range(0, 200704, RBLOCK, num_stages=STAGES):
        i = (tl.cdiv(200704, RBLOCK) - 1) * RBLOCK - start + tl.arange(0, RBLOCK)[None, :]
        x_2 = tl.load(x_ptr + i*256 + j, eviction_policy="evict_first")
        sub = x_2 - var_mean_mean
        mul = sub * rsqrt
        mul_1 = mul * weight
        add_1 = mul_1 + bias
        tl.store(relu_ptr + i*256 + j, maximum_nan(add_1, tl.full((), 0.0, tl.float32)))

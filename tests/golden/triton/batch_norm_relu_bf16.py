# kernel var_mean_add_rsqrt_relu (rows) over 64 points, each of 64 × 112 × 112:
#     _to_copy[i, j, k, l] = float32(x[i, j, k, l])
#     var_mean_mean, var_mean_m2[j] = welford _to_copy[i, j, k, l]  over i<64, k<112, l<112
#     var_mean[i] = var_mean_m2[i] / 802816
#     add[i, j, k, l] = var_mean[j] + 1e-05
#     rsqrt[i, j, k, l] = rsqrt(add[0, j, 0, 0])
#     sub[i, j, k, l] = float32(x[i, j, k, l]) - var_mean_mean[j]
#     mul[i, j, k, l] = sub[i, j, k, l] * rsqrt[0, j, 0, 0]
#     mul_1[i, j, k, l] = mul[i, j, k, l] * float32(weight[j])
#     add_1[i, j, k, l] = mul_1[i, j, k, l] + float32(bias[j])
#     _to_copy_3[i, j, k, l] = bfloat16(add_1[i, j, k, l])
#   → relu[i, j, k, l] = maximum(float32(_to_copy_3[i, j, k, l]), 0)
# k0_var_mean_add_rsqrt_relu[33 * GROUPS](RBLOCK=2048, STAGES=3, GROUPS=16), 4 warps
# made by nbcompile
import triton
import triton.language as tl


@triton.jit
def wait_for_all(counter, count):
    """Return when ``count`` programs have come here: what they stored before can be read after."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# _to_copy, var_mean, add, rsqrt, sub, mul, relu
@triton.jit
def k0_var_mean_add_rsqrt_relu(x_ptr, var_mean_mean_parts_ptr, var_mean_m2_parts_ptr, to_copy_arrived_ptr, weight_ptr, bias_ptr, relu_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr, GROUPS: tl.constexpr):
    part = tl.program_id(0) % 33
    first = part * 24576
    end = tl.minimum(first + 24576, 802816)
    for j in range(tl.program_id(0) // 33, 64, GROUPS):
        var_mean_mean = tl.full([RBLOCK], 0, tl.float32)
        var_mean_mean_squares = tl.full([RBLOCK], 0, tl.float32)
        for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
            within = start + tl.arange(0, RBLOCK)
            i = within // 12544
            k = within % 12544
            to_copy = tl.load(x_ptr + i*802816 + j*12544 + k, eviction_policy="evict_last").to(tl.float32)
            step = 1.0 / ((start - first) // RBLOCK + 1)
            delta = to_copy - var_mean_mean
            var_mean_mean += delta * step
            var_mean_mean_squares += delta * (delta - delta * step)
        counts = tl.maximum((end - (first + tl.arange(0, RBLOCK)) + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
        var_mean_mean_whole = tl.sum(var_mean_mean * counts, axis=0) / tl.maximum(end - first, 1)
        var_mean_mean_squares = tl.sum(var_mean_mean_squares + counts * (var_mean_mean - var_mean_mean_whole) * (var_mean_mean - var_mean_mean_whole), axis=0)
        var_mean_mean = var_mean_mean_whole
        tl.store(var_mean_mean_parts_ptr + j * 33 + part, var_mean_mean)
        tl.store(var_mean_m2_parts_ptr + j * 33 + part, var_mean_mean_squares)
        wait_for_all(to_copy_arrived_ptr + j, 33)
        var_mean_mean_parts = tl.load(var_mean_mean_parts_ptr + j * 33 + tl.arange(0, 64), mask=(tl.arange(0, 64) < 33), other=0.0, volatile=True)
        var_mean_m2_parts = tl.load(var_mean_m2_parts_ptr + j * 33 + tl.arange(0, 64), mask=(tl.arange(0, 64) < 33), other=0.0, volatile=True)
        var_mean_mean_whole_2 = tl.sum(var_mean_mean_parts * tl.minimum(tl.maximum(802816 - tl.arange(0, 64) * 24576, 0), 24576).to(tl.float32), axis=0) / 802816.0
        var_mean_m2_parts = tl.sum(var_mean_m2_parts + tl.minimum(tl.maximum(802816 - tl.arange(0, 64) * 24576, 0), 24576).to(tl.float32) * (var_mean_mean_parts - var_mean_mean_whole_2) * (var_mean_mean_parts - var_mean_mean_whole_2), axis=0)
        var_mean_mean_parts = var_mean_mean_whole_2
        var_mean = var_mean_m2_parts * 1.2456154e-06
        add = var_mean + 1e-05
        rsqrt = tl.rsqrt(add)
        weight = tl.load(weight_ptr + j).to(tl.float32)
        bias = tl.load(bias_ptr + j).to(tl.float32)
        for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
            within = start + tl.arange(0, RBLOCK)
            i = within // 12544
            k = within % 12544
            to_copy_2 = tl.load(x_ptr + i*802816 + j*12544 + k, eviction_policy="evict_first").to(tl.float32)
            sub = to_copy_2 - var_mean_mean_parts
            mul = sub * rsqrt
            mul_1 = mul * weight
            add_1 = mul_1 + bias
            to_copy_3 = add_1.to(tl.bfloat16).to(tl.float32)
            tl.store(relu_ptr + i*802816 + j*12544 + k, maximum_nan(to_copy_3, tl.full((), 0.0, tl.float32)))

# kernel group_norm (rows) over 16 × 32 points, each of 10 × 64 × 64:
#   → native_group_norm_mean, native_group_norm_m2[i, j] = welford float32(x[i, 10*j + k, l, m])  over k<10, l<64, m<64
#   → rstd[i, j] = rsqrt((native_group_norm_m2[i, j] / 40960) + 1e-05)
# kernel group_norm_sigmoid_mul (pointwise) over 16 × 320 × 64 × 64 points:
#     native_group_norm[i, j, k, l] = (((float32(x[i, j, k, l]) - native_group_norm_mean[i, (j//10)]) * rstd[i, (j//10)]) * float32(weight[j])) + float32(bias[j])
#     _to_copy[i, j, k, l] = float32(native_group_norm[i, j, k, l])
#     sigmoid[i, j, k, l] = sigmoid(_to_copy[i, j, k, l])
#     mul[i, j, k, l] = _to_copy[i, j, k, l] * sigmoid[i, j, k, l]
#   → _to_copy_1[i, j, k, l] = bfloat16(mul[i, j, k, l])
# k0_group_norm[cdiv(5120, XBLOCK), 6](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_group_norm_finish[cdiv(512, XBLOCK)](XBLOCK=16, SBLOCK=64), 4 warps
# k1_group_norm_sigmoid_mul[16 * cdiv(4096, YBLOCK) * cdiv(320, XBLOCK)](YBLOCK=64, XBLOCK=64), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended
from triton.language.extra import libdevice


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); of float32 in 5 instructions, which take subnormal numbers for 0."""
    if x.dtype == tl.float32:
        power = libdevice.exp2(x * -1.442695)  # -1 / log(2)
        return libdevice.fast_dividef(tl.full((), 1.0, tl.float32), 1.0 + power)
    else:
        return 1.0 / (1.0 + tl.exp(-1.0 * x))


# native_group_norm
@triton.jit
def k0_group_norm(x_ptr, native_group_norm_mean_parts_ptr, native_group_norm_m2_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 320
    lane = row % 320
    slab = tl.program_id(1)
    chunk = 704
    first = slab * chunk
    end = tl.minimum(first + chunk, 4096)
    native_group_norm_mean = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    native_group_norm_mean_squares = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*1310720 + lane + j*320).to(tl.float32)
        step = 1.0 / ((start - first) // RBLOCK + 1)
        delta = x - native_group_norm_mean
        native_group_norm_mean += delta * step
        native_group_norm_mean_squares += delta * (delta - delta * step)
    counts = tl.maximum((end - (first + tl.arange(0, RBLOCK)[None, :]) + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
    native_group_norm_mean_whole = tl.sum(native_group_norm_mean * counts, axis=1)[:, None] / tl.maximum(end - first, 1)
    native_group_norm_mean_squares = tl.sum(native_group_norm_mean_squares + counts * (native_group_norm_mean - native_group_norm_mean_whole) * (native_group_norm_mean - native_group_norm_mean_whole), axis=1)[:, None]
    native_group_norm_mean = native_group_norm_mean_whole
    tl.store(native_group_norm_mean_parts_ptr + slab * 5120 + row, native_group_norm_mean)
    tl.store(native_group_norm_m2_parts_ptr + slab * 5120 + row, native_group_norm_mean_squares)


@triton.jit
def k0_group_norm_finish(native_group_norm_mean_parts_ptr, native_group_norm_m2_parts_ptr, native_group_norm_mean_ptr, rstd_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    part = tl.arange(0, SBLOCK)[None, :]
    slab = part // 10
    l = part % 10
    native_group_norm_mean_parts = tl.load(native_group_norm_mean_parts_ptr + slab * 5120 + row * 10 + l, mask=(part < 60), other=0.0)
    native_group_norm_m2_parts = tl.load(native_group_norm_m2_parts_ptr + slab * 5120 + row * 10 + l, mask=(part < 60), other=0.0)
    chunk = 704
    counts = tl.minimum(tl.maximum(4096 - slab * chunk, 0), chunk).to(tl.float32)
    native_group_norm_mean_whole = tl.sum(native_group_norm_mean_parts * counts, axis=1)[:, None] / 40960.0
    native_group_norm_m2_parts = tl.sum(native_group_norm_m2_parts + counts * (native_group_norm_mean_parts - native_group_norm_mean_whole) * (native_group_norm_mean_parts - native_group_norm_mean_whole), axis=1)[:, None]
    native_group_norm_mean_parts = native_group_norm_mean_whole
    tl.store(native_group_norm_mean_ptr + row, native_group_norm_mean_parts)
    tl.store(rstd_ptr + row, tl.rsqrt(((native_group_norm_m2_parts / 40960.0) + 1e-05)))


# native_group_norm, _to_copy, sigmoid, mul
@triton.jit
def k1_group_norm_sigmoid_mul(x_ptr, native_group_norm_mean_ptr, rstd_ptr, weight_ptr, bias_ptr, to_copy_1_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(320, XBLOCK) // tl.cdiv(4096, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(320, XBLOCK) % tl.cdiv(4096, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(320, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + i*1310720 + k + j*320).to(tl.float32)
    native_group_norm_mean = tl.load(native_group_norm_mean_ptr + ((k) // 10) + i*32)
    rstd = tl.load(rstd_ptr + ((k) // 10) + i*32)
    weight = tl.load(weight_ptr + k).to(tl.float32)
    bias = tl.load(bias_ptr + k).to(tl.float32)
    native_group_norm = (((x - native_group_norm_mean) * rstd) * weight) + bias
    sigmoid_ = sigmoid(native_group_norm)
    mul = native_group_norm * sigmoid_
    tl.store(to_copy_1_ptr + i*1310720 + k + j*320, mul.to(tl.bfloat16).to(tl.float32))

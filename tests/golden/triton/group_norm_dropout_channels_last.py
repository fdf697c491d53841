# philox_seed = library aten.randint.low(-9223372036854775808, 9223372036854775807, [1], dtype=torch.int64)
# kernel group_norm (rows) over 16 × 32 points, each of 4 × 64 × 64:
#   → native_group_norm_mean, native_group_norm_m2[i, j] = welford float32(x[i, 4*j + k, l, m])  over k<4, l<64, m<64
#   → rstd[i, j] = rsqrt((native_group_norm_m2[i, j] / 16384) + 1e-05)
# kernel rand_lt_group_norm_mul (pointwise) over 16 × 128 × 64 × 64 points:
#     rand[i, j, k, l] = philox_uniform(philox_seed[0], (4*draw_0 + 524288*i + 4096*j + 64*k + l))
#     lt[i, j, k, l] = rand[i, j, k, l] < 0.9
#     native_group_norm[i, j, k, l] = (((float32(x[i, j, k, l]) - native_group_norm_mean[i, (j//4)]) * rstd[i, (j//4)]) * float32(weight[j])) + float32(bias[j])
#     _to_copy[i, j, k, l] = float32(native_group_norm[i, j, k, l])
#     sigmoid[i, j, k, l] = sigmoid(_to_copy[i, j, k, l])
#     mul[i, j, k, l] = _to_copy[i, j, k, l] * sigmoid[i, j, k, l]
#     _to_copy_1[i, j, k, l] = bfloat16(mul[i, j, k, l])
#   → mul_1[i, j, k, l] = float32(_to_copy_1[i, j, k, l]) * float32(lt[i, j, k, l])
# k0_group_norm[cdiv(2048, XBLOCK), 16](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_group_norm_finish[cdiv(512, XBLOCK)](XBLOCK=16, SBLOCK=64), 4 warps
# k1_rand_lt_group_norm_mul[16 * cdiv(4096, YBLOCK) * cdiv(128, XBLOCK)](YBLOCK=32, XBLOCK=128), 4 warps
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


@triton.jit
def philox(seed, block):
    """Four random 32-bit words a block number: Philox-4x32-10 (Salmon et al., SC 2011)."""
    key = tl.cast(seed, tl.int64)
    k0 = key.to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0 = block.to(tl.uint32)
    c2 = c0 ^ c0
    c3 = c2
    if block.dtype == tl.int64:
        c1 = (block >> 32).to(tl.uint32)
    else:
        c1 = c2
    for _ in tl.static_range(10):
        high = tl.umulhi(0xCD9E8D57, c2) ^ c1 ^ k0
        c1 = tl.mul(0xCD9E8D57, c2, sanitize_overflow=False)
        c2 = tl.umulhi(0xD2511F53, c0) ^ c3 ^ k1
        c3 = tl.mul(0xD2511F53, c0, sanitize_overflow=False)
        c0 = high
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return c0, c1, c2, c3


@triton.jit
def unit_interval(word):
    """The top 24 bits of a 32-bit word as a float32 in [0, 1)."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2**-24


@triton.jit
def philox_uniform4_down(seed, block):
    """Four uniform random numbers in [0, 1) a block number, one below the other."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    words = tl.permute(words, (0, 2, 3, 1))
    return unit_interval(tl.reshape(words, [4 * words.shape[0], words.shape[-1]]))


# native_group_norm
@triton.jit
def k0_group_norm(x_ptr, native_group_norm_mean_parts_ptr, native_group_norm_m2_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i = row // 128
    lane = row % 128
    slab = tl.program_id(1)
    chunk = 256
    first = slab * chunk
    end = tl.minimum(first + chunk, 4096)
    native_group_norm_mean = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    native_group_norm_mean_squares = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)[None, :]
        x = tl.load(x_ptr + i*524288 + lane + j*128).to(tl.float32)
        step = 1.0 / ((start - first) // RBLOCK + 1)
        delta = x - native_group_norm_mean
        native_group_norm_mean += delta * step
        native_group_norm_mean_squares += delta * (delta - delta * step)
    counts = tl.maximum((end - (first + tl.arange(0, RBLOCK)[None, :]) + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
    native_group_norm_mean_whole = tl.sum(native_group_norm_mean * counts, axis=1)[:, None] / tl.maximum(end - first, 1)
    native_group_norm_mean_squares = tl.sum(native_group_norm_mean_squares + counts * (native_group_norm_mean - native_group_norm_mean_whole) * (native_group_norm_mean - native_group_norm_mean_whole), axis=1)[:, None]
    native_group_norm_mean = native_group_norm_mean_whole
    tl.store(native_group_norm_mean_parts_ptr + slab * 2048 + row, native_group_norm_mean)
    tl.store(native_group_norm_m2_parts_ptr + slab * 2048 + row, native_group_norm_mean_squares)


@triton.jit
def k0_group_norm_finish(native_group_norm_mean_parts_ptr, native_group_norm_m2_parts_ptr, native_group_norm_mean_ptr, rstd_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    part = tl.arange(0, SBLOCK)[None, :]
    slab = part // 4
    l = part % 4
    native_group_norm_mean_parts = tl.load(native_group_norm_mean_parts_ptr + slab * 2048 + row * 4 + l)
    native_group_norm_m2_parts = tl.load(native_group_norm_m2_parts_ptr + slab * 2048 + row * 4 + l)
    chunk = 256
    counts = tl.minimum(tl.maximum(4096 - slab * chunk, 0), chunk).to(tl.float32)
    native_group_norm_mean_whole = tl.sum(native_group_norm_mean_parts * counts, axis=1)[:, None] / 16384.0
    native_group_norm_m2_parts = tl.sum(native_group_norm_m2_parts + counts * (native_group_norm_mean_parts - native_group_norm_mean_whole) * (native_group_norm_mean_parts - native_group_norm_mean_whole), axis=1)[:, None]
    native_group_norm_mean_parts = native_group_norm_mean_whole
    tl.store(native_group_norm_mean_ptr + row, native_group_norm_mean_parts)
    tl.store(rstd_ptr + row, tl.rsqrt(((native_group_norm_m2_parts * 6.1035156e-05) + 1e-05)))


# rand, lt, native_group_norm, _to_copy, sigmoid, mul
@triton.jit
def k1_rand_lt_group_norm_mul(x_ptr, native_group_norm_mean_ptr, rstd_ptr, weight_ptr, bias_ptr, philox_seed_ptr, mul_1_ptr, draw, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(128, XBLOCK) // tl.cdiv(4096, YBLOCK)
    j = tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(4096, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(128, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + i*524288 + k + j*128).to(tl.float32)
    native_group_norm_mean = tl.load(native_group_norm_mean_ptr + ((k) // 4) + i*32)
    rstd = tl.load(rstd_ptr + ((k) // 4) + i*32)
    weight = tl.load(weight_ptr + k).to(tl.float32)
    bias = tl.load(bias_ptr + k).to(tl.float32)
    native_group_norm = (((x - native_group_norm_mean) * rstd) * weight) + bias
    sigmoid_ = sigmoid(native_group_norm)
    mul = native_group_norm * sigmoid_
    to_copy_1 = mul.to(tl.bfloat16).to(tl.float32)
    philox_seed = tl.load(philox_seed_ptr + 0)
    rand = philox_uniform4_down(philox_seed, (i*131072 + k*1024 + draw) + (tl.program_id(0) // tl.cdiv(128, XBLOCK) % tl.cdiv(4096, YBLOCK) * YBLOCK) // 4 + tl.arange(0, YBLOCK // 4)[:, None])
    lt = rand < 0.9
    tl.store(mul_1_ptr + i*524288 + k + j*128, to_copy_1 * lt.to(tl.float32))

# philox_seed = library aten.randint.low(-9223372036854775808, 9223372036854775807, [1], dtype=torch.int64)
# kernel bernoulli_div_mul_layer_norm (rows) over 32768 points, each of 4096:
#     bernoulli[i, j] = philox_uniform(philox_seed[0], (4*draw_0 + 4096*i + j)) < 0.9
#     _to_copy[i, j] = bfloat16(bernoulli[i, j])
#     div[i, j] = float32(_to_copy[i, j]) / 0.9
#     mul[i, j] = float32(x[i, j]) * float32(div[i, j])
#     add[i, j] = float32(mul[i, j]) + float32(residual[i, j])
#     native_layer_norm_mean, native_layer_norm_m2[i] = welford float32(add[i, j])  over j<4096
#     rstd[i] = rsqrt((native_layer_norm_m2[i] / 4096) + 1e-05)
#   → native_layer_norm[i, j] = (((float32(add[i, j]) - native_layer_norm_mean[i]) * rstd[i]) * float32(weight[j])) + float32(bias[j])
# k0_bernoulli_div_mul_layer_norm[32768](RBLOCK=4096), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


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
def philox_below4(seed, block, bound: tl.constexpr):
    """Whether each of the four random words a block number is below a bound, side by side."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    return tl.reshape(words, words.shape[:-3] + [4 * words.shape[-3]]) < bound


# bernoulli, _to_copy, div, mul, add, native_layer_norm
@triton.jit
def k0_bernoulli_div_mul_layer_norm(x_ptr, philox_seed_ptr, residual_ptr, weight_ptr, bias_ptr, native_layer_norm_ptr, draw, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    x = tl.load(x_ptr + i*4096 + j).to(tl.float32)
    philox_seed = tl.load(philox_seed_ptr + 0)
    bernoulli = philox_below4(philox_seed, (i*1024 + draw) + tl.arange(0, RBLOCK // 4), 3865470720)
    to_copy = bernoulli.to(tl.float32).to(tl.bfloat16).to(tl.float32)
    div = to_copy / 0.9
    mul = x * div
    residual = tl.load(residual_ptr + i*4096 + j).to(tl.float32)
    add = mul + residual
    native_layer_norm_mean = tl.sum(add, axis=0) / 4096.0
    t = add - native_layer_norm_mean
    t_2 = t * t
    native_layer_norm_m2 = tl.sum(t_2, axis=0)
    rstd = tl.rsqrt(((native_layer_norm_m2 * 0.00024414062) + 1e-05))
    weight = tl.load(weight_ptr + j).to(tl.float32)
    bias = tl.load(bias_ptr + j).to(tl.float32)
    tl.store(native_layer_norm_ptr + i*4096 + j, ((t * rstd) * weight) + bias)

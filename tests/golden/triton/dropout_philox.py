# philox_seed = library aten.randint.low(-9223372036854775808, 9223372036854775807, [1], dtype=torch.int64)
# kernel bernoulli_div_mul (pointwise) over 16384 × 4096 points:
#     bernoulli[i, j] = philox_uniform(philox_seed[0], (4*draw_0 + 4096*i + j)) < 0.9
#     _to_copy[i, j] = float32(bernoulli[i, j])
#     div[i, j] = _to_copy[i, j] / 0.9
#     mul[i, j] = x[i, j] * div[i, j]
#   → mul_1[i, j] = mul[i, j] * 2
# k0_bernoulli_div_mul[cdiv(67108864, XBLOCK)](XBLOCK=1024), 4 warps
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


# bernoulli, _to_copy, div, mul
@triton.jit
def k0_bernoulli_div_mul(x_ptr, philox_seed_ptr, mul_1_ptr, draw, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    i = start + tl.arange(0, XBLOCK)
    x = tl.load(x_ptr + i)
    philox_seed = tl.load(philox_seed_ptr + 0)
    bernoulli = philox_below4(philox_seed, (draw) + start // 4 + tl.arange(0, XBLOCK // 4), 3865470720)
    to_copy = bernoulli.to(tl.float32)
    div = to_copy / 0.9
    mul = x * div
    tl.store(mul_1_ptr + i, mul * 2.0)

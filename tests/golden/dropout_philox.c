// philox_seed = library aten.randint.low(-9223372036854775808, 9223372036854775807, [1], dtype=torch.int64)
// kernel bernoulli_div_mul (pointwise) over 512 × 768 points:
//     bernoulli[i, j] = philox_uniform(philox_seed[0], (4*draw_0 + 768*i + j)) < 0.9
//     _to_copy[i, j] = float32(bernoulli[i, j])
//     div[i, j] = _to_copy[i, j] / 0.9
//     mul[i, j] = x[i, j] * div[i, j]
//   → mul_1[i, j] = mul[i, j] * 2
// made by nbcompile; header-free C

static inline float philox_uniform(long seed, long offset) {
  // Philox-4x32-10 (Salmon et al., SC 2011): word offset % 4 of block offset / 4, as [0, 1)
  unsigned int c0 = (unsigned int)(offset >> 2), c1 = (unsigned int)((unsigned long)offset >> 34);
  unsigned int c2 = 0, c3 = 0;
  unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)((unsigned long)seed >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned long p = (unsigned long)0xD2511F53u * c0, q = (unsigned long)0xCD9E8D57u * c2;
    c0 = (unsigned int)(q >> 32) ^ c1 ^ k0; c1 = (unsigned int)q;
    c2 = (unsigned int)(p >> 32) ^ c3 ^ k1; c3 = (unsigned int)p;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  unsigned int word = (offset & 2) ? ((offset & 1) ? c3 : c2) : ((offset & 1) ? c1 : c0);
  return (float)(word >> 8) * 0x1p-24f;
}

// bernoulli, _to_copy, div, mul
void k0_bernoulli_div_mul(const long *philox_seed, const float *x, float *mul_1, long draw_0) {
  #pragma omp parallel for simd
  for (long i = 0; i < 393216; i++) {
    const _Bool bernoulli = philox_uniform(philox_seed[0], (i + draw_0*4)) < 0.9f;
    const float _to_copy = bernoulli ? 1.0f : 0.0f;
    const float div_ = _to_copy / 0.9f;
    const float mul = x[i] * div_;
    mul_1[i] = mul * 2.0f;
  }
}

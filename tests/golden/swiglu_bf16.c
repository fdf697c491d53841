// kernel sigmoid_mul (pointwise) over 64 × 1024 points:
//     _to_copy[i, j] = float32(x[i, j])
//     sigmoid[i, j] = sigmoid(_to_copy[i, j])
//     mul[i, j] = _to_copy[i, j] * sigmoid[i, j]
//     _to_copy_1[i, j] = bfloat16(mul[i, j])
//   → mul_1[i, j] = float32(_to_copy_1[i, j]) * float32(x[i, j + 1024])
// made by nbcompile; header-free C

static inline float bf16_to_float(unsigned short x) {
  union { unsigned int bits; float value; } u = { (unsigned int)x << 16 };
  return u.value;
}
#ifdef __FP_FAST_FMAF
#define FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
static inline float exp_f32(float x) {
  // 2^n exp(r) with |r| <= log(2) / 2 (Cody and Waite 1980), exp(r) by a polynomial of least relative error;
  // within 1.1 units in the last place. The vector library leaves for a scalar function where x is below -87,
  // as a masked score is.
  const float y = x < -104.0f ? 0.0f : x > 89.0f ? 89.0f : x;
  const float t = FMA_F32(y, 1.44269504f, 12582912.0f), n = t - 12582912.0f; // 1.5 * 2^23 rounds
  const float r = FMA_F32(n, 2.12194440e-4f, FMA_F32(n, -0.693359375f, y));
  float p = 0x1.6a2434p-10f;
  p = FMA_F32(p, r, 0x1.1239e2p-7f);
  p = FMA_F32(p, r, 0x1.5558f2p-5f);
  p = FMA_F32(p, r, 0x1.555492p-3f);
  p = FMA_F32(p, r, 0x1.fffffcp-2f);
  p = FMA_F32(p, r * r, r) + 1.0f;
  union { float value; int bits; } rounded = { t };
  const int power = rounded.bits - 0x4b400000, half = power >> 1;
  union { int bits; float value; } one = { (half + 127) << 23 }, other = { (power - half + 127) << 23 };
  return x < -104.0f ? 0.0f : p * one.value * other.value;
}
static inline unsigned short float_to_bf16(float x) { // round half to even
  union { float value; unsigned int bits; } u = { x };
  unsigned int rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}

// _to_copy, sigmoid, mul
void k0_sigmoid_mul(const unsigned short *x, unsigned short *mul_1) {
  #pragma omp parallel for
  for (long i = 0; i < 64; i++) {
    #pragma omp simd
    for (long j = 0; j < 1024; j++) {
      const float _to_copy = bf16_to_float(x[i*2048 + j]);
      const float sigmoid = 1.0f / (1.0f + exp_f32(-_to_copy));
      const float mul = _to_copy * sigmoid;
      const float _to_copy_1 = bf16_to_float(float_to_bf16(mul));
      mul_1[i*1024 + j] = float_to_bf16((_to_copy_1 * bf16_to_float(x[i*2048 + j + 1024])));
    }
  }
}

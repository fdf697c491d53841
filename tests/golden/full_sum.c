// kernel exp_sum (split) over 1024 points, each of 768:
//     exp[i, j] = exp(x[i, j])
//   → sum_1 = sum exp[i, j]  over i<1024, j<768
// made by nbcompile; header-free C

#ifndef FMA_F32
#ifdef __FP_FAST_FMAF
#define FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
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

// exp, sum
void k0_exp_sum(const float *x, float *sum_1_2) {
  double sum_1 = 0;
  #pragma omp parallel for reduction(+:sum_1)
  for (long i = 0; i < 1024; i++) {
    float sum_1_part = 0;
    #pragma omp simd reduction(+:sum_1_part)
    for (long j = 0; j < 768; j++) {
      sum_1_part += exp_f32(x[i*768 + j]);
    }
    sum_1 += sum_1_part;
  }
  sum_1_2[0] = (float)sum_1;
}

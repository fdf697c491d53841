// kernel softmax (split) over 512 points, each of 768:
//   → max[j] = max x[i, j]  over i<512
// kernel softmax_2 (split) over 512 points, each of 768:
//   → exp[i, j] = exp(x[i, j] - max[j])
//   → sum[j] = sum exp[i, j]  over i<512
// kernel softmax_3 (pointwise) over 512 × 768 points:
//   → _softmax[i, j] = exp[i, j] / sum[j]   in place of exp
// made by nbcompile; header-free C

#pragma omp declare reduction(nanmax_f32 : float : omp_out = omp_in > omp_out || omp_in != omp_in ? omp_in : omp_out) initializer(omp_priv = -__builtin_inff())
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

// _softmax
void k0_softmax(const float *x, float *max_2) {
  float max[768];
  for (long c = 0; c < 768; c++) max[c] = -__builtin_inff();
  #pragma omp parallel for reduction(nanmax_f32:max[:768])
  for (long i = 0; i < 512; i++) {
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j];
      max[j] = t > max[j] || t != t ? t : max[j];
    }
  }
  for (long c = 0; c < 768; c++) max_2[c] = max[c];
}

// _softmax
void k1_softmax_2(const float *x, const float *max, float *exp_, float *sum_2) {
  double sum[768];
  for (long c = 0; c < 768; c++) sum[c] = 0;
  #pragma omp parallel for reduction(+:sum[:768])
  for (long i = 0; i < 512; i++) {
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float exp__2 = exp_f32((x[i*768 + j] - max[j]));
      sum[j] += exp__2;
      exp_[i*768 + j] = exp__2;
    }
  }
  for (long c = 0; c < 768; c++) sum_2[c] = (float)sum[c];
}

// _softmax
// _softmax in place of exp, which nothing reads again
void k2_softmax_3(float *exp_, const float *sum) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      exp_[i*768 + j] = exp_[i*768 + j] / sum[j];
    }
  }
}

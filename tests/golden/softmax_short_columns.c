// kernel softmax (columns) over 768 points, each of 100:
//     max[j] = max x[i, j]  over i<100
//     exp[i, j] = exp(x[i, j] - max[j])
//     sum[j] = sum exp[i, j]  over i<100
//   → _softmax[i, j] = exp[i, j] / sum[j]
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

// _softmax
void k0_softmax(const float *x, float *_softmax) {
  #pragma omp parallel for
  for (long first = 0; first < 768; first += 128) {
    const long width = 768 - first < 128 ? 768 - first : 128;
    float max[128];
    for (long lane = 0; lane < width; lane++) max[lane] = -__builtin_inff();
    for (long i = 0; i < 100; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        const float t = x[i*768 + j];
        max[lane] = t > max[lane] || t != t ? t : max[lane];
      }
    }
    float sum[128];
    for (long lane = 0; lane < width; lane++) sum[lane] = 0;
    for (long i = 0; i < 100; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        sum[lane] += exp_f32((x[i*768 + j] - max[lane]));
      }
    }
    for (long i = 0; i < 100; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        const float exp_ = exp_f32((x[i*768 + j] - max[lane]));
        _softmax[i*768 + j] = exp_ / sum[lane];
      }
    }
  }
}

// kernel mul_softmax (rows) over s77 points, each of s27:
//     mul[i, j] = x[i, j] * float32(s77)
//     max[i] = max mul[i, j]  over j<s27
//     exp[i, j] = exp(mul[i, j] - max[i])
//     sum[i] = sum exp[i, j]  over j<s27
//   → _softmax[i, j] = exp[i, j] / sum[i]
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

// mul, _softmax
// s77 is x.shape[0], s27 is x.shape[1]
void k0_mul_softmax(const float *x, float *_softmax, long s27, long s77) {
  #pragma omp parallel
  {
    float *exp_kept = __builtin_malloc(sizeof(float[s27])); // one row, kept for the next pass
    #pragma omp for
    for (long i = 0; i < s77; i++) {
      const float t = (float)s77;
      float max = -__builtin_inff();
      int max_nan = 0;
      #pragma omp simd reduction(max:max) reduction(|:max_nan) simdlen(8)
      for (long j = 0; j < s27; j++) {
        const float t_2 = x[i*s27 + j] * t;
        max = t_2 > max ? t_2 : max;
        max_nan |= t_2 != t_2;
      }
      if (max_nan) max = __builtin_nanf("");
      double sum = 0;
      for (long j_block = 0; j_block < s27; j_block += 768) {
        const long j_end = j_block + 768 < s27 ? j_block + 768 : s27;
        float sum_part = 0;
        #pragma omp simd reduction(+:sum_part) simdlen(8)
        for (long j = j_block; j < j_end; j++) {
          const float mul = x[i*s27 + j] * t;
          const float exp_ = exp_f32((mul - max));
          exp_kept[j] = exp_;
          sum_part += exp_;
        }
        sum += sum_part;
      }
      const float sum_row = (float)(sum);
      #pragma omp simd
      for (long j = 0; j < s27; j++) {
        _softmax[i*s27 + j] = exp_kept[j] / sum_row;
      }
    }
    __builtin_free(exp_kept);
  }
}

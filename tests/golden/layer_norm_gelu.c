// kernel layer_norm_gelu_add (rows) over 512 points, each of 768:
//     native_layer_norm_mean, native_layer_norm_m2[i] = welford x[i, j]  over j<768
//     rstd[i] = rsqrt((native_layer_norm_m2[i] / 768) + 1e-05)
//     native_layer_norm[i, j] = (((x[i, j] - native_layer_norm_mean[i]) * rstd[i]) * weight[j]) + bias[j]
//     gelu[i, j] = (native_layer_norm[i, j] * 0.5) * (erf(native_layer_norm[i, j] * 0.707107) + 1)
//   → add[i, j] = x[i, j] + gelu[i, j]
// made by nbcompile; header-free C

#ifndef FMA_F32
#ifdef __FP_FAST_FMAF
#define FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
#endif
static inline float erf_plus_one_f32(float x) {
  // 1 + erf(x), off by 3e-7 at most, as x P(x x) up to 3.7: P is the polynomial of degree 15 nearest to
  // erf(sqrt(v)) / sqrt(v), in u = v / 7.6832 - 1
  const float u = FMA_F32(x * x, 0.13015411f, -1.0f);
  float p = -0.00084393396f;
  p = FMA_F32(p, u, 0.0020987578f);
  p = FMA_F32(p, u, -0.0013945143f);
  p = FMA_F32(p, u, 0.0019199736f);
  p = FMA_F32(p, u, -0.0076605664f);
  p = FMA_F32(p, u, 0.0142099485f);
  p = FMA_F32(p, u, -0.019994998f);
  p = FMA_F32(p, u, 0.02969757f);
  p = FMA_F32(p, u, -0.043436874f);
  p = FMA_F32(p, u, 0.058395997f);
  p = FMA_F32(p, u, -0.07401981f);
  p = FMA_F32(p, u, 0.090596974f);
  p = FMA_F32(p, u, -0.10917923f);
  p = FMA_F32(p, u, 0.13408455f);
  p = FMA_F32(p, u, -0.18010862f);
  p = FMA_F32(p, u, 0.36073682f);
  return 1.0f + (x > 3.7f ? 1.0f : x < -3.7f ? -1.0f : x * p);
}

// native_layer_norm, gelu, add
void k0_layer_norm_gelu_add(const float *x, const float *weight, const float *bias, float *add) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    float native_layer_norm_mean = 0;
    #pragma omp simd reduction(+:native_layer_norm_mean)
    for (long j = 0; j < 768; j++) {
      native_layer_norm_mean += x[i*768 + j];
    }
    const float native_layer_norm_mean_row = (float)(native_layer_norm_mean / (768));
    float native_layer_norm_m2 = 0;
    #pragma omp simd reduction(+:native_layer_norm_m2)
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j] - native_layer_norm_mean_row;
      native_layer_norm_m2 += t * t;
    }
    const float rstd = 1.0f / __builtin_sqrtf(((native_layer_norm_m2 / 768.0f) + 1e-05f));
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float x_ = x[i*768 + j];
      const float native_layer_norm = (((x_ - native_layer_norm_mean_row) * rstd) * weight[j]) + bias[j];
      const float gelu = (native_layer_norm * 0.5f) * erf_plus_one_f32(native_layer_norm * 0.70710678f);
      add[i*768 + j] = x_ + gelu;
    }
  }
}

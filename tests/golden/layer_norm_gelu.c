// kernel layer_norm_gelu_add (rows) over 512 points, each of 768:
//     native_layer_norm_mean, native_layer_norm_m2[i] = welford x[i, j]  over j<768
//     rstd[i] = rsqrt((native_layer_norm_m2[i] / 768) + 1e-05)
//     native_layer_norm[i, j] = (((x[i, j] - native_layer_norm_mean[i]) * rstd[i]) * weight[j]) + bias[j]
//     gelu[i, j] = (native_layer_norm[i, j] * 0.5) * (erf(native_layer_norm[i, j] * 0.707107) + 1)
//   → add[i, j] = x[i, j] + gelu[i, j]
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float erff(float);

// native_layer_norm, gelu, add
void k0_layer_norm_gelu_add(const float *x, const float *weight, const float *bias, float *add) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    double native_layer_norm_mean = 0;
    #pragma omp simd reduction(+:native_layer_norm_mean)
    for (long j = 0; j < 768; j++) {
      native_layer_norm_mean += x[i*768 + j];
    }
    const float native_layer_norm_mean_row = (float)(native_layer_norm_mean / (768));
    double native_layer_norm_m2 = 0;
    #pragma omp simd reduction(+:native_layer_norm_m2)
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j] - native_layer_norm_mean_row;
      native_layer_norm_m2 += t * t;
    }
    const float native_layer_norm_m2_row = (float)(native_layer_norm_m2);
    const float rstd = 1.0f / __builtin_sqrtf(((native_layer_norm_m2_row / 768.0f) + 1e-05f));
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float x_ = x[i*768 + j];
      const float native_layer_norm = (((x_ - native_layer_norm_mean_row) * rstd) * weight[j]) + bias[j];
      const float gelu = (native_layer_norm * 0.5f) * (erff((native_layer_norm * 0.70710678f)) + 1.0f);
      add[i*768 + j] = x_ + gelu;
    }
  }
}

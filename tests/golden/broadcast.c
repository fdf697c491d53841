// kernel add_mul (pointwise) over 512 × 768 points:
//     add[i, j] = x[i, j] + bias[j]
//   → mul[i, j] = add[i, j] * scale[i, 0]
// made by nbcompile; header-free C

// add, mul
void k0_add_mul(const float *scale, const float *x, const float *bias, float *mul) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    const float scale_ = scale[i];
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float add = x[i*768 + j] + bias[j];
      mul[i*768 + j] = add * scale_;
    }
  }
}

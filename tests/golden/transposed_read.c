// kernel mul (pointwise) over 768 × 512 points:
//   → mul[i, j] = x[j, i] * y[i, j]
// made by nbcompile; header-free C

// mul
void k0_mul(const float *x, const float *y, float *mul) {
  #pragma omp parallel for
  for (long j = 0; j < 512; j++) {
    #pragma omp simd
    for (long i = 0; i < 768; i++) {
      mul[i + j*768] = x[i + j*768] * y[i*512 + j];
    }
  }
}

// kernel mul_add (pointwise) over 500 × 700 points:
//     mul[i, j] = x[i, j] * y[i, j]
//   → add[i, j] = mul[i, j] + 1
// made by nbcompile; header-free C

// mul, add
void k0_mul_add(const float *y, const float *x, float *add) {
  #pragma omp parallel for
  for (long i = 0; i < 500; i++) {
    const float y_ = y[i];
    #pragma omp simd
    for (long j = 0; j < 700; j++) {
      const float mul = x[j] * y_;
      add[i*700 + j] = mul + 1.0f;
    }
  }
}

// kernel amax_sum (rows and split sums) over 1024 points, each of 768:
//   → amax[i] = max x[i, j]  over j<768
//   → sum_1[j] = sum x[i, j]  over i<1024
// made by nbcompile; header-free C

// amax, sum
void k0_amax_sum(const float *x, float *amax_2, float *sum_1_2) {
  double sum_1[768];
  for (long c = 0; c < 768; c++) sum_1[c] = 0;
  #pragma omp parallel for reduction(+:sum_1[:768])
  for (long i = 0; i < 1024; i++) {
    float amax = -__builtin_inff();
    int amax_nan = 0;
    #pragma omp simd reduction(max:amax) reduction(|:amax_nan)
    for (long j = 0; j < 768; j++) {
      const float x_ = x[i*768 + j];
      amax = x_ > amax ? x_ : amax;
      amax_nan |= x_ != x_;
      sum_1[j] += x_;
    }
    if (amax_nan) amax = __builtin_nanf("");
    amax_2[i] = amax;
  }
  for (long c = 0; c < 768; c++) sum_1_2[c] = (float)sum_1[c];
}

// kernel amax_sum (rows and split sums) over 1024 points, each of 768:
//   → amax[i] = max x[i, j]  over j<768
//   → sum_1[j] = sum x[i, j]  over i<1024
// made by nbcompile; header-free C

#pragma omp declare reduction(nanmax_f32 : float : omp_out = omp_in > omp_out || omp_in != omp_in ? omp_in : omp_out) initializer(omp_priv = -__builtin_inff())

// amax, sum
void k0_amax_sum(const float *x, float *amax_2, float *sum_1_2) {
  double sum_1[768];
  for (long c = 0; c < 768; c++) sum_1[c] = 0;
  #pragma omp parallel for reduction(+:sum_1[:768])
  for (long i = 0; i < 1024; i++) {
    float amax = -__builtin_inff();
    #pragma omp simd reduction(nanmax_f32:amax)
    for (long j = 0; j < 768; j++) {
      const float x_ = x[i*768 + j];
      amax = x_ > amax || x_ != x_ ? x_ : amax;
      sum_1[j] += x_;
    }
    amax_2[i] = amax;
  }
  for (long c = 0; c < 768; c++) sum_1_2[c] = (float)sum_1[c];
}

// kernel exp_sum (split) over 1024 points, each of 768:
//     exp[i, j] = exp(x[i, j])
//   → sum_1 = sum exp[i, j]  over i<1024, j<768
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);

// exp, sum
void k0_exp_sum(const float *x, float *sum_1_2) {
  double sum_1 = 0;
  #pragma omp parallel for reduction(+:sum_1)
  for (long i = 0; i < 1024; i++) {
    #pragma omp simd reduction(+:sum_1)
    for (long j = 0; j < 768; j++) {
      sum_1 += expf(x[i*768 + j]);
    }
  }
  sum_1_2[0] = (float)sum_1;
}

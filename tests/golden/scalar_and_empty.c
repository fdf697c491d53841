// kernel exp (pointwise) over 1 points:
//   → exp = exp(x)
// kernel add (pointwise) over 0 × 5 points:
//   → add[i, j] = 0
// kernel sum (columns) over 5 points, each of 0:
//   → sum_1[j] = sum 0  over i<0
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);

// exp
void k0_exp(const float *x, float *exp_) {
  exp_[0] = expf(x[0]);
}

// add
void k1_add(float *add) {
  #pragma omp simd
  for (long i = 0; i < 0; i++) {
    add[0] = 0.0f;
  }
}

// sum
void k2_sum(float *sum_1_2) {
  for (long j = 0; j < 5; j++) {
    float sum_1 = 0;
    #pragma omp simd reduction(+:sum_1)
    for (long i = 0; i < 0; i++) {
      sum_1 += 0.0f;
    }
    sum_1_2[j] = sum_1;
  }
}

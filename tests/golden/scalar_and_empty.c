// kernel exp (pointwise) over 1 points:
//   → exp = exp(x)
// kernel add (pointwise) over 0 × 5 points:
//   → add[i, j] = y[i, j] + x
// kernel sum (columns) over 5 points, each of 0:
//   → sum_1[j] = sum y[i, j]  over i<0
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);

// exp
void k0_exp(const float *x_, float *exp_) {
  exp_[0] = expf(x_[0]);
}

// add
void k1_add(const float *y__2, const float *x__2, float *add) {
  const float y_ = y__2[0];
  const float x_ = x__2[0];
  const float add_2 = y_ + x_;
  #pragma omp simd
  for (long i = 0; i < 0; i++) {
    add[0] = add_2;
  }
}

// sum
void k2_sum(const float *y_, float *sum_1_2) {
  for (long first = 0; first < 5; first += 16) {
    const long width = 5 - first < 16 ? 5 - first : 16;
    float sum_1[16];
    for (long lane = 0; lane < width; lane++) sum_1[lane] = 0;
    for (long i = 0; i < 0; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        sum_1[lane] += y_[i*5 + j];
      }
    }
    #pragma omp simd
    for (long lane = 0; lane < width; lane++) {
      const long j = first + lane;
      sum_1_2[j] = sum_1[lane];
    }
  }
}

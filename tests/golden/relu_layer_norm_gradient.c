// kernel le_mul_mean_sum (rows and split sums) over 512 points, each of 768:
//     le[i, j] = normed[i, j] <= 0
//     scalar_tensor = 0
//     where[i, j] = where(le[i, j], scalar_tensor, grad[i, j])
//     mul[i, j] = where[i, j] * weight[j]
//     mul_1[i, j] = mul[i, j] * x[i, j]
//     sum[i] = sum mul_1[i, j]  over j<768
//     mean[i] = sum[i] / 768
//     mul_2[i, j] = x[i, j] * mean[i]
//     sub[i, j] = mul[i, j] - mul_2[i, j]
//     sum_1[i] = sum mul[i, j]  over j<768
//     mean_1[i] = sum_1[i] / 768
//   → sub_1[i, j] = sub[i, j] - mean_1[i]
//     mul_3[i, j] = where[i, j] * x[i, j]
//   → sum_1_1[j] = sum mul_3[i, j]  over i<512
// made by nbcompile; header-free C

// le, scalar_tensor, where, mul, mean, sub, sum
void k0_le_mul_mean_sum(const float *normed, const float *grad, const float *weight, const float *x, float *sub_1, float *sum_1_1_2) {
  double sum_1_1[768];
  for (long c = 0; c < 768; c++) sum_1_1[c] = 0;
  #pragma omp parallel for reduction(+:sum_1_1[:768])
  for (long i = 0; i < 512; i++) {
    float mul_kept[768]; // one row, kept for the next pass
    float sum = 0;
    float sum_1 = 0;
    #pragma omp simd reduction(+:sum, sum_1)
    for (long j = 0; j < 768; j++) {
      const _Bool le = normed[i*768 + j] <= 0.0f;
      const float grad_ = grad[i*768 + j];
      const float where = le ? 0.0f : grad_;
      const float mul = where * weight[j];
      const float x_ = x[i*768 + j];
      mul_kept[j] = mul;
      sum += mul * x_;
      sum_1 += mul;
      sum_1_1[j] += where * x_;
    }
    const float mean = sum / 768.0f;
    const float mean_1 = sum_1 / 768.0f;
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float mul_2 = x[i*768 + j] * mean;
      const float sub = mul_kept[j] - mul_2;
      sub_1[i*768 + j] = sub - mean_1;
    }
  }
  for (long c = 0; c < 768; c++) sum_1_1_2[c] = (float)sum_1_1[c];
}

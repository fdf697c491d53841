// kernel mul_add_sqrt_sub (pointwise) over 4096 points:
//     mul[i] = mean[i] * 0.9
//     mul_1[i] = grad[i] * 0.1
//   → add[i] = mul[i] + mul_1[i]   in place of mean
//     mul_2[i] = square[i] * 0.999
//     mul_3[i] = grad[i] * grad[i]
//     mul_4[i] = mul_3[i] * 0.001
//   → add_1[i] = mul_2[i] + mul_4[i]   in place of square
//     mul_5[i] = weight[i] * 0.9999
//     mul_6[i] = add[i] * 0.001
//     sqrt[i] = sqrt(add_1[i])
//     add_2[i] = sqrt[i] + 1e-08
//     div[i] = mul_6[i] / add_2[i]
//   → sub[i] = mul_5[i] - div[i]   in place of weight
// made by nbcompile; header-free C

// mul, add, sqrt, div, sub
void k0_mul_add_sqrt_sub(float *mean, const float *grad, float *square, float *weight) {
  #pragma omp parallel for simd
  for (long i = 0; i < 4096; i++) {
    const float mul = mean[i] * 0.9f;
    const float grad_ = grad[i];
    const float mul_1 = grad_ * 0.1f;
    const float add = mul + mul_1;
    const float mul_2 = square[i] * 0.999f;
    const float mul_3 = grad_ * grad_;
    const float mul_4 = mul_3 * 0.001f;
    const float add_1 = mul_2 + mul_4;
    const float mul_5 = weight[i] * 0.9999f;
    const float mul_6 = add * 0.001f;
    const float sqrt_ = __builtin_sqrtf(add_1);
    const float add_2 = sqrt_ + 1e-08f;
    const float div_ = mul_6 / add_2;
    const float sub = mul_5 - div_;
    mean[i] = add;
    square[i] = add_1;
    weight[i] = sub;
  }
}

// kernel mul_add_sigmoid_div (pointwise) over 512 × 768 points:
//     mul[i, j] = x[i, j] * 2
//     add[i, j] = mul[i, j] + 1
//     sigmoid[i, j] = sigmoid(add[i, j])
//     mul_1[i, j] = sigmoid[i, j] * sigmoid[i, j]
//     tanh[i, j] = tanh(mul_1[i, j])
//     abs_1[i, j] = abs(tanh[i, j])
//     add_1[i, j] = abs_1[i, j] + 1
//   → div[i, j] = tanh[i, j] / add_1[i, j]
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);
__attribute__((simd("notinbranch"), const)) float tanhf(float);

// mul, add, sigmoid, tanh, abs, div
void k0_mul_add_sigmoid_div(const float *x, float *div_) {
  #pragma omp parallel for simd
  for (long i = 0; i < 393216; i++) {
    const float mul = x[i] * 2.0f;
    const float add = mul + 1.0f;
    const float sigmoid = 1.0f / (1.0f + expf(-add));
    const float mul_1 = sigmoid * sigmoid;
    const float tanh_ = tanhf(mul_1);
    const float abs_1 = __builtin_fabsf(tanh_);
    const float add_1 = abs_1 + 1.0f;
    div_[i] = tanh_ / add_1;
  }
}

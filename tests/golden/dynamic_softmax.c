// kernel mul_softmax (rows) over s77 points, each of s27:
//     mul[i, j] = x[i, j] * float32(s77)
//     max[i] = max mul[i, j]  over j<s27
//     exp[i, j] = exp(mul[i, j] - max[i])
//     sum[i] = sum exp[i, j]  over j<s27
//   → _softmax[i, j] = exp[i, j] / sum[i]
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);
#pragma omp declare reduction(nanmax_f32 : float : omp_out = omp_in > omp_out || omp_in != omp_in ? omp_in : omp_out) initializer(omp_priv = -__builtin_inff())

// mul, _softmax
void k0_mul_softmax(const float *x, float *_softmax, long s77, long s27) {
  #pragma omp parallel for
  for (long i = 0; i < s77; i++) {
    const float t = (float)s77;
    float max = -__builtin_inff();
    #pragma omp simd reduction(nanmax_f32:max)
    for (long j = 0; j < s27; j++) {
      const float t_2 = x[i*s27 + j] * t;
      max = t_2 > max || t_2 != t_2 ? t_2 : max;
    }
    double sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long j = 0; j < s27; j++) {
      const float mul = x[i*s27 + j] * t;
      sum += expf((mul - max));
    }
    const float sum_row = (float)(sum);
    #pragma omp simd
    for (long j = 0; j < s27; j++) {
      const float mul_2 = x[i*s27 + j] * t;
      const float exp_ = expf((mul_2 - max));
      _softmax[i*s27 + j] = exp_ / sum_row;
    }
  }
}

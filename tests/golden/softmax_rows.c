// kernel softmax (rows) over 512 points, each of 768:
//     max[i] = max x[i, j]  over j<768
//     exp[i, j] = exp(x[i, j] - max[i])
//     sum[i] = sum exp[i, j]  over j<768
//   → _softmax[i, j] = exp[i, j] / sum[i]
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);
#pragma omp declare reduction(nanmax_f32 : float : omp_out = omp_in > omp_out || omp_in != omp_in ? omp_in : omp_out) initializer(omp_priv = -__builtin_inff())

// _softmax
void k0_softmax(const float *x, float *_softmax) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    float exp_kept[768]; // one row, kept for the next pass
    float max = -__builtin_inff();
    #pragma omp simd reduction(nanmax_f32:max)
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j];
      max = t > max || t != t ? t : max;
    }
    double sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long j = 0; j < 768; j++) {
      const float exp_ = expf((x[i*768 + j] - max));
      exp_kept[j] = exp_;
      sum += exp_;
    }
    const float sum_row = (float)(sum);
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      _softmax[i*768 + j] = exp_kept[j] / sum_row;
    }
  }
}

// kernel softmax (columns) over 768 points, each of 512:
//     max[j] = max x[i, j]  over i<512
//     exp[i, j] = exp(x[i, j] - max[j])
//     sum[j] = sum exp[i, j]  over i<512
//   → _softmax[i, j] = exp[i, j] / sum[j]
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);

// _softmax
void k0_softmax(const float *x, float *_softmax) {
  #pragma omp parallel for
  for (long first = 0; first < 768; first += 128) {
    const long width = 768 - first < 128 ? 768 - first : 128;
    float max[128];
    for (long lane = 0; lane < width; lane++) max[lane] = -__builtin_inff();
    for (long i = 0; i < 512; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        const float t = x[i*768 + j];
        max[lane] = t > max[lane] || t != t ? t : max[lane];
      }
    }
    double sum[128];
    for (long lane = 0; lane < width; lane++) sum[lane] = 0;
    for (long i = 0; i < 512; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        sum[lane] += expf((x[i*768 + j] - max[lane]));
      }
    }
    float sum_col[128];
    #pragma omp simd
    for (long lane = 0; lane < width; lane++) {
      const long j = first + lane;
      sum_col[lane] = (float)(sum[lane]);
    }
    for (long i = 0; i < 512; i++) {
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        const float exp_ = expf((x[i*768 + j] - max[lane]));
        _softmax[i*768 + j] = exp_ / sum_col[lane];
      }
    }
  }
}

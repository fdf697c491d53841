// kernel mul (pointwise) over 768 × 512 points:
//   → mul[i, j] = x[j, i] * y[i, j]
// made by nbcompile; header-free C

// mul
void k0_mul(const float *y, const float *x, float *mul) {
  #pragma omp parallel for collapse(2)
  for (long j_block = 0; j_block < 512; j_block += 64) {
    for (long i_block = 0; i_block < 768; i_block += 64) {
      const long j_end = j_block + 64 < 512 ? j_block + 64 : 512;
      const long i_end = i_block + 64 < 768 ? i_block + 64 : 768;
      float y_block[4160];
      for (long i = i_block; i < i_end; i++) {
        for (long j = j_block; j < j_end; j++) {
          y_block[(j - j_block)*65 + i - i_block] = y[i*512 + j];
        }
      }
      for (long j = j_block; j < j_end; j++) {
        #pragma omp simd
        for (long i = i_block; i < i_end; i++) {
          mul[i + j*768] = x[i + j*768] * y_block[(j - j_block)*65 + i - i_block];
        }
      }
    }
  }
}

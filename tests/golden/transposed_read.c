// kernel mul (pointwise) over 768 × 512 points:
//   → mul[i, j] = x[j, i] * y[i, j]
// made by nbcompile; header-free C

#if defined(__clang__) || __GNUC__ >= 12
static inline void across_8_f32(const float *from, long step, float *to, long width) {
  typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));
  lanes a[8], b[8];
  for (int c = 0; c < 8; c++) a[c] = *(const lanes *)(from + c*step);
  for (int c = 0; c < 8; c += 2) {
    b[c] = __builtin_shufflevector(a[c], a[c + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[c + 1] = __builtin_shufflevector(a[c], a[c + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int c = 0; c < 8; c += c % 4 == 1 ? 3 : 1) {
    a[c] = __builtin_shufflevector(b[c], b[c + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[c + 2] = __builtin_shufflevector(b[c], b[c + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int c = 0; c < 4; c++) {
    b[c] = __builtin_shufflevector(a[c], a[c + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[c + 4] = __builtin_shufflevector(a[c], a[c + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int r = 0; r < 8; r++) *(lanes *)(to + r*width) = b[r];
}
#ifdef __AVX512F__
static inline void across_16_f32(const float *from, long step, float *to, long width) {
  typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
  lanes a[16], b[16];
  for (int c = 0; c < 16; c++) a[c] = *(const lanes *)(from + c*step);
  for (int c = 0; c < 16; c += 2) {
    b[c] = __builtin_shufflevector(
      a[c], a[c + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    b[c + 1] = __builtin_shufflevector(
      a[c], a[c + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int c = 0; c < 16; c += c % 4 == 1 ? 3 : 1) {
    a[c] = __builtin_shufflevector(
      b[c], b[c + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    a[c + 2] = __builtin_shufflevector(
      b[c], b[c + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int c = 0; c < 16; c += c % 8 == 3 ? 5 : 1) {
    b[c] = __builtin_shufflevector(
      a[c], a[c + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    b[c + 4] = __builtin_shufflevector(
      a[c], a[c + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int c = 0; c < 8; c++) {
    a[c] = __builtin_shufflevector(
      b[c], b[c + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    a[c + 8] = __builtin_shufflevector(
      b[c], b[c + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int r = 0; r < 16; r++) *(lanes *)(to + r*width) = a[r];
}
#endif
#endif
static inline void across_f32(
    const float *from, long step, float *to, long width, long m, long n) {
  // to[r*width + c] = from[r + c*step] for r < m, c < n, 16 of each at most: a transposition in registers
  m = m < 16 ? m : 16;
  n = n < 16 ? n : 16;
#if defined(__clang__) || __GNUC__ >= 12
#ifdef __AVX512F__
  if (m == 16 && n == 16) return across_16_f32(from, step, to, width);
#endif
  if (m % 8 == 0 && n % 8 == 0) {
    for (long c = 0; c < n; c += 8)
      for (long r = 0; r < m; r += 8)
        across_8_f32(from + r + c*step, step, to + r*width + c, width);
    return;
  }
#endif
  for (long c = 0; c < n; c++)
    for (long r = 0; r < m; r++) to[r*width + c] = from[r + c*step];
}

// mul
void k0_mul(const float *y, const float *x, float *mul) {
  #pragma omp parallel for collapse(2)
  for (long i_block = 0; i_block < 768; i_block += 256) {
    for (long j_block = 0; j_block < 512; j_block += 16) {
      float y_block[4096];
      for (long i = i_block; i < i_block + 256; i += 16) {
        for (long j = j_block; j < j_block + 16; j += 16) {
          across_f32(y + i*512 + j, 512, y_block + (j - j_block)*256 + i - i_block, 256, j_block + 16 - j, i_block + 256 - i);
        }
      }
      for (long j = j_block; j < j_block + 16; j++) {
        #pragma omp simd
        for (long i = i_block; i < i_block + 256; i++) {
          mul[i + j*768] = x[i + j*768] * y_block[(j - j_block)*256 + i - i_block];
        }
      }
    }
  }
}

// kernel mul (pointwise) over 768 × 512 points:
//   → mul[i, j] = x[j, i] * y[i, j]
// made by nbcompile; header-free C

static inline void across_f32(
    const float *from, long step, float *to, long width, long m, long n) {
  // to[r*width + c] = from[r + c*step] for r < m, c < n, 8 of each at most: a transposition in registers
#if defined(__clang__) || __GNUC__ >= 12
  if (m >= 8 && n >= 8) {
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
    return;
  }
#endif
  for (long c = 0; c < n && c < 8; c++)
    for (long r = 0; r < m && r < 8; r++) to[r*width + c] = from[r + c*step];
}

// mul
void k0_mul(const float *y, const float *x, float *mul) {
  #pragma omp parallel for collapse(2)
  for (long j_block = 0; j_block < 512; j_block += 64) {
    for (long i_block = 0; i_block < 768; i_block += 64) {
      const long j_end = j_block + 64 < 512 ? j_block + 64 : 512;
      const long i_end = i_block + 64 < 768 ? i_block + 64 : 768;
      float y_block[4096];
      for (long i = i_block; i < i_end; i += 8) {
        for (long j = j_block; j < j_end; j += 8) {
          across_f32(y + i*512 + j, 512, y_block + (j - j_block)*64 + i - i_block, 64, j_end - j, i_end - i);
        }
      }
      for (long j = j_block; j < j_end; j++) {
        #pragma omp simd
        for (long i = i_block; i < i_end; i++) {
          mul[i + j*768] = x[i + j*768] * y_block[(j - j_block)*64 + i - i_block];
        }
      }
    }
  }
}

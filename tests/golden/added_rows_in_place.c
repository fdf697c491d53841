// kernel index_add_sum (columns) over 64 points, each of 40:
//     index[i, j] = table[[where(rows[i] < 0, rows[i] + 100, rows[i])], j]
//   → add[i, j] = x[i, j] + index[i, j]   in place of x
//   → sum_1[j] = sum add[i, j]  over i<40
// kernel remainder_index (pointwise) over 40 points:
//     remainder[i] = rows[i] % 64
//   → index_1[i] = sum_1[[where(remainder[i] < 0, remainder[i] + 64, remainder[i])]]
// made by nbcompile; header-free C

static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}

// what remainder_index gathers by: nothing is overwritten before
void k1_remainder_index_indices(const long *rows, int *status) {
  int bad = 0; // set if an index is out of range
  #pragma omp simd reduction(|:bad)
  for (long i = 0; i < 40; i++) {
    const long remainder_ = rows[i] & 63;
    bad |= (unsigned long)((remainder_ < 0L) ? (remainder_ + 64) : remainder_) >= (unsigned long)(64);
  }
  if (bad) *status = 1;
}

// index, add, sum
void k0_index_add_sum(const long *rows, float *x, const float *table, float *sum_1_2, int *status) {
  int bad = 0; // set if an index is out of range
  #pragma omp simd reduction(|:bad)
  for (long i = 0; i < 40; i++) {
    const long rows_ = rows[i];
    bad |= (unsigned long)((rows_ < 0L) ? (rows_ + 100) : rows_) >= (unsigned long)(100);
  }
  if (bad) {
    *status = 1; // and nothing of an input is overwritten
    return;
  }
  for (long first = 0; first < 64; first += 16) {
    const long width = 64 - first < 16 ? 64 - first : 16;
    float sum_1[16];
    for (long lane = 0; lane < width; lane++) sum_1[lane] = 0;
    for (long i = 0; i < 40; i++) {
      const long rows_ = rows[i];
      const long t = (rows_ < 0L) ? (rows_ + 100) : rows_;
      #pragma omp simd
      for (long lane = 0; lane < width; lane++) {
        const long j = first + lane;
        const float add = x[i*64 + j] + table[in_range(t, 100)*64 + j];
        sum_1[lane] += add;
        x[i*64 + j] = add;
      }
    }
    #pragma omp simd
    for (long lane = 0; lane < width; lane++) {
      const long j = first + lane;
      sum_1_2[j] = sum_1[lane];
    }
  }
}

// remainder, index
void k1_remainder_index(const long *rows, const float *sum_1, float *index_1, int *status) {
  long every_bit = -1; __asm__("" : "+r"(every_bit)); // no comparison is an index
  int bad = 0; // set if an index is out of range
  #pragma omp simd reduction(|:bad)
  for (long i = 0; i < 40; i++) {
    const long remainder_ = rows[i] & 63;
    bad |= (unsigned long)((remainder_ < 0L) ? (remainder_ + 64) : remainder_) >= (unsigned long)(64);
    index_1[i] = sum_1[in_range(((remainder_ < 0L) ? (remainder_ + 64) : remainder_) & every_bit, 64)];
  }
  if (bad) *status = 1;
}

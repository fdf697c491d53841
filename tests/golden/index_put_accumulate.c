// kernel index_put (scatter) over 40 × 64 points:
//   → index_put[[where(rows[i] < 0, rows[i] + 100, rows[i])], j] += values[i, j]  over i<40, j<64, from x
// made by nbcompile; header-free C

static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}

// index_put
void k0_index_put(const float *x, const long *rows, const float *values, float *index_put, int *status) {
  int bad = 0; // set if an index is out of range
  for (long c0 = 0; c0 < 100; c0++) {
    for (long c1 = 0; c1 < 64; c1++) {
      index_put[c0*64 + c1] = x[c0*64 + c1];
    }
  }
  for (long first = 0; first < 64; first += 32) {
    const long last = first + 32 < 64 ? first + 32 : 64;
    for (long i = 0; i < 40; i++) {
      const long rows_ = rows[i];
      const long t = (rows_ < 0L) ? (rows_ + 100) : rows_;
      #pragma omp simd reduction(|:bad)
      for (long j = first; j < last; j++) {
        bad |= (unsigned long)(t) >= (unsigned long)(100);
        const float old = index_put[in_range(t, 100)*64 + j];
        index_put[in_range(t, 100)*64 + j] = (old + values[i*64 + j]);
      }
    }
  }
  if (bad) *status = 1;
}

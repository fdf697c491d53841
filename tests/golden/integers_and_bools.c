// kernel gt_remainder_eq_bitwise_not (rows) over 300 points, each of 70:
//     gt[i, j] = a[i, j] > int64(b[i, j])
//     remainder[i, j] = a[i, j] % 3
//     eq[i, j] = remainder[i, j] == 0
//     bitwise_and[i, j] = gt[i, j] and eq[i, j]
//     div[i, j] = a[i, j] // 2
//   → where[i, j] = where(bitwise_and[i, j], div[i, j], int64(b[i, j]))
//   → sum_1[i] = sum int64(bitwise_and[i, j])  over j<70
//   → bitwise_not[i, j] = not(bitwise_and[i, j])
// made by nbcompile; header-free C

static inline long remainder_i64(long a, long b) {
  if (b == 0 || b == (long)-1) return 0;
  if (sizeof(long) == 8 && b > 0 && a >= 0 && a < b) return a; // no vector divides so wide integers
  long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// gt, remainder, eq, bitwise_and, div, where, sum, bitwise_not
void k0_gt_remainder_eq_bitwise_not(const long *a, const int *b, long *where, unsigned char *bitwise_not, long *sum_1_2) {
  #pragma omp parallel for
  for (long i = 0; i < 300; i++) {
    long sum_1 = 0;
    #pragma omp simd reduction(+:sum_1)
    for (long j = 0; j < 70; j++) {
      const long a_ = a[i*70 + j];
      const long t = (long)b[i*70 + j];
      const _Bool gt = a_ > t;
      const long remainder_ = remainder_i64(a_, 3L);
      const _Bool eq = remainder_ == 0L;
      const _Bool bitwise_and = gt && eq;
      const long div_ = a_ >> 1;
      sum_1 += (long)bitwise_and;
      where[i*70 + j] = bitwise_and ? div_ : t;
      bitwise_not[i*70 + j] = !bitwise_and;
    }
    sum_1_2[i] = sum_1;
  }
}

// kernel embedding_mul (pointwise) over 32 × 16 × 64 points:
//     embedding[i, j, k] = table[[tokens[i, j]], k]
//   → mul[i, j, k] = embedding[i, j, k] * 8
// made by nbcompile; header-free C

static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}

// embedding, mul
void k0_embedding_mul(const long *tokens, const float *table, float *mul, int *status) {
  int bad = 0; // set if an index is out of range
  #pragma omp parallel for reduction(|:bad)
  for (long i = 0; i < 512; i++) {
    const long tokens_ = tokens[i];
    #pragma omp simd reduction(|:bad)
    for (long j = 0; j < 64; j++) {
      bad |= (unsigned long)(tokens_) >= (unsigned long)(1000);
      mul[i*64 + j] = table[in_range(tokens_, 1000)*64 + j] * 8.0f;
    }
  }
  if (bad) *status = 1;
}

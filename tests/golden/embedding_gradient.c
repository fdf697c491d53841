// kernel embedding_dense_backward (scatter) over 32 × 16 × 64 points:
//     embedding_dense_backward[i, j] = 0
//   → embedding_dense_backward_1[[tokens[i, j]], k] += grad[i, j, k]  over i<32, j<16, k<64, from embedding_dense_backward
// made by nbcompile; header-free C

static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}

// embedding_dense_backward
void k0_embedding_dense_backward(const long *tokens, const float *grad, float *embedding_dense_backward_1, int *status) {
  int bad = 0; // set if an index is out of range
  for (long c0 = 0; c0 < 100; c0++) {
    for (long c1 = 0; c1 < 64; c1++) {
      embedding_dense_backward_1[c0*64 + c1] = 0.0f;
    }
  }
  #pragma omp parallel for reduction(|:bad)
  for (long first = 0; first < 64; first += 32) {
    const long last = first + 32 < 64 ? first + 32 : 64;
    for (long i = 0; i < 32; i++) {
      for (long j = 0; j < 16; j++) {
        const long tokens_ = tokens[i*16 + j];
        #pragma omp simd reduction(|:bad)
        for (long k = first; k < last; k++) {
          bad |= (unsigned long)(tokens_) >= (unsigned long)(100);
          const float old = embedding_dense_backward_1[in_range(tokens_, 100)*64 + k];
          embedding_dense_backward_1[in_range(tokens_, 100)*64 + k] = (old + grad[i*1024 + j*64 + k]);
        }
      }
    }
  }
  if (bad) *status = 1;
}

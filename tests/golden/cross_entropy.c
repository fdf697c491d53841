// kernel log_softmax_ne_gather_sum (rows and split sums) over 256 points, each of 1000:
//     max[i] = max logits[i, j]  over j<1000
//     exp[i, j] = exp(logits[i, j] - max[i])
//     sum[i] = sum exp[i, j]  over j<1000
//     _log_softmax[i, j] = (logits[i, j] - max[i]) - log(sum[i])
//     ne[i] = labels[i] != -100
//     scalar_tensor = 0
//     where[i] = where(ne[i], labels[i], scalar_tensor)
//     gather[i, j] = _log_softmax[i, [where[i]]]
//     neg[i] = -gather[i, 0]
//     ne_1[i] = labels[i] != -100
//     scalar_tensor_1 = 0
//     where_1[i] = where(ne_1[i], neg[i], scalar_tensor_1)
//   → sum_2 = sum where_1[i]  over i<256
// kernel ne_sum_div (rows) over 1 points, each of 256:
//     ne_2[i] = labels[i] != -100
//     sum_1 = sum int64(ne_2[i])  over i<256
//     _to_copy = float32(sum_1)
//   → div = sum_2 / _to_copy   in place of sum_2
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float logf(float);
#ifndef FMA_F32
#ifdef __FP_FAST_FMAF
#define FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
#endif
static inline float exp_f32(float x) {
  // 2^n exp(r) with |r| <= log(2) / 2 (Cody and Waite 1980), exp(r) by a polynomial of least relative error;
  // within 1.1 units in the last place. The vector library leaves for a scalar function where x is below -87,
  // as a masked score is.
  const float y = x < -104.0f ? 0.0f : x > 89.0f ? 89.0f : x;
  const float t = FMA_F32(y, 1.44269504f, 12582912.0f), n = t - 12582912.0f; // 1.5 * 2^23 rounds
  const float r = FMA_F32(n, 2.12194440e-4f, FMA_F32(n, -0.693359375f, y));
  float p = 0x1.6a2434p-10f;
  p = FMA_F32(p, r, 0x1.1239e2p-7f);
  p = FMA_F32(p, r, 0x1.5558f2p-5f);
  p = FMA_F32(p, r, 0x1.555492p-3f);
  p = FMA_F32(p, r, 0x1.fffffcp-2f);
  p = FMA_F32(p, r * r, r) + 1.0f;
  union { float value; int bits; } rounded = { t };
  const int power = rounded.bits - 0x4b400000, half = power >> 1;
  union { int bits; float value; } one = { (half + 127) << 23 }, other = { (power - half + 127) << 23 };
  return x < -104.0f ? 0.0f : p * one.value * other.value;
}
static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}

// _log_softmax, ne, scalar_tensor, where, gather, neg, sum
void k0_log_softmax_ne_gather_sum(const float *logits, const long *labels, float *sum_2_2, int *status) {
  int bad = 0; // set if an index is out of range
  double sum_2 = 0;
  #pragma omp parallel for reduction(+:sum_2) reduction(|:bad)
  for (long i = 0; i < 256; i++) {
    float max = -__builtin_inff();
    int max_nan = 0;
    #pragma omp simd reduction(max:max) reduction(|:max_nan, bad)
    for (long j = 0; j < 1000; j++) {
      const float t = logits[i*1000 + j];
      max = t > max ? t : max;
      max_nan |= t != t;
    }
    if (max_nan) max = __builtin_nanf("");
    double sum = 0;
    for (long j_block = 0; j_block < 1000; j_block += 512) {
      const long j_end = j_block + 512 < 1000 ? j_block + 512 : 1000;
      float sum_part = 0;
      #pragma omp simd reduction(|:bad) reduction(+:sum_part)
      for (long j = j_block; j < j_end; j++) {
        sum_part += exp_f32((logits[i*1000 + j] - max));
      }
      sum += sum_part;
    }
    const float sum_row = (float)(sum);
    const long labels_ = labels[i];
    const _Bool ne_1 = labels_ != -100L;
    const long where = ne_1 ? labels_ : 0L;
    const float _log_softmax = (logits[in_range(where, 1000) + i*1000] - max) - logf(sum_row);
    const float neg = -_log_softmax;
    bad |= (unsigned long)(where) >= (unsigned long)(1000);
    const float where_1 = ne_1 ? neg : 0.0f;
    sum_2 += where_1;
  }
  sum_2_2[0] = (float)sum_2;
  if (bad) *status = 1;
}

// ne, sum, _to_copy, div
// div in place of sum_2, which nothing reads again
void k1_ne_sum_div(const long *labels, float *sum_2) {
  long sum_1 = 0;
  #pragma omp simd reduction(+:sum_1)
  for (long i = 0; i < 256; i++) {
    const _Bool ne_2 = labels[i] != -100L;
    sum_1 += (long)ne_2;
  }
  const float _to_copy = (float)sum_1;
  const float div_ = sum_2[0] / _to_copy;
  sum_2[0] = div_;
}

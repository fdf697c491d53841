// kernel pow_mean_add_mul (rows) over 512 points, each of 768:
//     _to_copy[i, j] = float32(x[i, j])
//     pow_1[i, j] = _to_copy[i, j] * _to_copy[i, j]
//     sum[i] = sum pow_1[i, j]  over j<768
//     mean[i] = sum[i] / 768
//     add[i, j] = mean[i] + 1e-06
//     rsqrt[i, j] = rsqrt(add[i, 0])
//     mul[i, j] = _to_copy[i, j] * rsqrt[i, 0]
//     _to_copy_1[i, j] = bfloat16(mul[i, j])
//   → mul_1[i, j] = float32(_to_copy_1[i, j]) * float32(weight[j])
// made by nbcompile; header-free C

static inline float bf16_to_float(unsigned short x) {
  union { unsigned int bits; float value; } u = { (unsigned int)x << 16 };
  return u.value;
}
static inline unsigned short float_to_bf16(float x) { // round half to even
  union { float value; unsigned int bits; } u = { x };
  unsigned int rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}
static inline float round_bf16(float x) {
  return x != x ? x : bf16_to_float(float_to_bf16(x));
}

// _to_copy, pow, mean, add, rsqrt, mul
void k0_pow_mean_add_mul(const unsigned short *x, const unsigned short *weight, unsigned short *mul_1) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    float sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long j = 0; j < 768; j++) {
      const float _to_copy = bf16_to_float(x[i*768 + j]);
      sum += _to_copy * _to_copy;
    }
    const float mean = sum / 768.0f;
    const float rsqrt = 1.0f / __builtin_sqrtf((mean + 1e-06f));
    #pragma omp simd
    for (long j = 0; j < 768; j++) {
      const float mul = bf16_to_float(x[i*768 + j]) * rsqrt;
      const float _to_copy_1 = round_bf16(mul);
      mul_1[i*768 + j] = float_to_bf16((_to_copy_1 * bf16_to_float(weight[j])));
    }
  }
}

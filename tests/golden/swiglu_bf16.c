// kernel sigmoid_mul (pointwise) over 64 × 1024 points:
//     _to_copy[i, j] = float32(x[i, j])
//     sigmoid[i, j] = sigmoid(_to_copy[i, j])
//     mul[i, j] = _to_copy[i, j] * sigmoid[i, j]
//     _to_copy_1[i, j] = bfloat16(mul[i, j])
//   → mul_1[i, j] = float32(_to_copy_1[i, j]) * float32(x[i, j + 1024])
// made by nbcompile; header-free C

__attribute__((simd("notinbranch"), const)) float expf(float);
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

// _to_copy, sigmoid, mul
void k0_sigmoid_mul(const unsigned short *x, unsigned short *mul_1) {
  #pragma omp parallel for
  for (long i = 0; i < 64; i++) {
    #pragma omp simd
    for (long j = 0; j < 1024; j++) {
      const float _to_copy = bf16_to_float(x[i*2048 + j]);
      const float sigmoid = 1.0f / (1.0f + expf(-_to_copy));
      const float mul = _to_copy * sigmoid;
      const float _to_copy_1 = round_bf16(mul);
      mul_1[i*1024 + j] = float_to_bf16((_to_copy_1 * bf16_to_float(x[i*2048 + j + 1024])));
    }
  }
}

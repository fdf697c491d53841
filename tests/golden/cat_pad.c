// kernel cat_constant_pad_nd_relu (pointwise) over 4 × 128 × 105 points:
//     cat[i, j, k] = (x[i, j, k] if 0 <= j < 96 else y[i, j - 96, k])
//     constant_pad_nd[i, j, k] = (cat[i, j, k - 2] if 2 <= k < 102 else 0)
//   → relu[i, j, k] = maximum(constant_pad_nd[i, j, k], 0)
// made by nbcompile; header-free C

static inline float maximum_f32(float a, float b) {
  float m = b > a ? b : a;
  return b != b ? b : m;
}

// cat, constant_pad_nd, relu
void k0_cat_constant_pad_nd_relu(const float *x, const float *y, float *relu) {
  #pragma omp parallel for collapse(2)
  for (long i = 0; i < 4; i++) {
    for (long j = 0; j < 128; j++) {
      if (j < 96) {
        #pragma omp simd
        for (long k = 0; k < 2; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(0.0f, 0.0f);
        }
        #pragma omp simd
        for (long k = 2; k < 102; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(x[i*9600 + j*100 + k - 2], 0.0f);
        }
        #pragma omp simd
        for (long k = 102; k < 105; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(0.0f, 0.0f);
        }
      }
      else {
        #pragma omp simd
        for (long k = 0; k < 2; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(0.0f, 0.0f);
        }
        #pragma omp simd
        for (long k = 2; k < 102; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(y[i*3200 + j*100 + k - 9602], 0.0f);
        }
        #pragma omp simd
        for (long k = 102; k < 105; k++) {
          relu[i*13440 + j*105 + k] = maximum_f32(0.0f, 0.0f);
        }
      }
    }
  }
}

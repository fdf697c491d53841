// kernel argmax (rows) over 512 points, each of 768:
//   → argmax_place[i] = argmax x[i, j]  over j<768
// made by nbcompile; header-free C

// argmax
void k0_argmax(const float *x, long *argmax_place_2) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    float argmax_place = -__builtin_inff();
    int argmax_place_nan = 0;
    #pragma omp simd reduction(max:argmax_place) reduction(|:argmax_place_nan)
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j];
      argmax_place = t > argmax_place ? t : argmax_place;
      argmax_place_nan |= t != t;
    }
    int argmax_place_first = 2147483647;
    #pragma omp simd reduction(min:argmax_place_first)
    for (long j = 0; j < 768; j++) {
      const float t_2 = x[i*768 + j];
      argmax_place_first = (argmax_place_nan ? t_2 != t_2 : t_2 == argmax_place) && (int)(j) < argmax_place_first ? (int)(j) : argmax_place_first;
    }
    const long argmax_place_at = argmax_place_first;
    argmax_place_2[i] = argmax_place_at;
  }
}

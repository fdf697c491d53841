// kernel argmax (rows) over 512 points, each of 768:
//   → argmax_place[i] = argmax x[i, j]  over j<768
// made by nbcompile; header-free C

// argmax
void k0_argmax(const float *x, long *argmax_place_2) {
  #pragma omp parallel for
  for (long i = 0; i < 512; i++) {
    float argmax_place = -__builtin_inff();
    long argmax_place_at = 0;
    for (long j = 0; j < 768; j++) {
      const float t = x[i*768 + j];
      if (t > argmax_place || (t != t && argmax_place == argmax_place)) { argmax_place = t; argmax_place_at = j; }
    }
    argmax_place_2[i] = argmax_place_at;
  }
}

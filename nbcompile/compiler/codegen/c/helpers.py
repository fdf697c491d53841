"""Small functions that C lacks, printed only where they are used.

One that is made for several types has ``TYPE``, ``SHORT`` and ``SUFFIX`` in its text, which are the C type,
its short name and the suffix of the library's functions for it; ``MINUS_ONE`` asks whether ``b`` is -1.
"""

from __future__ import annotations

from nbcompile.compiler.codegen.helpers import ERF, Helper

_REST = """#ifndef REST_SHORT
#define REST_SHORT
static inline TYPE alone_SHORT(TYPE a, TYPE b) { // fmod, which is a loop over bits in some libraries
  const TYPE quotient = __builtin_truncSUFFIX(a / b);
  if (!(__builtin_fabsSUFFIX(quotient) < 4194304)) return fmodSUFFIX(a, b);
  if (quotient == 0) return a;
  const TYPE rest = __builtin_fmaSUFFIX(-quotient, b, a); // exact; below 0 if the quotient rounds up
  const TYPE most = __builtin_copysignSUFFIX(b, a);
  return __builtin_copysignSUFFIX((a < 0) == (rest < 0) || rest == 0 ? rest : rest + most, a);
}
#define OF_f32 1
#if OF_SHORT && defined(__AVX2__) && defined(__FMA__) && defined(__GNUC__) && !defined(__clang__)
// The same for a vector, by the name that GCC calls where it makes vectors of a loop.
float rest_f32(float a, float b) __attribute__((simd("notinbranch"), const));
static float scalar_f32(float a, float b) __asm__("rest_f32") __attribute__((used));
static float scalar_f32(float a, float b) { return alone_f32(a, b); }
typedef float rest4 __attribute__((vector_size(16)));
typedef float rest8 __attribute__((vector_size(32)));
typedef int rest8i __attribute__((vector_size(32)));
static inline rest8 eight_f32(rest8 a, rest8 b) {
  const rest8i sign = (rest8i){0} - 2147483647 - 1, of_a = (rest8i)a & sign;
  const rest8 quotient = a / b;
  const rest8i near = (rest8)((rest8i)quotient & ~sign) < 4194304.0f;
  if (__builtin_expect(__builtin_ia32_movmskps256((rest8)near) != 255, 0)) {
    for (int i = 0; i < 8; i++) a[i] = alone_f32(a[i], b[i]);
    return a;
  }
  const rest8 whole = __builtin_convertvector(__builtin_convertvector(quotient, rest8i), rest8);
  const rest8 rest = __builtin_ia32_vfmaddps256(-whole, b, a);
  const rest8i beyond = (rest != 0.0f) & (((rest8i)rest ^ (rest8i)a) >> 31);
  const rest8 found = rest + (rest8)(beyond & (((rest8i)b & ~sign) | of_a));
  const rest8i none = whole == 0.0f;
  return (rest8)((none & (rest8i)a) | (~none & (((rest8i)found & ~sign) | of_a)));
}
static rest8 avx_f32(rest8 a, rest8 b) __asm__("_ZGVcN8vv_rest_f32") __attribute__((used));
static rest8 avx_f32(rest8 a, rest8 b) { return eight_f32(a, b); }
static rest8 avx2_f32(rest8 a, rest8 b) __asm__("_ZGVdN8vv_rest_f32") __attribute__((used));
static rest8 avx2_f32(rest8 a, rest8 b) { return eight_f32(a, b); }
static rest4 sse_f32(rest4 a, rest4 b) __asm__("_ZGVbN4vv_rest_f32") __attribute__((used));
static rest4 sse_f32(rest4 a, rest4 b) {
  union { rest4 half[2]; rest8 all; } x = { { a, a } }, y = { { b, b } };
  x.all = eight_f32(x.all, y.all);
  return x.half[0];
}
#ifdef __AVX512F__
typedef float rest16 __attribute__((vector_size(64)));
static rest16 avx512_f32(rest16 a, rest16 b) __asm__("_ZGVeN16vv_rest_f32") __attribute__((used));
static rest16 avx512_f32(rest16 a, rest16 b) {
  union { rest16 all; rest8 half[2]; } x = { a }, y = { b };
  for (int i = 0; i < 2; i++) x.half[i] = eight_f32(x.half[i], y.half[i]);
  return x.all;
}
#endif
#else
#define rest_SHORT alone_SHORT
#endif
#undef OF_f32
#endif
"""
"""The rest of a division, exact as that of ``fmod``: it is a float, and so is what a quotient one too large
leaves, as that is a multiple of the last places of both and smaller than those of the larger. Names of vector
versions are those of the x86-64 psABI for vector functions, as the C library's are."""

_FMA = """#ifndef FMA_F32
#ifdef __FP_FAST_FMAF
#define FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA_F32(a, b, c) ((a) * (b) + (c))
#endif
#endif
"""

_ERF = "".join(f"  p = FMA_F32(p, u, {c}f);\n" for c in ERF[1:])

HELPERS: dict[str, Helper] = {
    "bf16_to_float": Helper("""static inline float bf16_to_float(unsigned short x) {
  union { unsigned int bits; float value; } u = { (unsigned int)x << 16 };
  return u.value;
}"""),
    "float_to_bf16": Helper("""static inline unsigned short float_to_bf16(float x) { // round half to even
  union { float value; unsigned int bits; } u = { x };
  unsigned int rounded = (u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}"""),
    # a constant NaN that becomes an integer is 0 to GCC, and the least one to the processor, so to eager
    "round_bf16": Helper("""static inline float round_bf16(float x) {
  return x != x ? x : bf16_to_float(float_to_bf16(x));
}"""),
    # GCC takes (float)(_Float16)x one at a time; what follows, in integers, as many as a register holds
    "f16_to_float": Helper("""static inline float f16_to_float(unsigned short x) {
#ifdef __clang__
  union { unsigned short bits; _Float16 value; } u = { x };
  return (float)u.value;
#else
  const unsigned int w = (unsigned int)x << 16, twice = w + w;
  union { unsigned int bits; float value; } u, v;
  u.bits = (twice >> 4) + 0x70000000u;
  v.bits = (twice >> 17) | 0x3f000000u;
  u.value *= 0x1p-112f;
  v.value -= 0.5f; // where the exponent is the least
  u.bits = (w & 0x80000000u) | (twice < 0x8000000u ? v.bits : u.bits);
  return u.value;
#endif
}"""),
    "float_to_f16": Helper("""static inline unsigned short float_to_f16(float x) { // round half to even
#ifdef __clang__
  union { _Float16 value; unsigned short bits; } u = { (_Float16)x };
  return u.bits;
#else
  union { float value; unsigned int bits; } u = { x }, v = { x }, w;
  const unsigned int twice = u.bits + u.bits, most = twice & 0xff000000u;
  v.bits &= 0x7fffffffu;
  v.value = v.value * 0x1p112f * 0x1p-110f; // infinite from where a half is
  w.bits = ((most < 0x71000000u ? 0x71000000u : most) >> 1) + 0x7800000u;
  w.value += v.value; // which rounds to the bits that a half has
  const unsigned int rounded = ((w.bits >> 13) & 0x7c00u) + (w.bits & 0xfffu);
  return (unsigned short)((u.bits >> 16 & 0x8000u) | (twice > 0xff000000u ? 0x7e00u : rounded));
#endif
}"""),
    "round_f16": Helper("""static inline float round_f16(float x) {
  return f16_to_float(float_to_f16(x));
}"""),
    "in_range": Helper("""static inline long in_range(long i, long n) {
  return (unsigned long)i < (unsigned long)n ? i : 0;
}"""),
    "exp": Helper(_FMA + """static inline TYPE exp_SHORT(TYPE x) {
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
}"""),
    # Two selections, not a || in one: of several in a row gcc makes branches then, and no vectors. What is
    # asked about the second operand is known of a constant, which it is in a relu and a clamp.
    "abs": Helper("""static inline TYPE abs_SHORT(TYPE a) { return a < 0 ? (TYPE)-a : a; }"""),
    "maximum": Helper("""static inline TYPE maximum_SHORT(TYPE a, TYPE b) {
  TYPE m = b > a ? b : a;
  return b != b ? b : m;
}"""),
    "minimum": Helper("""static inline TYPE minimum_SHORT(TYPE a, TYPE b) {
  TYPE m = b < a ? b : a;
  return b != b ? b : m;
}"""),
    # By bits, in loops that call the library: of a branch gcc makes a path of its own for each constant that
    # is clamped to, and calls the vector function with zeros in the lanes that are on another path, for which
    # that leaves for a scalar one (12.2: three times the time of an sRGB curve).
    "pick": Helper("""static inline TYPE pick_SHORT(_Bool first, TYPE a, TYPE b) {
  union { TYPE value; BITS bits; } x = { a }, y = { b };
  y.bits ^= (x.bits ^ y.bits) & -(BITS)first;
  return y.value;
}"""),
    "pick_maximum": Helper("""static inline TYPE pick_maximum_SHORT(TYPE a, TYPE b) {
  TYPE m = pick_SHORT(b > a, b, a);
  return pick_SHORT(b != b, b, m);
}"""),
    "pick_minimum": Helper("""static inline TYPE pick_minimum_SHORT(TYPE a, TYPE b) {
  TYPE m = pick_SHORT(b < a, b, a);
  return pick_SHORT(b != b, b, m);
}"""),
    "fmax": Helper("""static inline TYPE fmax_SHORT(TYPE a, TYPE b) {
  TYPE m = a > b ? a : b;
  return b != b ? a : m;
}"""),
    "fmin": Helper("""static inline TYPE fmin_SHORT(TYPE a, TYPE b) {
  TYPE m = a < b ? a : b;
  return b != b ? a : m;
}"""),
    "floordiv_float": Helper(_REST + """static inline TYPE floordiv_SHORT(TYPE a, TYPE b) { // as Python's //
  const TYPE rest = rest_SHORT(a, b), exact = (a - rest) / b;
  const TYPE quotient = (rest != 0) & ((b < 0) != (rest < 0)) ? exact - 1 : exact;
  const TYPE whole = __builtin_floorSUFFIX(quotient);
  const TYPE nearest = quotient - whole > (TYPE)0.5 ? whole + 1 : whole;
  const TYPE found = quotient == 0 ? __builtin_copysignSUFFIX(0, a / b) : nearest;
  return b == 0 ? a / b : found;
}""", functions=("fmod",)),
    "remainder_float": Helper(_REST + """static inline TYPE remainder_SHORT(TYPE a, TYPE b) { // as Python's %
  TYPE rest = rest_SHORT(a, b);
  return (rest != 0) & ((b < 0) != (rest < 0)) ? rest + b : rest;
}""", functions=("fmod",)),
    "fmod_float": Helper(_REST + """static inline TYPE fmod_SHORT(TYPE a, TYPE b) {
  return rest_SHORT(a, b);
}""", functions=("fmod",)),
    "floordiv_int": Helper("""static inline TYPE floordiv_SHORT(TYPE a, TYPE b) {
  if (b == 0) return 0;
  if (MINUS_ONE) return -a;
  TYPE quotient = a / b;
  return quotient - (quotient * b != a && (a < 0) != (b < 0));
}"""),
    "remainder_int": Helper("""static inline TYPE remainder_SHORT(TYPE a, TYPE b) {
  if (b == 0 || MINUS_ONE) return 0;
  if (sizeof(TYPE) == 8 && b > 0 && a >= 0 && a < b) return a; // no vector divides so wide integers
  TYPE rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}"""),
    "truncdiv_int": Helper("""static inline TYPE truncdiv_SHORT(TYPE a, TYPE b) {
  return b == 0 ? 0 : MINUS_ONE ? -a : a / b;
}"""),
    "fmod_int": Helper("""static inline TYPE fmod_SHORT(TYPE a, TYPE b) {
  return b == 0 || MINUS_ONE ? 0 : a % b;
}"""),
    "pow_int": Helper("""static inline TYPE pow_SHORT(TYPE base, TYPE power) {
  if (power < 0) return base == 1 ? 1 : base == (TYPE)-1 ? (power % 2 ? -1 : 1) : 0;
  TYPE result = 1;
  for (; power; power >>= 1, base *= base) if (power & 1) result *= base;
  return result;
}"""),
    "shl": Helper("""static inline TYPE shl_SHORT(TYPE a, TYPE b) {
  return b < 0 || b >= (TYPE)(sizeof(TYPE) * 8) ? 0 : (TYPE)((unsigned long)a << b);
}"""),
    "shr": Helper("""static inline TYPE shr_SHORT(TYPE a, TYPE b) {
  return b < 0 || b >= (TYPE)(sizeof(TYPE) * 8) ? (a < 0 ? -1 : 0) : a >> b;
}"""),
    "bits": Helper("""static inline BITS bits_SHORT(TYPE x) {
  union { TYPE number; BITS bits; } u = { x };
  return u.bits;
}"""),
    "of_bits": Helper("""static inline TYPE of_bits_SHORT(BITS x) {
  union { BITS bits; TYPE number; } u = { x };
  return u.number;
}"""),
    # What GCC would make of a number that becomes an integer and a number again is trunc(), which keeps -0,
    # NaN and what no integer holds; and of a constant that none holds, the integer nearest to it.
    "by_int32": Helper("""static inline TYPE by_int32_SHORT(TYPE x) {
  const TYPE past = (TYPE)2147483648.0;
  return __builtin_fabsSUFFIX(x) < past ? __builtin_truncSUFFIX(x) + (TYPE)0.0 : -past;
}"""),
    "by_int64": Helper("""static inline TYPE by_int64_SHORT(TYPE x) {
  const TYPE past = (TYPE)9223372036854775808.0;
  return __builtin_fabsSUFFIX(x) < past ? __builtin_truncSUFFIX(x) + (TYPE)0.0 : -past;
}"""),
    "to_int32": Helper("""static inline int to_int32_SHORT(TYPE x) {
  return __builtin_fabsSUFFIX(x) < (TYPE)2147483648.0 ? (int)x : -2147483647 - 1;
}"""),
    "to_int64": Helper("""static inline long to_int64_SHORT(TYPE x) {
  return __builtin_fabsSUFFIX(x) < (TYPE)9223372036854775808.0 ? (long)x : -9223372036854775807L - 1;
}"""),
    "sign": Helper("""static inline TYPE sign_SHORT(TYPE x) { return (TYPE)((x > 0) - (x < 0)); }"""),
    "philox_uniform": Helper("""static inline float philox_uniform(long seed, long offset) {
  // Philox-4x32-10 (Salmon et al., SC 2011): word offset % 4 of block offset / 4, as [0, 1)
  unsigned int c0 = (unsigned int)(offset >> 2), c1 = (unsigned int)((unsigned long)offset >> 34);
  unsigned int c2 = 0, c3 = 0;
  unsigned int k0 = (unsigned int)seed, k1 = (unsigned int)((unsigned long)seed >> 32);
  for (int round = 0; round < 10; round++) {
    unsigned long p = (unsigned long)0xD2511F53u * c0, q = (unsigned long)0xCD9E8D57u * c2;
    c0 = (unsigned int)(q >> 32) ^ c1 ^ k0; c1 = (unsigned int)q;
    c2 = (unsigned int)(p >> 32) ^ c3 ^ k1; c3 = (unsigned int)p;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  unsigned int word = (offset & 2) ? ((offset & 1) ? c3 : c2) : ((offset & 1) ? c1 : c0);
  return (float)(word >> 8) * 0x1p-24f;
}"""),
    "erf_plus_one": Helper(_FMA + f"""static inline TYPE erf_plus_one_SHORT(TYPE x) {{
  // 1 + erf(x), off by 3e-7 at most, as x P(x x) up to 3.7: P is the polynomial of degree 15 nearest to
  // erf(sqrt(v)) / sqrt(v), in u = v / 7.6832 - 1
  const float u = FMA_F32(x * x, 0.13015411f, -1.0f);
  float p = {ERF[0]}f;
{_ERF}  return 1.0f + (x > 3.7f ? 1.0f : x < -3.7f ? -1.0f : x * p);
}}"""),
    "across": Helper("""#if defined(__clang__) || __GNUC__ >= 12
static inline void across_8_SHORT(const TYPE *from, long step, TYPE *to, long width) {
  typedef TYPE lanes __attribute__((vector_size(32), aligned(4), may_alias));
  lanes a[8], b[8];
  for (int c = 0; c < 8; c++) a[c] = *(const lanes *)(from + c*step);
  for (int c = 0; c < 8; c += 2) {
    b[c] = __builtin_shufflevector(a[c], a[c + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[c + 1] = __builtin_shufflevector(a[c], a[c + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int c = 0; c < 8; c += c % 4 == 1 ? 3 : 1) {
    a[c] = __builtin_shufflevector(b[c], b[c + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    a[c + 2] = __builtin_shufflevector(b[c], b[c + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int c = 0; c < 4; c++) {
    b[c] = __builtin_shufflevector(a[c], a[c + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[c + 4] = __builtin_shufflevector(a[c], a[c + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int r = 0; r < 8; r++) *(lanes *)(to + r*width) = b[r];
}
#ifdef __AVX512F__
static inline void across_16_SHORT(const TYPE *from, long step, TYPE *to, long width) {
  typedef TYPE lanes __attribute__((vector_size(64), aligned(4), may_alias));
  lanes a[16], b[16];
  for (int c = 0; c < 16; c++) a[c] = *(const lanes *)(from + c*step);
  for (int c = 0; c < 16; c += 2) {
    b[c] = __builtin_shufflevector(
      a[c], a[c + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    b[c + 1] = __builtin_shufflevector(
      a[c], a[c + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
  }
  for (int c = 0; c < 16; c += c % 4 == 1 ? 3 : 1) {
    a[c] = __builtin_shufflevector(
      b[c], b[c + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    a[c + 2] = __builtin_shufflevector(
      b[c], b[c + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  for (int c = 0; c < 16; c += c % 8 == 3 ? 5 : 1) {
    b[c] = __builtin_shufflevector(
      a[c], a[c + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
    b[c + 4] = __builtin_shufflevector(
      a[c], a[c + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
  }
  for (int c = 0; c < 8; c++) {
    a[c] = __builtin_shufflevector(
      b[c], b[c + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    a[c + 8] = __builtin_shufflevector(
      b[c], b[c + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  }
  for (int r = 0; r < 16; r++) *(lanes *)(to + r*width) = a[r];
}
#endif
#endif
static inline void across_SHORT(
    const TYPE *from, long step, TYPE *to, long width, long m, long n) {
  // to[r*width + c] = from[r + c*step] for r < m, c < n, 16 of each at most: a transposition in registers
  m = m < 16 ? m : 16;
  n = n < 16 ? n : 16;
#if defined(__clang__) || __GNUC__ >= 12
#ifdef __AVX512F__
  if (m == 16 && n == 16) return across_16_SHORT(from, step, to, width);
#endif
  if (m % 8 == 0 && n % 8 == 0) {
    for (long c = 0; c < n; c += 8)
      for (long r = 0; r < m; r += 8)
        across_8_SHORT(from + r + c*step, step, to + r*width + c, width);
    return;
  }
#endif
  for (long c = 0; c < n; c++)
    for (long r = 0; r < m; r++) to[r*width + c] = from[r + c*step];
}"""),
    "across_wide": Helper("""static inline void across_wide_SHORT(
    const TYPE *from, long step, TYPE *to, long width, long m, long n) {
  // to[r*width + c] = from[r + c*step] for r < m, c < n, 4 of each at most: a transposition in registers
#if defined(__clang__) || __GNUC__ >= 12
  if (m >= 4 && n >= 4) {
    typedef TYPE lanes __attribute__((vector_size(32), aligned(8), may_alias));
    lanes a[4], b[4];
    for (int c = 0; c < 4; c++) a[c] = *(const lanes *)(from + c*step);
    for (int c = 0; c < 4; c += 2) {
      b[c] = __builtin_shufflevector(a[c], a[c + 1], 0, 4, 2, 6);
      b[c + 1] = __builtin_shufflevector(a[c], a[c + 1], 1, 5, 3, 7);
    }
    for (int c = 0; c < 2; c++) {
      a[c] = __builtin_shufflevector(b[c], b[c + 2], 0, 1, 4, 5);
      a[c + 2] = __builtin_shufflevector(b[c], b[c + 2], 2, 3, 6, 7);
    }
    for (int r = 0; r < 4; r++) *(lanes *)(to + r*width) = a[r];
    return;
  }
#endif
  for (long c = 0; c < n && c < 4; c++)
    for (long r = 0; r < m && r < 4; r++) to[r*width + c] = from[r + c*step];
}"""),
}  # fmt: skip

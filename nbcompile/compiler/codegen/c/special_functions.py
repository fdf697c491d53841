"""Special functions that C's library lacks, as double-precision C with their sources.

Each agrees with ATen in value and at the edges: NaN, the infinities, poles, zeros of either sign. ``needs``
are all that a function calls of this table, in the order in which C wants them defined.
"""

from __future__ import annotations

from nbcompile.compiler.codegen.helpers import I0, I1, Helper, Series, table

_CHEBYSHEV = Helper("""static inline double chebyshev(double t, const double *c, int n) {
  // the sum of c[k] T_k(t), by Clenshaw's recurrence
  double a = 0, b = 0;
  for (int k = n - 1; k > 0; k--) {
    const double next = 2 * t * a - b + c[k];
    b = a;
    a = next;
  }
  return t * a - b + c[0];
}""")

_BESSEL = """static inline double NAME_f64(double x) {
  // Chebyshev series in |x| on [0, 8] and in 8/|x| beyond, as Cephes does (Moshier 1989)
  static const double near[] = {
NEAR};
  static const double far[] = {
FAR};
  const double y = __builtin_fabs(x);
  RETURN
}"""


def _bessel(name: str, series: Series, near_factor: str, far_factor: str, odd: bool) -> Helper:
    """A modified Bessel function of the first kind: the series times a factor on either side of 8."""
    lines = [
        "const double value = y <= 8",
        f"  ? {near_factor}chebyshev(y / 4 - 1, near, {len(series.near)})",
        f"  : {far_factor}chebyshev(16 / y - 1, far, {len(series.far)}) / __builtin_sqrt(y);",
        "return x < 0 ? -value : value;" if odd else "return value;",
    ]
    text = _BESSEL.replace("NAME", name).replace("RETURN", "\n  ".join(lines))
    text = text.replace("NEAR", table(series.near, 110, "  ")).replace("FAR", table(series.far, 110, "  "))
    return Helper(text, ("chebyshev",), ("exp",) if far_factor else ())


SPECIAL: dict[str, Helper] = {
    "chebyshev": _CHEBYSHEV,
    "i0": _bessel("i0", I0, "exp(y) * ", "exp(y) * ", False),
    "i0e": _bessel("i0e", I0, "", "", False),
    "i1": _bessel("i1", I1, "exp(y) * y * ", "exp(y) * ", True),
    "i1e": _bessel("i1e", I1, "y * ", "", True),
    "erfcx": Helper(
        """static inline double erfcx_f64(double x) {
  // (1 + 2x) exp(x^2) erfc(x) as a Chebyshev series in (x - 3.75) / (x + 3.75): Shepherd and
  // Laframboise (1981)
  static const double c[] = {
  1.1775789345674017, -0.004590054580646478, -0.08424913336651792, 0.05920993999819189,
  -0.026658668435305753, 0.009074997670705265, -0.002413163540417608, 0.0004907758365258086,
  -6.916973302501207e-05, 4.13902798607301e-06, 7.74038306619849e-07, -2.1886401049234397e-07,
  1.076499946567091e-08, 4.521959811218287e-09, -7.754400208831351e-10, -6.318088340886684e-11,
  2.86879501093067e-11, 1.9455868545777347e-13, -9.65469674843344e-13, 3.25254814814874e-14,
  3.3478119482868056e-14, -1.864562880419313e-15, -1.2507950530688648e-15, 7.418235256624044e-17,
  5.068148904796111e-17};
  const double y = __builtin_fabs(x);
  const double tail = y > 1e8 ? 0.5641895835477563 / y // 1 / sqrt(pi)
                              : chebyshev((y - 3.75) / (y + 3.75), c, 25) / (1 + 2 * y);
  return x < 0 ? 2 * exp(x * x) - tail : tail;
}""",
        ("chebyshev",),
        ("exp",),
    ),
    "log_ndtr": Helper(
        """static inline double log_ndtr_f64(double x) {
  // log of the normal distribution function; the tail by erfcx, which does not underflow
  const double t = x * 0.7071067811865476; // 1 / sqrt(2)
  return x < -1 ? log(erfcx_f64(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}""",
        ("chebyshev", "erfcx"),
        ("exp", "log", "log1p", "erfc"),
    ),
    "normal_tail": Helper(
        """static inline double normal_tail(double q) {
  // the z above which the normal distribution has the mass q <= 1/2: the approximation 26.2.23 of Abramowitz
  // and Stegun, then three steps of Newton's method on the log of the mass
  const double goal = log(q), t = __builtin_sqrt(-2 * goal);
  double z = t - (2.515517 + t * (0.802853 + t * 0.010328))
                 / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (int step = 0; step < 3; step++) {
    const double scaled = erfcx_f64(z * 0.7071067811865476); // 1 / sqrt(2)
    z += (log(scaled / 2) - z * z / 2 - goal) * scaled * 1.2533141373155001; // sqrt(pi / 2)
  }
  return z;
}""",
        ("chebyshev", "erfcx"),
        ("log", "exp"),
    ),
    "erfinv": Helper(
        """static inline double erfinv_f64(double x) {
  // Giles's single-precision polynomial (2010) and one step of Halley's method; near 1 by the normal tail
  const double y = __builtin_fabs(x);
  if (!(y < 1)) return y == 1 ? __builtin_copysign(__builtin_inf(), x) : __builtin_nan("");
  if (y > 0.8) return __builtin_copysign(normal_tail((1 - y) / 2) * 0.7071067811865476, x); // 1 / sqrt(2)
  const double w = -log((1 - y) * (1 + y)) - 2.5;
  double p = 2.81022636e-08;
  p = 3.43273939e-07 + p * w;
  p = -3.5233877e-06 + p * w;
  p = -4.39150654e-06 + p * w;
  p = 0.00021858087 + p * w;
  p = -0.00125372503 + p * w;
  p = -0.00417768164 + p * w;
  p = 0.246640727 + p * w;
  p = 1.50140941 + p * w;
  const double z = p * y;
  const double newton = (erf(z) - y) / (1.1283791670955126 * exp(-z * z)); // 2 / sqrt(pi)
  return __builtin_copysign(z - newton / (1 + z * newton), x);
}""",
        ("chebyshev", "erfcx", "normal_tail"),
        ("log", "erf", "exp"),
    ),
    "ndtri": Helper(
        """static inline double ndtri_f64(double p) {
  // quantile of the normal distribution
  if (!(p >= 0 && p <= 1)) return __builtin_nan("");
  if (p == 0 || p == 1) return p == 0 ? -__builtin_inf() : __builtin_inf();
  if (p > 0.1 && p < 0.9) return 1.4142135623730951 * erfinv_f64(2 * p - 1); // sqrt(2)
  return p < 0.5 ? -normal_tail(p) : normal_tail(1 - p);
}""",
        ("chebyshev", "erfcx", "normal_tail", "erfinv"),
        ("log", "erf", "exp"),
    ),
    "digamma": Helper(
        """static inline double digamma_f64(double x) {
  // reflection below 0, steps up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 7, 18)
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double result = 0;
  if (x < 0) {
    const double fraction = x - __builtin_trunc(x);
    if (!(fraction < 0)) return __builtin_nan(""); // a pole
    result = -3.141592653589793 / tan(3.141592653589793 * fraction);
    x = 1 - x;
  }
  while (x < 10) {
    result -= 1 / x;
    x += 1;
  }
  const double s = 1 / (x * x);
  const double series = s * (1 / 12.0 - s * (1 / 120.0 - s * (1 / 252.0 - s * (1 / 240.0 - s * (1 / 132.0
    - s * (691 / 32760.0 - s * (1 / 12.0)))))));
  return result + log(x) - 0.5 / x - series;
}""",
        functions=("tan", "log"),
    ),
}
"""By operation of the loop IR; ``chebyshev`` and ``normal_tail`` are no operations but serve the others."""

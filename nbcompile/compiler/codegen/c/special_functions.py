"""Special functions that C's library lacks, as double-precision C with their sources.

Each agrees with ATen in value and at the edges: NaN, the infinities, poles, zeros of either sign. Tables
are Chebyshev coefficients computed for this file with 40 digits and cut where they fall under 2e-17.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Special:
    """A C function ``<name>_f64``; ``functions`` are the C library functions it calls, ``needs`` what
    else of this table it calls, in the order in which C wants them defined."""

    text: str
    functions: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


_CHEBYSHEV = Special("""static inline double chebyshev(double t, const double *c, int n) {
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

_I0_NEAR = """\
  0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071,
  -0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357,
  -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05,
  -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08,
  -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11,
  -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14,
  -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17"""
_I0_FAR = """\
  0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
  2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
  1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
  7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
  -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
  -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17"""
_I1_NEAR = """\
  0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516,
  -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758,
  -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06,
  -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
  -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11,
  -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15,
  -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17"""
_I1_FAR = """\
  0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
  -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
  -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
  -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
  1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
  2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17"""


def _bessel(name: str, near: str, far: str, near_factor: str, far_factor: str, odd: bool) -> Special:
    """A modified Bessel function of the first kind: the series times a factor on either side of 8."""
    counts = len(near.split(",")), len(far.split(","))
    lines = [
        "const double value = y <= 8",
        f"  ? {near_factor}chebyshev(y / 4 - 1, near, {counts[0]})",
        f"  : {far_factor}chebyshev(16 / y - 1, far, {counts[1]}) / __builtin_sqrt(y);",
        "return x < 0 ? -value : value;" if odd else "return value;",
    ]
    text = _BESSEL.replace("NAME", name).replace("NEAR", near).replace("FAR", far)
    functions = ("exp",) if "exp" in far_factor else ()
    return Special(text.replace("RETURN", "\n  ".join(lines)), functions, ("chebyshev",))


SPECIAL: dict[str, Special] = {
    "chebyshev": _CHEBYSHEV,
    "i0": _bessel("i0", _I0_NEAR, _I0_FAR, "exp(y) * ", "exp(y) * ", False),
    "i0e": _bessel("i0e", _I0_NEAR, _I0_FAR, "", "", False),
    "i1": _bessel("i1", _I1_NEAR, _I1_FAR, "exp(y) * y * ", "exp(y) * ", True),
    "i1e": _bessel("i1e", _I1_NEAR, _I1_FAR, "y * ", "", True),
    "erfcx": Special(
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
        ("exp",),
        ("chebyshev",),
    ),
    "log_ndtr": Special(
        """static inline double log_ndtr_f64(double x) {
  // log of the normal distribution function; the tail by erfcx, which does not underflow
  const double t = x * 0.7071067811865476; // 1 / sqrt(2)
  return x < -1 ? log(erfcx_f64(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}""",
        ("exp", "log", "log1p", "erfc"),
        ("chebyshev", "erfcx"),
    ),
    "normal_tail": Special(
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
        ("log", "exp"),
        ("chebyshev", "erfcx"),
    ),
    "erfinv": Special(
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
        ("log", "erf", "exp"),
        ("chebyshev", "erfcx", "normal_tail"),
    ),
    "ndtri": Special(
        """static inline double ndtri_f64(double p) {
  // quantile of the normal distribution
  if (!(p >= 0 && p <= 1)) return __builtin_nan("");
  if (p == 0 || p == 1) return p == 0 ? -__builtin_inf() : __builtin_inf();
  if (p > 0.1 && p < 0.9) return 1.4142135623730951 * erfinv_f64(2 * p - 1); // sqrt(2)
  return p < 0.5 ? -normal_tail(p) : normal_tail(1 - p);
}""",
        ("log", "erf", "exp"),
        ("chebyshev", "erfcx", "normal_tail", "erfinv"),
    ),
    "digamma": Special(
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
        ("tan", "log"),
    ),
}
"""By operation of the loop IR; ``chebyshev`` and ``normal_tail`` are no operations but serve the others."""

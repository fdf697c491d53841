"""Special functions that libdevice lacks (on NVIDIA or on AMD), as Triton functions with their sources.

Each works on tiles of float32 or float64 in that precision: a literal takes the type of the tile beside
it. They agree with ATen in value and at the edges: NaN, the infinities, poles. Chebyshev coefficients are
those of :mod:`nbcompile.compiler.codegen.helpers`, which C has too.
"""

from __future__ import annotations

from nbcompile.compiler.codegen.helpers import ERF, I0, I1, Helper, Series, table

_CHEBYSHEV = Helper('''@triton.jit
def chebyshev(t, coefficients: tl.constexpr, count: tl.constexpr):
    """The sum of coefficients[k] T_k(t), by Clenshaw's recurrence."""
    before = t * 0.0
    total = before + coefficients[count - 1]
    for k in tl.static_range(count - 2, 0, -1):
        after = 2.0 * t * total - before + coefficients[k]
        before = total
        total = after
    return t * total - before + coefficients[0]''')


def _bessel(name: str, series: Series, meaning: str, near_factor: str, odd: bool) -> Helper:
    sign = "tl.where(x < 0.0, -1.0, 1.0) * " if odd else ""
    return Helper(
        f'''@triton.jit
def {name}(x):
    """exp(-|x|) {meaning}(x): Chebyshev series in |x| up to 8 and in 8/|x| beyond (Cephes, Moshier 1989)."""
    near: tl.constexpr = (
{table(series.near, 100, " " * 8)},
    )
    far: tl.constexpr = (
{table(series.far, 100, " " * 8)},
    )
    y = tl.abs(x)
    below = {near_factor}chebyshev(y * 0.25 - 1.0, near, {len(series.near)})
    beyond = chebyshev(16.0 / tl.maximum(y, 8.0) - 1.0, far, {len(series.far)}) / tl.sqrt(y)
    return {sign}tl.where(y > 8.0, beyond, below)''',
        ("chebyshev",),
    )


_STEPS = "".join(f"    p = p * u {'-' if c < 0 else '+'} {abs(c)}\n" for c in ERF[1:-1])
_ERF = Helper(f'''@triton.jit
def erf(x):
    """x P(x * x) up to 3.7, from where it is 1: off by 3e-7 at most, and never over 1. P is the polynomial of
    degree 15 nearest to erf(sqrt(v)) / sqrt(v), in u = v / 7.6832 - 1. Half the work of exact rounding."""
    u = x * x * 0.13015411 - 1.0
    p = {ERF[0]}
{_STEPS}    p = x * (p * u + {ERF[-1]})
    return tl.where(x > 3.7, 1.0, tl.where(x < -3.7, -1.0, p))''')

_LOG1P_UNIT = Helper('''@triton.jit
def log1p_unit(x):
    """log(1 + x) of a float32 between 0 and 1, as x + x * x Q(x), within 1.3 units in the last place. Q is
    the polynomial of degree 8 with the least relative error; it takes no branch, as libdevice's does."""
    q = -0.003310628
    q = q * x + 0.0201682653
    q = q * x - 0.057594087
    q = q * x + 0.10673169
    q = q * x - 0.153508499
    q = q * x + 0.196937457
    q = q * x - 0.249582469
    q = q * x + 0.333304763
    q = q * x - 0.499999315
    return x * x * q + x''')

SPECIAL: dict[str, Helper] = {
    "chebyshev": _CHEBYSHEV,
    "erf": _ERF,
    "log1p_unit": _LOG1P_UNIT,
    "i0e": _bessel("i0e", I0, "I0", "", odd=False),
    "i1e": _bessel("i1e", I1, "I1", "y * ", odd=True),
    "i0": Helper('''@triton.jit
def i0(x):
    """The modified Bessel function I0."""
    return tl.exp(tl.abs(x)) * i0e(x)''', ("i0e",)),
    "i1": Helper('''@triton.jit
def i1(x):
    """The modified Bessel function I1."""
    return tl.exp(tl.abs(x)) * i1e(x)''', ("i1e",)),
    "log_ndtr": Helper('''@triton.jit
def log_ndtr(x):
    """Log of the normal distribution function; the tail by erfcx, which does not underflow."""
    t = x * 0.7071067811865476  # 1 / sqrt(2)
    tail = tl.log(libdevice.erfcx(-t) * 0.5) - t * t
    return tl.where(x < -1.0, tail, libdevice.log1p(libdevice.erfc(t) * -0.5))'''),
    "ndtri": Helper('''@triton.jit
def ndtri(p):
    """Quantile of the normal distribution: by erfinv in the middle; in a tail of mass q the approximation
    26.2.23 of Abramowitz and Stegun, then three steps of Newton's method on the log of the mass."""
    q = tl.where(p < 0.5, p, 1.0 - p)
    goal = tl.log(q)
    t = tl.sqrt(-2.0 * goal)
    z = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
        1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in tl.static_range(3):
        scaled = libdevice.erfcx(z * 0.7071067811865476)  # 1 / sqrt(2)
        z += (tl.log(scaled * 0.5) - z * z * 0.5 - goal) * scaled * 1.2533141373155001  # sqrt(pi / 2)
    tail = tl.where(p < 0.5, -z, z)
    tail = tl.where(p == 0.0, float("-inf"), tl.where(p == 1.0, float("inf"), tail))
    middle = 1.4142135623730951 * libdevice.erfinv(2.0 * p - 1.0)  # sqrt(2)
    return tl.where((p > 0.1) & (p < 0.9), middle, tl.where((p >= 0.0) & (p <= 1.0), tail, float("nan")))'''),
    "digamma": Helper('''@triton.jit
def digamma(x):
    """Reflection below 0, steps up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 7, 18)."""
    fraction = x - libdevice.trunc(x)
    # Nearest to the pole where pi times it is rounded least: the sum is exact.
    near = tl.where(fraction < -0.5, fraction + 1.0, fraction)
    reflected = -3.141592653589793 / libdevice.tan(3.141592653589793 * near)
    reflected = tl.where(fraction < 0.0, reflected, float("nan"))  # a pole
    result = tl.where(x < 0.0, reflected, 0.0)
    y = tl.where(x < 0.0, 1.0 - x, x)
    for _ in tl.static_range(10):
        low = y < 10.0
        result = tl.where(low, result - 1.0 / y, result)
        y = tl.where(low, y + 1.0, y)
    s = 1.0 / (y * y)
    series = s * (0.08333333333333333 - s * (0.008333333333333333 - s * (0.003968253968253968 - s * (
        0.004166666666666667 - s * (0.007575757575757576 - s * (
            0.021092796092796094 - s * 0.08333333333333333))))))
    result += tl.log(y) - 0.5 / y - series
    return tl.where(x == 0.0, -1.0 / x, result)'''),
}  # fmt: skip
"""By operation of the loop IR; ``chebyshev`` is no operation but serves the others."""

"""Small Triton functions of scans: how what came before and what comes now are one, and what a block ends
with."""

from __future__ import annotations

from nbcompile.compiler.codegen.helpers import Helper

SCANS: dict[str, Helper] = {
    "plus": Helper('''@triton.jit
def plus(a, b):
    return a + b'''),
    "log_add_exp": Helper('''@triton.jit
def log_add_exp(a, b):
    """log(exp(a) + exp(b)) without overflow; NaN if either is. Infinities of one sign have no difference."""
    low = minimum_nan(a, b)
    high = maximum_nan(a, b)
    same = (low == high) & (tl.abs(low) == float("inf"))
    return tl.where(same, low, high + libdevice.log1p(tl.exp(low - high)))''',
        ("minimum_nan", "maximum_nan")),
    "log_sum_exp": Helper('''@triton.jit
def log_sum_exp(x, axis: tl.constexpr):
    """The logarithm of the sum of exponentials along an axis."""
    return tl.reduce(x, axis, log_add_exp)''', ("log_add_exp",)),
    "later_max": Helper('''@triton.jit
def later_max(a, i, b, j):
    """The larger of two with its position; NaN is above all, and of equals the last is taken."""
    second = (b > a) | ((b != b) & (a == a)) | (((b == a) | ((b != b) & (a != a))) & (j > i))
    return tl.where(second, b, a), tl.where(second, j, i)'''),
    "later_min": Helper('''@triton.jit
def later_min(a, i, b, j):
    """The smaller of two with its position; NaN is below all, and of equals the last is taken."""
    second = (b < a) | ((b != b) & (a == a)) | (((b == a) | ((b != b) & (a != a))) & (j > i))
    return tl.where(second, b, a), tl.where(second, j, i)'''),
    "last_max": Helper('''@triton.jit
def last_max(value, position, axis: tl.constexpr):
    """The largest along an axis and its last position."""
    return tl.reduce((value, position), axis, later_max)''', ("later_max",)),
    "last_min": Helper('''@triton.jit
def last_min(value, position, axis: tl.constexpr):
    """The smallest along an axis and its last position."""
    return tl.reduce((value, position), axis, later_min)''', ("later_min",)),
    "at_end": Helper('''@triton.jit
def at_end(x, end, axis: tl.constexpr):
    """What stands along an axis where end is true: one lane. As bits, for a sum makes 0.0 of -0.0."""
    if x.dtype == tl.float32:
        return tl.sum(tl.where(end, x.to(tl.int32, bitcast=True), 0), axis).to(tl.float32, bitcast=True)
    elif x.dtype == tl.float64:
        return tl.sum(tl.where(end, x.to(tl.int64, bitcast=True), 0), axis).to(tl.float64, bitcast=True)
    else:
        return tl.sum(tl.where(end, x, 0), axis).to(x.dtype)'''),
}  # fmt: skip

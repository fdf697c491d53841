"""Small Triton functions that generated files hold where they need them: what takes more than one expression.

Rounding divisions, remainders, shifts and powers with torch's edges, reductions in which NaN wins, the first
position of an extreme, and random numbers. All work on tiles of any shape and on scalars. The names of those
that reduce are known to :mod:`nbcompile.compiler.runtime.interpreter.numpy_helpers`, which does the same in
one numpy call.
"""

from __future__ import annotations

from nbcompile.compiler.codegen.helpers import Helper

COMMON: dict[str, Helper] = {
    "maximum_nan": Helper('''@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)'''),
    "minimum_nan": Helper('''@triton.jit
def minimum_nan(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)'''),
    "sigmoid": Helper('''@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); of float32 in 5 instructions, which take subnormal numbers for 0."""
    if x.dtype == tl.float32:
        power = libdevice.exp2(x * -1.442695)  # -1 / log(2)
        return libdevice.fast_dividef(tl.full((), 1.0, tl.float32), 1.0 + power)
    else:
        return 1.0 / (1.0 + tl.exp(-1.0 * x))'''),
    "sign": Helper('''@triton.jit
def sign(x):
    """1, 0 or -1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)'''),
    "floor_divide_float": Helper('''@triton.jit
def floor_divide_float(a, b):
    """a // b as Python has it."""
    rest = libdevice.fmod(a, b)
    quotient = true_divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    whole = tl.where(quotient == 0, libdevice.copysign(quotient * 0, true_divide(a, b)), whole)
    return tl.where(b == 0, true_divide(a, b), whole)''', ("true_divide",)),
    "true_divide": Helper('''@triton.jit
def true_divide(a, b):
    """a / b rounded as IEEE says; the bare / of float32 is off by up to 2 units in the last place."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b'''),
    "remainder_float": Helper('''@triton.jit
def remainder_float(a, b):
    """a % b as Python has it."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)'''),
    "safe_divisor": Helper('''@triton.jit
def safe_divisor(b):
    """b, but 1 where dividing by it may trap: 0, and -1, by which the least integer overflows."""
    if b.dtype.is_int_signed():
        return tl.where((b == 0) | (b == -1), 1, b)
    else:
        return tl.where(b == 0, 1, b)'''),
    "truncate_divide": Helper('''@triton.jit
def truncate_divide(a, b):
    """a / b of integers, rounded toward 0; 0 where b is 0."""
    quotient = a // safe_divisor(b)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    return tl.where(b == 0, 0, quotient)''', ("safe_divisor",)),
    "floor_divide": Helper('''@triton.jit
def floor_divide(a, b):
    """a // b of integers, rounded down; 0 where b is 0."""
    divisor = safe_divisor(b)
    quotient = a // divisor
    rest = a - quotient * divisor
    quotient = quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    return tl.where(b == 0, 0, quotient)''', ("safe_divisor",)),
    "remainder": Helper('''@triton.jit
def remainder(a, b):
    """a % b of integers, with the sign of b; 0 where b is 0."""
    rest = a % safe_divisor(b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)''', ("safe_divisor",)),
    "truncate_remainder": Helper('''@triton.jit
def truncate_remainder(a, b):
    """The rest of a / b of integers, with the sign of a; 0 where b is 0."""
    return a % safe_divisor(b)''', ("safe_divisor",)),
    "integer_power": Helper('''@triton.jit
def integer_power(base, power):
    """base ** power by repeated squaring, wrapping around; of a negative power the whole part."""
    bits: tl.constexpr = base.dtype.primitive_bitwidth
    result = tl.where(power == power, 1, base)
    square = base
    rest = power
    for _ in tl.static_range(bits):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    if power.dtype.is_int_signed():
        unit = tl.where(base == 1, 1, tl.where(base == -1, 1 - 2 * (power & 1), 0))
        result = tl.where(power < 0, unit, result)
    return result'''),
    "shift_left": Helper('''@triton.jit
def shift_left(a, b):
    """a << b; 0 where all bits leave."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    return tl.where(inside, a << tl.where(inside, b, 0), 0)'''),
    "shift_right": Helper('''@triton.jit
def shift_right(a, b):
    """a >> b with the sign kept; 0 or -1 where all bits leave."""
    bits: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < bits)
    if a.dtype.is_int_signed():
        return a >> tl.where(inside, b, bits - 1)
    else:
        return tl.where(inside, a >> tl.where(inside, b, 0), 0)'''),
    "max_nan": Helper('''@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)''', ("maximum_nan",)),
    "min_nan": Helper('''@triton.jit
def min_nan(x, axis: tl.constexpr):
    """The smallest along an axis; NaN if any is."""
    return tl.reduce(x, axis, minimum_nan)''', ("minimum_nan",)),
    "multiply": Helper('''@triton.jit
def multiply(a, b):
    return a * b'''),
    "prod": Helper('''@triton.jit
def prod(x, axis: tl.constexpr):
    """The product along an axis."""
    return tl.reduce(x, axis, multiply)''', ("multiply",)),
    "either": Helper('''@triton.jit
def either(a, b):
    return a | b'''),
    "any_true": Helper('''@triton.jit
def any_true(x, axis: tl.constexpr):
    """Whether any is true along an axis."""
    return tl.reduce(x, axis, either)''', ("either",)),
    "both": Helper('''@triton.jit
def both(a, b):
    return a & b'''),
    "all_true": Helper('''@triton.jit
def all_true(x, axis: tl.constexpr):
    """Whether all are true along an axis."""
    return tl.reduce(x, axis, both)''', ("both",)),
    "argmax_combine": Helper('''@triton.jit
def argmax_combine(a, i, b, j):
    """The larger of two with its position; NaN is above all, and of equals the first is taken."""
    first = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)'''),
    "arg_max": Helper('''@triton.jit
def arg_max(value, position, axis: tl.constexpr):
    """The largest along an axis and its first position."""
    return tl.reduce((value, position), axis, argmax_combine)''', ("argmax_combine",)),
    "argmin_combine": Helper('''@triton.jit
def argmin_combine(a, i, b, j):
    """The smaller of two with its position; NaN is below all, and of equals the first is taken."""
    first = (a < b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)'''),
    "arg_min": Helper('''@triton.jit
def arg_min(value, position, axis: tl.constexpr):
    """The smallest along an axis and its first position."""
    return tl.reduce((value, position), axis, argmin_combine)''', ("argmin_combine",)),
    "philox": Helper('''@triton.jit
def philox(seed, block):
    """Four random 32-bit words a block number: Philox-4x32-10 (Salmon et al., SC 2011)."""
    key = tl.cast(seed, tl.int64)
    k0 = key.to(tl.uint32)
    k1 = (key >> 32).to(tl.uint32)
    c0 = block.to(tl.uint32)
    c2 = c0 ^ c0
    c3 = c2
    if block.dtype == tl.int64:
        c1 = (block >> 32).to(tl.uint32)
    else:
        c1 = c2
    for _ in tl.static_range(10):
        high = tl.umulhi(0xCD9E8D57, c2) ^ c1 ^ k0
        c1 = tl.mul(0xCD9E8D57, c2, sanitize_overflow=False)
        c2 = tl.umulhi(0xD2511F53, c0) ^ c3 ^ k1
        c3 = tl.mul(0xD2511F53, c0, sanitize_overflow=False)
        c0 = high
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return c0, c1, c2, c3'''),
    "unit_interval": Helper('''@triton.jit
def unit_interval(word):
    """The top 24 bits of a 32-bit word as a float32 in [0, 1)."""
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2**-24'''),
    "philox_uniform": Helper('''@triton.jit
def philox_uniform(seed, offset):
    """A uniform random number in [0, 1) an offset: word offset % 4 of block offset // 4."""
    w0, w1, w2, w3 = philox(seed, offset >> 2)
    odd = (offset & 1) != 0
    return unit_interval(tl.where((offset & 2) != 0, tl.where(odd, w3, w2), tl.where(odd, w1, w0)))''',
        ("philox", "unit_interval")),
    "philox_below4": Helper('''@triton.jit
def philox_below4(seed, block, bound: tl.constexpr):
    """Whether each of the four random words a block number is below a bound, side by side."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    return tl.reshape(words, words.shape[:-3] + [4 * words.shape[-3]]) < bound''', ("philox",)),
    "philox_below4_down": Helper('''@triton.jit
def philox_below4_down(seed, block, bound: tl.constexpr):
    """Whether each of the four random words a block number is below a bound, one below the other."""
    w0, w1, w2, w3 = philox(seed, block)
    below = tl.join(tl.join(w0 < bound, w2 < bound), tl.join(w1 < bound, w3 < bound))
    return tl.reshape(tl.permute(below, (0, 2, 3, 1)), [4 * below.shape[0], below.shape[1]])''', ("philox",)),
    "philox_uniform4": Helper('''@triton.jit
def philox_uniform4(seed, block):
    """Four uniform random numbers in [0, 1) a block number, side by side along the last axis."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    return unit_interval(tl.reshape(words, words.shape[:-3] + [4 * words.shape[-3]]))''',
        ("philox", "unit_interval")),
    "philox_uniform4_down": Helper('''@triton.jit
def philox_uniform4_down(seed, block):
    """Four uniform random numbers in [0, 1) a block number, one below the other."""
    w0, w1, w2, w3 = philox(seed, block)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    words = tl.permute(words, (0, 2, 3, 1))
    return unit_interval(tl.reshape(words, [4 * words.shape[0], words.shape[-1]]))''',
        ("philox", "unit_interval")),
}  # fmt: skip

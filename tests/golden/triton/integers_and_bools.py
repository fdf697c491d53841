# kernel gt_remainder_eq_bitwise_not (rows) over 30000 points, each of 700:
#     gt[i, j] = a[i, j] > int64(b[i, j])
#     remainder[i, j] = a[i, j] % 3
#     eq[i, j] = remainder[i, j] == 0
#     bitwise_and[i, j] = gt[i, j] and eq[i, j]
#     div[i, j] = a[i, j] // 2
#   → where[i, j] = where(bitwise_and[i, j], div[i, j], int64(b[i, j]))
#   → sum_1[i] = sum int64(bitwise_and[i, j])  over j<700
#   → bitwise_not[i, j] = not(bitwise_and[i, j])
# k0_gt_remainder_eq_bitwise_not[cdiv(30000, XBLOCK)](XBLOCK=2, RBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def safe_divisor(b):
    """b, but 1 where dividing by it may trap: 0, and -1, by which the least integer overflows."""
    if b.dtype.is_int_signed():
        return tl.where((b == 0) | (b == -1), 1, b)
    else:
        return tl.where(b == 0, 1, b)


@triton.jit
def remainder(a, b):
    """a % b of integers, with the sign of b; 0 where b is 0."""
    rest = a % safe_divisor(b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_divide(a, b):
    """a // b of integers, rounded down; 0 where b is 0."""
    divisor = safe_divisor(b)
    quotient = a // divisor
    rest = a - quotient * divisor
    quotient = quotient - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)
    if b.dtype.is_int_signed():
        quotient = tl.where(b == -1, 0 - a, quotient)
    return tl.where(b == 0, 0, quotient)


# gt, remainder, eq, bitwise_and, div, where, sum, bitwise_not
@triton.jit
def k0_gt_remainder_eq_bitwise_not(a_ptr, b_ptr, sum_1_ptr, where_ptr, bitwise_not_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 700
    a = tl.load(a_ptr + i*700 + j, mask=j_in)
    b = tl.load(b_ptr + i*700 + j, mask=j_in)
    gt = a > b.to(tl.int64)
    remainder_ = remainder(a, tl.full((), 3, tl.int64))
    eq = remainder_ == 0
    bitwise_and = gt & eq
    t = bitwise_and.to(tl.int64)
    sum_1 = tl.sum(tl.where(j_in, t, tl.full((), 0, tl.int64)), axis=1)[:, None]
    tl.store(sum_1_ptr + i, sum_1)
    div = floor_divide(a, tl.full((), 2, tl.int64))
    tl.store(where_ptr + i*700 + j, tl.where(bitwise_and, div, b.to(tl.int64)), mask=j_in)
    tl.store(bitwise_not_ptr + i*700 + j, ~bitwise_and, mask=j_in)

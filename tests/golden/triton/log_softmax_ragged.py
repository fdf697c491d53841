# kernel mul_log_softmax (rows) over 8192 points, each of 100003:
#     mul[i, j] = x[i, j] * 0.5
#     max[i] = max mul[i, j]  over j<100003
#     exp[i, j] = exp(mul[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<100003
#   → _log_softmax[i, j] = (mul[i, j] - max[i]) - log(sum[i])
# k0_mul_log_softmax[13 * GROUPS](RBLOCK=8192, GROUPS=40), 8 warps, 64 registers
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def wait_for_all(counter, count):
    """Return when ``count`` programs have come here: what they stored before can be read after."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# mul, _log_softmax
@triton.jit
def k0_mul_log_softmax(x_ptr, max_parts_ptr, sum_parts_ptr, mul_arrived_ptr, log_softmax_ptr, RBLOCK: tl.constexpr, GROUPS: tl.constexpr):
    part = tl.program_id(0) % 13
    j = part * 8192 + tl.arange(0, RBLOCK)
    j_in = j < 100003
    for start in range(tl.program_id(0) // 13, 8192, GROUPS):
        i = start
        count = tl.where(part == 12, 1699.0, 8192.0)
        x = tl.load(x_ptr + i*100003 + j, mask=j_in)
        mul = x * 0.5
        max_ = max_nan(tl.where(j_in, mul, float("-inf")), 0)
        pivot = tl.where(max_ == float("-inf"), 0.0, max_)
        below = tl.where(j_in, libdevice.exp((mul - pivot)), 0.0)
        sum_ = tl.sum(below, axis=0)
        tl.store(max_parts_ptr + i * 13 + part, max_)
        tl.store(sum_parts_ptr + i * 13 + part, sum_)
        wait_for_all(mul_arrived_ptr + i, 13)
        max_parts = tl.load(max_parts_ptr + i * 13 + tl.arange(0, 16), mask=(tl.arange(0, 16) < 13), other=float("-inf"), volatile=True)
        sum_parts = tl.load(sum_parts_ptr + i * 13 + tl.arange(0, 16), mask=(tl.arange(0, 16) < 13), other=0.0, volatile=True)
        max__2 = max_nan(max_parts, 0)
        pivot_2 = tl.where(max__2 == float("-inf"), 0.0, max__2)
        pivots = tl.where(max_parts == float("-inf"), 0.0, max_parts)
        sum__2 = tl.sum(tl.where(max_parts == float("-inf"), 0.0, sum_parts * libdevice.exp((pivots - pivot_2))), axis=0)
        sum__2 = tl.where(max__2 == float("-inf"), float("nan"), sum__2)
        tl.store(log_softmax_ptr + i*100003 + j, (mul - max__2) - tl.log(sum__2), mask=j_in)

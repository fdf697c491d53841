# kernel log_softmax_logsumexp (rows) over 4096 points, each of 131072:
#     max[i] = max x[i, j]  over j<131072
#     exp[i, j] = exp(x[i, j] - max[i])
#     sum[i] = sum exp[i, j]  over j<131072
#   → _log_softmax[i, j] = (x[i, j] - max[i]) - log(sum[i])
#     max_1[i] = max x[i, j]  over j<131072
#     finite_max[i] = where(isinf(max_1[i]), 0, max_1[i])
#     exp_1[i, j] = exp(x[i, j] - finite_max[i])
#     sum_1[i] = sum exp_1[i, j]  over j<131072
#   → logsumexp[i] = log(sum_1[i]) + finite_max[i]
# k0_log_softmax_logsumexp[16 * GROUPS](RBLOCK=8192, GROUPS=33), 8 warps, 64 registers
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


# _log_softmax, logsumexp
@triton.jit
def k0_log_softmax_logsumexp(x_ptr, max_parts_ptr, sum_parts_ptr, max_arrived_ptr, sum_1_parts_ptr, max_arrived_1_ptr, log_softmax_ptr, logsumexp_ptr, RBLOCK: tl.constexpr, GROUPS: tl.constexpr):
    part = tl.program_id(0) % 16
    j = part * 8192 + tl.arange(0, RBLOCK)
    for start in range(tl.program_id(0) // 16, 4096, GROUPS):
        i = start
        x = tl.load(x_ptr + i*131072 + j)
        max_ = max_nan(x, 0)
        pivot = tl.where(max_ == float("-inf"), 0.0, max_)
        below = libdevice.exp((x - pivot))
        sum_ = tl.sum(below, axis=0)
        tl.store(max_parts_ptr + i * 16 + part, max_)
        tl.store(sum_parts_ptr + i * 16 + part, sum_)
        wait_for_all(max_arrived_ptr + i, 16)
        max_parts = tl.load(max_parts_ptr + i * 16 + tl.arange(0, 16), volatile=True)
        sum_parts = tl.load(sum_parts_ptr + i * 16 + tl.arange(0, 16), volatile=True)
        max__2 = max_nan(max_parts, 0)
        pivot_2 = tl.where(max__2 == float("-inf"), 0.0, max__2)
        pivots = tl.where(max_parts == float("-inf"), 0.0, max_parts)
        sum__2 = tl.sum(tl.where(max_parts == float("-inf"), 0.0, sum_parts * libdevice.exp((pivots - pivot_2))), axis=0)
        sum__2 = tl.where(max__2 == float("-inf"), float("nan"), sum__2)
        finite_max = tl.where((tl.abs(max__2) == float("inf")), 0.0, max__2)
        exp_1 = libdevice.exp((x - finite_max))
        sum_1 = tl.sum(exp_1, axis=0)
        tl.store(sum_1_parts_ptr + i * 16 + part, sum_1)
        wait_for_all(max_arrived_1_ptr + i, 16)
        sum_1_parts = tl.load(sum_1_parts_ptr + i * 16 + tl.arange(0, 16), volatile=True)
        sum_1_2 = tl.sum(sum_1_parts, axis=0)
        tl.store(log_softmax_ptr + i*131072 + j, (x - max__2) - tl.log(sum__2))
        if part == 0:
            tl.store(logsumexp_ptr + i, tl.log(sum_1_2) + finite_max)

# kernel softmax (columns) over 4096 points, each of 8192:
#     max[j] = max x[i, j]  over i<8192
#     exp[i, j] = exp(x[i, j] - max[j])
#     sum[j] = sum exp[i, j]  over i<8192
#   → _softmax[i, j] = exp[i, j] / sum[j]
# k0_softmax[64 * GROUPS](XBLOCK=64, RBLOCK=128, GROUPS=8), 8 warps, 64 registers
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


# _softmax
@triton.jit
def k0_softmax(x_ptr, max_parts_ptr, sum_parts_ptr, max_arrived_ptr, softmax_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, GROUPS: tl.constexpr):
    part = tl.program_id(0) % 64
    i = part * 128 + tl.arange(0, RBLOCK)[None, :]
    for start in range(tl.program_id(0) // 64 * XBLOCK, 4096, GROUPS * XBLOCK):
        j = start + tl.arange(0, XBLOCK)[:, None]
        x = tl.load(x_ptr + i*4096 + j)
        max_ = max_nan(x, 1)[:, None]
        pivot = tl.where(max_ == float("-inf"), 0.0, max_)
        below = libdevice.exp((x - pivot))
        sum_ = tl.sum(below, axis=1)[:, None]
        tl.store(max_parts_ptr + part * 4096 + j, max_)
        tl.store(sum_parts_ptr + part * 4096 + j, sum_)
        wait_for_all(max_arrived_ptr + start, 64)
        max_parts = tl.load(max_parts_ptr + tl.arange(0, 64)[None, :] * 4096 + j, volatile=True)
        sum_parts = tl.load(sum_parts_ptr + tl.arange(0, 64)[None, :] * 4096 + j, volatile=True)
        max__2 = max_nan(max_parts, 1)[:, None]
        pivot_2 = tl.where(max__2 == float("-inf"), 0.0, max__2)
        pivots = tl.where(max_parts == float("-inf"), 0.0, max_parts)
        sum__2 = tl.sum(sum_parts * tl.where(max_parts == float("-inf"), 0.0, libdevice.exp((pivots - pivot_2))), axis=1)[:, None]
        scale = tl.where((max_ == float("-inf")) & (max__2 != float("-inf")), 0.0, libdevice.exp((pivot - max__2)))
        tl.store(softmax_ptr + i*4096 + j, (below * scale) / sum__2)

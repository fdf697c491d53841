# kernel flip_cumsum_mul (scan) over 16384 points, each of 4096:
#     _to_copy[i, j] = float32(x[i, j])
#     flip[i, j] = _to_copy[i, -j + 4095]
#     cumsum[i, j] = running sum flip[i, j]  along j<4096
#     flip_1[i, j] = cumsum[i, -j + 4095]
#   → mul[i, j] = flip_1[i, j] * 2
# k0_flip_cumsum_mul[16384](RBLOCK=4096), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def plus(a, b):
    return a + b


# _to_copy, flip, cumsum, mul
@triton.jit
def k0_flip_cumsum_mul(x_ptr, mul_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    to_copy = tl.load(x_ptr + i*4096 + j).to(tl.float32)
    cumsum = tl.associative_scan(to_copy, 0, plus, reverse=True)
    tl.store(mul_ptr + i*4096 + j, cumsum * 2.0)

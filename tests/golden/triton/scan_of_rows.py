# kernel mul_cumsum (scan) over 16384 points, each of 4096:
#     _to_copy[i, j] = float32(x[i, j])
#     mul[i, j] = _to_copy[i, j] * 0.5
#     cumsum[i, j] = running sum mul[i, j]  along j<4096
#     _to_copy_1[i, j] = bfloat16(cumsum[i, j])
#   → mul_1[i, j] = float32(_to_copy_1[i, j]) * float32(gate[i, j])
# k0_mul_cumsum[16384](RBLOCK=4096), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def plus(a, b):
    return a + b


# _to_copy, mul, cumsum
@triton.jit
def k0_mul_cumsum(x_ptr, gate_ptr, mul_1_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    to_copy = tl.load(x_ptr + i*4096 + j).to(tl.float32)
    mul = to_copy * 0.5
    cumsum = tl.associative_scan(mul, 0, plus)
    to_copy_1 = cumsum.to(tl.bfloat16).to(tl.float32)
    gate = tl.load(gate_ptr + i*4096 + j).to(tl.float32)
    tl.store(mul_1_ptr + i*4096 + j, to_copy_1 * gate)

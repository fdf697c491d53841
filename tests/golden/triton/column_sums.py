# kernel sum_pow (columns) over 4096 points, each of 65536:
#     _to_copy[i, j] = float32(x[i, j])
#   → sum_1[j] = sum _to_copy[i, j]  over i<65536
#     _to_copy_1[i, j] = float32(x[i, j])
#     pow_1[i, j] = _to_copy_1[i, j] * _to_copy_1[i, j]
#   → sum_2[j] = sum pow_1[i, j]  over i<65536
# k0_sum_pow[cdiv(4096, XBLOCK), 8](XBLOCK=64, RBLOCK=32, STAGES=3), 2 warps
# k0_sum_pow_finish[cdiv(4096, XBLOCK)](XBLOCK=32, SBLOCK=8), 1 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# _to_copy, sum, pow
@triton.jit
def k0_sum_pow(x_ptr, sum_1_parts_ptr, sum_2_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 8192
    first = slab * chunk
    end = tl.minimum(first + chunk, 65536)
    sum_1 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    sum_2 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)[None, :]
        to_copy = tl.load(x_ptr + i*4096 + j).to(tl.float32)
        sum_1 = sum_1 + to_copy
        sum_2 = sum_2 + (to_copy * to_copy)
    sum_1 = tl.sum(sum_1, axis=1)[:, None]
    sum_2 = tl.sum(sum_2, axis=1)[:, None]
    tl.store(sum_1_parts_ptr + slab * 4096 + j, sum_1)
    tl.store(sum_2_parts_ptr + slab * 4096 + j, sum_2)


@triton.jit
def k0_sum_pow_finish(sum_1_parts_ptr, sum_2_parts_ptr, sum_1_ptr, sum_2_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_1_parts = tl.load(sum_1_parts_ptr + slab * 4096 + j)
    sum_2_parts = tl.load(sum_2_parts_ptr + slab * 4096 + j)
    sum_1 = tl.sum(sum_1_parts, axis=1)[:, None]
    sum_2 = tl.sum(sum_2_parts, axis=1)[:, None]
    tl.store(sum_1_ptr + j, sum_1)
    tl.store(sum_2_ptr + j, sum_2)

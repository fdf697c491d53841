# kernel mul_sum (columns) over 768 points, each of 64 × 392:
#     mul[i, j, k] = float32(x[i, k, j]) * float32(y[i, j, k])
#   → sum_1[k] = sum float32(mul[i, j, k])  over i<64, j<392
# k0_mul_sum[cdiv(768, XBLOCK), 44](XBLOCK=64, RBLOCK=32, STAGES=1), 2 warps
# k0_mul_sum_finish[cdiv(768, XBLOCK)](XBLOCK=32, SBLOCK=64), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# mul, sum
@triton.jit
def k0_mul_sum(x_ptr, y_ptr, sum_1_parts_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.program_id(1)
    chunk = 576
    first = slab * chunk
    end = tl.minimum(first + chunk, 25088)
    sum_1 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        within = start + tl.arange(0, RBLOCK)[None, :]
        i = within // 392
        k = within % 392
        x = tl.load(x_ptr + i*301056 + k + j*392).to(tl.float32)
        y = tl.load(y_ptr + within*768 + j).to(tl.float32)
        sum_1 = sum_1 + (x * y)
    sum_1 = tl.sum(sum_1, axis=1)[:, None]
    tl.store(sum_1_parts_ptr + slab * 768 + j, sum_1)


@triton.jit
def k0_mul_sum_finish(sum_1_parts_ptr, sum_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_1_parts = tl.load(sum_1_parts_ptr + slab * 768 + j, mask=(slab < 44), other=0.0)
    sum_1 = tl.sum(sum_1_parts, axis=1)[:, None]
    tl.store(sum_1_ptr + j, sum_1)

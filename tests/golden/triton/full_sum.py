# kernel exp_sum (rows) over 1 points, each of 16384 × 16384:
#     exp[i, j] = exp(x[i, j])
#   → sum_1 = sum exp[i, j]  over i<16384, j<16384
# k0_exp_sum[1, 528](RBLOCK=4096, STAGES=3), 4 warps
# k0_exp_sum_finish[cdiv(1, XBLOCK)](XBLOCK=1, SBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# exp, sum
@triton.jit
def k0_exp_sum(x_ptr, sum_1_parts_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    slab = tl.program_id(1)
    chunk = 512000
    first = slab * chunk
    end = tl.minimum(first + chunk, 268435456)
    sum_1 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        i = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i)
        sum_1 = sum_1 + libdevice.exp(x)
    sum_1 = tl.sum(sum_1, axis=0)
    tl.store(sum_1_parts_ptr + slab * 1, sum_1)


@triton.jit
def k0_exp_sum_finish(sum_1_parts_ptr, sum_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    slab = tl.arange(0, SBLOCK)[None, :]
    sum_1_parts = tl.load(sum_1_parts_ptr + slab * 1 + row, mask=(slab < 528), other=0.0)
    sum_1 = tl.sum(sum_1_parts, axis=1)[:, None]
    tl.store(sum_1_ptr + 0 + tl.zeros([1, 1], tl.int32), sum_1)

# kernel pow_mean_sum (rows and split sums) over 32768 points, each of 10000:
#     pow_1[i, j] = x[i, (j//100), (j%100)] * x[i, (j//100), (j%100)]
#     sum[i] = sum pow_1[i, j]  over j<10000
#   → mean[i] = sum[i] / 10000
#   → sum_1 = sum mean[i]  over i<32768
# k0_pow_mean_sum[32768](RBLOCK=16384), 16 warps
# k0_pow_mean_sum_finish_total[cdiv(1, XBLOCK)](XBLOCK=1, SBLOCK=2048), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# pow, mean, sum
@triton.jit
def k0_pow_mean_sum(x_ptr, mean_ptr, sum_1_parts_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    j = tl.arange(0, RBLOCK)
    j_in = j < 10000
    sum_1 = tl.full((), 0.0, tl.float32)
    for start in range(tl.program_id(0), 32768, 32768):
        i = start
        x = tl.load(x_ptr + i*10000 + j, mask=j_in)
        pow_1 = x * x
        sum_ = tl.sum(tl.where(j_in, pow_1, 0.0), axis=0)
        mean = sum_ / 10000.0
        sum_1 = sum_1 + mean
        tl.store(mean_ptr + i, mean)
    tl.store(sum_1_parts_ptr + tl.program_id(0), sum_1)


@triton.jit
def k0_pow_mean_sum_finish_total(sum_1_parts_ptr, sum_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_1 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 32768, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_1 = sum_1 + tl.load(sum_1_parts_ptr + slab * 1 + point)
    tl.store(sum_1_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_1, axis=1)[:, None])

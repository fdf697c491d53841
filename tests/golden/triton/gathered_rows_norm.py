# kernel index_pow_mean_mul (rows) over 16384 points, each of 1024:
#     index[i, j] = float32(table[[where(rows[i] < 0, rows[i] + 50257, rows[i])], j])
#     _to_copy[i, j] = float32(index[i, j])
#     pow_1[i, j] = _to_copy[i, j] * _to_copy[i, j]
#     sum[i] = sum pow_1[i, j]  over j<1024
#     mean[i] = sum[i] / 1024
#     add[i, j] = mean[i] + 1e-06
#     rsqrt[i, j] = rsqrt(add[i, 0])
#     mul[i, j] = _to_copy[i, j] * rsqrt[i, 0]
#     _to_copy_1[i, j] = bfloat16(mul[i, j])
#   → mul_1[i, j] = float32(_to_copy_1[i, j]) * float32(weight[j])
# k0_index_pow_mean_mul[16384](RBLOCK=1024), 1 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# index, _to_copy, pow, mean, add, rsqrt, mul
@triton.jit
def k0_index_pow_mean_mul(rows_ptr, table_ptr, weight_ptr, mul_1_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    j = tl.arange(0, RBLOCK)
    rows = tl.load(rows_ptr + i)
    index = tl.load(table_ptr + (tl.where((rows < 0), (rows + 50257), rows))*1024 + j, mask=((tl.where((rows < 0), (rows + 50257), rows)) >= 0) & ((tl.where((rows < 0), (rows + 50257), rows)) < 50257)).to(tl.float32)
    pow_1 = index * index
    sum_ = tl.sum(pow_1, axis=0)
    mean = sum_ * 0.0009765625
    add = mean + 1e-06
    rsqrt = tl.rsqrt(add)
    mul = index * rsqrt
    to_copy_1 = mul.to(tl.bfloat16).to(tl.float32)
    weight = tl.load(weight_ptr + j).to(tl.float32)
    tl.store(mul_1_ptr + i*1024 + j, to_copy_1 * weight)

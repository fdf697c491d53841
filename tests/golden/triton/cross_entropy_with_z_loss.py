# kernel log_softmax_ne_gather_mean (rows and split sums) over 8192 points, each of 131072:
#     max[i] = max float32(x[i, j])  over j<131072
#     exp[i, j] = exp(float32(x[i, j]) - max[i])
#     sum[i] = sum exp[i, j]  over j<131072
#     _log_softmax[i, j] = (float32(x[i, j]) - max[i]) - log(sum[i])
#     ne[i] = target[i] != -100
#     scalar_tensor = 0
#     where[i] = where(ne[i], target[i], scalar_tensor)
#     gather[i, j] = float32(_log_softmax[i, [where[i]]])
#     neg[i] = -float32(gather[i, 0])
#     ne_1[i] = target[i] != -100
#     scalar_tensor_1 = 0
#     where_1[i] = where(ne_1[i], float32(neg[i]), float32(scalar_tensor_1))
#   → sum_2 = sum float32(where_1[i])  over i<8192
#     max_1[i] = max float32(x[i, j])  over j<131072
#     finite_max[i] = where(isinf(max_1[i]), 0, max_1[i])
#     exp_1[i, j] = exp(float32(x[i, j]) - finite_max[i])
#     sum_3[i] = sum exp_1[i, j]  over j<131072
#     logsumexp[i] = log(sum_3[i]) + finite_max[i]
#     pow_1[i] = float32(logsumexp[i]) * float32(logsumexp[i])
#   → sum_4 = sum float32(pow_1[i])  over i<8192
# kernel ne_sum_div_add (rows) over 1 points, each of 8192:
#     ne_2[i] = target[i] != -100
#     sum_1 = sum int64(ne_2[i])  over i<8192
#     _to_copy = bfloat16(sum_1)
#     div = float32(sum_2) / float32(_to_copy)
#     mean = sum_4 / 8192
#     mul = float32(mean) * 0.0001
#   → add = float32(div) + float32(mul)
# k0_log_softmax_ne_gather_mean[8192](RBLOCK=1024, STAGES=3), 4 warps
# k0_log_softmax_ne_gather_mean_finish_total[cdiv(1, XBLOCK)](XBLOCK=1, SBLOCK=2048), 4 warps
# k1_ne_sum_div_add[1](RBLOCK=8192), 16 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max_nan(x, axis: tl.constexpr):
    """The largest along an axis; NaN if any is."""
    return tl.reduce(x, axis, maximum_nan)


# _log_softmax, ne, scalar_tensor, where, gather, neg, sum, logsumexp, pow, mean
@triton.jit
def k0_log_softmax_ne_gather_mean(x_ptr, target_ptr, sum_2_parts_ptr, sum_4_parts_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    max_ = tl.full((), float("-inf"), tl.float32)
    sum_ = tl.full((), 0, tl.float32)
    sum_3 = tl.full((), 0, tl.float32)
    for start in tl.range(0, 131072, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i*131072 + j).to(tl.float32)
        block = x
        higher = maximum_nan(max_, max_nan(block, 0))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        sum_ = sum_ * tl.exp(max_ - pivot) + tl.sum(tl.exp(block - pivot), axis=0)
        pivot_2 = tl.where(tl.abs(higher) == float("inf"), 0.0, higher)
        sum_3 = sum_3 * tl.exp(max_ - pivot_2) + tl.sum(tl.exp(block - pivot_2), axis=0)
        max_ = higher
    sum_ = tl.where(max_ == float("-inf"), float("nan"), sum_)
    target = tl.load(target_ptr + i)
    ne_1 = target != (-100)
    where = tl.where(ne_1, target, 0)
    x_2 = tl.load(x_ptr + where + i*131072, mask=(where >= 0) & (where < 131072)).to(tl.float32)
    log_softmax = (x_2 - max_) - tl.log(sum_)
    neg = -1.0 * log_softmax
    finite_max = tl.where((tl.abs(max_) == float("inf")), 0.0, max_)
    logsumexp = tl.log(sum_3) + finite_max
    sum_2 = tl.where(ne_1, neg, 0.0)
    tl.store(sum_2_parts_ptr + tl.program_id(0), sum_2)
    sum_4 = logsumexp * logsumexp
    tl.store(sum_4_parts_ptr + tl.program_id(0), sum_4)


@triton.jit
def k0_log_softmax_ne_gather_mean_finish_total(sum_2_parts_ptr, sum_4_parts_ptr, sum_2_ptr, sum_4_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_2 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    sum_4 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 8192, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_2 = sum_2 + tl.load(sum_2_parts_ptr + slab * 1 + point)
        sum_4 = sum_4 + tl.load(sum_4_parts_ptr + slab * 1 + point)
    tl.store(sum_2_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_2, axis=1)[:, None])
    tl.store(sum_4_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_4, axis=1)[:, None])


# ne, sum, _to_copy, div, mean, mul, add
@triton.jit
def k1_ne_sum_div_add(target_ptr, sum_2_ptr, sum_4_ptr, add_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.arange(0, RBLOCK)
    target = tl.load(target_ptr + i)
    ne_2 = target != (-100)
    t = ne_2.to(tl.int64)
    sum_1 = tl.sum(t, axis=0)
    sum_2 = tl.load(sum_2_ptr + 0).to(tl.float32)
    to_copy = sum_1.to(tl.float32).to(tl.bfloat16).to(tl.float32)
    div = sum_2 / to_copy
    sum_4 = tl.load(sum_4_ptr + 0)
    mean = sum_4 * 0.00012207031
    mul = mean * 0.0001
    tl.store(add_ptr + 0, div + mul)

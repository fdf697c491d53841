# kernel log_softmax_ne_gather_sum (rows and split sums) over 8192 points, each of 131072:
#     max[i] = max float32(logits[i, j])  over j<131072
#     exp[i, j] = exp(float32(logits[i, j]) - max[i])
#     sum[i] = sum exp[i, j]  over j<131072
#     _log_softmax[i, j] = (float32(logits[i, j]) - max[i]) - log(sum[i])
#     ne[i] = labels[i] != -100
#     scalar_tensor = 0
#     where[i] = where(ne[i], labels[i], scalar_tensor)
#     gather[i, j] = float32(_log_softmax[i, [where[i]]])
#     neg[i] = -float32(gather[i, 0])
#     ne_1[i] = labels[i] != -100
#     scalar_tensor_1 = 0
#     where_1[i] = where(ne_1[i], float32(neg[i]), float32(scalar_tensor_1))
#   → sum_2 = sum float32(where_1[i])  over i<8192
# kernel ne_sum_div (rows) over 1 points, each of 8192:
#     ne_2[i] = labels[i] != -100
#     sum_1 = sum int64(ne_2[i])  over i<8192
#     _to_copy = bfloat16(sum_1)
#   → div = float32(sum_2) / float32(_to_copy)
# k0_log_softmax_ne_gather_sum[8192](RBLOCK=4096, STAGES=3), 4 warps
# k0_log_softmax_ne_gather_sum_finish_total[cdiv(1, XBLOCK)](XBLOCK=1, SBLOCK=2048), 4 warps
# k1_ne_sum_div[1](RBLOCK=8192), 16 warps
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


# _log_softmax, ne, scalar_tensor, where, gather, neg, sum
@triton.jit
def k0_log_softmax_ne_gather_sum(logits_ptr, labels_ptr, sum_2_parts_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    max_ = tl.full((), float("-inf"), tl.float32)
    sum_ = tl.full((), 0, tl.float32)
    for start in tl.range(0, 131072, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        logits = tl.load(logits_ptr + i*131072 + j).to(tl.float32)
        block = logits
        higher = maximum_nan(max_, max_nan(block, 0))
        pivot = tl.where(higher == float("-inf"), 0.0, higher)
        sum_ = sum_ * tl.exp(max_ - pivot) + tl.sum(tl.exp(block - pivot), axis=0)
        max_ = higher
    sum_ = tl.where(max_ == float("-inf"), float("nan"), sum_)
    labels = tl.load(labels_ptr + i)
    ne_1 = labels != (-100)
    where = tl.where(ne_1, labels, 0)
    logits_2 = tl.load(logits_ptr + where + i*131072, mask=(where >= 0) & (where < 131072)).to(tl.float32)
    log_softmax = (logits_2 - max_) - tl.log(sum_)
    neg = -1.0 * log_softmax
    sum_2 = tl.where(ne_1, neg, 0.0)
    tl.store(sum_2_parts_ptr + tl.program_id(0), sum_2)


@triton.jit
def k0_log_softmax_ne_gather_sum_finish_total(sum_2_parts_ptr, sum_2_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    sum_2 = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for start in range(0, 8192, SBLOCK):
        slab = start + tl.arange(0, SBLOCK)[None, :]
        sum_2 = sum_2 + tl.load(sum_2_parts_ptr + slab * 1 + point)
    tl.store(sum_2_ptr + 0 + tl.zeros([1, 1], tl.int32), tl.sum(sum_2, axis=1)[:, None])


# ne, sum, _to_copy, div
@triton.jit
def k1_ne_sum_div(labels_ptr, sum_2_ptr, div_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.arange(0, RBLOCK)
    labels = tl.load(labels_ptr + i)
    ne_2 = labels != (-100)
    t = ne_2.to(tl.int64)
    sum_1 = tl.sum(t, axis=0)
    sum_2 = tl.load(sum_2_ptr + 0).to(tl.float32)
    to_copy = sum_1.to(tl.float32).to(tl.bfloat16).to(tl.float32)
    tl.store(div_ptr + 0, sum_2 / to_copy)

# kernel embedding_dense_backward (scatter) over 512 × 512 × 12 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[buckets[i, j]], k] += float32(grad[k, i, j])  over i<512, j<512, k<12, from embedding_dense_backward
# k0_embedding_dense_backward[512, 1](ROWS=32, PBLOCK=128, XBLOCK=16, STAGES=3), 2 warps
# k0_embedding_dense_backward_finish[cdiv(384, XBLOCK)](XBLOCK=4, SBLOCK=512), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward(buckets_ptr, grad_ptr, embedding_dense_backward_1_parts_ptr, ROWS: tl.constexpr, PBLOCK: tl.constexpr, XBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    k = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 12
    total = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    strange = tl.full([PBLOCK, XBLOCK], 0, tl.int32)
    for start in tl.range(tl.program_id(0) * PBLOCK, 262144, 512 * PBLOCK, num_stages=STAGES):
        point = start + tl.arange(0, PBLOCK)[:, None]
        buckets = tl.load(buckets_ptr + point)
        named = tl.where((buckets >= 0) & (buckets < 32), buckets, -1).to(tl.int32)
        hit = (tl.arange(0, ROWS)[:, None] == tl.trans(named)).to(tl.bfloat16)
        grad = tl.load(grad_ptr + point + k*262144, mask=k_in).to(tl.float32)
        value = tl.where(k_in, grad, tl.full([PBLOCK, XBLOCK], 0.0, tl.float32))
        finite = tl.abs(value) < float("inf")
        total = tl.dot(hit, tl.where(finite, value, 0.0).to(tl.bfloat16), total)
        strange = strange | (~finite).to(tl.int32)
    if tl.max(tl.max(strange, axis=1), axis=0) > 0:
        upward = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
        downward = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
        for start in range(tl.program_id(0) * PBLOCK, 262144, 512 * PBLOCK):
            point = start + tl.arange(0, PBLOCK)[:, None]
            buckets_2 = tl.load(buckets_ptr + point)
            named_2 = tl.where((buckets_2 >= 0) & (buckets_2 < 32), buckets_2, -1).to(tl.int32)
            hit_2 = (tl.arange(0, ROWS)[:, None] == tl.trans(named_2)).to(tl.bfloat16)
            grad_2 = tl.load(grad_ptr + point + k*262144, mask=k_in).to(tl.float32)
            value_2 = tl.where(k_in, grad_2, tl.full([PBLOCK, XBLOCK], 0.0, tl.float32))
            finite_2 = tl.abs(value_2) < float("inf")
            upward = tl.dot(hit_2, tl.where(finite_2 | (value_2 < 0.0), 0.0, 1.0).to(tl.bfloat16), upward)
            downward = tl.dot(hit_2, tl.where(finite_2 | (value_2 > 0.0), 0.0, 1.0).to(tl.bfloat16), downward)
        total = tl.where(upward > 0.0, float("inf"), total)
        total += tl.where(downward > 0.0, float("-inf"), 0.0)
    table_row = tl.arange(0, ROWS)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 384 + k + table_row*12, total, mask=k_in)


@triton.jit
def k0_embedding_dense_backward_finish(embedding_dense_backward_1_parts_ptr, embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for first in range(0, 512, SBLOCK):
        slab = first + tl.arange(0, SBLOCK)[None, :]
        total += tl.load(embedding_dense_backward_1_parts_ptr + slab*384 + point)
    tl.store(embedding_dense_backward_1_ptr + point, 0.0 + tl.sum(total, axis=1)[:, None])

# kernel embedding_dense_backward (scatter) over 32 × 512 × 768 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[types[0, j]], k] += float32(grad[i, j, k])  over i<32, j<512, k<768, from embedding_dense_backward
# k0_embedding_dense_backward[43, 12](ROWS=16, PBLOCK=64, XBLOCK=64, STAGES=3), 4 warps
# k0_embedding_dense_backward_finish[cdiv(1536, XBLOCK)](XBLOCK=16, SBLOCK=64), 2 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward(types_ptr, grad_ptr, embedding_dense_backward_1_parts_ptr, ROWS: tl.constexpr, PBLOCK: tl.constexpr, XBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    k = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    total = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    strange = tl.full([PBLOCK, XBLOCK], 0, tl.int32)
    for start in tl.range(tl.program_id(0) * PBLOCK, 16384, 43 * PBLOCK, num_stages=STAGES):
        point = start + tl.arange(0, PBLOCK)[:, None]
        j = point % 512
        types = tl.load(types_ptr + j)
        named = tl.where((types >= 0) & (types < 2), types, -1).to(tl.int32)
        hit = (tl.arange(0, ROWS)[:, None] == tl.trans(named)).to(tl.bfloat16)
        grad = tl.load(grad_ptr + point*768 + k).to(tl.float32)
        value = grad
        finite = tl.abs(value) < float("inf")
        total = tl.dot(hit, tl.where(finite, value, 0.0).to(tl.bfloat16), total)
        strange = strange | (~finite).to(tl.int32)
    if tl.max(tl.max(strange, axis=1), axis=0) > 0:
        upward = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
        downward = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
        for start in range(tl.program_id(0) * PBLOCK, 16384, 43 * PBLOCK):
            point = start + tl.arange(0, PBLOCK)[:, None]
            j = point % 512
            types_2 = tl.load(types_ptr + j)
            named_2 = tl.where((types_2 >= 0) & (types_2 < 2), types_2, -1).to(tl.int32)
            hit_2 = (tl.arange(0, ROWS)[:, None] == tl.trans(named_2)).to(tl.bfloat16)
            grad_2 = tl.load(grad_ptr + point*768 + k).to(tl.float32)
            value_2 = grad_2
            finite_2 = tl.abs(value_2) < float("inf")
            upward = tl.dot(hit_2, tl.where(finite_2 | (value_2 < 0.0), 0.0, 1.0).to(tl.bfloat16), upward)
            downward = tl.dot(hit_2, tl.where(finite_2 | (value_2 > 0.0), 0.0, 1.0).to(tl.bfloat16), downward)
        total = tl.where(upward > 0.0, float("inf"), total)
        total += tl.where(downward > 0.0, float("-inf"), 0.0)
    table_row = tl.arange(0, ROWS)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 1536 + k + table_row*768, total, mask=(table_row < 2))


@triton.jit
def k0_embedding_dense_backward_finish(embedding_dense_backward_1_parts_ptr, embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for first in range(0, 43, SBLOCK):
        slab = first + tl.arange(0, SBLOCK)[None, :]
        total += tl.load(embedding_dense_backward_1_parts_ptr + slab*1536 + point, mask=(slab < 43), other=0.0)
    tl.store(embedding_dense_backward_1_ptr + point, 0.0 + tl.sum(total, axis=1)[:, None])

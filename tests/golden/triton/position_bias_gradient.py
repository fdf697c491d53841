# kernel embedding_dense_backward (scatter) over 512 × 512 × 12 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[buckets[i, j]], k] += float32(grad[k, i, j])  over i<512, j<512, k<12, from embedding_dense_backward
# k0_embedding_dense_backward[352, 3](ROWS=32, XBLOCK=128), 8 warps
# k0_embedding_dense_backward_finish[cdiv(384, XBLOCK)](XBLOCK=4, SBLOCK=512), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward(buckets_ptr, grad_ptr, embedding_dense_backward_1_parts_ptr, ROWS: tl.constexpr, XBLOCK: tl.constexpr):
    table_row = tl.arange(0, ROWS)[:, None]
    element = tl.program_id(1) * 4 + 0
    k_2 = element
    element_2 = tl.program_id(1) * 4 + 1
    k_3 = element_2
    element_3 = tl.program_id(1) * 4 + 2
    k_4 = element_3
    element_4 = tl.program_id(1) * 4 + 3
    k_5 = element_4
    total = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    total_2 = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    total_3 = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    total_4 = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    for start in range(tl.program_id(0) * XBLOCK, 262144, 352 * XBLOCK):
        point = start + tl.arange(0, XBLOCK)[None, :]
        point_in = point < 262144
        i = point // 512
        j = point % 512
        buckets = tl.load(buckets_ptr + i*512 + j, mask=point_in)
        named = tl.where(point_in & (buckets >= 0) & (buckets < 32), buckets, -1).to(tl.int32)
        hit = named == table_row
        grad = tl.load(grad_ptr + i*512 + j + k_2*262144, mask=point_in).to(tl.float32)
        total += tl.where(hit, grad, 0.0)
        grad_2 = tl.load(grad_ptr + i*512 + j + k_3*262144, mask=point_in).to(tl.float32)
        total_2 += tl.where(hit, grad_2, 0.0)
        grad_3 = tl.load(grad_ptr + i*512 + j + k_4*262144, mask=point_in).to(tl.float32)
        total_3 += tl.where(hit, grad_3, 0.0)
        grad_4 = tl.load(grad_ptr + i*512 + j + k_5*262144, mask=point_in).to(tl.float32)
        total_4 += tl.where(hit, grad_4, 0.0)
    total = tl.sum(total, axis=1)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 384 + k_2 + table_row*12, total)
    total_2 = tl.sum(total_2, axis=1)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 384 + k_3 + table_row*12, total_2)
    total_3 = tl.sum(total_3, axis=1)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 384 + k_4 + table_row*12, total_3)
    total_4 = tl.sum(total_4, axis=1)[:, None]
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 384 + k_5 + table_row*12, total_4)


@triton.jit
def k0_embedding_dense_backward_finish(embedding_dense_backward_1_parts_ptr, embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    c0 = point // 12
    c1 = point % 12
    total = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for first in range(0, 352, SBLOCK):
        slab = first + tl.arange(0, SBLOCK)[None, :]
        total += tl.load(embedding_dense_backward_1_parts_ptr + slab*384 + point, mask=(slab < 352), other=0.0)
    tl.store(embedding_dense_backward_1_ptr + c0*12 + c1, 0.0 + tl.sum(total, axis=1)[:, None])

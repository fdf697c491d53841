# kernel embedding_dense_backward (scatter) over 32 × 512 × 768 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[types[0, j]], k] += float32(grad[i, j, k])  over i<32, j<512, k<768, from embedding_dense_backward
# k0_embedding_dense_backward[352, 3](ROWS=2, XBLOCK=256), 4 warps
# k0_embedding_dense_backward_finish[cdiv(1536, XBLOCK)](XBLOCK=16, SBLOCK=128), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward(types_ptr, grad_ptr, embedding_dense_backward_1_parts_ptr, ROWS: tl.constexpr, XBLOCK: tl.constexpr):
    table_row = tl.arange(0, ROWS)[:, None]
    k = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    total = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    for start in range(tl.program_id(0) * 8, 16384, 2816):
        point = start
        i_2 = point // 512
        j_2 = point % 512
        types = tl.load(types_ptr + j_2)
        named = tl.where((types >= 0) & (types < 2), types, -1).to(tl.int32)
        grad = tl.load(grad_ptr + i_2*393216 + j_2*768 + k).to(tl.float32)
        point_2 = start + 1
        i_3 = point_2 // 512
        j_3 = point_2 % 512
        types_2 = tl.load(types_ptr + j_3)
        named_2 = tl.where((types_2 >= 0) & (types_2 < 2), types_2, -1).to(tl.int32)
        grad_2 = tl.load(grad_ptr + i_3*393216 + j_3*768 + k).to(tl.float32)
        point_3 = start + 2
        i_4 = point_3 // 512
        j_4 = point_3 % 512
        types_3 = tl.load(types_ptr + j_4)
        named_3 = tl.where((types_3 >= 0) & (types_3 < 2), types_3, -1).to(tl.int32)
        grad_3 = tl.load(grad_ptr + i_4*393216 + j_4*768 + k).to(tl.float32)
        point_4 = start + 3
        i_5 = point_4 // 512
        j_5 = point_4 % 512
        types_4 = tl.load(types_ptr + j_5)
        named_4 = tl.where((types_4 >= 0) & (types_4 < 2), types_4, -1).to(tl.int32)
        grad_4 = tl.load(grad_ptr + i_5*393216 + j_5*768 + k).to(tl.float32)
        point_5 = start + 4
        i_6 = point_5 // 512
        j_6 = point_5 % 512
        types_5 = tl.load(types_ptr + j_6)
        named_5 = tl.where((types_5 >= 0) & (types_5 < 2), types_5, -1).to(tl.int32)
        grad_5 = tl.load(grad_ptr + i_6*393216 + j_6*768 + k).to(tl.float32)
        point_6 = start + 5
        i_7 = point_6 // 512
        j_7 = point_6 % 512
        types_6 = tl.load(types_ptr + j_7)
        named_6 = tl.where((types_6 >= 0) & (types_6 < 2), types_6, -1).to(tl.int32)
        grad_6 = tl.load(grad_ptr + i_7*393216 + j_7*768 + k).to(tl.float32)
        point_7 = start + 6
        i_8 = point_7 // 512
        j_8 = point_7 % 512
        types_7 = tl.load(types_ptr + j_8)
        named_7 = tl.where((types_7 >= 0) & (types_7 < 2), types_7, -1).to(tl.int32)
        grad_7 = tl.load(grad_ptr + i_8*393216 + j_8*768 + k).to(tl.float32)
        point_8 = start + 7
        i_9 = point_8 // 512
        j_9 = point_8 % 512
        types_8 = tl.load(types_ptr + j_9)
        named_8 = tl.where((types_8 >= 0) & (types_8 < 2), types_8, -1).to(tl.int32)
        grad_8 = tl.load(grad_ptr + i_9*393216 + j_9*768 + k).to(tl.float32)
        total += tl.where(named == table_row, grad, 0.0)
        total += tl.where(named_2 == table_row, grad_2, 0.0)
        total += tl.where(named_3 == table_row, grad_3, 0.0)
        total += tl.where(named_4 == table_row, grad_4, 0.0)
        total += tl.where(named_5 == table_row, grad_5, 0.0)
        total += tl.where(named_6 == table_row, grad_6, 0.0)
        total += tl.where(named_7 == table_row, grad_7, 0.0)
        total += tl.where(named_8 == table_row, grad_8, 0.0)
    tl.store(embedding_dense_backward_1_parts_ptr + tl.program_id(0) * 1536 + k + table_row*768, total)


@triton.jit
def k0_embedding_dense_backward_finish(embedding_dense_backward_1_parts_ptr, embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    c0 = point // 768
    c1 = point % 768
    total = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for first in range(0, 352, SBLOCK):
        slab = first + tl.arange(0, SBLOCK)[None, :]
        total += tl.load(embedding_dense_backward_1_parts_ptr + slab*1536 + point, mask=(slab < 352), other=0.0)
    tl.store(embedding_dense_backward_1_ptr + c0*768 + c1, 0.0 + tl.sum(total, axis=1)[:, None])

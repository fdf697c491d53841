# kernel embedding_dense_backward (scatter) over 32 × 512 × 768 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[words[i, j]], k] += where(words[i, j] == 0, 0, float32(grad[i, j, k]))  over i<32, j<512, k<768, from embedding_dense_backward
# k0_embedding_dense_backward_clear[cdiv(1397760, XBLOCK)](XBLOCK=1024), 4 warps
# k0_embedding_dense_backward_list[cdiv(16384, PBLOCK)](PBLOCK=128), 4 warps
# k0_embedding_dense_backward_often[cdiv(16384, PBLOCK)](PBLOCK=16, XBLOCK=128), 4 warps
# k0_embedding_dense_backward[cdiv(30522, RBLOCK), cdiv(768, XBLOCK)](RBLOCK=8, XBLOCK=256), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward_clear(embedding_dense_backward_1_counts_ptr, embedding_dense_backward_1_sums_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    place = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(embedding_dense_backward_1_counts_ptr + place, 0, mask=place < 30523)
    tl.store(embedding_dense_backward_1_sums_ptr + place, 0.0, mask=place < 1397760)


@triton.jit
def k0_embedding_dense_backward_list(words_ptr, embedding_dense_backward_1_counts_ptr, embedding_dense_backward_1_listed_ptr, embedding_dense_backward_1_slots_ptr, PBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * PBLOCK + tl.arange(0, PBLOCK)
    words = tl.load(words_ptr + point)
    t = words == 0
    inside = (words >= 0) & (words < 30522) & ~(t)
    row = tl.where(inside, words, 0).to(tl.int32)
    number = tl.atomic_add(embedding_dense_backward_1_counts_ptr + row, tl.full([PBLOCK], 1, tl.int32), mask=inside, sem="relaxed")
    tl.store(embedding_dense_backward_1_listed_ptr + row*8 + number, point, mask=inside & (number < 8))
    first = inside & (number == 8)
    slot = tl.atomic_add(embedding_dense_backward_1_counts_ptr + 30522 + tl.zeros([PBLOCK], tl.int32), tl.full([PBLOCK], 1, tl.int32), mask=first, sem="relaxed")
    tl.store(embedding_dense_backward_1_slots_ptr + row, slot, mask=first)


@triton.jit
def k0_embedding_dense_backward_often(words_ptr, embedding_dense_backward_1_counts_ptr, embedding_dense_backward_1_slots_ptr, grad_ptr, embedding_dense_backward_1_sums_ptr, PBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * PBLOCK + tl.arange(0, PBLOCK)[:, None]
    words = tl.load(words_ptr + point)
    t = words == 0
    inside = (words >= 0) & (words < 30522) & ~(t)
    row = tl.where(inside, words, 0).to(tl.int32)
    often = tl.load(embedding_dense_backward_1_counts_ptr + row, mask=inside, other=0) > 8
    if tl.max(tl.max(often.to(tl.int32), axis=1), axis=0) > 0:
        slot = tl.load(embedding_dense_backward_1_slots_ptr + row, mask=often, other=0)
        for start in range(0, 768, XBLOCK):
            k = start + tl.arange(0, XBLOCK)[None, :]
            grad = tl.load(grad_ptr + point*768 + k, mask=often).to(tl.float32)
            tl.atomic_add(embedding_dense_backward_1_sums_ptr + slot*768 + k + tl.zeros([PBLOCK, XBLOCK], tl.int32), grad + tl.zeros([PBLOCK, XBLOCK], tl.float32), mask=often & (slot < 1820), sem="relaxed")


@triton.jit
def k0_embedding_dense_backward(embedding_dense_backward_1_counts_ptr, embedding_dense_backward_1_listed_ptr, grad_ptr, embedding_dense_backward_1_slots_ptr, embedding_dense_backward_1_sums_ptr, embedding_dense_backward_1_ptr, RBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    table_row = tl.program_id(0) * RBLOCK + tl.arange(0, RBLOCK)[:, None]
    table_row_in = table_row < 30522
    k = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    count = tl.load(embedding_dense_backward_1_counts_ptr + table_row, mask=table_row_in, other=0)
    few = tl.where(count > 8, 0, count)
    total = tl.full([RBLOCK, XBLOCK], 0.0, tl.float32)
    for number in range(0, tl.max(tl.max(few, axis=1), axis=0)):
        named = number < few
        point = tl.load(embedding_dense_backward_1_listed_ptr + table_row*8 + number, mask=named, other=0)
        grad = tl.load(grad_ptr + point*768 + k, mask=named).to(tl.float32)
        total += tl.where(named, grad, 0.0)
    often = count > 8
    if tl.max(tl.max(often.to(tl.int32), axis=1), axis=0) > 0:
        slot = tl.load(embedding_dense_backward_1_slots_ptr + table_row, mask=often, other=0)
        total += tl.load(embedding_dense_backward_1_sums_ptr + slot*768 + k, mask=often, other=0.0)
    tl.store(embedding_dense_backward_1_ptr + k + table_row*768, 0.0 + total, mask=table_row_in)

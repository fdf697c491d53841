# kernel embedding_dense_backward (scatter) over 32 × 1024 × 768 points:
#     embedding_dense_backward[i, j] = 0
#   → embedding_dense_backward_1[[tokens[i, j]], k] += grad[i, j, k]  over i<32, j<1024, k<768, from embedding_dense_backward
# k0_embedding_dense_backward_base[cdiv(76800, XBLOCK)](XBLOCK=128), 2 warps
# k0_embedding_dense_backward[cdiv(25165824, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# embedding_dense_backward
@triton.jit
def k0_embedding_dense_backward_base(embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    tl.store(embedding_dense_backward_1_ptr + point, 0.0)


@triton.jit
def k0_embedding_dense_backward(grad_ptr, tokens_ptr, embedding_dense_backward_1_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    k = point % 768
    grad = tl.load(grad_ptr + point)
    tokens = tl.load(tokens_ptr + (point // 768))
    tl.atomic_add(embedding_dense_backward_1_ptr + tokens*768 + k, grad, mask=(tokens >= 0) & (tokens < 100), sem="relaxed")

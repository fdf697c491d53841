# kernel embedding_mul (pointwise) over 32 × 1024 × 768 points:
#     embedding[i, j, k] = table[[tokens[i, j]], k]
#   → mul[i, j, k] = embedding[i, j, k] * 8
# k0_embedding_mul[cdiv(25165824, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# embedding, mul
@triton.jit
def k0_embedding_mul(tokens_ptr, table_ptr, mul_ptr, XBLOCK: tl.constexpr):
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    i = point // 768
    j = point % 768
    tokens = tl.load(tokens_ptr + i)
    embedding = tl.load(table_ptr + tokens*768 + j, mask=(tokens >= 0) & (tokens < 50257))
    tl.store(mul_ptr + i*768 + j, embedding * 8.0)

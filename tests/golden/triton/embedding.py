# kernel embedding_mul (pointwise) over 32 × 1024 × 768 points:
#     embedding[i, j, k] = table[[tokens[i, j]], k]
#   → mul[i, j, k] = embedding[i, j, k] * 8
# k0_embedding_mul[cdiv(32768, YBLOCK) * cdiv(768, XBLOCK)](YBLOCK=4, XBLOCK=256), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# embedding, mul
@triton.jit
def k0_embedding_mul(tokens_ptr, table_ptr, mul_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(768, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    start = tl.program_id(0) % tl.cdiv(768, XBLOCK) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    tokens = tl.load(tokens_ptr + i)
    embedding = tl.load(table_ptr + tokens*768 + j, mask=(tokens >= 0) & (tokens < 50257))
    tl.store(mul_ptr + i*768 + j, embedding * 8.0)

# kernel add_mul (pointwise) over 16384 × 4096 points:
#     add[i, j] = x[i, j] + bias[j]
#   → mul[i, j] = add[i, j] * scale[i, 0]
# k0_add_mul[cdiv(67108864, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# add, mul
@triton.jit
def k0_add_mul(x_ptr, bias_ptr, scale_ptr, mul_ptr, XBLOCK: tl.constexpr):
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    i = point // 4096
    j = point % 4096
    x = tl.load(x_ptr + i*4096 + j)
    bias = tl.load(bias_ptr + j)
    add = x + bias
    scale = tl.load(scale_ptr + i)
    tl.store(mul_ptr + i*4096 + j, add * scale)

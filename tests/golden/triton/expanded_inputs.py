# kernel mul_add (pointwise) over 5000 × 7000 points:
#     mul[i, j] = x[i, j] * y[i, j]
#   → add[i, j] = mul[i, j] + 1
# k0_mul_add[cdiv(35000000, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# mul, add
@triton.jit
def k0_mul_add(x_ptr, y_ptr, add_ptr, XBLOCK: tl.constexpr):
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    point_in = point < 35000000
    i = point // 7000
    j = point % 7000
    x = tl.load(x_ptr + j, mask=point_in)
    y = tl.load(y_ptr + i, mask=point_in)
    mul = x * y
    tl.store(add_ptr + i*7000 + j, mul + 1.0, mask=point_in)

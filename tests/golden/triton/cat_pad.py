# kernel cat_constant_pad_nd_relu (pointwise) over 64 × 128 × 3005 points:
#     cat[i, j, k] = (x[i, j, k] if 0 <= j < 96 else y[i, j - 96, k])
#     constant_pad_nd[i, j, k] = (cat[i, j, k - 2] if 2 <= k < 3002 else 0)
#   → relu[i, j, k] = maximum(constant_pad_nd[i, j, k], 0)
# k0_cat_constant_pad_nd_relu[cdiv(8192, YBLOCK) * cdiv(3005, XBLOCK)](YBLOCK=1, XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# cat, constant_pad_nd, relu
@triton.jit
def k0_cat_constant_pad_nd_relu(x_ptr, y_ptr, relu_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) // tl.cdiv(3005, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    i = row // 128
    j = row % 128
    start = tl.program_id(0) % tl.cdiv(3005, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    k_in = k < 3005
    constant_pad_nd = tl.where((k >= 2) & (k < 3002), tl.where((j < 96), tl.load(x_ptr + i*288000 + j*3000 + k - 2, mask=k_in & ((k >= 2) & (k < 3002)) & ((j < 96))), tl.load(y_ptr + i*96000 + j*3000 + k - 288002, mask=k_in & ((k >= 2) & (k < 3002)) & ~((j < 96)))), 0.0)
    tl.store(relu_ptr + row*3005 + k, maximum_nan(constant_pad_nd, tl.full((), 0.0, tl.float32)), mask=k_in)

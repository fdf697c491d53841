# kernel add_relu (pointwise) over 33792 × 65536 points:
#     add[i, j] = float32(x[i, j]) + float32(bias[j])
#   → relu[i, j] = maximum(float32(add[i, j]), 0)
# k0_add_relu[cdiv(2214592512, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def maximum_nan(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


# add, relu
@triton.jit
def k0_add_relu(x_ptr, bias_ptr, relu_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0).to(tl.int64) * XBLOCK
    point = start + tl.arange(0, XBLOCK).to(tl.int64)
    j = point % 65536
    x = tl.load(x_ptr + point).to(tl.float32)
    bias = tl.load(bias_ptr + j).to(tl.float32)
    add = x + bias
    tl.store(relu_ptr + point, maximum_nan(add, tl.full((), 0.0, tl.float32)))

# kernel add_tanh (pointwise) over s77 × s27 points:
#     add[i, j] = x[i, j] + bias[j]
#     tanh[i, j] = tanh(add[i, j])
#   → clone[i, j] = tanh[j, i]
# k0_add_tanh[cdiv(s27, YBLOCK), cdiv(s77, XBLOCK)](YBLOCK=64, XBLOCK=64), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# add, tanh, clone
# s77 is x.shape[0], s27 is x.shape[1]
@triton.jit
def k0_add_tanh(x_ptr, bias_ptr, clone_ptr, s27, s77, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    i_in = i < s27
    start = tl.program_id(1) * XBLOCK
    j = start + tl.arange(0, XBLOCK)[None, :]
    j_in = j < s77
    x = tl.load(x_ptr + j*s27 + i, mask=i_in & j_in)
    bias = tl.load(bias_ptr + i, mask=i_in)
    add = x + bias
    tl.store(clone_ptr + j + i*s77, libdevice.tanh(add), mask=i_in & j_in)

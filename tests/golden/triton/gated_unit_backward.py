# kernel mul_silu_backward_sigmoid_cat (pointwise) over 16384 × 6144 points:
#     mul[i, j] = float32(grad[i, j]) * float32(up[i, j])
#     silu_backward[i, j] = (float32(mul[i, j]) * sigmoid(float32(gate[i, j]))) * ((float32(gate[i, j]) * (1 - sigmoid(float32(gate[i, j])))) + 1)
#     _to_copy[i, j] = float32(gate[i, j])
#     sigmoid[i, j] = sigmoid(_to_copy[i, j])
#     mul_1[i, j] = _to_copy[i, j] * sigmoid[i, j]
#     _to_copy_1[i, j] = bfloat16(mul_1[i, j])
#     mul_2[i, j] = float32(grad[i, j]) * float32(_to_copy_1[i, j])
#   → cat[i, j] = (float32(silu_backward[i, j]) if 0 <= j < 3072 else float32(mul_2[i, j - 3072]))
# k0_mul_silu_backward_sigmoid_cat[16384 * cdiv(6144, RBLOCK)](RBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)); of float32 in 5 instructions, which take subnormal numbers for 0."""
    if x.dtype == tl.float32:
        power = libdevice.exp2(x * -1.442695)  # -1 / log(2)
        return libdevice.fast_dividef(tl.full((), 1.0, tl.float32), 1.0 + power)
    else:
        return 1.0 / (1.0 + tl.exp(-1.0 * x))


# mul, silu_backward, _to_copy, sigmoid, cat
@triton.jit
def k0_mul_silu_backward_sigmoid_cat(grad_ptr, up_ptr, gate_ptr, cat_ptr, RBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) // tl.cdiv(6144, RBLOCK)
    start = tl.program_id(0) % tl.cdiv(6144, RBLOCK) * RBLOCK
    j = start + tl.arange(0, RBLOCK)
    if (start < 3072):
        grad = tl.load(grad_ptr + i*3072 + j).to(tl.float32)
        up = tl.load(up_ptr + i*3072 + j).to(tl.float32)
        mul = grad * up
        gate = tl.load(gate_ptr + i*3072 + j).to(tl.float32)
        t = sigmoid(gate)
        silu_backward = (mul * t) * ((gate * (1.0 - t)) + 1.0)
        tl.store(cat_ptr + i*6144 + j, silu_backward)
    else:
        grad_2 = tl.load(grad_ptr + i*3072 + j - 3072).to(tl.float32)
        to_copy = tl.load(gate_ptr + i*3072 + j - 3072).to(tl.float32)
        sigmoid_ = sigmoid(to_copy)
        mul_1 = to_copy * sigmoid_
        to_copy_1 = mul_1.to(tl.bfloat16).to(tl.float32)
        mul_2 = grad_2 * to_copy_1
        tl.store(cat_ptr + i*6144 + j, mul_2)

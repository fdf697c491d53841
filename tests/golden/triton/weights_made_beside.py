# kernel erf_exp_tanh (pointwise) over 256 points:
#     erf_1[i] = erf(across[i])
#     exp_1[i] = exp(erf_1[i])
#   → tanh_1[i] = tanh(exp_1[i])
# kernel erf_exp_tanh_add (pointwise) over 4096 × 64 × 256 points:
#     erf[i, j] = erf(down[i, 0])
#     exp[i, j] = exp(erf[i, 0])
#     tanh[i, j] = tanh(exp[i, 0])
#     mul[i, j, k] = float32(x[i, j, k]) * tanh[j, 0]
#     mul_1[i, j, k] = mul[i, j, k] * tanh_1[k]
#   → add[i, j, k] = mul_1[i, j, k] + 1
# k0_erf_exp_tanh[cdiv(256, XBLOCK)](XBLOCK=128), 1 warps
# k1_erf_exp_tanh_add[cdiv(262144, YBLOCK) * cdiv(256, XBLOCK)](YBLOCK=4, XBLOCK=256), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# erf, exp, tanh
@triton.jit
def k0_erf_exp_tanh(across_ptr, tanh_1_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    i = start + tl.arange(0, XBLOCK)
    i_in = i < 256
    across = tl.load(across_ptr + i, mask=i_in)
    erf_1 = tl.erf(across)
    exp_1 = libdevice.exp(erf_1)
    tl.store(tanh_1_ptr + i, libdevice.tanh(exp_1), mask=i_in)


# erf, exp, tanh, mul, add
@triton.jit
def k1_erf_exp_tanh_add(x_ptr, down_ptr, tanh_1_ptr, add_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0) // tl.cdiv(256, XBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    j = row % 64
    start = tl.program_id(0) % tl.cdiv(256, XBLOCK) * XBLOCK
    k = start + tl.arange(0, XBLOCK)[None, :]
    x = tl.load(x_ptr + row*256 + k).to(tl.float32)
    down = tl.load(down_ptr + j)
    erf_ = tl.erf(down)
    exp = libdevice.exp(erf_)
    tanh = libdevice.tanh(exp)
    mul = x * tanh
    tanh_1 = tl.load(tanh_1_ptr + k)
    mul_1 = mul * tanh_1
    tl.store(add_ptr + row*256 + k, mul_1 + 1.0)

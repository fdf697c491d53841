# kernel layer_norm_gelu_add (rows) over 32768 points, each of 768:
#     native_layer_norm_mean, native_layer_norm_m2[i] = welford float32(x[i, j])  over j<768
#     rstd[i] = rsqrt((native_layer_norm_m2[i] / 768) + 1e-05)
#     native_layer_norm[i, j] = (((float32(x[i, j]) - native_layer_norm_mean[i]) * rstd[i]) * float32(weight[j])) + float32(bias[j])
#     gelu[i, j] = (float32(native_layer_norm[i, j]) * 0.5) * (erf(float32(native_layer_norm[i, j]) * 0.707107) + 1)
#   → add[i, j] = float32(x[i, j]) + float32(gelu[i, j])
# k0_layer_norm_gelu_add[cdiv(32768, XBLOCK)](XBLOCK=2, RBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl


# native_layer_norm, gelu, add
@triton.jit
def k0_layer_norm_gelu_add(x_ptr, weight_ptr, bias_ptr, add_ptr, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    j = tl.arange(0, RBLOCK)[None, :]
    j_in = j < 768
    x = tl.load(x_ptr + i*768 + j, mask=j_in).to(tl.float32)
    native_layer_norm_mean = tl.sum(tl.where(j_in, x, 0.0), axis=1)[:, None] / 768.0
    t = x - native_layer_norm_mean
    t_2 = t * t
    native_layer_norm_m2 = tl.sum(tl.where(j_in, t_2, 0.0), axis=1)[:, None]
    rstd = tl.rsqrt(((native_layer_norm_m2 / 768.0) + 1e-05))
    weight = tl.load(weight_ptr + j, mask=j_in).to(tl.float32)
    bias = tl.load(bias_ptr + j, mask=j_in).to(tl.float32)
    native_layer_norm = ((t * rstd) * weight) + bias
    gelu = (native_layer_norm * 0.5) * (tl.erf((native_layer_norm * 0.70710678)) + 1.0)
    tl.store(add_ptr + i*768 + j, x + gelu, mask=j_in)

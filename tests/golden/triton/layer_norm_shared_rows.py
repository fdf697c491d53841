# kernel layer_norm (rows) over 4096 points, each of 131072:
#     native_layer_norm_mean, native_layer_norm_m2[i] = welford x[i, j]  over j<131072
#     rstd[i] = rsqrt((native_layer_norm_m2[i] / 131072) + 1e-05)
#   → native_layer_norm[i, j] = (((x[i, j] - native_layer_norm_mean[i]) * rstd[i]) * weight[j]) + bias[j]
# k0_layer_norm[16 * GROUPS](RBLOCK=8192, GROUPS=33), 8 warps, 64 registers
# made by nbcompile
import triton
import triton.language as tl


@triton.jit
def wait_for_all(counter, count):
    """Return when ``count`` programs have come here: what they stored before can be read after."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < count:
        pass
    tl.debug_barrier()


# native_layer_norm
@triton.jit
def k0_layer_norm(x_ptr, native_layer_norm_mean_parts_ptr, native_layer_norm_m2_parts_ptr, native_layer_norm_mean_arrived_ptr, weight_ptr, bias_ptr, native_layer_norm_ptr, RBLOCK: tl.constexpr, GROUPS: tl.constexpr):
    part = tl.program_id(0) % 16
    j = part * 8192 + tl.arange(0, RBLOCK)
    for start in range(tl.program_id(0) // 16, 4096, GROUPS):
        i = start
        x = tl.load(x_ptr + i*131072 + j)
        native_layer_norm_mean = tl.sum(x, axis=0) / 8192.0
        t = x - native_layer_norm_mean
        native_layer_norm_m2 = tl.sum(t * t, axis=0)
        tl.store(native_layer_norm_mean_parts_ptr + i * 16 + part, native_layer_norm_mean)
        tl.store(native_layer_norm_m2_parts_ptr + i * 16 + part, native_layer_norm_m2)
        wait_for_all(native_layer_norm_mean_arrived_ptr + i, 16)
        native_layer_norm_mean_parts = tl.load(native_layer_norm_mean_parts_ptr + i * 16 + tl.arange(0, 16), volatile=True)
        native_layer_norm_m2_parts = tl.load(native_layer_norm_m2_parts_ptr + i * 16 + tl.arange(0, 16), volatile=True)
        native_layer_norm_mean_whole = tl.sum(native_layer_norm_mean_parts * 8192.0, axis=0) / 131072.0
        native_layer_norm_m2_parts = tl.sum(native_layer_norm_m2_parts + 8192.0 * (native_layer_norm_mean_parts - native_layer_norm_mean_whole) * (native_layer_norm_mean_parts - native_layer_norm_mean_whole), axis=0)
        native_layer_norm_mean_parts = native_layer_norm_mean_whole
        rstd = tl.rsqrt(((native_layer_norm_m2_parts * 7.6293945e-06) + 1e-05))
        weight = tl.load(weight_ptr + j)
        bias = tl.load(bias_ptr + j)
        tl.store(native_layer_norm_ptr + i*131072 + j, (((x - native_layer_norm_mean_parts) * rstd) * weight) + bias)

# kernel var_mean (rows) over 8 points, each of 33554432:
#   → var_mean_mean, var_mean_m2[i] = welford x[i, j]  over j<33554432
#   → var_mean[i] = var_mean_m2[i] / 3.35544e+07
# k0_var_mean[8, 66](RBLOCK=4096, STAGES=3), 4 warps
# k0_var_mean_finish[cdiv(8, XBLOCK)](XBLOCK=32, SBLOCK=128), 8 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# var_mean
@triton.jit
def k0_var_mean(x_ptr, var_mean_mean_parts_ptr, var_mean_m2_parts_ptr, RBLOCK: tl.constexpr, STAGES: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0)
    slab = tl.program_id(1)
    chunk = 512000
    first = slab * chunk
    end = tl.minimum(first + chunk, 33554432)
    var_mean_mean = tl.full([RBLOCK], 0, tl.float32)
    var_mean_mean_squares = tl.full([RBLOCK], 0, tl.float32)
    for start in tl.range(first, end, RBLOCK, num_stages=STAGES):
        j = start + tl.arange(0, RBLOCK)
        x = tl.load(x_ptr + i*33554432 + j)
        step = 1.0 / ((start - first) // RBLOCK + 1)
        delta = x - var_mean_mean
        var_mean_mean += delta * step
        var_mean_mean_squares += delta * (delta - delta * step)
    counts = tl.maximum((end - (first + tl.arange(0, RBLOCK)) + RBLOCK - 1) // RBLOCK, 0).to(tl.float32)
    var_mean_mean_whole = tl.sum(var_mean_mean * counts, axis=0) / tl.maximum(end - first, 1)
    var_mean_mean_squares = tl.sum(var_mean_mean_squares + counts * (var_mean_mean - var_mean_mean_whole) * (var_mean_mean - var_mean_mean_whole), axis=0)
    var_mean_mean = var_mean_mean_whole
    tl.store(var_mean_mean_parts_ptr + slab * 8 + i, var_mean_mean)
    tl.store(var_mean_m2_parts_ptr + slab * 8 + i, var_mean_mean_squares)


@triton.jit
def k0_var_mean_finish(var_mean_mean_parts_ptr, var_mean_m2_parts_ptr, var_mean_mean_ptr, var_mean_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i_in = i < 8
    slab = tl.arange(0, SBLOCK)[None, :]
    var_mean_mean_parts = tl.load(var_mean_mean_parts_ptr + slab * 8 + i, mask=i_in & (slab < 66), other=0.0)
    var_mean_m2_parts = tl.load(var_mean_m2_parts_ptr + slab * 8 + i, mask=i_in & (slab < 66), other=0.0)
    chunk = 512000
    counts = tl.minimum(tl.maximum(33554432 - slab * chunk, 0), chunk).to(tl.float32)
    var_mean_mean_whole = tl.sum(var_mean_mean_parts * counts, axis=1)[:, None] / 33554432.0
    var_mean_m2_parts = tl.sum(var_mean_m2_parts + counts * (var_mean_mean_parts - var_mean_mean_whole) * (var_mean_mean_parts - var_mean_mean_whole), axis=1)[:, None]
    var_mean_mean_parts = var_mean_mean_whole
    tl.store(var_mean_mean_ptr + i, var_mean_mean_parts, mask=i_in)
    tl.store(var_mean_ptr + i, var_mean_m2_parts / 33554431.0, mask=i_in)

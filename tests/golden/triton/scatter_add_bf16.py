# kernel scatter_add (scatter) over 32768 × 1024 points:
#   → scatter_add[[places[i, j]], j] += float32(values[i, j])  over i<32768, j<1024, from x
# k0_scatter_add_base[cdiv(33554432, XBLOCK)](XBLOCK=1024), 4 warps
# k0_scatter_add[cdiv(33554432, XBLOCK)](XBLOCK=1024), 4 warps
# k0_scatter_add_round[cdiv(33554432, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# scatter_add
@triton.jit
def k0_scatter_add_base(x_ptr, scatter_add_wide_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    x = tl.load(x_ptr + point).to(tl.float32)
    tl.store(scatter_add_wide_ptr + point, x)


@triton.jit
def k0_scatter_add(values_ptr, places_ptr, scatter_add_wide_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    j = point % 1024
    values = tl.load(values_ptr + point).to(tl.float32)
    places = tl.load(places_ptr + point)
    tl.atomic_add(scatter_add_wide_ptr + places*1024 + j, values, mask=(places >= 0) & (places < 32768), sem="relaxed")


@triton.jit
def k0_scatter_add_round(scatter_add_wide_ptr, scatter_add_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    scatter_add_wide = tl.load(scatter_add_wide_ptr + point)
    tl.store(scatter_add_ptr + point, scatter_add_wide)

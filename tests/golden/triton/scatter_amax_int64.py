# kernel scatter_reduce (scatter) over 32768 × 512 points:
#   → scatter_reduce[[places[i, j]], j] max= values[i, j]  over i<32768, j<512, from x
# k0_scatter_reduce_base[cdiv(512000, XBLOCK)](XBLOCK=256), 2 warps
# k0_scatter_reduce[cdiv(16777216, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# scatter_reduce
@triton.jit
def k0_scatter_reduce_base(x_ptr, scatter_reduce_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    x = tl.load(x_ptr + point)
    tl.store(scatter_reduce_ptr + point, x)


@triton.jit
def k0_scatter_reduce(values_ptr, places_ptr, scatter_reduce_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    j = point % 512
    values = tl.load(values_ptr + point)
    places = tl.load(places_ptr + point)
    tl.atomic_max(scatter_reduce_ptr + places*512 + j, values, mask=(places >= 0) & (places < 1000), sem="relaxed")

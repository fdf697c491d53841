# kernel index_put (scatter) over 40000 × 64 points:
#   → index_put[[where(rows[i] < 0, rows[i] + 100000, rows[i])], j] += values[i, j]  over i<40000, j<64, from x
# k0_index_put_base[cdiv(6400000, XBLOCK)](XBLOCK=1024), 4 warps
# k0_index_put[cdiv(2560000, XBLOCK)](XBLOCK=1024), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# index_put
@triton.jit
def k0_index_put_base(x_ptr, index_put_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    x = tl.load(x_ptr + point)
    tl.store(index_put_ptr + point, x)


@triton.jit
def k0_index_put(values_ptr, rows_ptr, index_put_ptr, XBLOCK: tl.constexpr):
    gdc_wait()
    start = tl.program_id(0) * XBLOCK
    point = start + tl.arange(0, XBLOCK)
    i = point // 64
    j = point % 64
    values = tl.load(values_ptr + point)
    rows = tl.load(rows_ptr + i)
    tl.atomic_add(index_put_ptr + (tl.where((rows < 0), (rows + 100000), rows))*64 + j, values, mask=((tl.where((rows < 0), (rows + 100000), rows)) >= 0) & ((tl.where((rows < 0), (rows + 100000), rows)) < 100000), sem="relaxed")

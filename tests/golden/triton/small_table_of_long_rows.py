# kernel index_add (scatter) over 16384 × 768 points:
#   → index_add[[places[i]], j] += values[i, j]  over i<16384, j<768, from base
# k0_index_add[342, 3](ROWS=4, XBLOCK=256), 4 warps
# k0_index_add_finish[cdiv(3072, XBLOCK)](XBLOCK=32, SBLOCK=64), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# index_add
@triton.jit
def k0_index_add(places_ptr, values_ptr, index_add_parts_ptr, ROWS: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    table_row = tl.arange(0, ROWS)[:, None]
    j = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    total = tl.full([ROWS, XBLOCK], 0.0, tl.float32)
    for start in range(tl.program_id(0) * 8, 16384, 2736):
        point = start
        places = tl.load(places_ptr + point)
        named = tl.where((places >= 0) & (places < 4), places, -1).to(tl.int32)
        values = tl.load(values_ptr + point*768 + j)
        point_2 = start + 1
        places_2 = tl.load(places_ptr + point_2)
        named_2 = tl.where((places_2 >= 0) & (places_2 < 4), places_2, -1).to(tl.int32)
        values_2 = tl.load(values_ptr + point_2*768 + j)
        point_3 = start + 2
        places_3 = tl.load(places_ptr + point_3)
        named_3 = tl.where((places_3 >= 0) & (places_3 < 4), places_3, -1).to(tl.int32)
        values_3 = tl.load(values_ptr + point_3*768 + j)
        point_4 = start + 3
        places_4 = tl.load(places_ptr + point_4)
        named_4 = tl.where((places_4 >= 0) & (places_4 < 4), places_4, -1).to(tl.int32)
        values_4 = tl.load(values_ptr + point_4*768 + j)
        point_5 = start + 4
        places_5 = tl.load(places_ptr + point_5)
        named_5 = tl.where((places_5 >= 0) & (places_5 < 4), places_5, -1).to(tl.int32)
        values_5 = tl.load(values_ptr + point_5*768 + j)
        point_6 = start + 5
        places_6 = tl.load(places_ptr + point_6)
        named_6 = tl.where((places_6 >= 0) & (places_6 < 4), places_6, -1).to(tl.int32)
        values_6 = tl.load(values_ptr + point_6*768 + j)
        point_7 = start + 6
        places_7 = tl.load(places_ptr + point_7)
        named_7 = tl.where((places_7 >= 0) & (places_7 < 4), places_7, -1).to(tl.int32)
        values_7 = tl.load(values_ptr + point_7*768 + j)
        point_8 = start + 7
        places_8 = tl.load(places_ptr + point_8)
        named_8 = tl.where((places_8 >= 0) & (places_8 < 4), places_8, -1).to(tl.int32)
        values_8 = tl.load(values_ptr + point_8*768 + j)
        total += tl.where(named == table_row, values, 0.0)
        total += tl.where(named_2 == table_row, values_2, 0.0)
        total += tl.where(named_3 == table_row, values_3, 0.0)
        total += tl.where(named_4 == table_row, values_4, 0.0)
        total += tl.where(named_5 == table_row, values_5, 0.0)
        total += tl.where(named_6 == table_row, values_6, 0.0)
        total += tl.where(named_7 == table_row, values_7, 0.0)
        total += tl.where(named_8 == table_row, values_8, 0.0)
    tl.store(index_add_parts_ptr + tl.program_id(0) * 3072 + j + table_row*768, total)


@triton.jit
def k0_index_add_finish(index_add_parts_ptr, base_ptr, index_add_ptr, XBLOCK: tl.constexpr, SBLOCK: tl.constexpr):
    gdc_wait()
    point = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    total = tl.full([XBLOCK, SBLOCK], 0.0, tl.float32)
    for first in range(0, 342, SBLOCK):
        slab = first + tl.arange(0, SBLOCK)[None, :]
        total += tl.load(index_add_parts_ptr + slab*3072 + point, mask=(slab < 342), other=0.0)
    base = tl.load(base_ptr + point)
    tl.store(index_add_ptr + point, base + tl.sum(total, axis=1)[:, None])

# kernel index_put (scatter) over 16 × 128 × 64 × 64 points:
#     full[i, j, k, l] = 0
#     _to_copy[i, j, k, l] = float32(grad[i, j, k, l])
#   → index_put[i, j, [where(at[k] < 0, at[k] + 32, at[k])], [where(at[l] < 0, at[l] + 32, at[l])]] += _to_copy[i, j, k, l]  over i<16, j<128, k<64, l<64, from full
# k0_index_put_list[32, 1](BLOCK0=64), 1 warps
# k0_index_put[cdiv(2048, YBLOCK), 32](YBLOCK=32, LBLOCK=64, XBLOCK=32), 2 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# full, _to_copy, index_put
@triton.jit
def k0_index_put_list(at_ptr, index_put_list0_ptr, index_put_count0_ptr, BLOCK0: tl.constexpr):
    gdc_wait()
    place = tl.program_id(0)
    if (tl.program_id(1) == 0) & (place < 32):
        k = tl.arange(0, BLOCK0)
        at = tl.load(at_ptr + k)
        hit = ((tl.where((at < 0), (at + 32), at) == place)).to(tl.int32)
        number = tl.cumsum(hit, axis=0)
        tl.store(index_put_list0_ptr + place*64 + number - 1, k, mask=hit > 0)
        tl.store(index_put_count0_ptr + place, tl.sum(hit, axis=0))


@triton.jit
def k0_index_put(index_put_count0_ptr, index_put_list0_ptr, grad_ptr, at_ptr, index_put_ptr, YBLOCK: tl.constexpr, LBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    c2 = tl.program_id(1)
    beside = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    l = tl.arange(0, LBLOCK)[None, :]
    line = tl.full([YBLOCK, LBLOCK], 0.0, tl.float32)
    count = tl.load(index_put_count0_ptr + c2)
    for number in range(0, count, 2):
        live = number < count
        k_2 = tl.load(index_put_list0_ptr + c2*64 + number, mask=live, other=0)
        live_2 = number + 1 < count
        k_3 = tl.load(index_put_list0_ptr + c2*64 + number + 1, mask=live_2, other=0)
        to_copy = tl.load(grad_ptr + beside*4096 + k_2*64 + l, mask=live).to(tl.float32)
        line += tl.where(live, to_copy, 0.0)
        to_copy_2 = tl.load(grad_ptr + beside*4096 + k_3*64 + l, mask=live_2).to(tl.float32)
        line += tl.where(live_2, to_copy_2, 0.0)
    at = tl.load(at_ptr + l)
    t = tl.where((at < 0), (at + 32), at)
    named = tl.where((t >= 0) & (t < 32), t, -1).to(tl.int32)
    hit = (tl.trans(named) == tl.arange(0, XBLOCK)[None, :]).to(tl.bfloat16)
    total = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)
    finite = tl.abs(line) < float("inf")
    rest = tl.where(finite, line, 0.0)
    part = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    total = tl.dot(part.to(tl.bfloat16), hit, total)
    rest -= part
    part = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    total = tl.dot(part.to(tl.bfloat16), hit, total)
    rest -= part
    part = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    total = tl.dot(part.to(tl.bfloat16), hit, total)
    if tl.max(tl.max((~finite).to(tl.int32), axis=1), axis=0) > 0:
        for place in range(0, 32):
            total = tl.where(tl.arange(0, XBLOCK)[None, :] == place, tl.sum(tl.where(named == place, line, 0.0), axis=1)[:, None], total)
    c3 = tl.arange(0, XBLOCK)[None, :]
    tl.store(index_put_ptr + beside*1024 + c2*32 + c3, 0.0 + total)

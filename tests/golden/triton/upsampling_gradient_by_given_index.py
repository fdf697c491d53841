# kernel index_put (scatter) over 16 × 128 × 64 × 64 points:
#     full[i, j, k, l] = 0
#     _to_copy[i, j, k, l] = float32(full[i, j, k, l])
#     _to_copy_1[i, j, k, l] = float32(grad[i, k, l, j])
#   → index_put[i, j, [where(at[k] < 0, at[k] + 32, at[k])], [where(at[l] < 0, at[l] + 32, at[l])]] += _to_copy_1[i, j, k, l]  over i<16, j<128, k<64, l<64, from _to_copy
# k0_index_put_list[32, 2](BLOCK0=64, BLOCK1=64), 1 warps
# k0_index_put[512, cdiv(32, XBLOCK), cdiv(128, YBLOCK)](YBLOCK=32, XBLOCK=32), 4 warps
# k0_index_put_often[528](XBLOCK=1024, BLOCK0=32, BLOCK1=32), 4 warps
# made by nbcompile
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait  # until the kernels before have ended


# full, _to_copy, index_put
@triton.jit
def k0_index_put_list(at_ptr, index_put_list0_ptr, index_put_count0_ptr, index_put_list1_ptr, index_put_count1_ptr, BLOCK0: tl.constexpr, BLOCK1: tl.constexpr):
    gdc_wait()
    place = tl.program_id(0)
    if (tl.program_id(1) == 0) & (place < 32):
        k = tl.arange(0, BLOCK0)
        at = tl.load(at_ptr + k)
        hit = ((tl.where((at < 0), (at + 32), at) == place)).to(tl.int32)
        number = tl.cumsum(hit, axis=0)
        tl.store(index_put_list0_ptr + place*64 + number - 1, k, mask=hit > 0)
        tl.store(index_put_count0_ptr + place, tl.sum(hit, axis=0))
    if (tl.program_id(1) == 1) & (place < 32):
        l = tl.arange(0, BLOCK1)
        at_2 = tl.load(at_ptr + l)
        hit_2 = ((tl.where((at_2 < 0), (at_2 + 32), at_2) == place)).to(tl.int32)
        number_2 = tl.cumsum(hit_2, axis=0)
        tl.store(index_put_list1_ptr + place*64 + number_2 - 1, l, mask=hit_2 > 0)
        tl.store(index_put_count1_ptr + place, tl.sum(hit_2, axis=0))


@triton.jit
def k0_index_put(index_put_count0_ptr, index_put_count1_ptr, index_put_list0_ptr, index_put_list1_ptr, grad_ptr, index_put_ptr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    gdc_wait()
    fixed = tl.program_id(0)
    i = fixed // 32
    c2 = fixed % 32
    j = tl.program_id(2) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    c3 = tl.program_id(1) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    count = tl.load(index_put_count0_ptr + c2)
    count_2 = tl.load(index_put_count1_ptr + c3)
    count_2 = tl.where(count*count_2 <= 256, count_2, 0)
    total = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)
    for number in range(0, count):
        k = tl.load(index_put_list0_ptr + c2*64 + number)
        for number_2 in range(0, tl.max(tl.max(count_2, axis=1), axis=0), 2):
            l_2 = tl.load(index_put_list1_ptr + c3*64 + number_2 + 0, mask=number_2 < count_2, other=0)
            live = (number_2 < count_2)
            to_copy_1 = tl.load(grad_ptr + i*524288 + j + k*8192 + l_2*128, mask=live).to(tl.float32)
            l_3 = tl.load(index_put_list1_ptr + c3*64 + number_2 + 1, mask=number_2 + 1 < count_2, other=0)
            live_2 = (number_2 + 1 < count_2)
            to_copy_1_2 = tl.load(grad_ptr + i*524288 + j + k*8192 + l_3*128, mask=live_2).to(tl.float32)
            total += tl.where(live, to_copy_1, 0.0)
            total += tl.where(live_2, to_copy_1_2, 0.0)
    tl.store(index_put_ptr + i*131072 + j*1024 + c2*32 + c3, 0.0 + total)


@triton.jit
def k0_index_put_often(index_put_count0_ptr, index_put_count1_ptr, at_ptr, grad_ptr, index_put_ptr, XBLOCK: tl.constexpr, BLOCK0: tl.constexpr, BLOCK1: tl.constexpr):
    gdc_wait()
    most = tl.max(tl.load(index_put_count0_ptr + tl.arange(0, BLOCK0), mask=tl.arange(0, BLOCK0) < 32, other=0), axis=0)
    most_2 = tl.max(tl.load(index_put_count1_ptr + tl.arange(0, BLOCK1), mask=tl.arange(0, BLOCK1) < 32, other=0), axis=0)
    if most*most_2 > 256:
        for start in range(tl.program_id(0) * XBLOCK, 8388608, 528 * XBLOCK):
            point = start + tl.arange(0, XBLOCK)
            i = point // 524288
            j = (point % 524288) // 4096
            k = (point % 4096) // 64
            l = point % 64
            at = tl.load(at_ptr + k)
            t = tl.where((at < 0), (at + 32), at)
            at_2 = tl.load(at_ptr + l)
            t_2 = tl.where((at_2 < 0), (at_2 + 32), at_2)
            count = tl.load(index_put_count0_ptr + t, mask=(t >= 0) & (t < 32), other=0)
            count_2 = tl.load(index_put_count1_ptr + t_2, mask=(t_2 >= 0) & (t_2 < 32), other=0)
            hot = count*count_2 > 256
            to_copy_1 = tl.load(grad_ptr + i*524288 + j + (point % 4096)*128).to(tl.float32)
            tl.atomic_add(index_put_ptr + t_2 + t*32 + (point // 4096)*1024, to_copy_1, mask=(t_2 >= 0) & (t_2 < 32) & (t >= 0) & (t < 32) & hot, sem="relaxed")

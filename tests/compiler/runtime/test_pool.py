"""Pooled buffers: reused only when nobody else can see them."""

from __future__ import annotations

import threading

import torch

from nbcompile.compiler.runtime.pool import BufferPool
from nbcompile.compiler.stages import SMALL_BUFFER

SIDE = 512  # 1 MiB of float32


def _filled(pool: BufferPool, value: float) -> torch.Tensor:
    return pool.empty_strided((SIDE, SIDE), (SIDE, 1), torch.float32).fill_(value)


def test_memory_of_a_dropped_tensor_is_handed_out_again() -> None:
    pool = BufferPool()
    first = _filled(pool, 1.0)
    place = first.data_ptr()
    del first
    assert _filled(pool, 2.0).data_ptr() == place


def test_memory_is_not_handed_out_while_anything_sees_it() -> None:
    pool = BufferPool()
    holders = [
        lambda t: t,
        lambda t: t.view(-1)[5:],
        lambda t: t.detach(),
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: torch.utils.dlpack.to_dlpack(t),
    ]
    for hold in holders:
        kept = hold(_filled(pool, 3.0))
        other = _filled(pool, 4.0)
        if isinstance(kept, torch.Tensor):
            assert bool((kept == 3).all())
            assert kept.untyped_storage().data_ptr() != other.data_ptr()
        del kept, other


def test_saved_for_backward_counts_as_seen() -> None:
    pool = BufferPool()
    x = _filled(pool, 2.0).requires_grad_()
    y = (x * x).sum()
    del x
    _filled(pool, 100.0)
    assert y.grad_fn is not None
    (grad,) = torch.autograd.grad(y, [y.grad_fn.next_functions[0][0].next_functions[0][0].variable])
    assert bool((grad == 4).all())


def test_shapes_strides_and_dtypes() -> None:
    pool = BufferPool()
    for _ in range(2):
        t = pool.empty_strided((SIDE, SIDE), (1, SIDE), torch.float64)
        assert t.stride() == (1, SIDE) and t.dtype == torch.float64 and t.shape == (SIDE, SIDE)
        assert pool.empty_strided((0, 5), (5, 1), torch.float32).numel() == 0
        assert pool.empty_strided((), (), torch.int64).shape == ()
        del t


def test_small_buffers_are_left_to_malloc_and_large_ones_to_the_limit() -> None:
    pool = BufferPool(limit=3 << 20)
    small = SMALL_BUFFER // 4 - 1
    pool.empty_strided((small,), (1,), torch.float32)
    assert not pool._by_size
    for n in range(1, 8):
        pool.empty_strided((n << 18,), (1,), torch.float32)
    assert pool._held <= 3 << 20
    pool.clear()
    assert not pool._by_size


def test_two_threads_never_get_one_buffer() -> None:
    pool = BufferPool()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            t = pool.empty_strided((SIDE, 64), (64, 1), torch.float32)
            t.fill_(number)
            if not bool((t == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

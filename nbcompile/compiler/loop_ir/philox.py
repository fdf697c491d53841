"""Philox-4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3" (SC 2011), as a reference in torch. The generated C does the same arithmetic."""

from __future__ import annotations

import torch

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(seed: int, counter: torch.Tensor, subsequence: int = 0) -> list[torch.Tensor]:
    """The four 32-bit words (as int64 tensors) of each ``counter`` (int64, the low 64 bits of the
    block counter; ``subsequence`` is the high 64) under a 64-bit ``seed``."""
    high = [torch.full_like(counter, word & _MASK) for word in (subsequence, subsequence >> 32)]
    c = [counter & _MASK, (counter >> 32) & _MASK, *high]
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(ROUNDS):
        high0, low0 = _multiply(c[0], MULTIPLIERS[0])
        high1, low1 = _multiply(c[2], MULTIPLIERS[1])
        c = [high1 ^ c[1] ^ k0, low1, high0 ^ c[3] ^ k1, low0]
        k0, k1 = (k0 + WEYL[0]) & _MASK, (k1 + WEYL[1]) & _MASK
    return c


def uniform(seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """float32 in [0, 1): word ``offset % 4`` of block ``offset // 4``, its top 24 bits / 2**24."""
    words = torch.stack(philox(int(seed), offset >> 2), -1)
    word = torch.gather(words, -1, (offset & 3).unsqueeze(-1)).squeeze(-1)
    return (word >> 8).to(torch.float32) * (1.0 / (1 << 24))


def _multiply(x: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of a 32x32-bit product, without leaving int64."""
    low = (x & 0xFFFF) * factor
    high = (x >> 16) * factor + (low >> 16)
    return (high >> 16) & _MASK, ((high & 0xFFFF) << 16 | (low & 0xFFFF)) & _MASK

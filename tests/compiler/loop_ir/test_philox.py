"""Philox-4x32-10 against the known answers published with Random123 (its kat_vectors file)."""

import pytest
import torch

from nbcompile.compiler.loop_ir.philox import philox, uniform

KNOWN = [
    # counter words (low first), key words (low first), result words
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def joined(low: str, high: str) -> int:
    """Two 32-bit words as one signed 64-bit number."""
    value = int(low, 16) | int(high, 16) << 32
    return value - (1 << 64) if value >> 63 else value


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    low, high = counter.split()[:2], counter.split()[2:]
    got = philox(joined(*key.split()), torch.tensor([joined(*low)]), joined(*high))
    assert [f"{int(word):08x}" for word in got] == words.split()


def test_blocks_are_independent_of_how_they_are_asked_for():
    together = torch.stack(philox(7, torch.arange(100)))
    alone = torch.stack([torch.stack(philox(7, torch.tensor(n))) for n in range(100)], -1)
    assert torch.equal(together, alone)


def test_uniform_takes_the_words_of_a_block_in_turn():
    words = torch.stack(philox(11, torch.tensor([5])), -1)[0]
    got = uniform(torch.tensor(11), torch.arange(20, 24))
    assert torch.equal(got, (words >> 8).float() / 2**24)


def test_uniform_is_uniform_and_below_one():
    numbers = uniform(torch.tensor(3), torch.arange(40_000))
    assert float(numbers.min()) >= 0 and float(numbers.max()) < 1
    counts = torch.histc(numbers, 10, 0, 1)
    # 4000 expected in each tenth, standard deviation 60
    assert float((counts - 4000).abs().max()) < 300
    assert not torch.equal(numbers, uniform(torch.tensor(4), torch.arange(40_000)))

"""48 programs as users of PyTorch write them, by somebody who had read neither the compiler nor its tests.

24 domains, two programs of each next to each other: :func:`half` 0 has the first of every pair (the
odd-numbered ones), half 1 the second. ``PROGRAMS`` by name: what makes a function and its arguments, the same
every time. Functions take CPU tensors (or a dict or list of them), return a tensor or a tuple of them, draw
nothing and leave their inputs as they were. Those named in ``TRAIN_LOSS`` (ten in the first half, eight in
the second) take gradients within, by ``backward``, ``torch.autograd.grad`` or ``torch.func``, so that they
have to be called with gradients enabled; ``TRAIN_LOSS`` makes their losses alone, whose leaves require
gradients. Needs torch only.
"""

from guests import decisions, fields, generative, language, numerics, sensing, structures
from guests.corpus import PROGRAMS, TRAIN_LOSS

__all__ = ["PROGRAMS", "TRAIN_LOSS", "build", "half"]
PARTS = (decisions, fields, generative, language, numerics, sensing, structures)
GRADIENTS_WITHIN = True


def build(name):
    """A program and its arguments."""
    return PROGRAMS[name]()


def half(name):
    """Which half of the programs one belongs to: 0 for the first of each pair, 1 for the second."""
    return list(PROGRAMS).index(name) & 1

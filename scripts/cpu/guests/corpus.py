"""What programs are registered with."""

import torch

PROGRAMS = {}
TRAIN_LOSS = {}


def _seeded(make):
    def factory():
        torch.manual_seed(0)
        return make()

    return factory


def program(make):
    """Register what makes a program under its own name."""
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = _seeded(make)
    return make


def training(make):
    """Register what makes ``(step, args, loss)`` or ``(step, args, loss, args of the loss)``."""
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = _seeded(lambda: make()[:2])

    def loss_alone():
        _step, args, loss, *other = make()
        return loss, (other[0] if other else args)

    TRAIN_LOSS[make.__name__] = _seeded(loss_alone)
    return make

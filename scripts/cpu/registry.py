"""What the programs of a set are registered with."""

import torch


def registry():
    """The programs by name, the losses of those that train, and the two decorators that put them there."""
    programs, losses = {}, {}

    def program(make):
        """Register what makes ``(f, args)``."""
        assert make.__name__ not in programs
        programs[make.__name__] = _seeded(make)
        return make

    def training(make):
        """Register what makes ``(step, args, loss)`` or ``(step, args, loss, args of the loss)``."""
        assert make.__name__ not in programs
        programs[make.__name__] = _seeded(lambda: make()[:2])

        def loss_alone():
            _step, args, loss, *other = make()
            return loss, (other[0] if other else args)

        losses[make.__name__] = _seeded(loss_alone)
        return make

    return programs, losses, program, training


def _seeded(make):
    def factory():
        torch.manual_seed(0)
        return make()

    return factory

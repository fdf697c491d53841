"""What the programs of this set are registered with."""

from registry import registry

PROGRAMS, TRAIN_LOSS, program, training = registry()

"""Random numbers drawn once, and given again to a run in other types, which would draw others."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_DRAWS = re.compile(
    r"^(rand|randn|rand_like|randn_like|randint|randint_like|randperm|bernoulli|uniform|normal|exponential|"
    r"random|cauchy|geometric|log_normal)$"
)
_DRAWS_WITHIN = re.compile(r"dropout|rrelu|multinomial|poisson|gamma|binomial|dirichlet")


class NoSuchDrawError(Exception):
    """A run draws what the one before it did not."""


class Drawn(TorchDispatchMode):
    """Keeps what operators draw; ``again`` is a mode in which they give the same."""

    def __init__(self, kept: list[torch.Tensor] | None = None) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []
        self._given = None if kept is None else iter(kept)

    def again(self) -> Drawn:
        return Drawn(self.kept)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.rpartition("::")[2].rstrip("_")
        if _DRAWS_WITHIN.search(name):
            raise NoSuchDrawError(f"{name} draws, and shows no more than what it makes of that")
        found = func(*args, **(kwargs or {}))
        if not _DRAWS.match(name):
            return found
        if self._given is None:
            self.kept.append(found.detach().clone())
            return found
        drawn = next(self._given, None)
        if drawn is None or drawn.shape != found.shape:
            raise NoSuchDrawError(f"{name} of {tuple(found.shape)}")
        with torch.no_grad():
            return found.copy_(drawn)

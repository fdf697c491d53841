"""Options of a compile: one frozen value, passed to every step, part of every cache key."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbcompile import targets
from nbcompile.errors import NbcompileError, OptionError
from nbcompile.near import did_you_mean

if TYPE_CHECKING:
    import torch

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
PEER_MODES = (*MODES, "lite")
"""With those that only Inductor has."""
SEARCH_MODES = ("max-autotune", "max-autotune-no-cudagraphs")
"""Those that measure candidates for kernels and matrix products."""
REPLAY_MODES = ("reduce-overhead", "max-autotune")
"""Those that replay CUDA graphs."""


@dataclass(frozen=True)
class Options:
    """What the user asked for. Reachable as ``torch.compile(..., options={"name": value})``, as
    ``%%compile -o name=value`` and as keyword arguments of :func:`nbcompile.compile`.

    fuse:     fuse loops into kernels; ``False`` gives one kernel a loop.
    no_fuse:  pairs ``(producer, consumer)`` of loop names never to fuse.
    force_fuse: pairs to fuse although it costs time, also with ``fuse`` off. What cannot be one kernel
              stays apart (see :attr:`nbcompile.record.compilation.Decision.forceable`).
    rules:    names of fusion rules of your own, asked of each pair that could be fused
              (:mod:`nbcompile.compiler.fuse.rules`).
    random:   ``"eager"`` draws exactly torch's own numbers; ``"philox"`` draws them inside the
              fused kernels, seeded by torch's generator: other numbers, same distribution.
              ``"auto"`` is eager on the CPU and philox on a GPU, as Inductor does.
    cache:    use the on-disk cache.
    verify:   run each IR's verifier after each pass.
    target:   ``"auto"``: where the tensors are; or the chip to make code for, ``"cuda:90"``. Code for
              a chip that is not here is shown, and the graph runs eagerly.
    interpret: run the Triton kernels on the CPU, through Triton's interpreter.
    deterministic: no atomics whose order changes a floating-point result.
    threads:  how many threads the kernels for a CPU are made to keep busy; 0: as many as torch has.
    autotune_seconds: how long a ``max-autotune`` mode may measure candidates, for one graph.
    linear_cross_entropy: run a linear layer and the cross_entropy of its result in chunks of rows, so that
              the logits never exist whole: ``"auto"`` on a GPU where they would take over 256 MiB,
              ``"always"`` wherever it can be done, ``"never"``.
    channels_last: run convolutions of images and volumes, and what stands between them, with the channels
              innermost in memory: ``"auto"`` those that gain by it, by their sizes, on an NVIDIA GPU and on a
              CPU, ``"always"`` all of them on any target, ``"never"``. Inputs and results keep their strides.
    """

    mode: str = "default"
    fuse: bool = True
    no_fuse: tuple[tuple[str, str], ...] = ()
    force_fuse: tuple[tuple[str, str], ...] = ()
    rules: tuple[str, ...] = ()
    random: Literal["auto", "eager", "philox"] = "auto"
    cache: bool = True
    verify: bool = False
    target: str = "auto"
    interpret: bool = False
    deterministic: bool = False
    threads: int = 0
    autotune_seconds: float = 30.0
    linear_cross_entropy: Literal["auto", "always", "never"] = "auto"
    channels_last: Literal["auto", "always", "never"] = "auto"

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise OptionError(f"mode {self.mode!r} is unknown.", advice=f"Modes: {', '.join(MODES)}.")
        if self.random not in ("auto", "eager", "philox"):
            raise OptionError(f"random={self.random!r} is unknown.", advice="Use auto, eager or philox.")
        for name in ("linear_cross_entropy", "channels_last"):
            value = getattr(self, name)
            if value not in ("auto", "always", "never"):
                raise OptionError(f"{name}={value!r} is unknown.", advice="Use auto, always or never.")
        for pair in self.force_fuse:
            if pair in self.no_fuse:
                raise OptionError(f"{':'.join(pair)} is in both no_fuse and force_fuse.")
        if self.target != "auto":
            targets.parse(self.target)
        if self.threads < 0:
            raise OptionError(f"threads={self.threads!r} wants a number of threads.")
        if not self.autotune_seconds >= 0:
            raise OptionError(f"autotune_seconds={self.autotune_seconds!r} wants a number of seconds.")

    @property
    def eager_random(self) -> bool:
        """Whether random numbers are drawn by torch's own operators."""
        return self.random == "eager" or (self.random == "auto" and self.target in ("auto", "cpu"))

    @property
    def chip(self) -> targets.Target:
        """What code is made for: the CPU unless a GPU is named (see :meth:`for_device`)."""
        chip = targets.CPU if self.target == "auto" else targets.parse(self.target)
        return chip if chip.is_gpu else dataclasses.replace(chip, multiprocessors=max(self.threads, 1))

    def for_device(self, device: torch.device) -> Options:
        """These options with ``target="auto"`` replaced by the chip that ``device`` is, and for a CPU with
        torch's number of threads. (Dynamo compiles a graph again when that number changes.) The interpreter
        runs code for a GPU: without a target named, that of compute capability 9.0."""
        target = self.target
        if target == "auto" and device.type == "cuda":
            target = targets.of_device(device.index or 0).name
        elif target == "auto":
            target = "cuda:90" if self.interpret else "cpu"
        threads = self.threads
        if target == "cpu" and not threads:
            import torch

            threads = torch.get_num_threads()
        return dataclasses.replace(self, target=target, threads=threads)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any] | None, *, mode: str | None = None) -> Options:
        """Options from a mapping of names to values; values may be strings, as typed in a magic."""
        names = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in (given or {}).items():
            if name not in names:
                raise unknown_option("nbcompile", name, names)
            values[name] = _convert(name, value, names[name].default)
        if mode is not None:
            values["mode"] = mode
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_pairs(self) -> tuple[tuple[str, str], ...]:
        """What differs from the defaults, but for the mode, as it would be typed: ``-o name=value``."""
        found = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "mode" and value != field.default:
                found.append(
                    (field.name, ",".join(map(_typed, value)) if isinstance(value, tuple) else str(value))
                )
        return tuple(found)


_FEW = 20  # options that an error can list


def unknown_option(backend: str, name: str, known: Collection[str]) -> OptionError:
    """What to say of an option that a backend does not have: the names nearest to it, and where all are."""
    meant = did_you_mean(name.replace("-", "_"), known)
    every = (
        f"Options: {', '.join(known)}."
        if len(known) <= _FEW
        else f"See %compile --list-options --backend {backend}."
    )
    return OptionError(f"option {name!r} is unknown to {backend}.", advice=meant + every)


def _typed(item: str | tuple[str, str]) -> str:
    return item if isinstance(item, str) else ":".join(item)


def _convert(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in ("1", "true", "yes", "on"):
            return True
        if str(value).lower() in ("0", "false", "no", "off"):
            return False
        raise OptionError(f"option {name}={value!r} wants true or false.")
    if isinstance(default, int | float):
        try:
            return type(default)(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise OptionError(f"option {name}={value!r} wants a number.") from error
    if isinstance(default, tuple):
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, Iterable):
            raise OptionError(f"option {name} wants a list, got {value!r}.")
        return tuple(items) if name == "rules" else tuple(_pair(name, item) for item in items)
    return value


def _pair(name: str, item: Any) -> tuple[str, str]:
    parts = item.split(":") if isinstance(item, str) else tuple(item) if isinstance(item, Iterable) else ()
    if len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise OptionError(f"option {name} wants pairs producer:consumer, got {item!r}.")
    return (parts[0], parts[1])


def check_seconds(
    name: str, value: Any, *, zero: bool = False, error: type[NbcompileError] = OptionError
) -> None:
    """``error`` where an argument is no number of seconds above 0, or from 0 on with ``zero``."""
    known = float(value) if _is_number(value, numbers.Real) else math.nan
    if math.isfinite(known) and (known > 0 or (zero and known == 0)):
        return
    least = "from 0 on" if zero else "above 0"
    raise error(f"{name}={value!r} wants a number of seconds {least}.")


def check_count(name: str, value: Any, *, error: type[NbcompileError] = OptionError) -> None:
    """``error`` where an argument is no whole number from 1 on."""
    if not _is_number(value, numbers.Integral) or value < 1:
        raise error(f"{name}={value!r} wants a whole number from 1 on.")


def _is_number(value: Any, kind: type) -> bool:
    """Whether it is one, NumPy's included; to Python True is one, and nobody means that."""
    return isinstance(value, kind) and not isinstance(value, bool)

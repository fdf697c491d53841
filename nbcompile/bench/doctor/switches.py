"""What can be turned to make a program faster, as values: what each changes, and how it is written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nbcompile.record.advice.doctor import Effect
from nbcompile.settings import CompileSettings

BUDGET = 60.0
"""Seconds that the doctor has where nobody says otherwise."""

Axis = Literal[
    "compiler", "fusion", "layout", "precision", "dynamic", "threads", "optimizer", "source", "batch"
]
"""What a switch turns. Of one axis only one switch is on, but for fusion decisions, which are many."""


@dataclass(frozen=True)
class Switch:
    """One thing that could make a program faster.

    ``option`` is how it is typed on the magic line, ``diff`` what it changes in the cell where no option does
    it, each line with its ``+`` or ``-``. ``effect``: ``"same"`` numbers, others for their ``"precision"``,
    or other ``"work"`` (a larger batch), which is ranked by the time of a sample.

    The rest is what it sets: of the compile ``backend``, ``mode``, ``options``, ``dynamic``; of the process
    ``threads`` and ``products`` (``torch.set_float32_matmul_precision``); of the program ``dtype``,
    ``channels_last``, ``batch`` (times as many samples), ``optimizer`` (its step is compiled), and
    ``program``, another one packed (:meth:`nbcompile.bench.doctor.patient.Patient.packed`), which takes the
    same arguments. ``only``: the backend that it is an option of.
    """

    name: str
    axis: Axis
    option: str = ""
    diff: tuple[str, ...] = ()
    effect: Effect = "same"
    backend: str = ""
    mode: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    dynamic: bool | None = None
    threads: int = 0
    products: str = ""
    dtype: str = ""
    channels_last: bool = False
    batch: int = 1
    optimizer: bool = False
    program: bytes = b""
    only: str = ""


@dataclass(frozen=True)
class Combination:
    """Switches that are on together, the compiler first."""

    switches: tuple[Switch, ...] = ()

    @classmethod
    def of(cls, switches: Iterable[Switch]) -> Combination:
        """In the order in which they are applied and shown."""
        return cls(
            tuple(sorted(dict.fromkeys(switches), key=lambda s: (s.axis != "compiler", s.axis, s.name)))
        )

    @property
    def name(self) -> str:
        return ", ".join(switch.name for switch in self.switches) or "as it is"

    @property
    def effect(self) -> Effect:
        effects: set[Effect] = {switch.effect for switch in self.switches}
        return "work" if "work" in effects else "precision" if "precision" in effects else "same"

    @property
    def option(self) -> str:
        return " ".join(switch.option for switch in self.switches if switch.option)

    @property
    def diff(self) -> tuple[str, ...]:
        return tuple(line for switch in self.switches for line in switch.diff)

    @property
    def compiler(self) -> Switch | None:
        return next((switch for switch in self.switches if switch.axis == "compiler"), None)

    def with_switch(self, switch: Switch) -> Combination:
        """With this one on, in place of another of its axis."""
        kept = [each for each in self.switches if each.axis != switch.axis or switch.axis == "fusion"]
        return Combination.of((*kept, switch))

    def fits(self, present: CompileSettings) -> bool:
        """Whether all of them mean something to the compiler that they go with."""
        backend = self.compiler.backend if self.compiler is not None else present.backend_name
        if backend == "eager" and any(item.dynamic is not None or item.optimizer for item in self.switches):
            return False  # nothing is compiled
        return all(switch.only in ("", backend) for switch in self.switches)

    def settings(self, present: CompileSettings) -> CompileSettings:
        """How the program is compiled with these on. A backend's own options do not outlive it."""
        made = present
        for switch in self.switches:
            if switch.axis == "compiler":
                kept = present.options if switch.backend == present.backend else None
                made = dataclasses.replace(made, backend=switch.backend, mode=switch.mode, options=kept)
        for switch in self.switches:
            if switch.options:
                made = dataclasses.replace(made, options=_joined(dict(made.options or {}), switch.options))
            if switch.dynamic is not None:
                made = dataclasses.replace(made, dynamic=switch.dynamic)
        return made.drawing_as_eager()


def _joined(known: dict[str, object], more: Iterable[tuple[str, str]]) -> dict[str, object]:
    """Pairs of loops add up; any other option is set."""
    for name, value in more:
        before = known.get(name)
        known[name] = f"{before},{value}" if name in ("no_fuse", "force_fuse") and before else value
    return known

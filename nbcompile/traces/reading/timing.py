"""Compile time as torch tells it: begin and end events in Chromium's format, as stretches that nest."""

from __future__ import annotations

from typing import Any

from nbcompile.traces.reading.values import TimedPart

MOST_PARTS = 400_000
"""More are counted and left out: a picture of them would show nothing else."""


class PartsOfTime:
    """Takes events in the order of the trace. ``left_out`` counts what is beyond :data:`MOST_PARTS`."""

    def __init__(self) -> None:
        self.events = 0
        self.left_out = 0
        self._parts: list[TimedPart] = []
        self._open: dict[tuple[int, int], list[tuple[str, float, str]]] = {}
        self._zero: float | None = None
        self._names: dict[str, str] = {}

    def add(self, event: Any, compile: str) -> bool:
        """Whether ``event`` is one: a mapping with a name, a phase and a time in microseconds."""
        if not isinstance(event, dict):
            return False
        name, phase, moment = event.get("name"), event.get("ph"), event.get("ts")
        if not (isinstance(name, str) and isinstance(phase, str) and isinstance(moment, int | float)):
            return False
        self.events += 1
        seconds = moment * 1e-6
        if self._zero is None:
            self._zero = seconds
        thread = (_whole(event.get("pid")), _whole(event.get("tid")))
        stack = self._open.setdefault(thread, [])
        name = self._names.setdefault(name[:200], name[:200])
        if phase == "B":
            stack.append((name, seconds, compile))
        elif phase == "E":
            self._end(stack, name, seconds, thread[1])
        elif phase == "X" and isinstance(event.get("dur"), int | float):
            self._keep(name, seconds, seconds + event["dur"] * 1e-6, len(stack), compile, thread[1])
        return True

    def _end(self, stack: list[tuple[str, float, str]], name: str, seconds: float, thread: int) -> None:
        """What began last under this name ends; what began within it and never ended, ends with it."""
        places = [place for place, (open_name, _, _) in enumerate(stack) if open_name == name]
        if not places:
            return
        while len(stack) > places[-1]:
            begun, begins, compile = stack.pop()
            self._keep(begun, begins, seconds, len(stack), compile, thread)

    def _keep(self, name: str, begins: float, ends: float, depth: int, compile: str, thread: int) -> None:
        if len(self._parts) >= MOST_PARTS:
            self.left_out += 1
            return
        zero = self._zero or 0.0
        self._parts.append(TimedPart(name, begins - zero, max(begins, ends) - zero, depth, compile, thread))

    def parts(self) -> tuple[TimedPart, ...]:
        """All that have ended, the earliest first."""
        return tuple(sorted(self._parts, key=lambda part: (part.begins, part.depth)))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0

"""Times of the kernels and library calls of one graph, taken inside its wrapper.

The timed wrapper is the wrapper with a mark before each step. It runs only while the watch does, so that the
ordinary one has nothing in it. On a GPU the marks are events on the stream, and are read when the run has
ended there. A replayed CUDA graph calls no wrapper, and so has no laps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import CodeType
from typing import Any

import torch

from nbcompile.compiler.stages import KernelSource

_MARK = "_mark"  # no buffer's name: theirs begin with a letter, a size that is not used is _0 and so on


class Stopwatch:
    """See :class:`nbcompile.record.recorder.KernelStopwatch`. Seconds are those that the device took from one
    mark to the next; on the CPU, those of this thread's clock."""

    def __init__(self, source: KernelSource) -> None:
        self.running = False
        self.laps: list[dict[str, float]] = []
        self._source = source
        self._events = source.language == "triton" and torch.cuda.is_available()
        self._marks: list[Any] = []
        self._scope: Mapping[str, Any] | None = None
        self._call: Callable[[list[Any]], Any] | None = None

    def run(self, args: list[Any], scope: Mapping[str, Any]) -> Any:
        """Run the timed wrapper, with the globals of the ordinary one, and keep its lap."""
        if self._call is None or scope is not self._scope:
            timed = {**scope, _MARK: self._mark}
            exec(self._code(), timed)
            self._scope, self._call = scope, timed["call"]
        assert self._call is not None
        self._marks.clear()
        result = self._call(args)
        names = [id for id, _ in self._source.steps]
        self.laps.append(dict(zip(names, self._seconds(), strict=True)))
        return result

    def _code(self) -> CodeType:
        lines = self._source.wrapper.splitlines()
        places = [line - 1 for _, line in self._source.steps]
        for place in [len(lines) - 1, *reversed(places)]:  # the last line returns
            lines.insert(place, f"    {_MARK}()")
        return compile("\n".join(lines) + "\n", f"<nbcompile timed wrapper {self._source.graph}>", "exec")

    def _mark(self) -> None:
        if self._events:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def _seconds(self) -> list[float]:
        if not self._events:
            return [after - before for before, after in pairwise(self._marks)]
        self._marks[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 for before, after in pairwise(self._marks)]

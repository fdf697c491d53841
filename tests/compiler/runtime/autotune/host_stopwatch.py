"""Times of this machine's clock, where the search itself is tested and not a GPU."""

from __future__ import annotations

import time

from nbcompile.compiler.runtime.autotune.measure import Call


class HostStopwatch:
    """The host's clock, for work that is done when a call returns."""

    def now(self) -> float:
        return time.perf_counter()

    def sample(self, call: Call, repeats: int, prepare: Call | None) -> list[float]:
        found = []
        for _ in range(repeats):
            if prepare is not None:
                prepare()
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        return found

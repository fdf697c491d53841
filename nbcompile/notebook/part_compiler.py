"""What compiles a part of a cell, as who runs the cell sees it."""

from __future__ import annotations

import types
from typing import Any, Protocol


class CompiledPart(Protocol):
    """A compiled callable. ``graphs_run`` names the graphs that its latest call has begun to run,
    ``eager_reason`` says why it did not run compiled code."""

    def __call__(self, *args: Any) -> Any: ...
    @property
    def graphs_run(self) -> tuple[str, ...]: ...
    @property
    def eager_reason(self) -> str: ...


class Compiler(Protocol):
    """Makes a compiled callable of a part: ``whole`` asks for one graph, or an exception before
    anything has run; otherwise Dynamo may break the graph. ``numbers`` are parameters that hold a
    number which changes from call to call."""

    def __call__(
        self, function: types.FunctionType, *, whole: bool, numbers: tuple[str, ...]
    ) -> CompiledPart: ...

    @property
    def functional(self) -> bool:
        """Whether compiled code changes its inputs only at its very end."""
        ...

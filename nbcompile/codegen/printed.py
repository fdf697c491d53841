"""What a kernel printer hands to the wrapper, whatever the language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nbcompile.loop_ir.nodes import Buffer
from nbcompile.stages import Launch


@dataclass
class Lines:
    """Output lines with the loops each was made for. ``step`` is one level of indentation."""

    text: list[str] = field(default_factory=list)
    origins: list[tuple[str, ...]] = field(default_factory=list)
    depth: int = 0
    step: str = "  "

    def add(self, text: str, origins: Iterable[str] = ()) -> None:
        self.text.append(self.step * self.depth + text if text else "")
        self.origins.append(tuple(dict.fromkeys(item for item in origins if item)))

    def extend(self, more: Lines) -> None:
        """Lines that were printed apart from these."""
        self.text += more.text
        self.origins += more.origins

    def open(self, text: str, origins: Iterable[str] = ()) -> None:
        self.add(f"{text} {{", origins)
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.add("}")


@dataclass(frozen=True)
class Parameter:
    """One argument of a call: a buffer's memory (``aligned``: which must begin at a multiple of 16 bytes), a
    symbolic size, or the status flag. ``buffer`` is the buffer's name in the program (``name`` is the
    parameter's own, in the kernel)."""

    name: str
    kind: str  # "buffer", "aligned", "size", "status"
    type: str
    buffer: str = ""


@dataclass(frozen=True)
class Call:
    """One function that the wrapper calls for a kernel."""

    symbol: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True)
class PrintedKernel:
    """The text of one kernel with what its caller must know.

    writes: buffers to allocate before it runs. workspaces: memory it needs while it runs (the partial
    results of a split reduction), ``zeroed`` those that must hold zeros. launches: of Triton functions, in
    the order of ``calls``.
    """

    text: str
    lines: tuple[tuple[int, tuple[str, ...]], ...]
    calls: tuple[Call, ...]
    writes: tuple[str, ...]
    workspaces: tuple[Buffer, ...] = ()
    zeroed: frozenset[str] = frozenset()
    launches: tuple[Launch, ...] = ()

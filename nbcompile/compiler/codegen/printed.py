"""What a kernel printer hands to the wrapper, whatever the language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nbcompile.compiler.loop_ir.index import Axis, IndexExpr
from nbcompile.compiler.loop_ir.nodes import Buffer
from nbcompile.compiler.loop_ir.versions import Part, Touch, Walk
from nbcompile.compiler.stages import Launch


@dataclass
class Lines:
    """Output lines with the loops each was made for. ``step`` is one level of indentation. ``walk`` is what
    of memory the lines read and write, in which loops (see ``loop_ir/versions.py``)."""

    text: list[str] = field(default_factory=list)
    origins: list[tuple[str, ...]] = field(default_factory=list)
    depth: int = 0
    step: str = "  "
    walk: Walk = field(default_factory=lambda: Walk(frozenset()))

    def __post_init__(self) -> None:
        self.around = [self.walk]  # the loops that are open, the innermost last

    def add(self, text: str, origins: Iterable[str] = ()) -> None:
        self.text.append(self.step * self.depth + text if text else "")
        self.origins.append(tuple(dict.fromkeys(item for item in origins if item)))

    def extend(self, more: Lines) -> None:
        """Lines that were printed apart from these."""
        self.text += more.text
        self.origins += more.origins
        self.around[-1].body += more.walk.body

    def open(
        self, text: str, origins: Iterable[str] = (), axes: Iterable[Axis] | None = None,
        part: Part | None = None,
    ) -> None:  # fmt: skip
        """A block of C. ``axes``: what its loop goes along (none: it is no loop; None: nobody knows),
        ``part`` of them it goes over."""
        self.enter(f"{text} {{", origins, axes, part)

    def close(self) -> None:
        self.leave()
        self.add("}")

    def enter(
        self, text: str, origins: Iterable[str] = (), axes: Iterable[Axis] | None = None,
        part: Part | None = None,
    ) -> None:  # fmt: skip
        """A line that begins a block of Python, which ends where one leaves it."""
        self.add(text, origins)
        self.depth += 1
        inside = Walk(None if axes is None else frozenset(axes), part=part)
        self.around[-1].body.append(inside)
        self.around.append(inside)

    def leave(self, blocks: int = 1) -> None:
        self.depth -= blocks
        del self.around[-blocks:]

    def touch(self, memory: str, place: IndexExpr | None, *, write: bool = False) -> None:
        """Note that the line to be added now reads or writes ``memory`` at ``place``."""
        self.around[-1].body.append(Touch(memory, place, write))


@dataclass(frozen=True)
class Parameter:
    """One argument of a call: a buffer's memory (``aligned``: which must begin at a multiple of 16 bytes), a
    symbolic size, or the status flag. ``buffer`` is the buffer's or size's name in the program
    (``name`` is the parameter's own, in the kernel)."""

    name: str
    kind: str  # "buffer", "aligned", "size", "status"
    type: str
    buffer: str = ""


@dataclass(frozen=True)
class FunctionCall:
    """One function that the wrapper calls for a kernel; ``of``: another kernel, whose indices it looks at."""

    symbol: str
    parameters: tuple[Parameter, ...]
    of: str = ""


@dataclass(frozen=True)
class PrintedKernel:
    """The text of one kernel with what its caller must know.

    writes: buffers to allocate before it runs. workspaces: memory it needs while it runs (the partial
    results of a split reduction), ``zeroed`` those that must hold zeros. launches: of Triton functions, in
    the order of ``calls``. walk: what it reads and writes, in order. title: what people call its shape, where
    that is not what they call the group's.
    """

    text: str
    lines: tuple[tuple[int, tuple[str, ...]], ...]
    calls: tuple[FunctionCall, ...]
    writes: tuple[str, ...]
    workspaces: tuple[Buffer, ...] = ()
    zeroed: frozenset[str] = frozenset()
    launches: tuple[Launch, ...] = ()
    walk: Walk = field(default_factory=lambda: Walk(None))
    title: str = ""

"""Which buffers of a graph take over the memory of one that nothing reads any more.

What is large does so only where nothing else is allocated between, so that a graph holds no more at a time
than if each had memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.nodes import Buffer, LibraryCall, hint_product
from nbcompile.compiler.stages import SMALL_BUFFER


@dataclass(frozen=True)
class _Dead:
    """A buffer nobody reads again; ``before``: how many large ones had been allocated by then."""

    name: str
    kind: Any
    before: int


def taken_over(
    program: FusedProgram,
    allocated: Callable[[Group | LibraryCall], Sequence[Buffer]],
    besides: Callable[[Group | LibraryCall], Iterable[Buffer]],
    last_use: Mapping[str, int],
) -> dict[str, str]:
    """Buffer → the dead one of equal shape, strides and dtype whose memory it takes over. ``allocated``: the
    buffers that the wrapper allocates for an item, ``besides``: other memory that the item takes.
    ``last_use``: the place of the item after which a buffer may go. Memory is left alone that a library call
    might hand on (one that does not write where it is told to), and that changes its name."""
    shared = {name for group in program.groups for pair in group.memory.items() for name in pair}
    own: dict[str, Buffer] = {}
    for item in program.items:
        made = allocated(item)
        own |= {buffer.name: buffer for buffer in made}
        if isinstance(item, LibraryCall) and not made:
            shared |= {view.buffer.name for view in item.views()}
    found: dict[str, str] = {}
    dead: list[_Dead] = []
    large = 0
    for place, item in enumerate(program.items):
        for buffer in allocated(item):
            fits = [each for each in dead if each.kind == _kind(buffer)]
            fits = [each for each in fits if _is_small(buffer) or each.before == large]
            if fits:
                found[buffer.name] = fits[-1].name
                dead.remove(fits[-1])
            else:
                large += not _is_small(buffer)
        large += sum(not _is_small(buffer) for buffer in besides(item))
        for name, use in last_use.items():
            if use == place and name in own and name not in shared:
                dead.append(_Dead(name, _kind(own[name]), large))
    return found


def _kind(buffer: Buffer) -> Any:
    return buffer.shape, buffer.strides, buffer.dtype


def _is_small(buffer: Buffer) -> bool:
    return hint_product(buffer.shape) * buffer.dtype.itemsize < SMALL_BUFFER

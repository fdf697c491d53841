"""What the C compiler makes of one kernel: its assembly, with the line of the kernel's text for each part.

A compile does not ask for it, which would take as long again; the explorer does, for a kernel that is read.
"""

from __future__ import annotations

from nbcompile.compiler.runtime import scratch
from nbcompile.compiler.runtime.bind import EXTRA_FLAGS, alone
from nbcompile.compiler.runtime.c.toolchain import Toolchain
from nbcompile.compiler.stages import KernelSource
from nbcompile.errors import EditError

_FLAGS = ("-S", "-g1")  # -g1: lines, and nothing about variables; the code stays the same


def assembly_of(source: KernelSource, kernel: str, toolchain: Toolchain) -> str:
    """The compiler's text for one C kernel (an id) by itself, built with the flags that the kernel was built
    with. Its lines are those of ``KERNEL_FILE``. EditError if it is no C; ToolchainError if it is refused."""
    item = next(each for each in source.kernels if each.id == kernel)
    if source.language != "c":
        raise EditError(f"{item.name} is no C.", advice="Its record has what its compiler made of it.")
    with scratch.temporary() as folder:
        out = folder / "kernel.s"
        toolchain.compile(alone(source, item).source, out, (*EXTRA_FLAGS, *_FLAGS))
        return out.read_text(encoding="utf-8", errors="replace")

"""Kernels compiled with another text, and tried: what a program that lets a user edit them calls.

Example::

    attempt = Attempt([("g0.fw.k0", text)])
    compiled = nbcompile.compile(f, compile_aten=attempt.compile_aten)
    result = compiled(x)
    attempt.check()
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from nbcompile.compiler.compile_graph import compile_graph
from nbcompile.compiler.runtime.bind import KERNEL_FILE
from nbcompile.compiler.runtime.c.assembly import assembly_of
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.edit.edited import explained
from nbcompile.compiler.runtime.edit.script import script_of
from nbcompile.compiler.runtime.edit.trial import outcome
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelCall, KernelEdit
from nbcompile.errors import EditError, NbcompileError
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder

__all__ = ["KERNEL_FILE", "Attempt", "assembly_of", "find_toolchain", "script_of"]

_MOST_CALLS = 64


class Attempt:
    """One compile with changes. The first call of each edited C function is tried in a process of its own, on
    copies, so that an edit which crashes does not take this process with it.

    ``calls`` holds the calls of the kernel ``watch`` in the first run, in order, their tensors copied.
    """

    def __init__(self, edits: Sequence[tuple[str, str]] = (), watch: str = "") -> None:
        self.calls: list[KernelCall] = []
        self.tried: dict[str, float] = {}  # seconds that trying took, by function
        self._texts = dict(edits)
        self._watch = watch
        self._watching = True
        self._changes = [
            KernelEdit(kernel, self._texts.get(kernel), self._around)
            for kernel in dict.fromkeys([*self._texts, *([watch] if watch else ())])
        ]
        self._failed: EditError | None = None

    def compile_aten(self, aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
        """For :func:`nbcompile.compile`. What fails here, :meth:`check` raises again: meanwhile the graph is
        run in ATen."""
        try:
            return compile_graph(aten, options, recorder, self._changes)
        except NbcompileError as error:
            known = any(change.kernel.startswith(f"{aten.id}.") for change in self._changes)
            if known and self._failed is None:
                self._failed = (
                    error if isinstance(error, EditError) else EditError(error.message, advice=error.advice)
                )
            raise

    def check(self) -> None:
        """After the first run: raise what went wrong with an edit, else stop noting calls."""
        if self._failed is not None:
            raise self._failed
        self._watching = False

    def _around(self, call: KernelCall) -> None:
        edited = call.kernel in self._texts
        if edited and call.source.language == "c" and call.symbol not in self.tried:
            begun = time.perf_counter()
            problem = outcome(call)
            self.tried[call.symbol] = time.perf_counter() - begun
            if problem:
                self._failed = EditError(f"the edited kernel {problem}.")
                raise self._failed
        if self._watching and call.kernel == self._watch and len(self.calls) < _MOST_CALLS:
            self.calls.append(replace(call, arguments=_copies(call.arguments)))
        try:
            call.run(*call.arguments)
        except NbcompileError as error:
            if not edited:
                raise
            self._failed = explained(error, call.source, call.kernel)
            raise self._failed from error


def _copies(arguments: Sequence[object]) -> tuple[object, ...]:
    """The same arguments in memory of their own; what was one tensor stays one."""
    made: dict[tuple[int, torch.Size, tuple[int, ...]], torch.Tensor] = {}
    copied: list[object] = []
    for item in arguments:
        if isinstance(item, torch.Tensor):
            key = item.data_ptr(), item.shape, item.stride()
            if key not in made:
                memory = torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device=item.device)
                made[key] = memory.copy_(item.detach())
            item = made[key]
        copied.append(item)
    return tuple(copied)

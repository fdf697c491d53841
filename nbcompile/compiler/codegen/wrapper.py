"""Prints the Python function that runs a graph: allocate, call kernels and libraries, free, return."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves

from nbcompile.compiler.codegen.memory_reuse import taken_over
from nbcompile.compiler.codegen.printed import Parameter, PrintedKernel
from nbcompile.compiler.loop_ir.computed_sizes import PythonNumber, python_text, told_by
from nbcompile.compiler.loop_ir.expr import SizeComparison
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.index import ZERO, IndexExpr, product
from nbcompile.compiler.loop_ir.known_sizes import sizes_computed, sizes_given
from nbcompile.compiler.loop_ir.nodes import (
    Body,
    Buffer,
    LibraryCall,
    View,
    ViewCalls,
)
from nbcompile.compiler.stages import SMALL_BUFFER

OUT_VARIANTS = {
    "aten.mm": "mm_out", "aten.bmm": "bmm_out", "aten.addmm": "addmm_out", "aten.baddbmm": "baddbmm_out",
}  # fmt: skip
"""Products that write into memory of ours rather than allocate."""

_SET = torch.ops.aten.set_.source_Tensor
_TAKEN = frozenset(
    "torch math args empty empty_small as_traced handed_on view as_result aligned status check call "
    "constants become returned "
    "max min abs int float bool round".split()  # what sizes are computed with
) | frozenset(OUT_VARIANTS.values())


def print_wrapper(
    program: FusedProgram, kernels: Mapping[str, PrintedKernel], language: Literal["c", "triton"] = "c"
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Source of ``call(args)``, and for each kernel and library call its id and the line, from 1, where its
    part begins (the last one's ends before the line that returns). It expects in its globals: the kernels by
    symbol, library functions by call id (dots as underscores), ``math``, ``constants``, ``empty`` and
    ``empty_small``, ``view``, ``as_result``, ``as_traced``, ``handed_on``, ``aligned``, ``check``."""
    wrapper = _Wrapper(program, kernels, language)
    return wrapper.print(), tuple(wrapper.steps)


class _Wrapper:
    def __init__(
        self, program: FusedProgram, kernels: Mapping[str, PrintedKernel], language: Literal["c", "triton"]
    ) -> None:
        self.program = program
        self.language = language
        self.loops = program.program
        self.kernels = kernels
        self.names: dict[str, str] = {}
        self.lines: list[str] = []
        self.starts: dict[str, IndexExpr] = {}  # memory that goes by the name of its part that begins here
        self.sizes: set[str] = set()  # those that are known by now
        computed = sizes_computed(self.loops)
        self.waiting = list(computed.values())  # computed of what is not known yet
        self.numbers = {*computed, *sizes_given(self.loops)}  # their names are no tensor's
        for call in self.loops.statements:
            self.numbers |= call.tells() if isinstance(call, LibraryCall) else set()
        self.steps: list[tuple[str, int]] = []
        self.memory = {name: old for group in program.groups for name, old in group.memory.items()}
        self.shown = {item.buffer.name for item in self.loops.outputs if isinstance(item, View)}
        self.returned = self.shown | {self.memory.get(name, name) for name in self.shown}  # all their memory
        self.returned |= set(self.loops.become)
        self.last_use = self._last_uses()
        self.loaded = self._loaded()
        self.inputs = {item.name for item in self.loops.inputs if isinstance(item, Buffer)}
        self.taken_over = taken_over(program, self._allocated, self._besides, self.last_use)

    def name(self, buffer: str) -> str:
        if buffer not in self.names:
            safe = "".join(char if char.isalnum() else "_" for char in buffer)
            if (
                keyword.iskeyword(safe)
                or safe in _TAKEN
                or safe[0].isdigit()
                or safe.startswith("op_")
                or safe in self.loops.constants
                or safe in self.numbers
            ):
                safe = f"{safe}_"
            self.names[buffer] = safe
        return self.names[buffer]

    def print(self) -> str:
        self._unpack()
        for place, item in enumerate(self.program.items):
            self.steps.append((item.id, len(self.lines) + 2))  # after what is there and the line of the def
            if isinstance(item, Group):
                self._kernel(item)
            else:
                self._library(item)
            kept = set(self.taken_over.values())
            dead = [name for name, use in self.last_use.items() if use == place and name not in kept]
            if dead:
                self.lines.append(f"del {', '.join(self.name(name) for name in dead)}")
        self._return(self._outputs())
        return "def call(args):\n" + "\n".join(f"    {line}" for line in self.lines) + "\n"

    def _return(self, values: list[str]) -> None:
        """Inputs show another memory only when all results are made: these may be views of what they were."""
        returned = len(values) - len(self.loops.become)
        if self.loops.become:
            self.lines += [f"become = {_tuple(values[returned:])}", f"returned = {_tuple(values[:returned])}"]
        for place, name in enumerate(self.loops.become):
            self.lines.append(f"{operator_name(_SET)}({self.name(name)}, become[{place}])")
        if self.loops.become:
            self.lines.append("return returned")
        else:
            self.lines.append(f"return ({' '.join(f'{value},' for value in values)})")

    def _last_uses(self) -> dict[str, int]:
        """Buffer → index of the item after which its memory may go."""
        last: dict[str, int] = {}
        for place, item in enumerate(self.program.items):
            if isinstance(item, Group):
                made = {out.name for loop in item.loops for out in loop.outputs}
                names = {load.buffer for loop in item.loops for load in loop.reads()} - made
                names |= {loop.base for loop in item.loops if loop.base and loop.base not in made}
                names |= {item.memory.get(name, name) for name in item.stored}
            else:
                names = {view.buffer.name for view in item.views()}
                names |= {out.name for out in item.outputs if out is not None}
            for name in sorted(names):  # in the same order in every process
                last[name] = place
        kept = self.returned.union(self.loops.constants)
        return {name: place for name, place in last.items() if name not in kept}

    def _loaded(self) -> set[str]:
        """What kernels read, and what library calls read a part of: by the traced types and strides."""
        names: set[str] = set()
        for item in self.program.items:
            if isinstance(item, Group):
                names |= {load.buffer for loop in item.loops for load in loop.reads()}
                names |= {*item.memory.values(), *(loop.base for loop in item.loops if loop.base)}
            else:
                names |= {view.buffer.name for view in item.views() if not view.is_whole()}
        return names

    def _unpack(self) -> None:
        targets = []
        for place, item in enumerate(self.loops.inputs):
            if isinstance(item, Buffer):
                targets.append(self.name(item.name))
            elif isinstance(item, str) and item.isidentifier():
                targets.append(item)
                self.sizes.add(item)
            else:
                targets.append(f"_{place}")
        if targets:
            self.lines.append(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = args")
        self.lines.append("args.clear()")
        self._learn(item for item in self.loops.inputs if isinstance(item, Buffer))
        self._compute()
        unused = [
            self.name(item.name) for item in self.loops.inputs
            if isinstance(item, Buffer) and item.name not in self.last_use
            and item.name not in self.returned
        ]  # fmt: skip
        if unused:
            self.lines.append(f"del {', '.join(unused)}")
        for name in self.loops.constants:
            self.lines.append(f"{self.name(name)} = constants[{name!r}]")

    def _learn(self, buffers: Iterable[Buffer]) -> None:
        """Sizes that the extents of these tell, and nothing before has told; those that are one first."""
        told = [
            (told, f"{self.name(item.name)}.shape[{dim}]")
            for item in buffers for dim, extent in enumerate(item.shape)
            if (told := told_by(extent)) is not None
        ]  # fmt: skip
        for each, extent in sorted(told, key=lambda pair: pair[0].text("") != ""):
            if each.size.text not in self.sizes:
                self.sizes.add(each.size.text)
                self.lines.append(f"{each.size.text} = {each.text(extent)}")

    def _compute(self) -> None:
        """The sizes that can be computed by now, each after what it is computed of."""
        for size in [size for size in self.waiting if size.number.needs <= self.sizes]:
            self.waiting.remove(size)
            self.lines.append(f"{size.text} = {size.number.formula}")

    def _allocated(self, item: Group | LibraryCall) -> list[Buffer]:
        """The buffers that the wrapper allocates before an item runs, its workspaces apart."""
        if isinstance(item, Group):
            outputs = {out.name: out for loop in item.loops for out in loop.outputs}
            return [outputs[name] for name in self.kernels[item.id].writes if name in outputs]
        return [out for out in item.outputs if out is not None] if uses_out_variant(item) else []

    def _besides(self, item: Group | LibraryCall) -> list[Buffer]:
        """Memory that an item takes besides."""
        if isinstance(item, Group):
            return list(self.kernels[item.id].workspaces)
        return [] if uses_out_variant(item) else [out for out in item.outputs if out is not None]

    def _allocate(self, buffer: Buffer) -> None:
        name, old = self.name(buffer.name), self.taken_over.get(buffer.name)
        if old is not None:
            self.lines.append(f"{name} = {self.name(old)}; del {self.name(old)}  # its memory again")
            return
        self.lines.append(f"{name} = {self._allocator(buffer)}({self._described(buffer)})")

    def _allocator(self, buffer: Buffer) -> str:
        """What allocates it: if it is small, which sizes may tell only at the call, torch itself."""
        if self.language != "c":
            return "empty"
        size, most = product(buffer.shape), SMALL_BUFFER // buffer.dtype.itemsize
        if size.constant is not None:
            return "empty_small" if size.constant < most else "empty"
        return f"(empty_small if {python_text(size)} < {most} else empty)"

    def _described(self, buffer: Buffer) -> str:
        """Shape, strides and dtype, as arguments."""
        shape, strides = (_tuple(map(python_text, item)) for item in (buffer.shape, buffer.strides))
        return f"{shape}, {strides}, {buffer.dtype}"

    def _kernel(self, group: Group) -> None:
        printed = self.kernels[group.id]
        for buffer in self._allocated(group):
            self._allocate(buffer)
        for workspace in printed.workspaces:
            self._allocate(workspace)
            if workspace.name in printed.zeroed:
                self.lines.append(f"{self.name(workspace.name)}.zero_()")
        for call in printed.calls:
            self.lines.append(f"{call.symbol}({', '.join(map(self._operand, call.parameters))})")
            if call.of:
                self.lines.append(f"check({call.of!r})")  # before the next is called
        if printed.workspaces:
            self.lines.append(f"del {', '.join(self.name(item.name) for item in printed.workspaces)}")
        own = [parameter for call in printed.calls if not call.of for parameter in call.parameters]
        if any(parameter.kind == "status" for parameter in own):
            self.lines.append(f"check({group.name!r})")
        for name, old in group.memory.items():
            if self._is_read(name):
                self.lines.append(f"{self.name(name)} = {self.name(old)}")

    def _operand(self, parameter: Parameter) -> str:
        if parameter.kind in ("buffer", "aligned"):
            name = self.name(parameter.buffer)
            if parameter.kind == "aligned":
                return f"aligned({name})"
            return name
        return parameter.buffer or parameter.name

    def _library(self, call: LibraryCall) -> None:
        function = library_name(call)
        args = [self._argument(item) for item in call.args]
        args += [f"{key}={self._argument(item)}" for key, item in call.kwargs.items()]
        for out in self._allocated(call):
            self._allocate(out)
            self.lines.append(f"{function}({', '.join(args)}, out={self.name(out.name)})")
            return
        names = [self.name(item.name) if item is not None else "_" for item in call.outputs]
        left = names[0] if call.single else f"{', '.join(names)}{',' if len(names) == 1 else ''}"
        left = "_" if call.paths else call.number or left
        self.lines.append(f"{f'{left} = ' if left else ''}{function}({', '.join(args)})")
        if call.number:
            self.sizes.add(call.number)
        if call.paths:
            self.lines += [
                f"{name} = _{path}" for name, path in zip(names, call.paths, strict=True) if name != "_"
            ]
            self.lines.append("del _")
        self._learn(item for item in call.outputs if item is not None)
        self._compute()
        for place, item in enumerate(call.outputs):
            if item is None or not self._is_read(item.name):
                continue
            name = self.name(item.name)
            if place == 0 or item.name in self.loaded:
                self.lines.append(f"{name} = as_traced({name}, {self._described(item)})")
            elif item.shape:  # what a call gives besides is handed on to another: the call's own gradient
                self.lines.append(f"{name} = handed_on({name}, {_tuple(map(python_text, item.strides))})")

    def _is_read(self, name: str) -> bool:
        """Whether anybody reads a value again: a later part, or the caller."""
        return name in self.last_use or name in self.shown

    def _argument(self, value: Any) -> str:
        if isinstance(value, View):
            return self._view(value)
        if isinstance(value, IndexExpr):
            return python_text(value)
        if isinstance(value, PythonNumber):
            return value.formula
        if isinstance(value, SizeComparison):
            return f"{python_text(value.left)} {value.sign} {python_text(value.right)}"
        if isinstance(value, list):
            return f"[{', '.join(self._argument(item) for item in value)}]"
        if isinstance(value, tuple):
            return _tuple(self._argument(item) for item in value)
        if isinstance(value, float):
            return (
                f"float({str(value)!r})"
                if value != value or value in (float("inf"), -float("inf"))
                else repr(value)
            )
        if isinstance(value, complex):  # its repr names nan and inf, and loses the sign of 0
            return f"complex({self._argument(value.real)}, {self._argument(value.imag)})"
        if isinstance(value, dict):
            return f"{{{', '.join(f'{key!r}: {self._argument(item)}' for key, item in value.items())}}}"
        if isinstance(value, torch._ops.OpOverload):
            return operator_name(value)
        if isinstance(value, Body):
            return f"constants[{value.name!r}]"
        if type(value).__name__ == "device":
            return f"torch.device({str(value)!r})"
        return repr(value) if isinstance(value, str | int | bool | type(None)) else str(value)

    def _view(self, value: View, how: str = "view") -> str:
        buffer = value.buffer.name
        if value.is_whole():
            return self.name(buffer)
        strided = value.strided()
        assert strided is not None
        strides, offset = strided
        start = python_text(offset - self.starts.get(buffer, ZERO))
        shape = _tuple(map(python_text, value.shape))
        return f"{how}({self.name(buffer)}, {shape}, {_tuple(map(python_text, strides))}, {start})"

    def _view_calls(self, value: ViewCalls) -> str:
        text = self.name(value.buffer.name)
        for call in value.calls:
            if call.target is operator.getitem:
                text = f"{text}[{call.args[0]}]"
                continue
            args = [text, *map(self._argument, call.args)]
            args += [f"{key}={self._argument(item)}" for key, item in call.kwargs.items()]
            text = f"{operator_name(call.target)}({', '.join(args)})"
        return text

    def _outputs(self) -> list[str]:
        """The results. The caller may write to them, which autograd forbids for a view that a function of its
        own made; so the first that shows part of our memory is made no view, and what else shows that memory
        (saved for backward, or taken out of autograd by ``detach``) a detached view of it: it needs no
        gradient where the first does, and the same version counter tells autograd of such writes."""
        shown = [item for item in self.loops.outputs if isinstance(item, View)]
        whole = {item.buffer.name for item in shown if item.is_whole()}
        given = self.inputs | set(self.loops.constants)
        found = []
        for place, value in enumerate(self.loops.outputs):
            if not isinstance(value, View):
                found.append(self._argument(value))
                continue
            if isinstance(value, ViewCalls):
                found.append(self._view_calls(value))
                continue
            buffer = value.buffer.name
            if place in self.loops.apart:
                found.append(f"{self.name(buffer)}.detach()")
                continue
            if buffer in given or value.is_whole():
                found.append(self._view(value))
                continue
            if buffer in whole or buffer in self.starts:
                found.append(f"{self._view(value)}.detach()")
                continue
            name, strided = self.name(buffer), value.strided()
            self.lines.append(f"{name} = {self._view(value, 'as_result')}")
            self.starts[buffer] = strided[1] if strided else ZERO
            found.append(name)
        return found


def uses_out_variant(call: LibraryCall) -> bool:
    """Whether a library call writes into memory from our pool."""
    return call.name in OUT_VARIANTS and not call.kwargs.get("out") and not call.elsewhere


def library_targets(program: FusedProgram) -> dict[str, str]:
    """The wrapper's globals for operators, each with the operator's full name."""
    found: dict[str, str] = {}
    for item in program.items:
        if isinstance(item, LibraryCall):
            found[library_name(item)] = str(item.target)
            given = tree_leaves([item.args, dict(item.kwargs)])
            found |= {operator_name(a): str(a) for a in given if isinstance(a, torch._ops.OpOverload)}
    if program.program.become:
        found[operator_name(_SET)] = str(_SET)
    for output in program.program.outputs:
        for view in output.calls if isinstance(output, ViewCalls) else ():
            if view.target is not operator.getitem:
                found[operator_name(view.target)] = str(view.target)
    return found


def library_name(call: LibraryCall) -> str:
    """The global that holds a library call's function."""
    return OUT_VARIANTS[call.name] if uses_out_variant(call) else operator_name(call.target)


def operator_name(target: Any) -> str:
    """The global that holds an operator. No buffer is called ``op_...``, so no local hides it."""
    return "op_" + "".join(char if char.isalnum() else "_" for char in str(target))


def _tuple(items: Iterable[str]) -> str:
    parts: Sequence[str] = list(items)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

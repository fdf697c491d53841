"""The stage values of the pipeline. Each is frozen, made once by one step, and prints as text.

::

    CellSource → CellFunction → FxGraph(s) → AtenGraph → LoopProgram → FusedProgram
               → KernelSource → CompiledModule

``LoopProgram`` lives in :mod:`nbcompile.compiler.loop_ir.nodes`, ``FusedProgram`` in
:mod:`nbcompile.compiler.loop_ir.fused`; the rest is here, below all the rooms that pass them on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from torch import fx

from nbcompile.record.compilation import Span


@dataclass(frozen=True)
class FxGraph:
    """One graph as Dynamo captured it. ``spans`` and ``ids`` are keyed by FX node name; ``callers`` are the
    places in the cell from which the function was called that it is a part of.

    A node that a rewrite put in has the id of a captured one it stands for; of those that stand for
    several, ``merged`` has all ids."""

    id: str  # g0
    module: fx.GraphModule
    ids: Mapping[str, str]
    spans: Mapping[str, tuple[Span, ...]]
    merged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    callers: tuple[Span, ...] = ()

    def as_text(self) -> str:
        return self.module.print_readable(print_output=False)


SMALL_BUFFER = 1 << 20
"""Bytes of CPU memory below which the C library's own free lists do as well as a pool."""
STEP_OF = "nbcompile_step_of"
SHOWS_A_MARK = "nbcompile_shows_a_mark"


@dataclass(frozen=True)
class AtenGraph:
    """A flat graph of ATen calls, functional but for trailing ``copy_`` into inputs.

    Every node's ``meta["val"]`` holds fake tensors (or symbolic ints) with the shape, dtype and
    stride that its result must have; ``meta[STEP_OF]`` the operator that we have written out in steps, of
    which this node is one, ``meta[SHOWS_A_MARK]`` that the caller is to see whether it is a conjugate or a
    negative by a mark. ``ids``, ``origins`` and ``spans`` are keyed by node name;
    ``origins`` are ids of FX nodes, or of joint nodes where there is a joint graph.
    """

    id: str  # g0.fw, g0.bw, g0.joint
    stage: Literal["forward", "backward", "joint"]
    module: fx.GraphModule
    ids: Mapping[str, str]
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    saved: tuple[str, ...] = ()  # names of nodes kept for the backward pass
    static_inputs: frozenset[int] = frozenset()  # positions of parameters and buffers
    names: Mapping[str, str] = field(default_factory=dict)  # input node → what the user calls it
    differentiable: bool = False  # autograd goes on to follow results that show an input

    def as_text(self) -> str:
        return self.module.print_readable(print_output=False)


def device_of(module: fx.GraphModule, inputs: Sequence[Any] = ()) -> torch.device:
    """Where a graph works: on the GPU if any of its tensors, or of its ``inputs``, is there. What a node
    gives stands in its ``meta`` as ``val``, or, where Dynamo has captured it, as ``example_value``."""
    made = (node.meta.get("val", node.meta.get("example_value")) for node in module.graph.nodes)
    for value in (*inputs, *made):
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, torch.Tensor) and item.device.type != "cpu":
                return item.device
    return torch.device("cpu")


GUESS = 8192
"""What a size that depends on data is taken to be, within its bounds, as Inductor takes it."""


def least_of(symbol: Any, env: Any) -> int | None:
    """The least value of a symbolic integer that the guards of its graph let by; None: there is none."""
    known = getattr(env, "var_to_range", {}).get(symbol)
    return int(known.lower) if known is not None and known.lower.is_Integer else None


def most_of(symbol: Any, env: Any) -> int | None:
    """The greatest value of a symbolic integer that the guards of its graph let by; None: there is none."""
    known = getattr(env, "var_to_range", {}).get(symbol)
    return int(known.upper) if known is not None and known.upper.is_Integer else None


def is_plain(value: torch.Tensor) -> bool:
    """Whether a copy of a tensor on another device surely has the strides that it has itself."""
    return all(isinstance(extent, int) for extent in value.shape) and value.is_contiguous()


def is_named(symbol: Any, env: Any) -> bool:
    """Whether Dynamo can write down a guard of a symbol: not where it does not know where it comes from (a
    nested tensor's greatest length), or only that it is an extent of the tensor that an input shows a part
    of. AOTAutograd gives that tensor to some graphs. Sizes that depend on data need none."""
    sources = getattr(env, "var_to_sources", {}).get(symbol, ())
    if not sources:
        return symbol not in _hints(env)
    return not all(map(_is_of_what_is_shown, sources))


def can_be_guarded(symbol: Any, env: Any) -> bool:
    """Whether a guard of a symbol can be asked for now: of one that is only known as a nested tensor's own
    size Dynamo has a name, and writes no guards (it compares the tensors that the nested one is made of)."""
    if not is_named(symbol, env):
        return False
    every = getattr(env, "var_to_sources", {})
    sources = every.get(symbol, ())
    parts = [source.base for known in every.values() for source in known if hasattr(source, "base")]
    nested = [part.base for part in parts if getattr(part, "member", "") == "_offsets"]
    return not sources or not all(getattr(source, "base", None) in nested for source in sources)


def _is_of_what_is_shown(source: Any) -> bool:
    if getattr(source, "member", "") == "_base":
        return True
    return hasattr(source, "base") and _is_of_what_is_shown(source.base)


def hint_of(symbol: Any, env: Any) -> int | None:
    """The value of a symbolic integer that its graph was traced with; None: it depends on data."""
    value = _hints(env).get(symbol)
    return None if value is None else int(value)


def is_ragged(size: torch.SymInt) -> bool:
    """Whether a symbolic integer stands for the extents that a nested tensor has along a dimension."""
    value = _hints(size.node.shape_env).get(size.node.expr)
    return type(value).__name__ == "SingletonInt"


def guess_of(symbol: Any, env: Any) -> int | None:
    """The value that a size is taken to have whose number depends on data (what ``nonzero`` finds); None for
    what is no such size."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    if not symbol_is_type(symbol, SymT.UNBACKED_INT):
        return None
    least, most = least_of(symbol, env), most_of(symbol, env)
    return max(least or 0, min(GUESS, GUESS if most is None else most))


def _hints(env: Any) -> Any:
    known = getattr(env, "backed_var_to_val", None)
    return known if known is not None else getattr(env, "var_to_val", {})


def guards_of(env: Any, names: Collection[str]) -> list[Any]:
    """What the guards of a graph say of the sizes of these names alone: sympy's relations."""
    said = (env.replace(guard.expr) for guard in getattr(env, "guards", ()))
    symbols = [(each, {str(symbol) for symbol in each.free_symbols}) for each in said]
    return [each for each, found in symbols if found and found.issubset(names)]


@dataclass(frozen=True)
class KernelText:
    """One printed kernel: its C (or Triton) text with a line map, inside a :class:`KernelSource`."""

    id: str
    name: str
    text: str
    lines: tuple[tuple[int, tuple[str, ...]], ...]  # (1-based line of text, loop ids)
    schedule: str


@dataclass(frozen=True)
class Argument:
    """One parameter of a Triton function: ``type`` is Triton's (``"*bf16"``, ``"i32"``, ``"i64"``),
    ``hint`` the value of a size when the graph was captured. ``ours``: memory that we allocate, so it
    is certainly aligned to 16 bytes. ``written``: memory that the function may write to."""

    name: str
    type: str
    hint: int = 0
    ours: bool = False
    written: bool = False


@dataclass(frozen=True)
class Config:
    """Values of a Triton function's compile-time constants, and how it is compiled: ``registers`` is the
    most that a thread may have (0: as many as the compiler likes)."""

    constants: Mapping[str, int]
    warps: int = 4
    stages: int = 1
    registers: int = 0

    def triton_options(self) -> dict[str, int | bool]:
        """How Triton is asked to compile. It may not make one instruction of a product and a sum: it would
        here and not there, and a value that two kernels compute would be two numbers. Nor may libdevice take
        subnormal numbers for 0, as Triton lets it: eager's rsqrt(1e-40) is 1e20, and its fmod no NaN."""
        chosen: dict[str, int | bool] = {"num_warps": self.warps, "num_stages": self.stages}
        if self.registers:
            chosen["maxnreg"] = self.registers
        return {**chosen, "enable_fp_fusion": False, "enable_reflect_ftz": False}


@dataclass(frozen=True)
class Launch:
    """One Triton function of a :class:`KernelSource`, and how to launch it.

    ``arguments`` are its run-time parameters in order; its compile-time constants follow them.
    ``grid`` has up to three Python expressions over the integer arguments, the constants and ``cdiv``.
    ``configs`` holds the heuristic's choice first, then other candidates for autotuning.
    ``together``: its programs wait for each other, so all must fit on the chip at once. ``early``: each
    program begins by waiting for the kernels launched before, so it may be launched before they have ended.
    """

    function: str
    kernel: str  # id of its KernelText
    arguments: tuple[Argument, ...]
    grid: tuple[str, ...]
    configs: tuple[Config, ...]
    together: bool = False
    early: bool = False


@dataclass(frozen=True)
class EntryPoint:
    """One function that the wrapper calls, of a kernel (the id of its text), with the names of its
    parameters."""

    symbol: str
    kernel: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class KernelSource:
    """All generated code of one graph: one source file of kernels, one Python wrapper that calls
    them, and what the wrapper needs bound by name: ``libraries`` maps its globals to operators
    (``aten.mm.default``), ``constants`` are names of tensors that the graph holds.

    ``repeatable``: it overwrites nothing and draws no random numbers, so a run that broke off can be
    done again.
    """

    graph: str
    language: Literal["c", "triton"]
    head: tuple[str, ...]  # what stands above the first kernel
    kernels: tuple[KernelText, ...]
    wrapper: str  # Python source defining call(args)
    entry_points: tuple[EntryPoint, ...]  # in the order the wrapper calls them
    libraries: Mapping[str, str] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    repeatable: bool = True
    launches: tuple[Launch, ...] = ()  # of Triton functions; a C function needs no more than its symbol
    steps: tuple[tuple[str, int], ...] = ()  # id of a kernel or call, and the wrapper's line where it begins

    @cached_property
    def source(self) -> str:
        """The whole file."""
        return self.file_of(self.kernels)

    def file_of(self, kernels: Iterable[KernelText]) -> str:
        """A file of some kernels, with what all of them need above them."""
        parts = [*self.head, *(kernel.text for kernel in kernels)]
        return ("\n\n" if self.language == "c" else "\n\n\n").join(parts) + "\n"

    def line_of(self, kernel: str) -> int:
        """How many lines of the file stand above a kernel (an id)."""
        place = next(n for n, item in enumerate(self.kernels) if item.id == kernel)
        return self.file_of(self.kernels[:place]).count("\n") + (1 if self.language == "c" else 2)

    def functions_of(self, kernel: str) -> tuple[EntryPoint, ...]:
        """The functions that the wrapper calls for a kernel."""
        return tuple(item for item in self.entry_points if item.kernel == kernel)

    def as_text(self) -> str:
        return self.source


@dataclass(frozen=True)
class KernelCall:
    """One call of a function of a kernel: ``run(*arguments)`` makes it. ``arguments`` are tensors where the
    function takes memory, else integers."""

    source: KernelSource
    kernel: str
    symbol: str
    run: Callable[..., None]
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class KernelEdit:
    """A kernel (by id) that is to be compiled otherwise than the compiler would: ``text`` in place of its
    own, and ``around``, which is given each call of its functions, and has to make it."""

    kernel: str
    text: str | None = None
    around: Callable[[KernelCall], None] | None = None


@dataclass(frozen=True)
class Portable:
    """What another process needs to call a graph's code: ``source`` less the text of its kernels, the key of
    their library in the cache on disk (empty: there are none), the tensors that the graph holds, and what
    Python made of the wrapper, marshalled."""

    source: KernelSource
    wrapper: bytes
    library: str
    constants: Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class CompiledModule:
    """Runnable code for one graph. ``call`` takes one list of inputs, empties it, and returns the
    outputs as a tuple (torch's boxed calling convention). ``portable``: None where no other process could
    make the same of what is kept on disk."""

    graph: str
    call: Callable[[list[Any]], Sequence[torch.Tensor | int | None]]
    from_cache: bool = False
    portable: Portable | None = None

    def as_text(self) -> str:
        return f"compiled module of {self.graph}"

"""One Triton function → machine code, in the thread that asks.

The backend's stages are run here rather than by ``triton.compile``, which first hashes Triton's own
library (0.2 to 0.9 s a process) and files every text in a second cache.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import subprocess
import tempfile
import textwrap
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.compiler.runtime.gpu import libdevice
from nbcompile.compiler.runtime.gpu.ptx_halves import one_by_one
from nbcompile.compiler.runtime.gpu.tools import amdgcn_resources, cubin_resources, gpu_target, triton_module
from nbcompile.compiler.stages import Config, Launch
from nbcompile.errors import OUR_BUG, CodegenError, NbcompileError, ToolchainError
from nbcompile.targets import Target

ASSUMED_DIVISOR, LEAST_DIVISOR = 16, 4
"""Bytes that pointers are assumed to be multiples of, and the most that sizes are: an access of 16 bytes
needs both. Of numbers of 2 bytes a size that is a multiple of 8 will do, of 4 bytes the least."""
Assumed = tuple[tuple[int, int], ...]
"""Positions of arguments, and the powers of two that they are taken to be multiples of."""

_ASSEMBLE_SECONDS = 600.0


@dataclass(frozen=True)
class Built:
    """One Triton function, compiled with one config for one chip.

    ``texts`` maps each stage to its text: ``ttir``, ``ttgir``, ``llir`` and ``ptx`` or ``amdgcn``.
    ``kind`` is the binary's, ``"cubin"`` or ``"hsaco"``. ``assumed``: which arguments are taken to be
    multiples of what. ``registers`` and ``spill_bytes`` are a thread's, ``shared_bytes`` a
    program's, ``scratch_bytes`` a program's in global memory, aligned to ``scratch_align``.
    """

    function: str
    symbol: str
    target: str
    kind: str
    binary: bytes
    texts: Mapping[str, str]
    config: Config
    assumed: Assumed
    warps: int
    shared_bytes: int
    registers: int | None
    spill_bytes: int | None
    scratch_bytes: int = 0
    scratch_align: int = 1


class _OneVendor:
    """Lets many threads compile for one vendor's chips at a time. LLVM's options are global to the process,
    and Triton's two backends set them differently: together they were seen to change each other's code."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._vendor = ""
        self._inside = 0

    @contextlib.contextmanager
    def of(self, vendor: str) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or self._vendor == vendor)
            self._vendor = vendor
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()


_VENDOR = _OneVendor()
_LOADING = threading.Lock()
_FRONT_END = threading.Lock()
"""Held while Triton reads a function's syntax: Python 3.11 fails where two threads parse at once, and all of
it is Python anyway."""


def load_file(text: str) -> types.ModuleType:
    """The module of a generated file, run once a process from a copy in the cache folder (Triton reads
    the source of its functions, and tracebacks name it)."""
    with _LOADING:
        return _load_file(text)


@functools.lru_cache(maxsize=64)
def _load_file(text: str) -> types.ModuleType:
    triton_module()
    name = key("triton-file", text)
    cache = DiskCache.shared()
    entry = cache.get(name) or cache.put(name, {"kernels.py": text.encode()})
    path = str(entry.path("kernels.py")) if entry is not None else f"<nbcompile {name[:12]}>"
    # Kept in memory too: the cache may drop the file while this process still compiles from it.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    module = types.ModuleType(f"nbcompile_triton_{name[:12]}")
    module.__file__ = path
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except Exception as error:
        raise CodegenError(
            f"the generated Triton file cannot be run: {type(error).__name__}: {error}."
        ) from error
    return module


def compile_function(
    text: str, launch: Launch, config: Config, target: Target, assumed: Assumed, assemble: bool = True
) -> Built:
    """Compile one function of the file ``text``, with the arguments at the positions ``assumed`` taken to be
    multiples of 16; without ``assemble`` up to the assembly text only. Raises CodegenError where Triton
    refuses it, ToolchainError where ptxas does or Triton is missing."""
    return read_function(text, launch, config, target, assumed, assemble)()


def read_function(
    text: str, launch: Launch, config: Config, target: Target, assumed: Assumed, assemble: bool = True
) -> Callable[[], Built]:
    """:func:`compile_function` in two parts: here Triton reads the syntax, which is Python; what is returned
    does the rest, in any thread, and hardly needs Python's lock. Both raise as that does."""
    triton_module()
    function = _function(load_file(text), launch, config)
    with _refusal(launch, target, text):
        read = _read(function, launch, config, target, assumed)

    def finish() -> Built:
        facts: dict[str, Any] = {"num_ctas": 1}  # Triton 3.7 reads it on the way to AMD code
        made = None
        with _refusal(launch, target, text), _VENDOR.of(target.kind):
            try:
                made = _run_stages(read, launch, target, assemble, facts)
            except _NotInPartError:
                whole = _read(function, launch, config, target, assumed, part=False)
                made = _run_stages(whole, launch, target, assemble, facts)
            except RuntimeError:
                # A pass of Triton's that lays tiles out (remove-layout-conversions, of 3.6) breaks some
                # loops; the layouts of fewer warps are simpler.
                if config.warps < 2:
                    raise
        if made is None:
            fewer = replace(config, warps=config.warps // 2)
            return compile_function(text, launch, fewer, target, assumed, assemble)
        shared, stages = int(facts.get("shared") or 0), int(config.constants.get("STAGES", 1))
        if 0 < target.shared_bytes < shared and stages > 1:
            # it could not be launched; with fewer blocks under way it computes the same
            less = replace(config, constants={**config.constants, "STAGES": stages - 1})
            return compile_function(text, launch, less, target, assumed, assemble)
        kind = "cubin" if target.kind == "cuda" else "hsaco"
        binary = made.pop(kind)
        resources = cubin_resources(binary) if kind == "cubin" else amdgcn_resources(made["amdgcn"])
        return Built(
            function=launch.function,
            symbol=str(facts["name"]),
            target=target.name,
            kind=kind,
            binary=binary,
            texts=made,
            config=replace(config, constants=dict(config.constants)),
            assumed=assumed,
            warps=int(facts.get("num_warps") or config.warps),
            shared_bytes=shared,
            registers=resources.registers,
            spill_bytes=resources.spill_bytes,
            scratch_bytes=int(facts.get("global_scratch_size") or 0),
            scratch_align=int(facts.get("global_scratch_align") or 1),
        )

    return finish


@contextlib.contextmanager
def _refusal(launch: Launch, target: Target, text: str) -> Iterator[None]:
    """Triton's errors as ours."""
    try:
        yield
    except NbcompileError:
        raise
    except Exception as error:
        told, line = _reason(error, text)
        refused = CodegenError(
            f"Triton refuses kernel {launch.function} for {target.name}: {told}.", advice=OUR_BUG
        )
        refused.function, refused.file_line = launch.function, line
        raise refused from error


@dataclass(frozen=True)
class _Read:
    """A function that Triton has read: its module, and the backend and options for the stages."""

    module: Any
    context: Any  # the module lives in it
    backend: Any
    options: Any
    part: bool  # only the common part of libdevice is linked


class _NotInPartError(Exception):
    """The function calls one of libdevice that the common part lacks."""


def _read(
    function: Any, launch: Launch, config: Config, target: Target, assumed: Assumed, part: bool = True
) -> _Read:
    compiler = triton_module("triton.compiler.compiler")
    ir = triton_module("triton._C.libtriton").ir
    chip = gpu_target(target)
    types_of = {item.name: item.type for item in launch.arguments}
    source = compiler.ASTSource(
        function,
        {name: types_of.get(name, "constexpr") for name in function.arg_names},
        {(function.arg_names.index(name),): value for name, value in config.constants.items()},
        {(n,): [["tt.divisibility", divisor]] for n, divisor in assumed},
    )
    backend = compiler.make_backend(chip)
    chosen: dict[str, Any] = config.triton_options()
    library = libdevice.common_part() if part and target.kind == "cuda" else None
    if library:
        chosen["extern_libs"] = {"libdevice": library}
    if target.kind != "cuda":
        chosen.pop("maxnreg", None)
    options = backend.parse_options(chosen)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    with _FRONT_END:
        module = source.make_ir(
            chip, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
        )
    return _Read(module, context, backend, options, library is not None)


def _run_stages(
    read: _Read, launch: Launch, target: Target, assemble: bool, facts: dict[str, Any]
) -> dict[str, Any]:
    """What each stage of Triton's backend makes, by its kind; what they tell is put into ``facts``."""
    steps: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    read.backend.add_stages(steps, read.options, triton_module("triton.backends.compiler").Language.TRITON)
    value = read.module
    made: dict[str, Any] = {}
    for kind, step in steps.items():
        if kind in ("cubin", "hsaco") and not assemble:
            value = b""
        elif kind == "cubin":
            value = _assemble(value, read.options, int(target.arch), launch.function)
        else:
            value = step(value, facts)
        if kind == "ptx":
            value = one_by_one(value)
        made[kind] = value if isinstance(value, bytes) else str(value)
        if kind == "llir" and read.part and libdevice.is_missing(made[kind]):
            raise _NotInPartError
    return made


def _function(module: types.ModuleType, launch: Launch, config: Config) -> Any:
    """The Triton function of a launch; CodegenError unless each of its parameters has a type or a value."""
    function = getattr(module, launch.function, None)
    if function is None:
        raise CodegenError(f"the generated Triton file has no function {launch.function}.")
    if not isinstance(function, triton_module("triton.runtime.jit").JITFunction):
        raise ToolchainError(
            f"{launch.function} is no Triton function that can be compiled.",
            advice="Unset TRITON_INTERPRET, which turns Triton's compiler off.",
        )
    expected = [*(item.name for item in launch.arguments), *config.constants]
    if (
        sorted(expected) != sorted(function.arg_names)
        or expected[: len(launch.arguments)] != function.arg_names[: len(launch.arguments)]
    ):
        raise CodegenError(
            f"kernel {launch.function} has the parameters {', '.join(function.arg_names)}, "
            f"and its launch gives {', '.join(expected)}."
        )
    return function


def _assemble(ptx: str, options: Any, arch: int, function: str) -> bytes:
    """PTX → cubin, as Triton's own last stage does it, which on failure prints the whole file."""
    nvidia = triton_module("triton.backends.nvidia.compiler")
    with tempfile.TemporaryDirectory(prefix="nbcompile-ptx-") as folder:
        given, out = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        given.write_text(ptx)
        command = [
            nvidia.get_ptxas(arch).path,
            "-lineinfo",
            f"--gpu-name={nvidia.sm_arch_from_capability(arch)}",
        ]
        if not options.enable_fp_fusion:
            command.append("--fmad=false")
        if options.ptx_options:
            command += options.ptx_options.split()
        try:
            run = subprocess.run(
                [*command, str(given), "-o", str(out)], capture_output=True, text=True,
                timeout=_ASSEMBLE_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"ptxas cannot assemble kernel {function}: {error}.") from error
        if run.returncode != 0:
            lines = [line.strip() for line in run.stderr.splitlines() if line.strip()]
            told = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
            refused = ToolchainError(f"ptxas refuses kernel {function} for cuda:{arch}: {told.rstrip('.')}.")
            refused.output = run.stderr or told
            raise refused
        return out.read_bytes()


def _reason(error: BaseException, file: str) -> tuple[str, int | None]:
    """What went wrong, in one line: of Triton's own errors the innermost, with the line it points at, and the
    number of that line in the file."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    node, text = getattr(error, "node", None), getattr(error, "src", None)
    told = getattr(cause, "error_message", None) or str(cause) or type(cause).__name__
    told = textwrap.shorten(str(told), 300, placeholder=" ...").rstrip(".")
    if isinstance(text, str) and node is not None and hasattr(node, "lineno"):
        lines = text.splitlines()
        if 0 < node.lineno <= len(lines):
            before, found, _ = file.partition(text.rstrip())
            number = before.count("\n") + node.lineno if found else None
            return f"{told} (in `{lines[node.lineno - 1].strip()}`)", number
    return told, None

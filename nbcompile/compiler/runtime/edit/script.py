"""A stand-alone Python script for one kernel: its text, how it is built or launched, inputs, and times.

The script needs torch, and a C compiler or Triton; nothing of this package. What it holds of the user's data
are shapes, strides, types, and the range of integers (an index must be one).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nbcompile.compiler.runtime.bind import EXTRA_FLAGS
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.gpu.grid import grid_of
from nbcompile.compiler.runtime.gpu.text import definitions
from nbcompile.compiler.stages import KernelCall, KernelText, Launch

_IN_TRITON = frozenset("exp exp2 log log2 sin cos sqrt rsqrt erf floor ceil abs fma".split())
"""What Triton's language has too, so that its interpreter can stand in for libdevice's."""


def script_of(calls: Sequence[KernelCall]) -> str:
    """The script of one kernel, given the calls of its functions in one run, at least one."""
    call = calls[0]
    kernel = next(item for item in call.source.kernels if item.id == call.kernel)
    several = dict.fromkeys(item.symbol for item in calls)
    first = [next(item for item in calls if item.symbol == symbol) for symbol in several]
    if call.source.language == "c":
        return _c_script(kernel, first, _Memory(_SCRIPT_NAMES))
    return _triton_script(kernel, first, _Memory(_SCRIPT_NAMES.union(definitions(call.source.source))))


class _Memory:
    """The example inputs: one variable a tensor, also where two functions share it. ``taken`` are names that
    mean something else in the script."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = set(taken)
        self.lines: list[str] = []
        self.zeroed: list[str] = []
        self._names: dict[tuple[int, Any, Any], str] = {}

    def name(self, wanted: str, value: Any) -> str:
        """The variable, or the number, that stands for an argument."""
        if not isinstance(value, torch.Tensor):
            return str(int(value))
        key = value.data_ptr(), value.shape, value.stride()
        if key in self._names:
            return self._names[key]
        name = wanted if wanted not in self._taken else f"{wanted}_{len(self._names)}"
        self._taken.add(name)
        self._names[key] = name
        shape, strides = tuple(value.shape), value.stride()
        low, high = _range(value)
        limits = f", {low}, {high}" if low is not None else ""
        self.lines.append(f"{name} = example({shape}, {strides}, {value.dtype}{limits})")
        if low == high == 0:
            self.zeroed.append(name)
        return name


def _range(value: torch.Tensor) -> tuple[int | None, int | None]:
    """The least and largest of whole numbers."""
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        return None, None
    return (int(value.min()), int(value.max())) if value.numel() else (0, 0)


_EXAMPLE = '''
def example(shape, strides, dtype, low=0, high=1):
    """A tensor laid out as the kernel wants it, with random contents."""
    out = torch.empty_strided(shape, strides, dtype=dtype, device=DEVICE)
    if dtype.is_floating_point or dtype.is_complex:
        return out.copy_(torch.randn(shape).to(dtype))
    if dtype == torch.bool:
        return out.copy_(torch.rand(shape) < 0.5)
    return out.copy_(torch.randint(low, high + 1, shape))
'''

_TIMING = """
def measure(rounds=ROUNDS):
    run()
    seconds = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        run()
        synchronize()
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    return seconds


if __name__ == "__main__":
    seconds = measure()
    tenth = len(seconds) // 10
    median, fast, slow = (seconds[place] * 1e6 for place in (len(seconds) // 2, tenth, -1 - tenth))
    print(f"{NAME}: median {median:.1f} us, from {fast:.1f} to {slow:.1f} (10th to 90th percentile)")
"""


# -- C ----------------------------------------------------------------------------------------------


def _c_script(kernel: KernelText, calls: Sequence[KernelCall], memory: _Memory) -> str:
    source = calls[0].source
    toolchain, text = find_toolchain(), source.file_of((kernel,))
    with tempfile.TemporaryDirectory(prefix="nbcompile-") as folder:
        needed = toolchain.compile(text, Path(folder) / "kernel.so", EXTRA_FLAGS)
    runs = []
    for call in calls:
        names = next(item.parameters for item in source.entry_points if item.symbol == call.symbol)
        passed = []
        for name, value in zip(names, call.arguments, strict=True):
            if isinstance(value, torch.Tensor):
                passed.append(f"{memory.name(name, value)}.data_ptr()")
            else:
                passed.append("ctypes.addressof(status)" if name == "status" else str(int(value)))
        runs.append(f"    library.{call.symbol}({', '.join(f'ctypes.c_void_p({item})' for item in passed)})")
    status = (
        ["status = ctypes.c_int(0)  # an index out of range sets it"] if "status" in "".join(runs) else []
    )
    return "\n".join(
        [
            f'"""{kernel.name}: one kernel made by nbcompile, by itself.',
            "",
            'It is built by the C compiler named below (or in $CC), called with random inputs, and timed."""',
            "",
            "import ctypes\nimport os\nimport shlex\nimport subprocess\nimport tempfile\nimport time",
            "from pathlib import Path",
            "",
            "import torch  # its copy of OpenMP's library is the one that the kernel's threads come from",
            "",
            f"NAME = {json.dumps(kernel.name)}",
            'DEVICE = "cpu"',
            "ROUNDS = 200",
            f"COMPILER = shlex.split(os.environ.get('CC', '')) or {list(toolchain.command)!r}",
            f"FLAGS = {[*toolchain.flags, *EXTRA_FLAGS, *needed]!r}",
            f"LIBRARIES = {list(toolchain.libraries)!r}",
            f"SOURCE = {_quoted(text)}",
            "",
            _C_BUILD,
            _EXAMPLE,
            "",
            "def synchronize():\n    pass",
            "",
            "",
            "library = build()",
            "torch.manual_seed(0)",
            *memory.lines,
            *status,
            "",
            "",
            "def run():",
            *runs,
            "",
            _TIMING,
        ]
    )


_C_BUILD = '''
def build():
    """The shared library of SOURCE."""
    folder = Path(tempfile.mkdtemp(prefix="kernel-"))
    (folder / "kernel.c").write_text(SOURCE)
    command = [*COMPILER, *FLAGS, str(folder / "kernel.c"), "-o", str(folder / "kernel.so"), *LIBRARIES]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))
'''


_SCRIPT_NAMES = frozenset(
    "ctypes os shlex subprocess tempfile time torch triton tl library status run measure example build "
    "synchronize seconds libdevice gdc_wait Path".split()
)


def _quoted(text: str) -> str:
    plain = "'''" not in text and not text.endswith(("'", "\\"))
    return f"r'''\n{text}'''" if plain else repr(text)


# -- Triton -----------------------------------------------------------------------------------------


def _triton_script(kernel: KernelText, calls: Sequence[KernelCall], memory: _Memory) -> str:
    source = calls[0].source
    first, *helpers = source.head
    imports = [line for line in first.splitlines() if not line.startswith("#")]
    launches = {item.function: item for item in source.launches}
    runs = [_launch_line(launches[call.symbol], call, memory) for call in calls]
    zeroed = [f"    {name}.zero_()" for name in memory.zeroed]
    missing = sorted(set(re.findall(r"\blibdevice\.(\w+)", source.file_of((kernel,)))) - _IN_TRITON)
    return "\n".join(
        [
            f'"""{kernel.name}: one kernel made by nbcompile, by itself.',
            "",
            "It is launched with random inputs, and timed; with no GPU in Triton's interpreter (slow).",
            '"""',
            "",
            "import os\nimport time",
            "",
            "import torch",
            "",
            'DEVICE = "cuda" if torch.cuda.is_available() else "cpu"',
            'if DEVICE == "cpu":',
            '    os.environ["TRITON_INTERPRET"] = "1"',
            *(item for item in imports if "extra" not in item),
            "",
            'if DEVICE == "cpu":',
            *_stand_ins(missing),
            *_on_gpu([item for item in imports if "extra" in item]),
            "",
            f"NAME = {json.dumps(kernel.name)}",
            'ROUNDS = 200 if DEVICE == "cuda" else 3',
            "",
            "\n\n\n".join(helpers),
            "",
            "",
            kernel.text,
            "",
            _EXAMPLE,
            "",
            "def synchronize():",
            '    if DEVICE == "cuda":',
            "        torch.cuda.synchronize()",
            "",
            "",
            "torch.manual_seed(0)",
            *memory.lines,
            "",
            "",
            "def run():",
            *zeroed,
            *runs,
            "",
            _TIMING,
        ]
    )


def _launch_line(launch: Launch, call: KernelCall, memory: _Memory) -> str:
    config = launch.configs[0]
    sizes, passed = {}, []
    for item, value in zip(launch.arguments, call.arguments, strict=True):
        if not isinstance(value, torch.Tensor):
            sizes[item.name] = int(value)
        passed.append(memory.name(item.name.removesuffix("_ptr"), value))
    given = [*passed, *(f"{name}={value}" for name, value in config.constants.items())]
    given += [f"{name}={value}" for name, value in config.triton_options().items()]
    gpu = {"launch_cooperative_grid": launch.together, "launch_pdl": launch.early}
    chosen = ", ".join(f'"{name}": True' for name, value in gpu.items() if value)
    more = f', **({{{chosen}}} if DEVICE == "cuda" else {{}})' if chosen else ""
    return f"    {launch.function}[{grid_of(launch, config, sizes)}]({', '.join(given)}{more})"


def _stand_ins(missing: Sequence[str]) -> list[str]:
    """What the interpreter lacks, in Triton's own language."""
    if missing:
        names = ", ".join(f"libdevice.{name}" for name in missing)
        return [f'    raise SystemExit("Triton\'s interpreter lacks {names}: this kernel needs a GPU")']
    functions = [
        f"        {name} = staticmethod(lambda *args: tl.{name}(*args))" for name in sorted(_IN_TRITON)
    ]
    return [
        "    class libdevice:",
        *functions,
        "",
        "    @triton.jit",
        "    def gdc_wait():",
        "        pass",
    ]


def _on_gpu(imports: Sequence[str]) -> list[str]:
    return ["else:", *(f"    {item}" for item in imports)] if imports else []

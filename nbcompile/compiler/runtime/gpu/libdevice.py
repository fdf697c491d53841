"""The functions of NVIDIA's libdevice that kernels mostly call, in a file of their own.

Triton reads the whole library again for each function that calls any of it, 27 ms; this part takes 2, and
what is linked is the same.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from nbcompile.compiler.runtime.gpu.tools import triton_module

_OF_ONE = (
    "rsqrtf", "exp2f", "expf", "expm1f", "logf", "log2f", "log1pf", "sinf", "cosf", "tanhf", "erff", "erfcf",
)  # fmt: skip
_DECLARED = "\n".join(
    (
        "module {",
        *(f"llvm.func @__nv_{name}(f32) -> f32" for name in _OF_ONE),
        "llvm.func @__nv_fast_fdividef(f32, f32) -> f32",
        "llvm.func @__nv_umulhi(i32, i32) -> i32",
        "}",
    )
)
_LOCK = threading.Lock()
_MISSING = re.compile(r"^declare [^\n]*@__nv_", re.MULTILINE)


def common_part() -> str | None:
    """The path of that file, made at the first call of a process; None where a library of the user's is to be
    read, or the file was deleted."""
    if os.environ.get("TRITON_LIBDEVICE_PATH"):
        return None
    with _LOCK:
        name: str = _made().name
    return name if os.path.exists(name) else None


def is_missing(llir: str) -> bool:
    """Whether a module calls a function of libdevice that was not linked."""
    return _MISSING.search(llir) is not None


@functools.cache
def _made() -> Any:
    """The open temporary file, which lives as long as the process."""
    native = triton_module("triton._C.libtriton")
    ir, llvm = native.ir, native.llvm
    whole = Path(triton_module("triton.backends.nvidia.compiler").__file__).parent / "lib/libdevice.10.bc"
    file = tempfile.NamedTemporaryFile("w+", prefix="nbcompile-libdevice-", suffix=".ll")  # noqa: SIM115
    file.write(_DECLARED)
    file.flush()
    context = ir.context()
    ir.load_dialects(context)
    native.nvidia.load_dialects(context)
    llvm.init_targets()
    into = llvm.context()
    module = llvm.to_module(ir.parse_mlir_module(file.name, context), into)
    llvm.attach_datalayout(module, "nvptx64-nvidia-cuda", "sm_80", "")
    llvm.link_extern_libs(module, [str(whole)])
    file.seek(0)
    file.truncate()
    # linking hides what it brings, and these are to be found once more
    file.write(re.sub(r"^define internal (?=[^\n]*@__nv_)", "define ", str(module), flags=re.MULTILINE))
    file.flush()
    return file

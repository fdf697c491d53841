"""Helpers of generated C as functions of a shared library, to be called with numbers."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import torch

from nbcompile.compiler.codegen.c.expressions import CWriter
from nbcompile.compiler.runtime.c.toolchain import find_toolchain

C_TYPES = {
    torch.float32: ctypes.c_float, torch.float64: ctypes.c_double, torch.int64: ctypes.c_int64,
    torch.int32: ctypes.c_int32, torch.int8: ctypes.c_int8, torch.uint8: ctypes.c_uint8,
    torch.uint16: ctypes.c_uint16,
}  # fmt: skip


class Exported:
    """Every helper that a writer has noted."""

    def __init__(self, writer: CWriter) -> None:
        declared = [
            f"{kind} {name}({', '.join([kind] * arity)});" for name, (kind, arity) in writer.functions.items()
        ]
        text = "\n".join([*declared, *writer.helpers.values()])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "helpers.so"
            find_toolchain().compile(text.replace("static inline ", ""), path)
            self.library = ctypes.CDLL(str(path))

    def call(self, name: str, dtype: torch.dtype, *args: float, out: torch.dtype | None = None) -> float:
        """The function ``name`` of arguments of a type; its result has the same one, or the type ``out``."""
        function = getattr(self.library, name)
        function.argtypes, function.restype = [C_TYPES[dtype]] * len(args), C_TYPES[out or dtype]
        result: float = function(*args)
        return result

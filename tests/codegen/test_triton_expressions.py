"""Every scalar operation of the loop IR in Triton: run in the interpreter against torch, compiled for chips."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from nbcompile.codegen.triton_expressions import (
    HELPERS,
    LIBDEVICE,
    POINTER_TYPES,
    TRITON_TYPES,
    TritonWriter,
    reserved_names,
)
from nbcompile.loop_ir.expr import COMPARISONS, SCALAR_OPS
from nbcompile.loop_ir.interpret import REFERENCE
from nbcompile.loop_ir.philox import uniform

from ..lower.harness import compare
from .running import same_zeros
from .test_scalar_operations import EITHER_ZERO, INTEGERS, NO_ZERO, OPERATIONS, STORED, pairs

triton = pytest.importorskip("triton")

BLOCK = 512


class File:
    """A generated file of elementwise kernels, one an expression."""

    def __init__(self) -> None:
        self.writer = TritonWriter()
        self.kernels: dict[str, str] = {}
        self.signatures: dict[str, dict[str, str]] = {}

    def kernel(self, name: str, inputs: dict[str, torch.dtype], text: str, out: torch.dtype) -> None:
        """A kernel that stores ``text`` of its loaded inputs; half types are loaded as float32."""
        lines = ["@triton.jit", f"def {name}({', '.join(f'{item}_ptr' for item in inputs)}, out_ptr, n):"]
        lines.append(f"    i = tl.arange(0, {BLOCK})")
        for item, dtype in inputs.items():
            wide = ".to(tl.float32)" if TRITON_TYPES[dtype] == "tl.float32" else ""
            lines.append(f"    {item} = tl.load({item}_ptr + i, i < n){wide}")
        lines.append(f"    tl.store(out_ptr + i, {text}, i < n)")
        self.kernels[name] = "\n".join(lines)
        pointers = {f"{item}_ptr": POINTER_TYPES[dtype] for item, dtype in inputs.items()}
        self.signatures[name] = {**pointers, "out_ptr": POINTER_TYPES[out], "n": "i32"}

    def text(self) -> str:
        head = "\n".join(["import triton", "import triton.language as tl", *self.writer.imports.values()])
        return "\n\n\n".join([head, *self.writer.helpers.values(), *self.kernels.values()]) + "\n"

    def load(self, folder: Path, name: str) -> ModuleType:
        path = folder / f"{name}.py"
        path.write_text(self.text())
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def compile(self, folder: Path, name: str, target: str, only: list[str] | None = None) -> dict[str, str]:
        """Assembly of every kernel for one chip, by name."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        backend, _, arch = target.partition(":")
        chip = GPUTarget(backend, int(arch) if arch.isdigit() else arch, 32 if backend == "cuda" else 64)
        module = self.load(folder, name)
        made = {}
        for kernel in only or self.kernels:
            source = ASTSource(getattr(module, kernel), self.signatures[kernel], {}, {})
            made[kernel] = triton.compile(source, target=chip).asm["ptx" if backend == "cuda" else "amdgcn"]
        return made

    def run(self, folder: Path, name: str, inputs: dict[str, list[torch.Tensor]],
            outputs: dict[str, torch.dtype]) -> dict[str, torch.Tensor]:
        """Results of every kernel in the interpreter, as long as its first input."""
        from nbcompile.runtime.triton_numpy import HELPERS as REPLACED
        from nbcompile.runtime.triton_numpy import interpreting, libdevice

        results = {}
        with interpreting():
            module = self.load(folder, name)
            module.libdevice = libdevice
            for helper in REPLACED.keys() & self.writer.helpers.keys():
                setattr(module, helper, REPLACED[helper])
            for kernel in self.kernels:
                size = inputs[kernel][0].numel()
                results[kernel] = torch.empty(size, dtype=outputs[kernel])
                getattr(module, kernel)[(1,)](*inputs[kernel], results[kernel], size)
        return results


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@functools.cache
def operations(dtype: torch.dtype) -> tuple[File, dict[str, torch.dtype]]:
    """A kernel for every operation of a type, and the types of their results."""
    file, outputs = File(), {}
    for name in OPERATIONS[dtype]:
        names = ["x", "y"][: SCALAR_OPS[name]]
        outputs[f"{name}_"] = torch.bool if name in COMPARISONS else dtype
        text = file.writer.op(name, names, outputs[f"{name}_"], dtype)
        file.kernel(f"{name}_", dict.fromkeys(names, dtype), text, outputs[f"{name}_"])
    return file, outputs


@pytest.mark.parametrize("dtype", OPERATIONS, ids=str)
def test_operations_agree_with_torch(dtype, tmp_path):
    x, y = pairs(dtype)
    safe = torch.where(y == 0, torch.ones_like(y), y)
    file, outputs = operations(dtype)
    inputs = {
        name: [x, safe if name in NO_ZERO and not dtype.is_floating_point else y][: SCALAR_OPS[name]]
        for name in OPERATIONS[dtype]
    }
    got = file.run(tmp_path, "kernels", {f"{name}_": args for name, args in inputs.items()}, outputs)
    wrong = []
    for name, args in inputs.items():
        mine, want = got[f"{name}_"], outputs[f"{name}_"]
        expected = REFERENCE[name](*args).to(want)
        wide = expected
        if dtype == torch.float32 and want == dtype:
            wide = REFERENCE[name](*(item.double() for item in args))
        try:
            compare([mine], [expected], [wide.to(torch.float64) if wide.is_floating_point() else wide])
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
            continue
        if want.is_floating_point and name not in EITHER_ZERO and not same_zeros(mine, expected):
            wrong.append(f"{name}: the sign of a zero")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", OPERATIONS, ids=str)
def test_operations_compile_for_hopper(dtype, tmp_path):
    file, _ = operations(dtype)
    made = file.compile(tmp_path, "kernels", "cuda:90")
    assert made.keys() == file.kernels.keys()
    assert not [name for name, text in made.items() if ".target sm_90a" not in text]

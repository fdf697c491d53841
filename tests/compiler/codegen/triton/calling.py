"""Helpers of generated Triton files as they are printed, called with numbers in the interpreter."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
import torch

from nbcompile.compiler.codegen.triton.expressions import HELPERS, POINTER_TYPES, TritonWriter
from nbcompile.compiler.runtime.interpreter.interpret import interpreted
from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch

pytest.importorskip("triton")

Given = torch.Tensor | Sequence[float]


def evaluated(text: str, out: torch.dtype, size: int, **inputs: torch.Tensor) -> torch.Tensor:
    """``text``, which calls helpers, of tiles that are as long as ``inputs``: ``size`` numbers (0: one)."""
    writer = TritonWriter()
    for word in re.findall(r"\w+", text):
        if word in HELPERS:
            writer.helper(word)
    lines = ["@triton.jit", f"def kernel({', '.join(f'{name}_ptr' for name in (*inputs, 'out'))}):"]
    for name, tensor in inputs.items():
        lines.append(f"    {name} = tl.load({name}_ptr + tl.arange(0, {tensor.numel()}))")
    place = f" + tl.arange(0, {size})" if size else ""
    lines.append(f"    tl.store(out_ptr{place}, {text})")
    head = ["import triton", "import triton.language as tl", *writer.imports.values()]
    whole = "\n\n\n".join(["\n".join(head), *writer.helpers.values(), "\n".join(lines)]) + "\n"
    # under names of their own: the interpreter has numpy's in place of some
    whole = re.sub(rf"(?<!\.)\b({'|'.join(writer.helpers)})\(", r"\1_(", whole)
    whole = re.sub(rf", ({'|'.join(writer.helpers)})\)", r", \1_)", whole)
    result = torch.empty(max(size, 1), dtype=out)
    types = {name: POINTER_TYPES[tensor.dtype] for name, tensor in (inputs | {"out": result}).items()}
    arguments = tuple(Argument(f"{name}_ptr", kind) for name, kind in types.items())
    launch = Launch("kernel", "k0", arguments, ("1",), (Config({}),))
    source = KernelSource("g0.fw", "triton", (whole,), (), "", (), launches=(launch,))
    interpreted(source)["kernel"](*inputs.values(), result)
    return result


def call(
    name: str, *args: Given, dtype: torch.dtype = torch.float32, out: torch.dtype | None = None
) -> list[float]:
    """The helper of each number (or pair of numbers, ...)."""
    given = [torch.as_tensor(arg, dtype=dtype) for arg in args]
    count = len(given[0])
    whole = 1 << (count - 1).bit_length()
    tiles = {f"x{n}": torch.cat([each, each[:1].expand(whole - count)]) for n, each in enumerate(given)}
    found = evaluated(f"{name}({', '.join(tiles)})", out or dtype, whole, **tiles)
    return found[:count].tolist()

"""A record that the compiler itself makes of a small cell."""

from __future__ import annotations

import linecache
from functools import cache
from typing import Any

import torch

from nbcompile.api import compile as nb_compile
from nbcompile.record.compilation import Cell, Compilation

CELL = """%%compile
y = x @ w
z = torch.softmax(y, -1) * 2
z.sum()
"""


MODULE_CELL = """%%compile --train
h = net(x)
z = torch.softmax(h, -1) * h
z.sum()
"""


@cache
def real() -> Compilation:
    """Of :data:`CELL`, read back from JSON as from a saved notebook."""
    return _compiled(CELL, "cell", "x, w", {}, torch.randn(64, 32), torch.randn(32, 16))


@cache
def real_modules() -> Compilation:
    """Of :data:`MODULE_CELL`, forward and backward: its graphs have modules in modules."""
    net = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    return _compiled(MODULE_CELL, "modules", "x", {"net": net}, torch.randn(4, 8, 32, requires_grad=True))


def _compiled(cell: str, name: str, takes: str, names: dict[str, Any], *inputs: torch.Tensor) -> Compilation:
    filename = f"<{name} of fixtures_real>"
    lines = cell.splitlines()
    body = "".join(f"    {line}\n" for line in lines[1:-1])
    source = f"def cell({takes}):\n{body}    return {lines[-1]}\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    space: dict[str, Any] = {"torch": torch, **names}
    exec(compile(source, filename, "exec"), space)
    compiled = nb_compile(space["cell"], cell=Cell(cell, filename, 4))
    out = compiled(*inputs)
    if out.requires_grad:
        out.backward()
    return Compilation.from_json(compiled.compilation.to_json())

"""A record that the compiler itself makes of a small cell."""

from __future__ import annotations

import linecache
from functools import cache
from typing import Any

import torch

from nbcompile.api import compile as nb_compile
from nbcompile.compilation import Cell, Compilation

CELL = """%%compile
y = x @ w
z = torch.softmax(y, -1) * 2
z.sum()
"""


@cache
def real() -> Compilation:
    """Of :data:`CELL`, read back from JSON as from a saved notebook."""
    filename = "<cell of fixtures_real>"
    body = "".join(f"    {line}\n" for line in CELL.splitlines()[1:-1])
    source = f"def cell(x, w):\n{body}    return z.sum()\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names: dict[str, Any] = {"torch": torch}
    exec(compile(source, filename, "exec"), names)
    compiled = nb_compile(names["cell"], cell=Cell(CELL, filename, 4))
    compiled(torch.randn(64, 32), torch.randn(32, 16))
    return Compilation.from_json(compiled.compilation.to_json())

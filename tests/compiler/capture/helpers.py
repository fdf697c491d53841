"""Compile for the capture tests: real Dynamo and AOTAutograd, and a back end that runs ATen as it is."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import torch

from nbcompile.api import Compiled
from nbcompile.api import compile as nb_compile
from nbcompile.compiler.in_aten import in_aten
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.compilation import Cell
from nbcompile.record.recorder import Recorder

_numbers = itertools.count()


def run_aten(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
    """Stands in for nbcompile.compiler.compile_graph.compile_graph."""
    return CompiledModule(aten.id, in_aten(aten.module))


def compiled(fn: Callable[..., Any], **keywords: Any) -> Compiled:
    return nb_compile(fn, **{"compile_aten": run_aten, **keywords})


def cell(source: str, **names: Any) -> tuple[dict[str, Any], Cell]:
    """Run source as a notebook cell would: its namespace, and the Cell. Line 1 is the magic line."""
    text = "%%compile\n" + textwrap.dedent(source).strip() + "\n"
    filename = f"<cell-{next(_numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, **names}
    code = "\n" + text.partition("\n")[2]
    exec(compile(code, filename, "exec"), namespace)
    return namespace, Cell(source=text, filename=filename)

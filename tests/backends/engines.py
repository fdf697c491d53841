"""What the tests of inference engines share."""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbcompile.api import Compiled
from nbcompile.api import compile as nb_compile

ENGINES = ("onnxrt", "openvino", "tvm")
_SCRIPTS = Path(__file__).parents[2] / "scripts"


def run(backend: str, fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, Compiled]:
    """The result of a first call, and what was called."""
    compiled = nb_compile(fn, backend=backend, **options)
    return compiled(*args), compiled


def in_a_cell(source: str) -> Callable[..., Any]:
    """The function ``f`` of a cell with this source."""
    name = f"<cell {abs(hash(source))}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {}
    exec(compile("import torch\nF = torch.nn.functional\n", "<imports>", "exec"), space)
    exec(compile(source, name, "exec"), space)
    return space["f"]


def bench_programs() -> Any:
    """``scripts/bench_programs.py``, which is a program's and no package's."""
    for name in ("programs", "bench_programs"):
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, _SCRIPTS / f"{name}.py")
            assert spec is not None and spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    return sys.modules["bench_programs"]

"""The cache of whole graphs: the generated code and the record of an ATen graph seen before.

The key is everything the stages below ATen read: the graph with its shapes and its places in the
user's source (kernels name cell lines), the options, the target, the compiler, and the versions of
torch and of our own code. A hit skips lowering, fusion and code generation, and yields the same record.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

import nbcompile
from nbcompile import tf32
from nbcompile.compiler.runtime.cache import DiskCache, Entry, from_plain, key
from nbcompile.compiler.stages import AtenGraph, KernelSource, can_be_guarded, guards_of, least_of, most_of
from nbcompile.options import Options

SOURCE, RECORD = "source.json", "record.json"
_READ = ("compiler", "record", "options.py", "targets.py")


@dataclass(frozen=True)
class Stored:
    """What is kept of a graph: its generated code, and its part of the record as JSON-able data."""

    source: KernelSource
    record: dict[str, Any]


def graph_key(
    aten: AtenGraph, options: Options, compiler: Sequence[object], anew: Mapping[fx.Node, fx.Node],
    again: Iterable[fx.Node] = (),
) -> str:  # fmt: skip
    """The key of one graph under these options, its code made for ``compiler`` (whatever tells one from
    another). ``anew``: results that are made anew of inputs when the graph has run, with these; ``again``:
    those that are made again of other results."""
    nodes = [
        (
            node.op, node.name, str(node.target), repr(node.args), repr(dict(node.kwargs)),
            _described(node.meta.get("val")), aten.spans.get(node.name, ()), aten.names.get(node.name, ""),
            aten.origins.get(node.name, ()), aten.ids.get(node.name, ""),
        )
        for node in aten.module.graph.nodes
    ]  # fmt: skip
    viewed = sorted(item.name for item in again)
    shown = sorted((item.name, base.name) for item, base in anew.items())
    return key(
        "graph", aten.id, aten.stage, aten.differentiable, aten.saved, shown, viewed, nodes, _known(aten),
        options.to_dict(), list(compiler), _switches(), torch.__version__, code_version(),
    )  # fmt: skip


def _switches() -> list[Any]:
    """What of torch's own state lowering and code generation read: what fills empty tensors, and how float32
    matrices are multiplied."""
    deterministic: Any = torch.utils.deterministic
    filled = torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory
    return [filled, tf32.products_on_cuda(), tf32.convolutions_on_cuda()]


def find(cache: DiskCache, name: str) -> Stored | None:
    """The stored graph of this key, or None (also if the entry is damaged: it is then removed)."""

    def made(entry: Entry) -> Stored:
        source, record = (json.loads(entry.text(file)) for file in (SOURCE, RECORD))
        return Stored(from_plain(KernelSource, source), record)

    return cache.find(name, made)


def keep(cache: DiskCache, name: str, source: KernelSource, record: dict[str, Any]) -> None:
    """Store a graph's code and record under its key."""
    text = json.dumps(dataclasses.asdict(source))
    cache.put(name, {SOURCE: text.encode(), RECORD: json.dumps(record).encode()})


def _described(value: Any) -> str:
    """Shape, strides, dtype and device of a fake result, with the hints of symbolic sizes."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_described, value))}]"
    if isinstance(value, torch.Tensor):
        sizes = [*value.shape, *value.stride()]
        hints = [item.node.hint for item in sizes if isinstance(item, torch.SymInt)]
        return f"{value.dtype} {sizes} {hints} {_least(sizes)} {value.device} {value.layout}"
    if isinstance(value, torch.SymInt):
        return f"{value} {value.node.hint} {_least([value])}"
    return repr(value) if isinstance(value, int | float | bool | type(None)) else type(value).__name__


def _least(sizes: Iterable[Any]) -> dict[str, int | None]:
    """The least value of every symbol in symbolic sizes: what may be left out of the code depends on it."""
    nodes = [item.node for item in sizes if isinstance(item, torch.SymInt) and item.node.constant is None]
    found = {str(each): least_of(each, node.shape_env) for node in nodes for each in node.expr.free_symbols}
    return dict(sorted(found.items()))


def _known(aten: AtenGraph) -> list[str]:
    """What the guards say of a graph's sizes: what it is lowered to depends on that too."""
    values = _pytree.tree_leaves([node.meta.get("val") for node in aten.module.graph.nodes])
    sizes = [
        size
        for value in values
        for size in ((*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,))
        if isinstance(size, torch.SymInt) and size.node.constant is None
    ]
    if not sizes:
        return []
    env = sizes[0].node.shape_env
    symbols = {str(each): each for size in sizes for each in size.node.expr.free_symbols}
    most = [
        f"{name} <= {most_of(each, env)}{'' if can_be_guarded(each, env) else ', unguarded'}"
        for name, each in symbols.items()
    ]
    return sorted([*most, *map(str, guards_of(env, symbols.keys()))])


@functools.cache
def code_version() -> str:
    """A hash of the compiler's own source, with what it stores and what it knows of chips: a cache must not
    outlive the compiler that filled it. Views, the bench and the workshop change no kernel."""
    digest = hashlib.sha256()
    root = Path(nbcompile.__file__).parent
    for place in (root / name for name in _READ):
        for path in sorted(place.rglob("*.py")) if place.is_dir() else (place,):
            digest.update(path.read_bytes())
    return digest.hexdigest()

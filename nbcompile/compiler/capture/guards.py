"""Guards: what Dynamo checks before it reuses a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nbcompile.compiler.capture.graph_record import spans_of_frames
from nbcompile.record.compilation import Guard, Node

# Checks of torch's own state that every graph has: no news to anybody.
_ALWAYS = frozenset(
    ("GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "TORCH_FUNCTION_STATE", "DEFAULT_DEVICE", "GLOBAL_STATE")
    + ("FSDP_TRAINING_STATE", "AUTOGRAD_SAVED_TENSORS_HOOKS", "SYMBOL_LIB_STATE")
)


def guards_of(
    guards: Iterable[Any], graph: str, cell_file: str, inputs: Mapping[str, Node]
) -> tuple[Guard, ...]:
    """Dynamo's guards (torch._guards.Guard, after the check function was built) as record guards.

    ``inputs`` are the graph's input nodes by Dynamo's name: what a tensor guard checks is not in the
    guard's own code, as Dynamo does it in C++.
    Guards about torch's global state, which every graph has, are left out. Sorted by name, so that two
    compiles of the same code give equal records.
    """
    found = []
    for guard in guards:
        kinds = getattr(guard, "guard_types", None) or [_create_name(guard)]
        if kinds[0] in _ALWAYS:
            continue
        name = getattr(guard, "name", "")
        name = name() if callable(name) else name  # a method before torch 2.10
        code = tuple(_clean(line) for line in getattr(guard, "code_list", None) or ())
        if kinds[0] == "TENSOR_MATCH":
            code = _tensor_check(guard, inputs.get(str(name)))
        if not code or str(name).startswith("G['__"):
            continue  # nothing a person could read, or an import that Dynamo itself put there
        spans = spans_of_frames(getattr(guard, "user_stack", None) or (), cell_file)
        found.append(Guard(graph=graph, kind=kinds[0], name=str(name), code=code, spans=spans))
    return tuple(sorted(dict.fromkeys(found), key=lambda guard: (guard.name, guard.kind, guard.code)))


def _tensor_check(guard: Any, node: Node | None) -> tuple[str, ...]:
    weak = getattr(guard, "obj_weakref", None)
    value = weak() if callable(weak) else None
    checked = []
    if value is not None and hasattr(value, "device"):
        checked.append(f"{type(value).__name__} on {value.device}, requires_grad={value.requires_grad}")
    if node is not None and node.shape is not None:
        # A symbolic extent is not checked here: the SHAPE_ENV guards say what must hold for it.
        checked.append(f"{node.dtype}, size={list(node.shape)}, stride={list(node.stride or ())}")
    return (", ".join(checked),) if checked else ()


def _create_name(guard: Any) -> str:
    create = getattr(guard, "create_fn", None)
    create = getattr(create, "func", create)  # functools.partial
    return str(getattr(create, "__name__", "GUARD"))


def _clean(line: Any) -> str:
    # Addresses differ from run to run, and a module's file (torch 2.11) from machine to machine: neither
    # means anything to the reader.
    without = re.sub(r"(<module '[^']*') from '[^']*'>", r"\1>", str(line))
    return re.sub(r"(?<!\.)\b\d{9,}\b|0x[0-9a-f]{6,}", "…", without).strip()

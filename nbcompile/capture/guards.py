"""Guards: what Dynamo checks before it reuses a graph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nbcompile.capture.graph_record import spans_of_frames
from nbcompile.compilation import Guard

# Checks of torch's own state that every graph has: no news to anybody.
_ALWAYS = frozenset(
    ("GRAD_MODE", "DETERMINISTIC_ALGORITHMS", "TORCH_FUNCTION_STATE", "DEFAULT_DEVICE", "GLOBAL_STATE")
    + ("FSDP_TRAINING_STATE", "AUTOGRAD_SAVED_TENSORS_HOOKS", "SYMBOL_LIB_STATE")
)


def guards_of(guards: Iterable[Any], graph: str, cell_file: str) -> tuple[Guard, ...]:
    """Dynamo's guards (torch._guards.Guard, after the check function was built) as record guards.

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
        if not code and not name or str(name).startswith("G['__"):
            continue  # nothing to check, or an import that Dynamo itself put there
        spans = spans_of_frames(getattr(guard, "user_stack", None) or (), cell_file)
        found.append(Guard(graph=graph, kind=kinds[0], name=str(name), code=code, spans=spans))
    return tuple(sorted(found, key=lambda guard: (guard.name, guard.kind, guard.code)))


def _create_name(guard: Any) -> str:
    create = getattr(guard, "create_fn", None)
    create = getattr(create, "func", create)  # functools.partial
    return str(getattr(create, "__name__", "GUARD"))


def _clean(line: Any) -> str:
    # Addresses differ from run to run and mean nothing to the reader.
    return re.sub(r"\b\d{9,}\b|0x[0-9a-f]{6,}", "…", str(line)).strip()

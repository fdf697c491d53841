"""Names for kernels, after what they do: ``add_layer_norm``, ``softmax``, ``gelu_mul``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nbcompile.compiler.loop_ir.fused import Group, Item

_DULL = frozenset("copy clone to_copy view expand full where alias scalar_tensor full_like".split())
_SHORT = {
    "native_layer_norm": "layer_norm", "_softmax": "softmax", "_log_softmax": "log_softmax",
    "native_dropout": "dropout", "_softmax_backward_data": "softmax_backward",
    "_log_softmax_backward_data": "log_softmax_backward", "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_functional": "batch_norm", "native_group_norm": "group_norm",
}  # fmt: skip
MOST = 4


def numbered(graph: str, items: Sequence[Item]) -> tuple[Item, ...]:
    """The items in running order, their groups with ids and names."""
    names = iter(group_names([item for item in items if isinstance(item, Group)]))
    found: list[Item] = []
    number = 0
    for item in items:
        if isinstance(item, Group):
            item = replace(item, id=f"{graph}.k{number}", name=next(names))
            number += 1
        found.append(item)
    return tuple(found)


def group_names(groups: Sequence[Group]) -> list[str]:
    """One unique C identifier per group."""
    names: list[str] = []
    taken: set[str] = set()
    for group in groups:
        base = _base(group)
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def _base(group: Group) -> str:
    words: list[str] = []
    for loop in group.loops:
        word = _SHORT.get(loop.op, loop.op).strip("_") or "loop"
        if not words or words[-1] != word:
            words.append(word)
    telling = [word for word in dict.fromkeys(words) if word not in _DULL] or words[:1] or ["loop"]
    if len(telling) > MOST:
        telling = [*telling[: MOST - 1], telling[-1]]
    name = "_".join(telling)
    name = "".join(char if char.isalnum() else "_" for char in name)
    return name if name[0].isalpha() else f"k_{name}"

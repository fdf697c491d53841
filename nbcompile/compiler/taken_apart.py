"""What cannot be proved or printed as one kernel is taken apart: it costs that kernel or a node, and not its
graph.

First the loops of the kernel become kernels of their own. Of a loop that fails alone, ATen makes copies of
the views that its node reads, and then runs the node itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import fx

from nbcompile.compiler.in_aten import shows_an_argument
from nbcompile.compiler.loop_ir.nodes import Loop
from nbcompile.compiler.passes import Apart, Failed, Setting
from nbcompile.compiler.stages import AtenGraph
from nbcompile.errors import NbcompileError

_NO_ROOM = ("killed", "no space", "memory", "terminated", "signal", "too many open files", "cannot fork")


def taken_apart(
    failed: Iterable[Failed], aten: AtenGraph, setting: Setting, *, splits_only: bool = False
) -> Setting | None:
    """How to compile a graph of which these kernels ``failed``; None where nothing is left to take apart.
    ``splits_only``: no node is left to ATen."""
    apart = setting.apart_from
    alone, called = dict(apart.alone), dict(apart.called)
    for loops, reason in failed:
        why = _sentence(reason)
        names = [loop.name for loop in loops]
        if len(names) > 1 and not alone.keys() >= set(names):
            alone |= dict.fromkeys(names, why)
        elif not splits_only:
            called |= dict.fromkeys(
                _left_to_aten(loops, aten, apart), f"no kernel could be made of it: {why}"
            )
    made = Apart(alone, called)
    return None if made == apart else replace(setting, apart_from=made)


def is_lasting(refusal: NbcompileError) -> bool:
    """Whether a compiler that refuses a kernel so will do so again: not where the machine had no room."""
    said = f"{refusal.message} {getattr(refusal, 'output', '')}".lower()
    return not any(sign in said for sign in _NO_ROOM)


def _left_to_aten(loops: Sequence[Loop], aten: AtenGraph, apart: Apart) -> list[str]:
    """The nodes, by their ids, that ATen runs next for want of a kernel of ``loops``: the views that these
    read, else the nodes that these stand for."""
    wanted = {origin for loop in loops for origin in loop.origins}
    nodes = [node for node in aten.module.graph.nodes if aten.ids.get(node.name, node.name) in wanted]
    for chosen in ([view for node in nodes for view in _views(node)], nodes):
        ids = [aten.ids.get(node.name, node.name) for node in chosen]
        if left := [id for id in ids if id not in apart.called]:
            return left
    return []


def _sentence(error: Exception) -> str:
    text = error.message if isinstance(error, NbcompileError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [""])[0]


def _views(node: fx.Node) -> Iterator[fx.Node]:
    """The views through which a node reads what it is given."""
    for given in node.all_input_nodes:
        target = given.target
        if given.op == "call_function" and isinstance(target, torch._ops.OpOverload) and target.is_view:
            if shows_an_argument(target):
                yield given
            yield from _views(given)

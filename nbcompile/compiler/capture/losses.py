"""The backward passes that a cell's Python calls: where a graph has to end so that each goes back through
what it goes back through in eager.

A compiled graph is one node of autograd's. Backward of one of its results frees all that it has saved, and
gives gradients, of zeros, to whatever else it was made of; eager has a node for each operator.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from nbcompile.syntax import names_read, names_stored

Place = tuple[int, int]
"""Line and column of a statement with a backward pass."""


def apart_for_backward(body: Sequence[ast.stmt]) -> set[int]:
    """After which statements of a block a graph has to end, by their places: where backward goes through a
    loss, and later once more through what would stand in the loss's graph (two networks that train each
    other: ``fake = G(z)`` and a loss of ``D(fake.detach())``)."""
    losses = [_gone_through(node) for node in body]
    backwards = [place for place, found in enumerate(losses) if found is not None]
    made: dict[str, int] = {}
    ends: set[int] = set()
    for place, node in enumerate(body):
        loss = losses[place]
        if loss and place != backwards[-1]:
            last = max(made.get(name, -1) for name in loss)
            later = set().union(*map(names_read, body[place + 1 : backwards[-1] + 1])) - loss
            ends |= {min(made[name], last) for name in later & made.keys()} if last >= 0 else set()
        made |= dict.fromkeys(names_stored(node), place)
    return ends


def _gone_through(node: ast.stmt) -> set[str] | None:
    """The names of what a statement goes back through: none where its graph is kept. None where it does not
    go back."""
    return _gone_through_by(node.value) if isinstance(node, ast.Expr | ast.Assign) else None


def _gone_through_by(call: ast.AST, kept: bool = False) -> set[str] | None:
    """The same of an expression; ``kept``: of a graph that is kept, too."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    of = {"backward": call.func.value, "grad": call.args[0] if call.args else None}.get(call.func.attr)
    if of is None or (call.func.attr == "grad" and "autograd" not in ast.unparse(call.func)):
        return None
    keeps = any(word.arg == "retain_graph" and not _is_false(word.value) for word in call.keywords)
    return set() if keeps and not kept else names_read(of)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def leading_to(body: Sequence[ast.stmt]) -> list[frozenset[Place]]:
    """Of each statement of a block, the backward passes of the block that what it makes leads to, by name."""
    found: list[set[Place]] = [set() for _ in body]
    for place, node in enumerate(body):
        needed: set[str] = set()
        for part in ast.walk(node):
            needed |= _gone_through_by(part, kept=True) or set()
        for before in range(place - 1, -1, -1) if needed else ():
            stored = names_stored(body[before])
            if stored & needed:
                found[before].add((node.lineno, node.col_offset))
                if isinstance(body[before], ast.Assign):
                    needed -= stored  # what they held before leads elsewhere
                needed |= names_read(body[before])
    return [frozenset(each) for each in found]


def together_for_backward(
    nodes: Sequence[ast.stmt], leads: Sequence[frozenset[Place]], namespace: Mapping[str, Any]
) -> int:
    """How many of these statements, from the first, may be one graph: up to one that brings in parameters
    that a backward pass of another does not get to, or the other way around. They would be given gradients
    of zeros, by which an optimizer moves them (weight decay), and in eager they have none."""
    own = [_leaves(node, namespace) for node in nodes]
    all_of: list[set[str]] = []
    made: dict[str, set[str]] = {}
    for node, leaves in zip(nodes, own, strict=True):
        all_of.append(leaves.union(*(made.get(name, set()) for name in names_read(node))))
        made |= dict.fromkeys(names_stored(node), all_of[-1])
    length = len(nodes)
    for backward in frozenset().union(*leads):
        reached = set().union(*(all_of[n] for n in range(len(nodes)) if backward in leads[n]))
        kinds = [
            True if backward in leads[n] else False if own[n] - reached else None for n in range(len(nodes))
        ]
        told = [n for n, kind in enumerate(kinds) if kind is not None]
        length = min([length, *(n for n in told if kinds[n] != kinds[told[0]])])
    return length


def _leaves(node: ast.stmt, namespace: Mapping[str, Any]) -> set[str]:
    """The names in a statement, and in functions that it calls, of what needs gradients."""
    known = {name: namespace.get(name) for name in names_read(node)}
    for function in [value for value in known.values() if isinstance(value, FunctionType)]:
        known |= {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {name for name, value in known.items() if _needs_gradients(value)}


def _needs_gradients(value: Any) -> bool:
    if isinstance(value, torch.nn.Module):
        return any(each.requires_grad for each in value.parameters())
    return isinstance(value, torch.Tensor) and value.requires_grad

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


def _gone_through(node: ast.AST) -> set[str]:
    """The names of what an expression goes back through, where it is a backward pass."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return set()
    if node.func.attr == "backward":
        return names_read(node.func.value)
    is_grad = node.func.attr == "grad" and "autograd" in ast.unparse(node.func)
    return names_read(node.args[0]) if is_grad and node.args else set()


def leading_to(body: Sequence[ast.stmt]) -> list[frozenset[Place]]:
    """Of each statement of a block, the backward passes of the block that what it makes leads to, by name."""
    found: list[set[Place]] = [set() for _ in body]
    for place, node in enumerate(body):
        needed = set().union(*map(_gone_through, ast.walk(node)))
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
    """How many of these statements, from the first, may be one graph.

    What leads to other backward passes is in another (two losses; ``fake = G(z)`` and a loss of
    ``D(fake.detach())``): the second pass would find freed what it needs. So is what brings in parameters
    that a backward pass does not get to: they would be given gradients of zeros, by which an optimizer moves
    them (weight decay), and in eager they have none."""
    length = len(nodes)
    for backward in frozenset().union(*leads):
        inside = [backward in each for each in leads]
        reached, own = _leaves_of(nodes, inside, namespace)
        told = [n for n in range(len(nodes)) if inside[n] or leads[n] or own[n] - reached]
        length = min([length, *(n for n in told if inside[n] != inside[told[0]])])
    return length


def _leaves_of(
    nodes: Sequence[ast.stmt], inside: Sequence[bool], namespace: Mapping[str, Any]
) -> tuple[set[str], list[set[str]]]:
    """What needs gradients and is reached from the statements ``inside``, and what each names itself."""
    own = [_leaves(node, namespace) for node in nodes]
    made: dict[str, set[str]] = {}
    reached: set[str] = set()
    for node, leaves, counts in zip(nodes, own, inside, strict=True):
        through = leaves.union(*(made.get(name, set()) for name in names_read(node)))
        made |= dict.fromkeys(names_stored(node), through)
        reached |= through if counts else set()
    return reached, own


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

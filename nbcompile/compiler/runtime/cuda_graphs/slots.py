"""One captured graph with the memory of its outputs: free or in use, at which addresses, replayed.

The outputs of a replay are tensors of their own that share the graph's memory. As long as anything (a
tensor, a view, autograd, a storage object) still sees that memory, the slot is in use and is not replayed:
nobody's result is ever overwritten.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from nbcompile.compiler.runtime.cuda_graphs.driver import Recording
from nbcompile.compiler.runtime.cuda_graphs.pointers import Address, GraphNode, Memory, Span, places, write
from nbcompile.errors import LaunchError

_users = getattr(torch._C, "_storage_Use_Count", None)

Addresses = tuple[int, ...]
Output = tuple[Literal["ours", "input", "view", "value"], Any]


def liveness_is_known() -> bool:
    """Whether this torch tells when memory is seen by nobody else any more."""
    if _users is None:
        return False
    held = _Held([torch.empty(1)])
    alias = held.tensors[0].data
    seen = [not held.is_free()]
    storage = alias.untyped_storage()
    del alias
    seen.append(not held.is_free())
    del storage
    view = held.tensors[0].data[:1]
    seen.append(not held.is_free())
    del view
    return all(seen) and held.is_free()


class _Held:
    """Tensors of ours and whether anybody else sees their memory."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tensors
        # the address of the storage itself, and its Python object: a user may hold either kind
        self._storages = [(item.untyped_storage()._cdata, item.untyped_storage()) for item in tensors]
        self._idle = self._counts()

    def is_free(self) -> bool:
        return self._counts() == self._idle

    def busy(self) -> list[int]:
        """Which of the tensors are seen."""
        pairs = zip(self._counts(), self._idle)
        return [number for number, (now, idle) in enumerate(pairs) if now != idle]

    def _counts(self) -> list[tuple[int, int]]:
        count, refs = _users, sys.getrefcount
        assert count is not None
        return [(count(place), refs(storage)) for place, storage in self._storages]


class Slot:
    """One captured graph. ``addresses`` are those that its inputs must have now, by input; ``static``
    holds the memory of ours that inputs at other positions are copied into."""

    def __init__(
        self, recording: Recording, outputs: Sequence[Any], args: Sequence[Any], addresses: Addresses,
        static: Mapping[int, torch.Tensor], copied_out: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.recording = recording
        self.addresses = addresses
        self.captured_at = addresses
        self.static = tuple(static.items())
        self._spans = recording.spans()
        self.outputs, ours = _recipe(outputs, args, self._spans)
        self.plain = [kind for kind, _ in self.outputs] == ["ours"] * len(ours)
        self.copied_out = copied_out
        self.held = _Held(ours)
        self.is_free = self.held.is_free
        self._replay = recording.replay
        self._ours = ours
        self._nodes: list[GraphNode] | None = None
        self._others: list[Span] = []

    def run(self, args: list[Any]) -> tuple[Any, ...]:
        """Replay with ``args``, which is emptied."""
        if self.static:
            with torch.no_grad():
                for place, memory in self.static:
                    memory.copy_(args[place], non_blocking=True)
        self._replay()
        if self.copied_out:
            made = [
                item.clone() if place in self.copied_out else item.data
                for place, item in enumerate(self._ours)
            ]
        else:
            made = [item.data for item in self._ours]
        result = tuple(made) if self.plain else tuple(_made(item, made, args) for item in self.outputs)
        args.clear()
        return result

    # -- results that are still seen ---------------------------------------------------------------

    def in_use(self) -> frozenset[int]:
        """The results of the last replay that somebody still sees, as numbers of this slot."""
        return frozenset(self.held.busy())

    def results(self, positions: frozenset[int]) -> frozenset[int]:
        """The numbers of the results at these positions of the outputs."""
        return frozenset(
            value for place, (kind, value) in enumerate(self.outputs) if kind == "ours" and place in positions
        )

    def inputs_returned(self) -> frozenset[int]:
        """The positions of inputs that are results, or that results are views of."""
        pairs = [(kind, value) for kind, value in self.outputs if kind in ("input", "view")]
        return frozenset(value if kind == "input" else value[0] for kind, value in pairs)

    def may_copy_out(self, results: frozenset[int], most: int) -> bool:
        """Whether some results are at most so many bytes each, and a copy looks like the original."""
        return all(
            item.untyped_storage().nbytes() <= most
            and torch.empty_like(item, device="meta").stride() == item.stride()
            for item in (self._ours[number] for number in results)
        )

    # -- moving inputs ---------------------------------------------------------------------------

    def nodes(self) -> list[GraphNode]:
        if self._nodes is None:
            self._nodes = self.recording.nodes()
            self._others = self.recording.small_blocks()
        return self._nodes

    def launches(self) -> float:
        """How many kernels, copies and fills a replay stands for; infinite if that cannot be read."""
        try:
            return sum(node.kind != "other" for node in self.nodes())
        except LaunchError:
            return math.inf

    def spans(self) -> list[Span]:
        """The memory that was allocated for the graph."""
        return self._spans

    def memory(self) -> Memory:
        """What a word of the graph may point to that has nothing to do with inputs."""
        return Memory(self._spans, self._others)

    def moved(self, addresses: Addresses) -> list[int]:
        """The inputs that are not where this slot has them."""
        return [n for n, (have, want) in enumerate(zip(self.addresses, addresses)) if have != want]

    def fits(self, addresses: Addresses, where: Mapping[int, Address]) -> bool:
        """Whether every input that moved may be patched: its places are known and it is aligned as it was."""
        was = self.captured_at
        return all(
            n in where and (addresses[n] - was[n]) % where[n].modulus == 0 for n in self.moved(addresses)
        )

    def move(self, addresses: Addresses, where: Mapping[int, Address]) -> None:
        """Patch the graph for inputs at ``addresses``. LaunchError where the driver refuses; the slot is
        then not to be used again."""
        nodes, changed = self.nodes(), set[int]()
        for source in self.moved(addresses):
            changed |= write(nodes, where[source], addresses[source])
        self.recording.update([nodes[number] for number in changed])
        self.addresses = addresses


def cost(slot: Slot, addresses: Addresses, where: Mapping[int, Address]) -> int:
    """How many nodes have to be changed."""
    return len({place.node for source in slot.moved(addresses) for place in where[source].places})


def learn(first: Slot, second: Slot, sizes: Sequence[int], ours: frozenset[str]) -> dict[int, Address]:
    """Where the inputs stand that the two slots have at different addresses; ``sizes`` are the bytes of
    each input. LaunchError where that cannot be known (:mod:`pointers`)."""
    moved = {
        n: (_span(first.addresses[n], sizes[n]), _span(second.addresses[n], sizes[n]))
        for n in first.moved(second.addresses)
    }
    nodes = first.nodes(), second.nodes()
    return places(*nodes, moved, (first.memory(), second.memory()), ours)


def _span(address: int, size: int) -> Span:
    return address, address + size


def _recipe(
    outputs: Sequence[Any], args: Sequence[Any], spans: Sequence[Span]
) -> tuple[list[Output], list[torch.Tensor]]:
    """How each output is made at a replay, and the tensors whose memory the graph writes. ``args`` are
    those of the capture, and the outputs of a replay are made of those of the replay. What lies in neither
    the inputs' memory nor the graph's own (``spans``) is a constant."""
    recipe: list[Output] = []
    ours: list[torch.Tensor] = []
    inputs = {id(item): place for place, item in enumerate(args) if isinstance(item, torch.Tensor)}
    storages = {_storage(item): place for place, item in enumerate(args) if isinstance(item, torch.Tensor)}
    for item in outputs:
        if not isinstance(item, torch.Tensor):
            recipe.append(("value", item))
            continue
        if id(item) in inputs:
            recipe.append(("input", inputs[id(item)]))
        elif item.numel() and _storage(item) in storages:
            place = storages[_storage(item)]
            if item.dtype != args[place].dtype:
                raise LaunchError("a result is the memory of an input, read as another type.")
            offset = item.storage_offset() - args[place].storage_offset()
            recipe.append(("view", (place, item.shape, item.stride(), offset)))
        elif item.numel() and not any(start <= item.data_ptr() < end for start, end in spans):
            recipe.append(("value", item))
        else:
            number = next((n for n, seen in enumerate(ours) if seen is item), len(ours))
            if number == len(ours):
                ours.append(item)
            recipe.append(("ours", number))
    return recipe, ours


def _storage(item: torch.Tensor) -> int:
    return int(item.untyped_storage()._cdata)


def _made(output: Output, ours: Sequence[torch.Tensor], args: Sequence[Any]) -> Any:
    kind, value = output
    if kind == "ours":
        return ours[value]
    if kind == "value":
        return value
    if kind == "input":
        return args[value]
    place, shape, stride, offset = value
    base = args[place]
    return base.as_strided(shape, stride, base.storage_offset() + offset)

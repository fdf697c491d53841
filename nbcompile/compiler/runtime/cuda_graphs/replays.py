"""CUDA-graph replay of a compiled module that copies no large input and overwrites no result.

A call that was seen before is one launch: the graph captured for it is replayed. What makes that right:

*Results.* Every captured graph (a *slot*) has a memory pool of its own, and its results lie in it. A slot is
replayed only while nobody sees the results of its last replay: that is read off the use counts of their
storages, so views, autograd's saved tensors and DLPack all count. Otherwise another slot is used; there are
at most four, and further ones only while they take little of the memory that is free; beyond that the call
is simply launched kernel by kernel. A result that is small and keeps a large slot busy (a loss that is
printed later) is copied out from then on. Tensors of one replay are new objects over the slot's memory; what
a forward graph saves for the backward one stays where it is, so the backward graph finds it at the same
addresses.

*Inputs.* A graph holds the addresses of its inputs. Before each replay those of this call are compared with
those of the free slots; an exact match is replayed. If an input moved, the call is captured once more; the
two captures, laid side by side, show where in the kernels' arguments the address stands
(:mod:`~nbcompile.compiler.runtime.cuda_graphs.pointers`), and from then on the graph is patched in place, a
driver call for each kernel that reads the input, whatever its size. Where that cannot be known, an input is
copied into the graph's memory if the copy costs little beside the launches that it saves, and else calls with
moved inputs are launched kernel by kernel, with a note in the record.

*Not replayed*: graphs with results on the CPU, with sizes that depend on data, with communication, with one
launch only, and whatever fails to be captured, each with a note.

*Sizes and streams.* Each set of symbolic sizes has slots of its own, and so has each stream: a replay runs on
the current one, and memory is used again in its order. As in eager mode, a result that is used on another
stream must be kept until that stream is done with it.

Random numbers come from torch's generator through its registered graphs: each replay draws new ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import torch

from nbcompile.compiler import other_devices
from nbcompile.compiler.runtime.cuda_graphs.driver import CudaDevice, Device
from nbcompile.compiler.runtime.cuda_graphs.pointers import OUR_ALIGNMENT, Address, extent
from nbcompile.compiler.runtime.cuda_graphs.slots import Addresses, Slot, cost, learn, liveness_is_known
from nbcompile.compiler.stages import AtenGraph, CompiledModule, KernelSource, device_of
from nbcompile.errors import LaunchError
from nbcompile.record.recorder import Recorder
from nbcompile.targets import Target

WARM_CALLS = 2
"""Calls before anything is captured: the first loads kernels, the second is timed."""
MOST_SLOTS = 4
MOST_SIZES = 8
"""Sets of symbolic sizes, and streams, that have slots of their own."""
MOST_CAPTURES = 12  # at one set of sizes: each takes as long as some calls
LEAST_LAUNCHES = 2  # one is launched as fast by our launcher as by a replay
SMALL = 64 << 10  # bytes of a result that is copied out rather than keep a slot busy
LITTLE_MEMORY = 64 << 20  # bytes of a slot: up to this, another one is preferred to copying results out
SHARE_OF_FREE_MEMORY = 0.25  # what the further slots of a graph may take
PATCH_SECONDS = 2e-6  # one kernel's arguments
COPY_SECONDS = 5e-6  # launching one copy
SHARE_OF_CALL = 0.5  # of the time of launching kernel by kernel that moving inputs may take


def replayed(
    module: CompiledModule, aten: AtenGraph, source: KernelSource, chip: Target, device: torch.device,
    recorder: Recorder, settled: Callable[[], bool] = lambda: True, machine: Device | None = None,
) -> CompiledModule:  # fmt: skip
    """``module`` on the GPU ``device``, its launches replayed as CUDA graphs wherever that is right.

    A graph that is never replayed comes back as it is, with a note that says why. Nothing is captured before
    ``settled()``: until then the module may still change what it launches (see the autotuner's ``Tuner``).
    ``machine`` captures."""
    reason = _obstacle(aten, source, chip)
    if reason:
        recorder.add(f"graph {aten.id} is not replayed: {reason}")
        return module
    machine = machine or CudaDevice(device)
    replays = _Replays(module.call, aten, source, chip, recorder, settled, machine)
    return replace(module, call=replays.call)


def _obstacle(aten: AtenGraph, source: KernelSource, chip: Target) -> str:
    """Why a graph can never be replayed; nothing if it may."""
    if chip.kind != "cuda":
        return f"graphs are captured on NVIDIA GPUs, not on {chip.name}."
    if not liveness_is_known():
        return "this version of torch does not tell which results are still in use."
    away = other_devices.away(aten.module, device_of(aten.module))
    for node in aten.module.graph.nodes:
        if node in away:
            return f"{node.name} is on another device."
        if node.op == "call_function":
            if node.target is torch.ops.aten.set_.source_Tensor:
                return "an input shows other memory after each call."
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                return f"{node.target} decides on the CPU what runs."
            tags = set(getattr(node.target, "tags", ()))
            if tags & {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}:
                return f"what {node.target} returns depends on data, which the CPU waits for."
            if getattr(node.target, "namespace", "").startswith(("_c10d", "c10d")):
                return f"{node.target} communicates with other processes."
    for place, node in enumerate(node for node in aten.module.graph.nodes if node.op == "placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and place in _overwritten(aten):
            return f"its input {aten.names.get(node.name, node.name)}, on the CPU, is overwritten."
    if not source.launches and not source.libraries:
        return "it launches nothing."
    return ""


class _Replays:
    """What a graph's calls go through: for each set of sizes, and each stream, its own slots."""

    def __init__(
        self, plain: Callable[[list[Any]], Any], aten: AtenGraph, source: KernelSource, chip: Target,
        recorder: Recorder, settled: Callable[[], bool], machine: Device,
    ) -> None:  # fmt: skip
        self.plain = plain
        self.settled = settled
        self.is_settled = False
        self.machine = machine
        self.bandwidth = chip.bandwidth
        self.graph = aten.id
        self.recorder = recorder
        self.ours = frozenset(launch.function for launch in source.launches)
        inputs = [node for node in aten.module.graph.nodes if node.op == "placeholder"]
        self.names = [aten.names.get(node.name, node.name) for node in inputs]
        values = [node.meta.get("val") for node in inputs]
        tensors = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
        self.scalars = frozenset(n for n in tensors if values[n].device.type == "cpu")
        self.tensors = [n for n in tensors if n not in self.scalars]
        self.overwritten = _overwritten(aten)
        self.saved = _saved(aten)
        numbers = [n for n in range(len(values)) if n not in tensors]
        self.sizes_of = _sizes(numbers, [n for n in tensors if _is_symbolic(values[n])])
        self.of_sizes: dict[Any, _Slots] = {}
        self.refused = False
        self._capturing, self._stream = machine.is_capturing, machine.stream
        self._lock = threading.RLock()

    def call(self, args: list[Any]) -> Any:
        """The module's call: replayed if it can be, else as it is."""
        if self.refused or self._capturing() or not (self.is_settled or self._settles()):
            return self.plain(args)
        with self._lock:
            key = (self._stream(), self.sizes_of(args)) if self.sizes_of else self._stream()
            slots = self.of_sizes.get(key) or self._new_sizes(key)
            if slots is not None:
                addresses = slots.addresses(args)
                for slot in slots.at.get(addresses, ()):
                    if slot.is_free():
                        return slot.run(args)
                found = slots.settle(addresses, args)
                if found is not None:
                    return found.run(args)
                if slots.warming:
                    return slots.warm_up(addresses, args)
        return self.plain(args)

    def _settles(self) -> bool:
        self.is_settled = self.settled()
        return self.is_settled

    def note(self, text: str) -> None:
        self.recorder.add(f"graph {self.graph} {text}")

    def refuse(self, reason: str) -> None:
        """Replay nothing from now on."""
        self.note(f"is not replayed: {reason}")
        self.refused = True
        self.of_sizes.clear()

    def _new_sizes(self, key: Any) -> _Slots | None:
        if len(self.of_sizes) >= MOST_SIZES:
            self.note(f"is replayed at no more than {MOST_SIZES} sets of sizes and streams.")
            return None
        slots = self.of_sizes[key] = _Slots(self)
        return slots


class _Slots:
    """The captured graphs for one set of sizes on one stream. Inputs are counted among ``inputs``."""

    def __init__(self, owner: _Replays) -> None:
        self.owner = owner
        self.slots: list[Slot] = []  # the one that was captured or patched last comes last
        self.at: dict[Addresses, list[Slot]] = {}
        self.where: dict[int, Address] = {}
        self.fixed: set[int] = set()  # inputs whose address cannot be changed
        self.copied = owner.scalars  # positions in ``args``
        self.copied_out: frozenset[int] = frozenset()
        self.captures = 0
        self.warm: dict[Addresses, int] = {}
        self.warming = True
        self.plain_seconds = 0.0
        self._choose_inputs()

    def _choose_inputs(self) -> None:
        self.inputs = [n for n in self.owner.tensors if n not in self.copied]
        self._pick = itemgetter(*self.inputs) if len(self.inputs) > 1 else None

    def addresses(self, args: list[Any]) -> Addresses:
        """Where the inputs are that are not copied."""
        if self._pick is not None:
            return tuple(map(_data_ptr, self._pick(args)))
        return tuple(args[n].data_ptr() for n in self.inputs)

    # -- before anything is captured -------------------------------------------------------------

    def warm_up(self, addresses: Addresses, args: list[Any]) -> Any:
        """A call kernel by kernel, timed: what it takes is what a replay may save."""
        kind = _aligned(addresses)
        self.warm[kind] = self.warm.get(kind, 0) + 1
        start = time.perf_counter()
        result = self.owner.plain(args)
        self.plain_seconds = time.perf_counter() - start
        if self.owner.graph in self.owner.recorder.ran_eagerly:
            self.owner.refuse("it runs eagerly.")
        return result

    def _is_warm(self, addresses: Addresses) -> bool:
        """Whether kernels for inputs aligned like these have been loaded: a capture is no time for that."""
        return sum(self.warm.values()) >= WARM_CALLS and _aligned(addresses) in self.warm

    # -- when no slot is free at these addresses -------------------------------------------------

    def settle(self, addresses: Addresses, args: list[Any]) -> Slot | None:
        """A slot made right for this call; None if it is to be launched kernel by kernel."""
        self.warming = not self._is_warm(addresses)
        if self.warming:
            return None
        found = self._patched(addresses)
        if found is not None:
            return found
        others = list(self.slots)
        if not self._make_room(addresses):
            return None
        try:
            made = self._capture(addresses, args)
            if not others and made.launches() < LEAST_LAUNCHES:
                raise LaunchError("it is one launch, which a replay would not make faster.")
        except LaunchError as error:
            if others:
                self.captures = MOST_CAPTURES
                self.owner.note(f"is not captured again: {error.message}")
            else:
                self.owner.refuse(error.message)
            return None
        self._keep(made)
        if not self._learn(made, others, args):
            return None  # an input is copied from now on: the next call captures that
        return made

    def _patched(self, addresses: Addresses) -> Slot | None:
        """The free slot that takes the fewest patches to be right for these addresses."""
        fitting = [
            (cost(slot, addresses, self.where), order, slot) for order, slot in enumerate(self.slots)
            if slot.is_free() and slot.fits(addresses, self.where)
        ]  # fmt: skip
        if not fitting or min(fitting)[0] * PATCH_SECONDS > self.plain_seconds * SHARE_OF_CALL:
            return None
        slot = min(fitting)[2]
        self._forget(slot)
        try:
            slot.move(addresses, self.where)
        except LaunchError as error:
            slot.recording.release()
            self.fixed |= set(self.where)
            self.where.clear()
            self._note_fixed(error.message)
            return None
        self._keep(slot)
        return slot

    def _make_room(self, addresses: Addresses) -> bool:
        """Whether one more graph may be captured; an old one may go for it."""
        if self.captures >= MOST_CAPTURES:
            return False
        if not self.slots:
            return True
        free = [slot for slot in self.slots if slot.is_free()]
        fixed = all(self.fixed.intersection(slot.moved(addresses)) for slot in self.slots)
        lingering = [] if free else self._held_by_small_results()
        if len(self.slots) < MOST_SLOTS and self._has_memory(bool(lingering)):
            return True
        if free and not fixed:  # with fixed inputs, as many sets of addresses as there are slots, and no more
            self._discard(free[0])
            return True
        for slot, results in lingering:
            if results <= slot.copied_out:  # they are kept for long: they may keep the old memory
                self._discard(slot)
                return True
            self.copied_out |= results
        for slot in self.slots:
            slot.copied_out = self.copied_out
        return False

    def _has_memory(self, lingering: bool) -> bool:
        """Whether one more slot takes little of the memory that is free."""
        size = sum(end - start for start, end in self.slots[0].spans())
        if lingering and size > LITTLE_MEMORY:
            return False
        return size <= self.owner.machine.free_bytes() * SHARE_OF_FREE_MEMORY

    def _held_by_small_results(self) -> list[tuple[Slot, frozenset[int]]]:
        """Slots that are in use for nothing but small results, and which these are. What is saved for the
        backward graph does not count: it must not move."""
        found = []
        for slot in self.slots:
            results = slot.in_use()
            if not results & slot.results(self.owner.saved) and slot.may_copy_out(results, SMALL):
                found.append((slot, results))
        return found

    def _capture(self, addresses: Addresses, args: list[Any]) -> Slot:
        self.captures += 1
        if self.captures == MOST_CAPTURES:
            self.owner.note(f"was captured {MOST_CAPTURES} times; calls that fit none are not replayed.")
        machine = self.owner.machine
        static = {n: machine.like(args[n]) for n in self.copied}
        taken = [static.get(n, item) for n, item in enumerate(args)]
        recording, outputs = machine.capture(self.owner.plain, list(taken))
        slot = Slot(recording, outputs, taken, addresses, static, self.copied_out)
        if slot.inputs_returned() & self.owner.scalars:
            raise LaunchError("a number that comes in on the CPU is a result.")
        return slot

    # -- inputs that moved -----------------------------------------------------------------------

    def _learn(self, made: Slot, others: Sequence[Slot], args: list[Any]) -> bool:
        """Find out where inputs stand that ``made`` has elsewhere than another slot. False if they are to
        be copied from now on, so that ``made`` is of no use."""
        sizes = [extent(args[n]) for n in self.inputs]
        known = self.where.keys() | self.fixed
        other = max(others, key=lambda slot: len(set(slot.moved(made.addresses)) - known), default=None)
        moved = set(other.moved(made.addresses)) if other is not None else set()
        if other is None or not moved - known:
            return True
        try:
            self.where |= learn(other, made, sizes, self.owner.ours)
        except LaunchError as error:
            unknown = moved - self.where.keys()
            places = [self.inputs[n] for n in sorted(unknown)]
            if self._may_copy(places, [sizes[n] for n in unknown]):
                self._copy_from_now_on(places)
                return False
            self.fixed |= unknown
            self._note_fixed(error.message)
        return True

    def _may_copy(self, places: Sequence[int], sizes: Sequence[int]) -> bool:
        """Whether copying inputs in takes little beside what a replay saves. What the graph overwrites
        cannot be copied."""
        seconds = 2 * sum(sizes) / self.owner.bandwidth + COPY_SECONDS * len(sizes)
        worth = seconds <= self.plain_seconds * SHARE_OF_CALL
        return worth and not self.owner.overwritten.intersection(places)

    def _copy_from_now_on(self, places: Sequence[int]) -> None:
        for slot in list(self.slots):
            self._discard(slot)
        self.copied |= frozenset(places)
        self.where.clear()
        self.fixed.clear()
        self.warm = {(): WARM_CALLS}
        self._choose_inputs()

    def _note_fixed(self, reason: str) -> None:
        names = ", ".join(self.owner.names[self.inputs[n]] for n in sorted(self.fixed))
        self.owner.note(f"is not replayed when {names} is elsewhere in memory than before: {reason}")

    # -- the set of slots ------------------------------------------------------------------------

    def _keep(self, slot: Slot) -> None:
        self.slots.append(slot)
        self.at.setdefault(slot.addresses, []).append(slot)

    def _forget(self, slot: Slot) -> None:
        self.slots.remove(slot)
        same = self.at[slot.addresses]
        same.remove(slot)
        if not same:
            del self.at[slot.addresses]

    def _discard(self, slot: Slot) -> None:
        with contextlib.suppress(LaunchError):
            slot.nodes()  # another slot may yet be compared with it
        self._forget(slot)
        slot.recording.release()


_data_ptr = torch.Tensor.data_ptr


def _aligned(addresses: Addresses) -> Addresses:
    return tuple(address % OUR_ALIGNMENT for address in addresses)


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(not isinstance(item, int) for item in (*value.shape, *value.stride()))


def _sizes(numbers: Sequence[int], shaped: Sequence[int]) -> Callable[[list[Any]], Any] | None:
    """What tells the sizes of a call apart; None if they are always the same."""
    if not numbers and not shaped:
        return None

    def sizes_of(args: list[Any]) -> Any:
        shapes = tuple((args[n].shape, args[n].stride()) for n in shaped)
        return tuple(args[n] for n in numbers), shapes

    return sizes_of


def _overwritten(aten: AtenGraph) -> frozenset[int]:
    """Positions of inputs that an operator of the graph may write to."""
    inputs = [node for node in aten.module.graph.nodes if node.op == "placeholder"]
    written = set()
    for node in aten.module.graph.nodes:
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None or schema.is_mutable:
            written |= set(node.all_input_nodes)
    return frozenset(place for place, node in enumerate(inputs) if node in written)


def _saved(aten: AtenGraph) -> frozenset[int]:
    """Positions of results that are kept for the backward graph."""
    returned = next(node for node in reversed(aten.module.graph.nodes) if node.op == "output").args[0]
    names = [getattr(item, "name", "") for item in returned] if isinstance(returned, tuple | list) else []
    return frozenset(place for place, name in enumerate(names) if name in aten.saved)

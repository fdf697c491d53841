"""Inputs that share memory, one of them overwritten, where AOTAutograd gets the numbers wrong in silence
(torch 2.11 to 2.13, ``aot_eager`` and Inductor too) or raises.

Of views of an expanded tensor it makes views anew from the tensor itself, as if that were expanded: an
AssertionError, or the process dies. Where it decides whether two inputs overlap at all it is wrong of a row
and a column of one matrix: it takes them for tensors apart, and what is read of one after the other is
overwritten is the old numbers (``v1 = b[:, :1]; b[2:3].fill_(1); return v1 * 2``).

Of inputs that do overlap it makes one, the tensor that both are views of, and reads them off it. Where in
that they lie is written in its graph, and nothing guards it: another call with ``b[4:20]`` for ``b[0:16]``
reads and writes where the first one did. Here such calls run eagerly (:func:`where_compiled_for`). A result
that is a view of one of them it makes anew of the whole: ``b.mul_(2); return a + 1, b[3:10]`` shows the
tensor's elements 3 to 10, and a view of what is computed it makes of another tensor (:func:`merged_lost`).
And of inputs that share memory without being views of a tensor that autograd knows (``set_``, a ``deepcopy``
of views) it takes the storage, of whose size nothing is known either.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch._C._dynamo.guards import compute_overlapping_tensors
from torch._functorch._aot_autograd.schemas import OutputType
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass

from nbcompile.errors import LoweringError

_VIEWS = (OutputType.alias_of_input, OutputType.is_input)
_VIEWS_OF_RESULTS = (
    OutputType.alias_of_intermediate,
    OutputType.alias_of_intermediate_save_as_output,
    OutputType.alias_of_intermediate_base_is_user_output,
)
_MOST_ELEMENTS = 1 << 26
Call = Callable[..., Any]
Layout = tuple[Any, ...]


def expanded_lost(inputs: Sequence[object]) -> LoweringError | None:
    """What is wrong if the graph that AOTAutograd has just compiled returns a view of an input, overwrites
    one, and is given one that is expanded from a tensor which another shows; None if all is well."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or not any(each.mutates_data for each in metadata.input_info):
        return None
    if not any(each.output_type in _VIEWS for each in metadata.output_info):
        return None
    tensors = [each for each in inputs if isinstance(each, torch.Tensor) and each.layout == torch.strided]
    shown = Counter(each.untyped_storage()._cdata for each in tensors)
    for each in tensors:
        expanded = any(st == 0 and n != 1 for n, st in zip(each.shape, each.stride(), strict=True))
        if expanded and shown[each.untyped_storage()._cdata] > 1:
            return LoweringError(
                "it returns a view of an input and overwrites one, and one is expanded from a tensor that "
                "another shows",
                advice="Pass that tensor alone, and expand it within.",
            )
    return None


def overlap_lost(inputs: Sequence[object]) -> LoweringError | None:
    """What is wrong if the graph that AOTAutograd has just compiled overwrites an input which shares memory
    with another that it has taken for a tensor apart; None if all is well."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(metadata.input_info) != len(inputs):  # else it has made one of several
        return None
    shown: dict[int, list[_Place]] = defaultdict(list)  # by storage
    for each, how in zip(inputs, metadata.input_info, strict=True):
        if isinstance(each, torch.Tensor) and each.layout == torch.strided and not each.is_nested:
            shown[each.untyped_storage()._cdata].append(_place(each, how.mutates_data))
    if any(map(_overlap, shown.values())):
        return LoweringError(
            "it overwrites an input that shares memory with another, and AOTAutograd takes them for "
            "tensors apart",
            advice="Pass the tensor of which both are parts, and take them within.",
        )
    return None


def versions_lost(inputs: Sequence[object]) -> LoweringError | None:
    """What is wrong if the graph that AOTAutograd has just compiled with gradients overwrites an input, which
    it does after the graph, and another lies in the same memory: what is saved of that for backward counts as
    overwritten, though no element of it is."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(metadata.input_info) != len(inputs):
        return None
    shown: dict[int, list[bool]] = defaultdict(list)  # by storage
    for each, how in zip(inputs, metadata.input_info, strict=True):
        if isinstance(each, torch.Tensor) and has_memory(each):
            shown[each.untyped_storage()._cdata].append(how.mutates_data)
    if any(len(each) > 1 and any(each) for each in shown.values()):
        return LoweringError(
            "it overwrites complex numbers beside another input in the same memory, which backward may need",
            advice="Pass the tensor of which both are parts, and take them within.",
        )
    return None


@dataclass(frozen=True)
class _Place:
    """Where in its storage a tensor lies, in elements of ``size`` bytes: from ``start`` to before ``end``."""

    start: int
    end: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    overwritten: bool


def _place(tensor: Any, overwritten: bool) -> _Place:
    shape, strides = tuple(map(_now, tensor.shape)), tuple(map(_now, tensor.stride()))
    start = _now(tensor.storage_offset())
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    end = start if 0 in shape else start + last + 1
    return _Place(start, end, shape, strides, tensor.element_size(), overwritten)


def _overlap(places: list[_Place]) -> bool:
    """Whether an overwritten tensor shares an element with another of one storage, by the sizes that they
    have now. What would take long to tell is taken to be as AOTAutograd has it."""
    if len(places) < 2 or len({each.size for each in places}) > 1:
        return False
    places = sorted(places, key=lambda each: each.start)
    for number, one in enumerate(places):  # parts of a flat buffer are many, and meet nobody
        for other in islice(places, number + 1, None):
            if other.start >= one.end:
                break
            if (one.overwritten or other.overwritten) and _meet(one, other):
                return True
    return False


def _meet(one: _Place, other: _Place) -> bool:
    held = max(one.end, other.end) - one.start
    if held > _MOST_ELEMENTS:
        return False
    with _disable_current_modes():
        met = torch.zeros(held, dtype=torch.bool)
        met.as_strided(one.shape, one.strides).fill_(True)
        return bool(met.as_strided(other.shape, other.strides, other.start - one.start).any())


def _now(size: Any) -> int:
    return int(size.node.hint or 0) if isinstance(size, torch.SymInt) else int(size)


def merged(inputs: Sequence[Any]) -> list[list[int]]:
    """The inputs, by their places, that the graph which AOTAutograd has just compiled takes as one each:
    those of one storage, some of which overlap as it sees it."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None or len(metadata.input_info) == len(inputs):
        return []
    groups: dict[int, list[int]] = defaultdict(list)
    for place, each in enumerate(inputs):
        if has_memory(each):
            groups[each.untyped_storage()._cdata].append(place)
    return [group for group in groups.values() if _taken_as_one([inputs[place] for place in group])]


def _taken_as_one(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether AOTAutograd takes some of these, all of one storage, for overlapping, as it does of some that
    lie between each other's elements (``b[:, :1]`` and ``b[:, 1::3]``): by its own rule."""
    if len(inputs) < 2:
        return False
    sizes = [n for each in inputs for n in (*each.shape, *each.stride(), each.storage_offset())]
    symbolic = [n for n in sizes if isinstance(n, torch.SymInt)]
    unguarded = symbolic[0].node.shape_env.suppress_guards if symbolic else contextlib.nullcontext
    with unguarded():
        return bool(compute_overlapping_tensors(list(inputs), symbolic=bool(symbolic)))


def merged_lost(inputs: Sequence[Any], groups: Sequence[Sequence[int]]) -> LoweringError | None:
    """What is wrong if inputs that are taken as one are no views of one tensor, or if a result shows one of
    them; None if all is well."""
    if not groups:
        return None
    advice = "Pass the tensor of which both are parts, and take them within."
    if not all(any(inputs[place]._base is not None for place in group) for group in groups):
        return LoweringError(
            "it overwrites an input that shares memory with another, and torch does not know them for views "
            "of one tensor",
            advice=advice,
        )
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    assert metadata is not None, "it has said which inputs are taken as one"
    # the tensors that the others are views of come first among the inputs that the graph has; torch 2.11
    # takes the first of the given ones for one of them
    no_base = all(inputs[place]._base is not None for group in groups for place in group)
    no_base = no_base or torch.__version__ < "2.13"
    if any(
        each.output_type is OutputType.alias_of_input
        or (each.output_type is OutputType.is_input and no_base and (each.base_idx or 0) < len(groups))
        for each in metadata.output_info
    ):
        return LoweringError(
            "it overwrites an input that shares memory with another, and returns a view of an input, which "
            "AOTAutograd would look for in the wrong place",
            advice=advice,
        )
    # torch renumbers what a view is of as it does the inputs, and these are no inputs: an IndexError, or
    # the view of another tensor
    if any(each.output_type in _VIEWS_OF_RESULTS for each in metadata.output_info):
        return LoweringError(
            "it overwrites an input that shares memory with another, and returns a view of what it computes, "
            "which AOTAutograd would look for in the wrong place",
            advice=advice,
        )
    return None


def where_compiled_for(
    call: Call, eager: Call, inputs: Sequence[Any], fixed: Sequence[bool], say: Callable[[str], None]
) -> Call:
    """``call`` where the inputs of a graph that overwrites some share memory as ``inputs`` do, for which
    AOTAutograd has just compiled it, else ``eager``, and ``say`` that. ``fixed`` says which inputs are the
    same memory at every call (parameters, buffers): that two of these came to overlap is not asked."""
    compiled_for = _Sharing.of(inputs, fixed)
    if compiled_for is None:
        return call
    places, distinct = compiled_for.places, compiled_for.distinct

    def run(*given: Any) -> Any:
        held = {given[place].untyped_storage()._cdata for place in places}
        if (distinct and len(held) == len(places)) or compiled_for.is_that_of(given):
            return call(*given)
        say("its inputs share memory in another way than those it was compiled for")
        return eager(*given)

    return run


@dataclass(frozen=True)
class _Sharing:
    """Which inputs of a graph share memory: ``places`` of those that could, by number of the first that has
    the same storage, and how each of ``groups``, which AOTAutograd takes as one, lies in it."""

    places: tuple[int, ...]
    pattern: tuple[int, ...]
    layouts: dict[int, Layout]
    overwritten: Set[int]

    @classmethod
    def of(cls, inputs: Sequence[Any], fixed: Sequence[bool]) -> _Sharing | None:
        """That of the graph which AOTAutograd has just compiled; None if no call could be another."""
        context = torch._guards.TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        if metadata is None or not any(each.mutates_data for each in metadata.input_info):
            return None
        tensors = [place for place, each in enumerate(inputs) if has_memory(each)]
        groups, overwritten = merged(inputs), set(tensors)  # of what is taken as one nobody knows which
        if not groups and len(metadata.input_info) == len(inputs):
            overwritten = {place for place in tensors if metadata.input_info[place].mutates_data}
            tensors = [place for place in tensors if place in overwritten or not fixed[place]]
            if len(tensors) < 2 or all(fixed[place] for place in tensors) or not overwritten:
                return None
        layouts = {place: _layout(inputs[place]) for group in groups for place in group}
        return cls(tuple(tensors), _pattern(inputs, tensors), layouts, overwritten)

    @property
    def distinct(self) -> bool:
        """Whether no two share memory."""
        return self.pattern == tuple(range(len(self.pattern)))

    def is_that_of(self, given: Sequence[Any]) -> bool:
        """Whether a graph that was compiled for this can be called with these inputs."""
        if not all(_is_laid_out(layout, _layout(given[place])) for place, layout in self.layouts.items()):
            return False
        if self.layouts and _pattern(given, self.places) != self.pattern:
            return False
        shown: dict[int, list[_Place]] = defaultdict(list)
        for place in self.places:
            if place not in self.layouts:
                storage = given[place].untyped_storage()._cdata
                shown[storage].append(_place(given[place], place in self.overwritten))
        return not any(map(_overlap, shown.values())) and not self._loses_gradients(given)

    def _loses_gradients(self, given: Sequence[Any]) -> bool:
        """Whether what is written to one of these may make another view of the same tensor require a
        gradient, where those that the graph was compiled for were views of tensors apart."""
        pattern = _pattern(given, self.places)
        if pattern == self.pattern or not torch.is_grad_enabled():
            return False
        if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in given):
            return False
        of_one: dict[int, list[int]] = defaultdict(list)
        for place, first in zip(self.places, pattern, strict=True):
            of_one[first].append(place)
        return any(
            len(group) > 1
            and not self.overwritten.isdisjoint(group)
            and any(given[place]._base is not None and not given[place].requires_grad for place in group)
            for group in of_one.values()
        )


def has_memory(value: Any) -> bool:
    """Whether a value is a tensor that shows one memory by strides: no sparse, nested or composed one."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not value.is_nested
        and not is_traceable_wrapper_subclass(value)
    )


def _pattern(inputs: Sequence[Any], places: Sequence[int]) -> tuple[int, ...]:
    first: dict[int, int] = {}
    return tuple(
        first.setdefault(inputs[place].untyped_storage()._cdata, number)
        for number, place in enumerate(places)
    )


def _layout(tensor: Any) -> Layout:
    """Where a tensor lies in the one that it is a view of, and how that lies in its storage."""
    base = tensor._base if tensor._base is not None else tensor
    return (tensor.storage_offset(), base.storage_offset(), *base.shape, *base.stride())


def _is_laid_out(wanted: Layout, found: Layout) -> bool:
    return len(wanted) == len(found) and all(
        want == have for want, have in zip(wanted, found, strict=True) if not isinstance(want, torch.SymInt)
    )

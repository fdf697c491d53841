"""What is kept of a captured graph: what AOTAutograd puts around the compiled forward and backward graphs,
and of these what another process needs to call them."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from nbcompile.compiler.capture import tangents
from nbcompile.compiler.capture.calls.first_call import first_outside
from nbcompile.compiler.in_aten import carry_tangents
from nbcompile.compiler.runtime.bind import bind
from nbcompile.compiler.runtime.c.calls import load
from nbcompile.compiler.runtime.cache import DiskCache, Entry
from nbcompile.compiler.stages import Portable
from nbcompile.errors import LaunchError, ToolchainError

Call = Callable[[list[Any]], Any]

FILE = "graph.pickle"
MOST_BYTES = 16 << 20
"""A graph that holds more than this in tensors is not kept: reading them would take longer than compiling."""


@dataclass(frozen=True)
class Kept:
    """One compiled graph. ``gradients``: where a backward graph takes gradients
    (:mod:`nbcompile.compiler.capture.tangents`); ``outside``: whether its first call is made outside
    AOTAutograd's check of custom operators, which takes its time
    (:mod:`nbcompile.compiler.capture.calls.first_call`)."""

    code: Portable
    gradients: tangents.Places = ()
    outside: bool = False

    def bound(self, forget: Callable[[], None]) -> Call:
        """The graph as a function of one list, which calls ``forget`` if its first call fails: there is no
        graph here that ATen could run instead, but there is in the process that then compiles it anew.
        LookupError where its library is no longer on disk, or is not what it was."""
        functions, code = self._functions(), marshal.loads(self.code.wrapper)
        call: Call = bind(self.code.source, functions, self.code.constants, True, code=code).call
        if self.gradients:
            call = tangents.as_traced(call, self.gradients)
        return _first_told(call, first_outside(call) if self.outside else call, forget)

    def _functions(self) -> Callable[[], Mapping[str, Callable[..., None]]]:
        if not self.code.library:
            return dict
        entry = DiskCache.shared().get(self.code.library)
        if entry is None:
            raise LookupError("the library of its kernels is no longer there")
        try:
            functions = load(entry.path("kernel.so"), self.code.source.entry_points)
        except ToolchainError as error:
            raise LookupError(error.message) from error
        return lambda: functions


def _first_told(call: Call, first: Call, failed: Callable[[], None]) -> Call:
    """``call``, in whose place ``first`` is called the first time; ``failed`` is told if that raises."""
    state = [first]

    def run(inputs: list[Any]) -> Any:
        if carry_tangents(inputs):  # of a backward graph: of others it is asked before AOTAutograd is called
            raise LaunchError(
                "forward-mode AD follows a gradient into a compiled backward graph",
                advice="Run the function without compiling it where tangents are taken of its gradients.",
            )
        if not state:
            return call(inputs)
        try:
            return state.pop()(inputs)
        except Exception:
            failed()
            raise

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Half:
    """A compiled graph where AOTAutograd's entry holds Inductor's: it is told to load it, and then to do what
    is left. ``made``: the function, once :meth:`prepare` has made it; it is never stored."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.made: Call | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "made": None}

    def prepare(self, forget: Callable[[], None] = lambda: None) -> None:
        """Make the function now, where a failure is a miss."""
        self.made = self.kept.bound(forget)

    def pre_save(self) -> None:
        """Nothing is left out of what is stored but what :meth:`__getstate__` leaves out."""

    def load(self, example_inputs: Any) -> Call:
        if self.made is None:
            self.prepare()
        assert self.made is not None
        return self.made

    def post_compile(self, result: Call, fx_config: Any) -> Call:
        return result


class Backward(Half):
    """The half that autograd calls. The names of the two numbers are AOTAutograd's."""

    def __init__(self, kept: Kept, backward_state_indices: list[int], num_symints_saved_for_bw_: int) -> None:
        super().__init__(kept)
        self.backward_state_indices = backward_state_indices
        self.num_symints_saved_for_bw_ = num_symints_saved_for_bw_

    def post_compile(self, result: Call, fx_config: Any) -> Call:
        dynamo: Any = torch._dynamo
        disabled: Call = dynamo.disable(result, reason="do not trace generated backwards pass")
        return disabled


def bytes_of(constants: Mapping[str, torch.Tensor]) -> int:
    """The memory of the tensors that a graph holds."""
    return sum(each.numel() * each.element_size() for each in constants.values())


def store(key: str, entry: Any) -> None:
    """Keep what AOTAutograd made of a graph. Raises what pickle raises."""
    with _disable_current_modes():  # else a tensor that it holds would be copied as a fake one
        content = pickle.dumps(entry, protocol=pickle.HIGHEST_PROTOCOL)
    DiskCache.shared().put(key, {FILE: content})


def find(key: str) -> tuple[Any, bytes] | None:
    """What is kept under this key, ready to be called, and its bytes. None if there is none, and for whatever
    is wrong with it: it is then removed."""
    cache = DiskCache.shared()

    def made(entry: Entry) -> tuple[Any, bytes]:
        content = entry.read(FILE)
        try:
            with _disable_current_modes():
                found = pickle.loads(content or b"")
                for half in (found.compiled_fw, found.compiled_bw):
                    if half is not None:
                        half.prepare(lambda: cache.remove(key))
        except Exception as error:  # of another torch, or damaged: whatever reading it raises
            raise ValueError(str(error)) from error
        return found, content or b""

    return cache.find(key, made)

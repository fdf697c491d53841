"""One compile's part in the cache of whole graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import fx

from nbcompile.compiler.capture import tangents
from nbcompile.compiler.capture.calls.first_call import has_custom_operators
from nbcompile.compiler.runtime.cache import DiskCache, key
from nbcompile.compiler.stages import CompiledModule, device_of
from nbcompile.compiler.warm import hooks
from nbcompile.compiler.warm.facts import facts, why_not
from nbcompile.compiler.warm.kept import MOST_BYTES, Kept, bytes_of
from nbcompile.errors import ToolchainError
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder

_log = logging.getLogger("nbcompile")


class Lookup:
    """Of a graph that Dynamo has captured: its place in the cache. ``reason``: why it is not looked for;
    empty if it is."""

    def __init__(
        self, module: fx.GraphModule, inputs: Sequence[Any], options: Options, recorder: Recorder
    ) -> None:
        self.recorder = recorder
        self.key = ""  # empty: torch has made none, or the graph is not to be kept
        self.inference: list[Callable[..., Any]] = []  # what was found of a graph that has no backward
        self.asked = False
        try:
            options = options.for_device(device_of(module, inputs))
            self.reason = hooks.install() or why_not(module, inputs, options)
            self.facts = "" if self.reason else facts(module, inputs, options)
        except ToolchainError as error:
            self.reason = error.message
        except Exception as error:  # of what another torch has or comes with: compiling does without
            _log.debug("the cache of whole graphs", exc_info=True)
            self.reason = f"{type(error).__name__}: {error}"

    @contextmanager
    def within(self) -> Iterator[None]:
        """Around AOTAutograd's compile of the graph."""
        if self.reason:
            yield
            return
        with hooks.looking(self._key_of, self.inference):
            yield

    def compiler(self, compiler: Callable[..., Any]) -> Any:
        """``compiler``, as AOTAutograd wants it if it is to ask its cache."""
        return compiler if self.reason else hooks.serializable(compiler)

    def _key_of(self, torchs: str) -> str:
        self.asked, self.key = True, key(torchs, self.facts)
        # What is left to eager after all is not to be found again.
        self.recorder.on_leaving = self.forget
        return self.key

    def keep(self, call: Any, compiled: CompiledModule, module: fx.GraphModule, backward: bool) -> None:
        """Let AOTAutograd store one of the compiled graphs, if another process can make the same of it."""
        code = compiled.portable
        if not self.key or code is None or self.recorder.ran_eagerly or bytes_of(code.constants) > MOST_BYTES:
            return
        gradients = tangents.traced(module) if backward else ()
        hooks.mark(call, Kept(code, gradients, not has_custom_operators(module)))

    def forget(self) -> None:
        """Remove what is kept of the graph, and keep no more of it."""
        if self.key:
            DiskCache.shared().remove(self.key)
        self.key = ""

    def say(self, graph: str, hit: bool) -> None:
        """Count what has become of it, and tell the log."""
        from torch._dynamo.utils import counters

        if self.reason:
            said = f"not looked for: {self.reason}"
        elif not self.asked:
            said = "not looked for: torch makes no key of it"
        else:
            said = "found" if hit else "not found"
        counters["nbcompile"][f"whole graph {said}"] += 1
        _log.info("graph %s in the cache of whole graphs: %s", graph, said)

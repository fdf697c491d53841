"""What a backend is to the bench: one value a compiler, in one file of its own.

A file in this folder, or a folder of it, that has a ``BACKEND`` is a backend. It imports its compiler inside
its functions, so that it can be listed, with what to install, where the compiler is not.
"""

from __future__ import annotations

import fnmatch
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from nbcompile.compiler.stages import FxGraph
from nbcompile.errors import OptionError
from nbcompile.options import unknown_option
from nbcompile.record.recorder import Recorder

GraphCompiler = Callable[[FxGraph, Sequence[Any], Recorder], Callable[..., Any]]
"""``compiler(graph, example_inputs, recorder)``: what Dynamo is to call in place of one captured graph. What
the compiler tells of its own stages goes to the recorder."""

Inner = Callable[..., Any]
"""``(fx.GraphModule, list of example inputs) -> callable``: what ``torch.compile`` calls a backend."""

DEFAULT = ("default",)


@dataclass(frozen=True)
class BackendSettings:
    """What a compile asks of its backend: torch.compile's mode and ``dynamic``, and its own options."""

    mode: str = "default"
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None


@dataclass(frozen=True)
class Backend:
    """A compiler that ``--backend NAME`` can name.

    ``compiler`` binds the settings of a compile, and raises OptionError for those it does not take.
    ``modules`` are what it imports, ``packages`` what pip is to install for them. ``modes`` are those it
    knows, ``trains`` whether it compiles what requires gradients, ``devices`` where its code runs.
    ``options`` describes those it takes, by name (or pattern, ``xla_*``), in a sentence each; if it has any,
    others are refused.
    """

    name: str
    summary: str
    compiler: Callable[[BackendSettings], GraphCompiler]
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    modes: tuple[str, ...] = DEFAULT
    trains: bool = True
    devices: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
    options: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str:
        """Why it cannot be used here, as the rest of a sentence ("needs tvm, which is not installed"); empty
        if it can."""
        absent = [name for name in self.modules if not _is_there(name)]
        if absent:
            return f"needs {' and '.join(absent)}, which {'are' if len(absent) > 1 else 'is'} not installed"
        if "cpu" not in self.devices and not torch.cuda.is_available():
            return "needs an NVIDIA GPU, and there is none here"
        return ""

    @property
    def install(self) -> str:
        """The command that installs what it needs; empty if it comes with torch."""
        return f"pip install {' '.join(self.packages)}" if self.packages else ""

    def check(self) -> None:
        """OptionError, with what to install, if it cannot be used here."""
        missing = self.missing()
        if missing:
            advice = f"Run: {self.install}" if "installed" in missing and self.install else ""
            raise OptionError(f"backend {self.name!r} {missing}.", advice=advice)

    def bound(self, settings: BackendSettings) -> GraphCompiler:
        """:attr:`compiler` of these settings. OptionError where it is not here or takes no such mode."""
        self.check()
        if settings.mode not in self.modes:
            raise OptionError(
                f"backend {self.name!r} has no mode {settings.mode!r}.",
                advice=f"Modes: {', '.join(self.modes)}.",
            )
        for name in settings.options if self.options else ():
            if not any(fnmatch.fnmatchcase(name, known) for known in self.options):
                raise unknown_option(self.name, name, self.options)
        return self.compiler(settings)


BackendArgument = str | Inner | Backend
"""What ``nbcompile.compile(backend=...)`` takes."""


def of_inner(inner: Inner, settings: BackendSettings) -> GraphCompiler:
    """A torch.compile backend, mode and options handed to it as torch.compile hands them."""
    given: dict[str, Any] = {}
    if settings.mode != "default":
        given["mode"] = settings.mode
    if settings.options:
        given["options"] = dict(settings.options)

    def compiler(graph: FxGraph, example_inputs: Sequence[Any], recorder: Recorder) -> Callable[..., Any]:
        compiled: Callable[..., Any] = inner(graph.module, list(example_inputs), **given)
        return compiled

    return compiler


def of_torch(name: str) -> Callable[[BackendSettings], GraphCompiler]:
    """``Backend.compiler`` of a backend that torch itself knows by this name."""

    def compiler(settings: BackendSettings) -> GraphCompiler:
        from torch._dynamo.backends.registry import lookup_backend

        return of_inner(lookup_backend(name), settings)

    return compiler


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is absent, or half removed
        return False

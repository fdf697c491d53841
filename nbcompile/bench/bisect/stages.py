"""The stages from a function to what a backend runs, each as a compiler of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbcompile.api import Compiled
from nbcompile.compiler.in_aten import in_aten
from nbcompile.compiler.stages import AtenGraph, CompiledModule
from nbcompile.options import Options
from nbcompile.record.compilation import Cell
from nbcompile.record.recorder import Recorder
from nbcompile.settings import CompileSettings


@dataclass(frozen=True)
class StageCompiler:
    """A stage: ``settings`` compile up to it, with ``in_aten`` what our compiler would get run by ATen.
    ``flags`` are those of a cell that does the same, of the nearest that a cell can ask for."""

    name: str
    meaning: str
    settings: CompileSettings
    flags: str
    in_aten: bool = False

    def compile(self, fn: Callable[..., Any], cell: Cell | None = None) -> Compiled:
        """``fn``, compiled as far as this stage."""
        return Compiled(fn, self.settings, cell=cell, compile_aten=_run_in_aten if self.in_aten else None)

    @property
    def printed(self) -> StageCompiler:
        """The stage that a cell with ``flags`` has."""
        if not self.in_aten:
            return self
        asked = {**(self.settings.options or {}), "fuse": False}
        return dataclasses.replace(
            self, settings=dataclasses.replace(self.settings, options=asked), in_aten=False
        )


def stages_of(asked: CompileSettings) -> list[StageCompiler]:
    """The stages of a backend in order; the last is the backend as it was asked for."""
    asked = dataclasses.replace(asked.drawing_as_eager(), fullgraph=False, disable=False)
    plain = dataclasses.replace(asked, mode=None, options=None)

    def torchs(name: str, title: str, meaning: str) -> StageCompiler:
        return StageCompiler(title, meaning, dataclasses.replace(plain, backend=name), f"--backend {name}")

    name = asked.backend_name
    stages = [
        torchs("eager", "captured", "Dynamo's graph, run by eager"),
        torchs("aot_eager", "aot_eager", "AOTAutograd's ATen graphs, run by ATen"),
    ]
    if name in ("eager", "aot_eager"):
        return stages[: 1 + (name == "aot_eager")]
    if not asked.ours:
        return [*stages, StageCompiler(name, f"what {name} runs", asked, f"--backend {name}")]
    options = asked.own_options
    given = dict(asked.options or {})
    if options.random == "auto":
        given["random"] = "eager"  # else its numbers are others, and nothing can be compared
    ours = dataclasses.replace(asked, options=given)
    apart = dataclasses.replace(ours, options={**given, "fuse": False, "force_fuse": ()})
    mode = f" --mode {asked.mode}" if asked.mode else ""
    flags = f"--backend nbcompile{mode}"
    stages += [
        StageCompiler(
            "decomposed", "the graphs that we compile, run by ATen", ours, f"{flags} --no-fuse", True
        ),
        StageCompiler("unfused", "our kernels, one a loop", apart, f"{flags} --no-fuse"),
    ]
    if options.fuse:
        stages.append(StageCompiler("fused", "our kernels, fused", ours, flags))
    return stages


def _run_in_aten(aten: AtenGraph, options: Options, recorder: Recorder) -> CompiledModule:
    return CompiledModule(aten.id, in_aten(aten.module))

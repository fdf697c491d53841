"""``nbcompile.mode_diff``: one program in several modes, and what each mode really changes for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from nbcompile.backends.browse import list_mode_options
from nbcompile.bench.measure.compare import Audience, Measuring, Progress, compare_with, default_compile
from nbcompile.bench.measure.contestant import Compile, CompiledFunction, Contestant
from nbcompile.errors import MeasureError
from nbcompile.options import REPLAY_MODES
from nbcompile.record.compilation import Compilation
from nbcompile.record.mode_diff import ModeDiff, ModeResult
from nbcompile.settings import CompileSettings, keywords_of, made_of

_OWN = ("mode", "cold")
"""What a mode diff does not take of what a comparison takes: it says the modes, and times no cold compile."""


@keywords_of(CompileSettings, Measuring, without=_OWN)
def mode_diff(
    fn: Callable[..., Any],
    inputs: Any = (),
    modes: Sequence[str] = ("default", "max-autotune"),
    *,
    backend: str = "nbcompile",
    compile: Compile | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ModeDiff:
    """Compile ``fn(*inputs)`` in each mode of a backend and hold the records side by side.

    The result says which options differ, which kernels and library calls come, go or change, what
    autotuning chose, whether CUDA graphs are replayed, and the time of a call, the modes taken in turns. The
    first mode is the one that the others are held against. Arguments as for :func:`nbcompile.compare`.
    MeasureError for fewer than two modes, OptionError for a mode that the backend does not have.
    """
    if isinstance(modes, str):
        raise MeasureError(
            f"modes are a list, and this is {modes!r}.", advice=f'Write ("default", {modes!r}), for example.'
        )
    if len(set(modes)) < 2 or len(set(modes)) < len(modes):
        raise MeasureError("mode_diff compares at least two modes, each named once.")
    asked, how = made_of(settings, CompileSettings, Measuring, without=_OWN)
    sets = _settings(modes, backend)
    made: dict[str, CompiledFunction] = {}
    make = compile or default_compile()

    def kept(function: Callable[..., Any], *, mode: str, **rest: Any) -> CompiledFunction:
        compiled = made[mode] = make(function, mode=mode, **rest)
        return compiled

    skipped = _skips()
    compared = compare_with(
        fn,
        inputs,
        [Contestant(f"{backend}:{mode}", backend, mode, asked.options) for mode in modes],
        asked,
        replace(how, cold=False),
        compile=kept,
        audience=Audience(progress),
    )
    skipped = _skips() - skipped
    results = []
    for mode in modes:
        name = f"{backend}:{mode}"
        record = made[mode].compilation
        results.append(
            ModeResult(
                mode,
                record,
                sets[mode],
                next((m for m in compared.measurements if m.contestant == name), None),
                tuple(found for found in compared.accuracy if found.contestant == name),
                _replayed(record, backend, mode, sets[mode], skipped),
            )
        )
    name = getattr(inspect.unwrap(fn), "__qualname__", type(fn).__qualname__)
    return ModeDiff(name, backend, tuple(results))


def _settings(modes: Sequence[str], backend: str) -> dict[str, dict[str, Any]]:
    """What each mode sets. For Inductor, an option that only another mode sets has the value that it has
    anyway, so that setting it to that is no difference."""
    sets = {mode: list_mode_options(mode, backend) for mode in modes}
    if backend != "inductor":
        return sets
    from torch._inductor import config

    now = config.get_config_copy()
    names = dict.fromkeys(name for set_ in sets.values() for name in set_)
    return {mode: {name: set_.get(name, now.get(name)) for name in names} for mode, set_ in sets.items()}


def _replayed(record: Compilation, backend: str, mode: str, sets: Mapping[str, Any], skipped: int) -> str:
    """Whether this mode's CUDA graphs are replayed, in words; empty if it asks for none."""
    asked = mode in REPLAY_MODES if backend == "nbcompile" else bool(sets.get("triton.cudagraphs"))
    if not asked:
        return ""
    if not (torch.cuda.is_available() and any(kernel.target != "cpu" for kernel in record.kernels)):
        return "no: nothing of it runs on a GPU"
    refused = [note for note in record.notes if "not replayed" in note]
    if refused:
        return f"no: {refused[0]}"
    if backend != "nbcompile" and skipped:
        return f"not all: Inductor left out {skipped}"
    return "yes"


def _skips() -> int:
    """How often Inductor has gone without a CUDA graph that it was asked for."""
    from torch._dynamo.utils import counters

    return int(counters["inductor"]["cudagraph_skips"])

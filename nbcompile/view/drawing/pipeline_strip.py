"""The strip of steps under the head: what each made, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nbcompile.record.compilation import Compilation, PassRecord
from nbcompile.units import count_text, finite, milliseconds_text, seconds_text
from nbcompile.view.facts import facts as fact

StepKey = Literal["capture", "aot", "lower", "fuse", "codegen", "build", "run"]
STEPS: dict[str, StepKey] = {"Capture": "capture", "AOTAutograd": "aot", "Lower": "lower", "Fuse": "fuse",
                             "Codegen": "codegen", "Build": "build"}  # fmt: skip
_BY_STAGE = {"fx": "Capture", "joint": "AOTAutograd", "forward": "AOTAutograd", "backward": "AOTAutograd",
             "loops": "Lower", "fused": "Fuse"}  # fmt: skip


@dataclass(frozen=True)
class StripStage:
    """One step: ``figure`` says what it made, ``note`` that and the time it took, in words (either may be
    empty). ``milliseconds`` is ``None`` where no time was recorded."""

    step: StepKey
    name: str
    figure: str
    note: str
    milliseconds: float | None = None


def strip(compilation: Compilation) -> tuple[StripStage, ...]:
    """The steps that this record knows something about, in order, and then the run."""
    times: dict[str, float] = {}
    for item in compilation.passes:
        name = _step_of(compilation, item)
        times[name] = times.get(name, 0.0) + max(0.0, item.milliseconds)
    made = _made(compilation)
    out = []
    for name, key in STEPS.items():
        if name in times or made.get(name):
            time = milliseconds_text(times[name]) if times.get(name) else ""
            note = " · ".join(part for part in (made.get(name, ""), time) if part)
            out.append(StripStage(key, name, made.get(name, ""), note, finite(times.get(name))))
    ours, _ = fact.own_measurement(compilation)
    if ours is not None and ours.counts and ours.median is not None:
        figure = f"{seconds_text(ours.median)} a call"
        out.append(StripStage("run", "Run", figure, figure, finite(1e3 * ours.median)))
    return tuple(out)


def _step_of(compilation: Compilation, item: PassRecord) -> str:
    """The step a pass belongs to: by the stage of the graph it made. Passes that make no graph make code
    from a fused graph, or a module from code."""
    stages = {graph.id: graph.stage for graph in compilation.graphs}
    if item.before.endswith(".source"):
        return "Build"
    if item.after in stages:
        return _BY_STAGE.get(stages[item.after], "Capture")
    return "Codegen" if stages.get(item.before) == "fused" or item.after.endswith(".source") else "Build"


def _made(compilation: Compilation) -> dict[str, str]:
    def count(*stages: str) -> list[int]:
        return [len(fact.working(graph)) for graph in fact.stage_graphs(compilation, *stages)]

    made: dict[str, str] = {}
    if ops := count("fx"):
        made["Capture"] = count_text(sum(ops), "op")
    forward, backward = count("forward"), count("backward")
    if forward or backward:
        parts = [str(sum(forward)), *([str(sum(backward))] if backward else [])]
        one = sum(forward) + sum(backward) == 1
        made["AOTAutograd"] = f"{' + '.join(parts)} {'op' if one else 'ops'}"
    if fact.stage_graphs(compilation, "loops"):
        loops = sum(
            1 for graph in fact.stage_graphs(compilation, "loops") for node in fact.working(graph)
            if node.kind not in ("library", "fallback")
        )  # fmt: skip
        made["Lower"] = count_text(loops, "loop")
    if compilation.decisions:
        accepted = sum(1 for decision in compilation.decisions if decision.accepted)
        made["Fuse"] = f"{accepted:,} of {len(compilation.decisions):,} pairs"
    if compilation.kernels:
        made["Codegen"] = count_text(len(compilation.kernels), "kernel")
        if compilation.from_cache:
            made["Build"] = "from cache"
        elif any(kernel.target not in ("cpu", "") for kernel in compilation.kernels):
            made["Build"] = f"Triton {compilation.environment.triton}".strip()
        elif compilation.environment.compiler and not fact.of_jax(compilation):
            made["Build"] = compilation.environment.compiler.split()[0].rsplit("/", 1)[-1][:16]
    return made

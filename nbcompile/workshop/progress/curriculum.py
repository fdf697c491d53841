"""The workshop's notebooks in their order, with their exercises: known without torch, which judges need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Notebook:
    """``title`` as the instructor's guide has it, in short; ``exercises`` by name, in their order."""

    number: str
    title: str
    exercises: tuple[str, ...]


NOTEBOOKS = (
    Notebook("00", "The tour", ("tour.counts", "tour.bytes", "tour.write")),
    Notebook("01", "A first compile", ("first.read", "first.lines", "first.one", "first.cannot")),
    Notebook(
        "02",
        "Why eager is slow",
        ("eager.overhead", "eager.intensity", "eager.bound", "eager.bytes", "eager.predict"),
    ),
    Notebook(
        "03",
        "Capture",
        ("capture.baked", "capture.disguise", "capture.recompiles", "capture.graphs", "capture.mend"),
    ),
    Notebook(
        "04",
        "Autograd",
        ("autograd.saved", "autograd.recomputed", "autograd.fewer", "autograd.products", "autograd.writes"),
    ),
    Notebook(
        "05", "The loop IR", ("loops.index", "loops.order", "loops.count", "loops.bytes", "loops.inline")
    ),
    Notebook(
        "06",
        "Fusion",
        ("fusion.speedup", "fusion.pairs", "fusion.reasons", "fusion.inductor", "fusion.overrule"),
    ),
    Notebook(
        "07",
        "Reductions",
        (
            "reductions.online",
            "reductions.merge",
            "reductions.welford",
            "reductions.bytes",
            "reductions.schedules",
        ),
    ),
    Notebook(
        "08",
        "Reading kernels",
        ("codegen.lines", "codegen.offset", "codegen.mask", "codegen.tail", "codegen.fast"),
    ),
    Notebook(
        "09",
        "Triton without a GPU",
        ("triton.grid", "triton.add", "triton.softmax", "triton.width", "triton.spills"),
    ),
    Notebook(
        "10", "Modes", ("modes.option", "modes.launches", "modes.replay", "modes.copy", "modes.payback")
    ),
    Notebook(
        "11",
        "Dynamic shapes",
        ("shapes.compiles", "shapes.guard", "shapes.cost", "shapes.steps", "shapes.serve"),
    ),
    Notebook(
        "12",
        "Training",
        ("training.saved", "training.schedule", "training.casts", "training.accumulate", "training.buckets"),
    ),
    Notebook(
        "13",
        "When it helps",
        ("worth.break_even", "worth.lengths", "worth.choose", "worth.bottleneck"),
    ),
    Notebook("14", "Export", ("export.sizes", "export.dims", "export.mend", "export.baked")),
    Notebook(
        "15",
        "The other compilers",
        ("others.retrace", "others.fusions", "others.fewer", "others.copies", "others.pattern"),
    ),
    Notebook("16", "Write your own", ("own.saved", "own.lowering", "own.rule", "own.backend")),
    Notebook("17", "Build a compiler", ("build.kernels", "build.operator", "build.rule", "build.vector")),
)

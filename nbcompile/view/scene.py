"""What the explorer shows beside the record itself: all that Python derives from it, so that no other
language derives it again.

A payload (:func:`nbcompile.view.whole`) is the record as JSON with one key more, ``view``, which holds a
:class:`Scene`. The explorer's TypeScript types are generated from :func:`scene_schema`. Times are in
seconds, sizes in bytes, shares from 0 to 1; texts are there only where Python words them, and are as
untrusted as the record that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from nbcompile.record.compilation import Compilation, GraphBreak, Recompile
from nbcompile.record.packed import plain
from nbcompile.record.provenance import Links
from nbcompile.units import clip, finite
from nbcompile.view.drawing.nesting import Drawing, counted_from_first, drawings
from nbcompile.view.drawing.pipeline_strip import StripStage, strip
from nbcompile.view.drawing.roofline import Bound, Roofline, bound, roofline
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.cell_lines import Became, Chip, cell_lines
from nbcompile.view.facts.coaching import mend_text, price_text
from nbcompile.view.facts.facts import Call, ShareOf, Verdict
from nbcompile.view.facts.kernel_code import KernelCode, kernel_codes
from nbcompile.view.facts.prices import price_words, prices
from nbcompile.view.facts.schedules import explained
from nbcompile.view.facts.since import since_text
from nbcompile.view.facts.timings import Timing, timings
from nbcompile.view.facts.why import why
from nbcompile.view.pending import Pending, sketch

SCHEMA = "nbcompile.scene/1"


@dataclass(frozen=True)
class SceneLine:
    """What became of one line of the cell: lines without a statement are left out.

    ``share`` is the line's part of what the scene's ``share_of`` says; ``calls`` are the ids of what serves
    it, ``chips`` the same by label, or captured ops where the backend tells no more; ``why`` says why nothing
    was compiled of it.
    """

    number: int
    fate: Became
    share: float
    calls: tuple[str, ...]
    chips: tuple[Chip, ...]
    why: str = ""


@dataclass(frozen=True)
class ScenePoint:
    """A kernel under its roof, at ``intensity`` flop a byte (``None``: it moves nothing).

    Rates are those of ``seconds``: measured where ``measured`` is true, else predicted. ``limit`` is its
    least time, ``share`` the part of that limit which a measured time reaches.
    """

    kernel: str
    label: str
    bytes: int
    flops: int
    bound: Bound
    measured: bool
    seconds: float | None
    limit: float | None
    intensity: float | None = None
    flops_per_second: float | None = None
    bytes_per_second: float | None = None
    share: float | None = None


@dataclass(frozen=True)
class SceneRoofline:
    """The ceilings of the chip that most kernels are for: bytes a second, operations a second."""

    target: str
    title: str
    summary: str
    bandwidth: float
    float32_rate: float
    matrix_rate: float
    points: tuple[ScenePoint, ...] = ()


@dataclass(frozen=True)
class Meaning:
    """A part of a schedule's name in a few words."""

    part: str
    meaning: str


@dataclass(frozen=True)
class SceneBreak:
    """What a graph break or recompile of the record costs, and what became of its mend, in words; empty where
    it is not known."""

    price: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Scene:
    """Everything derived from one record. See the module's docstring for units.

    ``why`` says in one sentence why a call takes its time, ``since`` what has changed since the
    last run of the cell, ``facts`` are the figures of the head. ``calls``
    are the kernels, library calls and fallbacks in the order of the record. ``schedules`` explains each
    kernel's schedule by its text. ``share_of`` says what shares are parts of, ``file`` which source lines
    are of: the cell's where it is empty. ``breaks`` says more of each break of
    the record, ``recompiles`` of each recompile, ``prices`` what it costs that a pair or call is not fused,
    by the ids of decisions and calls, ``pending`` what is still being measured.
    """

    title: str
    verdict: Verdict
    subtitle: str
    facts: tuple[str, ...]
    strip: tuple[StripStage, ...]
    lines: tuple[SceneLine, ...]
    calls: tuple[Call, ...]
    drawings: tuple[Drawing, ...]
    timings: tuple[Timing, ...]
    schedules: dict[str, tuple[Meaning, ...]]
    kernels: tuple[KernelCode, ...]
    roofline: SceneRoofline | None = None
    share_of: ShareOf = "bytes"
    file: str = ""
    why: str = ""
    since: str = ""
    breaks: tuple[SceneBreak, ...] = ()
    recompiles: tuple[SceneBreak, ...] = ()
    prices: dict[str, str] = field(default_factory=dict)
    pending: Pending | None = None
    schema: str = SCHEMA


def scene(compilation: Compilation, pending: Pending | None = None) -> Scene:
    """The scene of a record, from the record alone; ``pending``: what is still being measured of it."""
    links = Links(compilation)
    facts = fact.facts(compilation, links, pending)
    roof = roofline(compilation)
    return Scene(
        title=_title(compilation),
        verdict=facts.verdict,
        subtitle=facts.subtitle,
        why=why(compilation, facts).text,
        facts=facts.lines,
        strip=strip(compilation),
        lines=_lines(compilation, facts.calls, links),
        calls=facts.calls,
        drawings=drawings(sketch(compilation, pending), facts.calls, links),
        timings=timings(compilation),
        schedules={
            name: tuple(Meaning(part, meaning) for part, meaning in explained(name))
            for name in dict.fromkeys(kernel.schedule for kernel in compilation.kernels)
        },
        kernels=kernel_codes(compilation, {point.kernel: point for point in roof.points} if roof else {}),
        roofline=_roofline(roof) if roof else None,
        share_of=facts.share_of,
        file=fact.main_file(compilation),
        since=since_text(compilation),
        breaks=tuple(map(_coached, compilation.breaks)),
        recompiles=tuple(map(_coached, compilation.recompiles)),
        prices=price_words(prices(compilation, facts.calls)),
        pending=pending,
    )


def scene_dict(compilation: Compilation, pending: Pending | None = None) -> dict[str, Any]:
    """:func:`scene` as JSON values, in the form of :func:`scene_schema`: defaults are left out, but for the
    schema's name. What is drawn is written so that it packs well."""
    found = scene(compilation, pending)
    drawn = [replace(each, groups=tuple(map(counted_from_first, each.groups))) for each in found.drawings]
    return {"schema": SCHEMA, **plain(replace(found, drawings=tuple(drawn)))}


def scene_schema() -> dict[str, Any]:
    """The JSON schema of a payload's ``view`` (draft 2020-12), derived from the classes above."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Scene).json_schema()
    schema["$id"] = SCHEMA
    schema["title"] = "Scene"
    schema["required"].append("schema")
    return schema


def _coached(item: GraphBreak | Recompile) -> SceneBreak:
    return SceneBreak(price_text(item.price) if item.price else "", mend_text(item.mend) if item.mend else "")


def _title(compilation: Compilation) -> str:
    """``In [7]``, else the file that most ops come from, else the backend."""
    if compilation.cell is not None:
        count = compilation.cell.execution_count
        return f"In [{count}]" if count is not None else "cell"
    name = fact.main_file(compilation).replace("\\", "/").rsplit("/", 1)[-1]
    return clip(name or f"{compilation.backend} compilation", 60)


def _lines(compilation: Compilation, calls: tuple[Call, ...], links: Links) -> tuple[SceneLine, ...]:
    serving: dict[int, list[str]] = {}
    for call in calls:
        for line in call.lines:
            serving.setdefault(line, []).append(call.id)
    return tuple(
        SceneLine(row.number, row.fate, row.share, tuple(serving.get(row.number, ())), row.chips, row.why)
        for row in cell_lines(compilation, calls, links)
        if row.fate is not None
    )


def _roofline(roof: Roofline) -> SceneRoofline:
    points = []
    for point, label in zip(roof.points, roof.labels, strict=True):
        seconds = point.seconds or point.predicted
        points.append(
            ScenePoint(
                point.kernel,
                label,
                point.bytes,
                point.flops,
                bound(point),
                point.seconds is not None,
                finite(seconds),
                finite(point.limit_seconds),
                finite(point.intensity),
                finite(point.flops / seconds) if seconds else None,
                finite(point.bytes / seconds) if seconds else None,
                finite(point.share),
            )
        )
    ceilings = roof.ceilings
    return SceneRoofline(ceilings.target, roof.title, roof.summary, ceilings.bandwidth, ceilings.float32_rate,
                         ceilings.matrix_rate, tuple(points))  # fmt: skip

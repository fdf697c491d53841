"""A sweep as rows of plain values: what its table, its plot and its advice are made from.

Columns after the grid's own keys; times are seconds of one call, ``None`` where not measured:

========================  ==========================================================================
``status``, ``reason``    see :data:`nbcompile.bench.sweep.point.Status`; why, where it is not ``ok``
``steady``                median of the steady-state samples; ``steady_p25``, ``steady_p75``: quartiles
``cold``, ``warm``        compile and first call, all caches empty, and full; ``first``: the call after
``eager_steady``          eager's median, its samples taken in turns with these; ``speedup``: their ratio
``peak_bytes``            the most held during a call, above what was held before this was compiled: on a
                          GPU in torch's allocator; on a CPU resident memory, of isolated points only.
                          ``eager_peak_bytes``: eager's
``kernels``               that our compiler, or Inductor, made; ``graphs``, ``breaks``, ``recompiles``
``error``                 the largest relative error of an output against float64; ``eager_error``: eager's
``break_even``            calls after which the cold compile has paid for itself; infinity: never
``threads``               torch's; ``seconds``: that the point took, all told
========================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nbcompile.bench.measure.timing import break_even
from nbcompile.bench.sweep.grid import Point
from nbcompile.bench.sweep.point import Outcome
from nbcompile.record.compilation import Accuracy, Measurement

TIMES = ("steady", "steady_p25", "steady_p75", "cold", "warm", "first", "eager_steady", "speedup")
COUNTS = ("peak_bytes", "eager_peak_bytes", "kernels", "graphs", "breaks", "recompiles")
COLUMNS = (
    "status", "reason", *TIMES, *COUNTS, "error", "eager_error", "break_even", "threads", "seconds",
)  # fmt: skip


def rows(outcomes: Mapping[Point, Outcome]) -> list[dict[str, Any]]:
    """A row a point, in order: the grid's keys, then :data:`COLUMNS`."""
    made = [_row(point, outcome) for point, outcome in outcomes.items()]
    # Eager's own rows: the error that the others of the same setting measured beside theirs.
    beside = {
        point.setting: row["eager_error"]
        for point, row in zip(outcomes, made, strict=True)
        if row["eager_error"] is not None
    }
    for point, row in zip(outcomes, made, strict=True):
        if point.backend == "eager" and row["status"] == "ok":
            row["error"] = row["eager_error"] = beside.get(point.setting)
    return made


def _row(point: Point, outcome: Outcome) -> dict[str, Any]:
    record = outcome.record
    row: dict[str, Any] = {**dict(point.values), **dict.fromkeys(COLUMNS)}
    row.update(status=outcome.status, reason=outcome.reason, seconds=round(outcome.seconds, 3))
    if record is None or not record.measurements:
        return row
    eager, own = record.measurements[0], record.measurements[-1]
    row.update(_times(own, eager))
    row.update(
        peak_bytes=own.peak_bytes if _memory_counts(own, eager) else None,
        eager_peak_bytes=eager.peak_bytes if _memory_counts(own, eager) else None,
        kernels=own.kernels,
        graphs=own.graphs,
        breaks=own.breaks,
        recompiles=own.recompiles,
        threads=own.threads,
    )
    row.update(_errors(record.accuracy))
    return row


def _memory_counts(own: Measurement, eager: Measurement) -> bool:
    return own.peak_bytes is not None and eager.peak_bytes is not None


def _times(own: Measurement, eager: Measurement) -> dict[str, float | None]:
    mine, base = own.median, eager.median
    pays = break_even(own.cold, base, mine)
    never = pays is None and None not in (own.cold, base, mine)
    return {
        "steady": mine,
        "steady_p25": own.quantile(0.25),
        "steady_p75": own.quantile(0.75),
        "cold": own.cold,
        "warm": own.warm,
        "first": own.first,
        "eager_steady": base,
        "speedup": base / mine if base and mine else None,
        "break_even": math.inf if never else (float(math.ceil(pays)) if pays is not None else None),
    }


def _errors(found: tuple[Accuracy, ...]) -> dict[str, float | None]:
    """Of the worst output: the one that is off most, as eager's own error there."""
    known = [item for item in found if item.error is not None]
    if not known:
        return {"error": None, "eager_error": None}
    worst = max(known, key=lambda item: item.error or 0.0)
    return {"error": worst.error, "eager_error": worst.eager_error}

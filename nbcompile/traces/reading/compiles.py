"""One compilation while its records come in: its caches, breaks, restarts and metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from nbcompile.traces.reading.lines import parsed
from nbcompile.traces.reading.values import (
    CacheEvent,
    CacheState,
    CompileFailure,
    CompileStatus,
    ShapeFact,
    TraceArtifact,
    TracedCompile,
    TraceFrame,
)

_CACHE = re.compile(
    r"(fx_graph_bundled|fx_graph|aotautograd|dynamo|precompile|triton_bundler)_cache_(hit|miss|bypass)"
)
_LONGEST = 2_000
"""Characters of one metric that the index holds; whole configurations are in the artifact."""
_CONFIGS = frozenset(("dynamo_config", "inductor_config", "functorch_config", "compiler_config"))


@dataclass
class Building:
    """``ended``: torch has said how it went, so that what begins under this id is another."""

    id: str
    attempts: int = 1
    ended: bool = False
    stack: tuple[TraceFrame, ...] = ()
    artifacts: list[TraceArtifact] = field(default_factory=list)
    caches: list[CacheEvent] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    shapes: list[ShapeFact] = field(default_factory=list)
    breaks: int = 0
    errors: int = 0
    _metrics: dict[str, Any] = field(default_factory=dict)
    _backward: dict[str, Any] = field(default_factory=dict)

    def measured(self, kind: str, told: dict[str, Any]) -> None:
        """Torch's metrics, which it writes when a compilation has ended; ``kind`` says of what."""
        kept = {key: value for key, value in told.items() if key not in _CONFIGS and _short(value)}
        if kind == "compilation_metrics":
            self._metrics, self.ended = kept, True
        else:
            self._backward |= kept

    def heard(self, name: str, payload: bytes | None) -> None:
        """An artifact that says something of how it went."""
        cache = _CACHE.fullmatch(name)
        if cache:
            state: Any = cache[2]
            self.caches.append(_cache_event(cache[1], state, payload))
        elif name == "recompile_reasons":
            self.recompiles += _reasons(payload)
        elif name == "dynamo_graph_break_reason":
            self.breaks += 1
        elif name == "dynamo_error":
            self.errors += 1

    def finished(self) -> TracedCompile:
        """All that was heard of it."""
        metrics = self._metrics
        where = [metrics.get(name) for name in ("co_name", "co_filename", "co_firstlineno")]
        last = self.stack[-1] if self.stack else TraceFrame("", 0, "")
        restarts = metrics.get("restart_reasons")
        return TracedCompile(
            id=self.id,
            status=self._status(),
            function=where[0] if isinstance(where[0], str) else last.function,
            file=where[1] if isinstance(where[1], str) else last.file,
            line=where[2] if isinstance(where[2], int) else last.line,
            attempts=self.attempts,
            stack=self.stack,
            artifacts=tuple(self.artifacts),
            metrics=metrics,
            backward_metrics=self._backward,
            restarts=tuple(map(str, restarts)) if isinstance(restarts, list) else (),
            failure=_failure(metrics),
            caches=tuple(self.caches),
            recompiles=tuple(self.recompiles),
            breaks=self.breaks,
            shapes=tuple(self.shapes),
        )

    def _status(self) -> CompileStatus:
        metrics = self._metrics
        if not metrics:
            return "failed" if self.errors else "unfinished"
        if metrics.get("fail_type"):
            return "failed"
        if not metrics.get("graph_op_count"):
            return "empty"
        return "restarted" if metrics.get("restart_reasons") else "ok"


def _short(value: Any) -> bool:
    if value is None:
        return False
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, list):
        return len(value) <= 500 and all(isinstance(each, str | int | float) for each in value)
    if isinstance(value, dict):
        return len(value) <= 100 and all(isinstance(each, str | int | float) for each in value.values())
    return isinstance(value, int | float)


def _failure(metrics: dict[str, Any]) -> CompileFailure | None:
    kind = metrics.get("fail_type")
    if not kind:
        return None
    file, line = metrics.get("fail_user_frame_filename"), metrics.get("fail_user_frame_lineno")
    return CompileFailure(
        str(kind),
        str(metrics.get("fail_reason") or ""),
        file if isinstance(file, str) else "",
        line if isinstance(line, int) else 0,
    )


def _cache_event(cache: str, state: CacheState, payload: bytes | None) -> CacheEvent:
    told = parsed(payload) if payload is not None else None
    told = told if isinstance(told, dict) else {}
    saved = None
    for name, scale in (("time_saved_ns", 1e-9), ("time_saved_ms", 1e-3)):
        if isinstance(told.get(name), int | float):
            saved = told[name] * scale
    reason = told.get("cache_bypass_reason") or told.get("reason") or ""
    return CacheEvent(
        cache.replace("_", " "), state, str(told.get("key") or "")[:200], saved, str(reason)[:500]
    )


def _reasons(payload: bytes | None) -> list[str]:
    told = parsed(payload) if payload is not None else None
    if isinstance(told, list):
        return [str(each)[:2_000] for each in told]
    return [payload.decode("utf-8", "replace")[:2_000]] if payload else []

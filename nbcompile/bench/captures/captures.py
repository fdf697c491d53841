"""``nbcompile.captures``: one function under every way of capturing it, and what each silently bakes in."""

from __future__ import annotations

import dataclasses
import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nbcompile.bench.captures.frameworks import TORCH, Framework
from nbcompile.bench.captures.probes import Subject, file_of, probe_all
from nbcompile.bench.captures.running import CallOutcome, difference, lines_in, run, silent
from nbcompile.bench.captures.variants import InputVariant
from nbcompile.bench.captures.ways import Captured, Way, reason_of
from nbcompile.bench.captures.ways import ways as ways_named
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.errors import MeasureError
from nbcompile.options import check_seconds
from nbcompile.record.captures import PROBES, Capture, Captures


def captures(
    fn: Callable[..., Any],
    inputs: Any = (),
    other_inputs: Sequence[Any] = (),
    ways: Sequence[str] | None = None,
    *,
    jax_fn: Callable[..., Any] | None = None,
    tf_fn: Callable[..., Any] | None = None,
    probes: Sequence[str] | None = None,
    timing: bool = True,
    budget: float = 1.0,
) -> Captures:
    """Capture ``fn(*inputs)`` in every way there is, and find out by running what each bakes in.

    ``inputs``: a tuple or list of arguments, or one argument. ``other_inputs``: more of the same, e.g. that
    take another branch; the probes (:data:`nbcompile.record.captures.PROBES`) make others by themselves.
    ``ways``: names from :data:`nbcompile.bench.captures.ways.WAYS`; default all. ``jax_fn``, ``tf_fn``: the
    same function written for JAX and TensorFlow; without one ``fn`` itself is tried on their arrays, which
    works for what uses only operators. ``probes``: default all. ``budget``: seconds of timing, for all
    together.

    What the function and its inputs can reach is afterwards what it was. Raises what ``fn(*inputs)`` raises,
    and MeasureError for an unknown way or probe, and where nothing can rewind what a call uses up. Note that
    torch.export (strict) resets Dynamo, so what else is compiled in this process is compiled again.
    """
    check_seconds("budget", budget, error=MeasureError)
    args = _tuple(inputs)
    chosen = ways_named(ways)
    names = _probe_names(probes)
    others = [InputVariant(f"other_inputs[{n}]", _tuple(given)) for n, given in enumerate(other_inputs)]
    functions = _by_framework(fn, jax_fn, tf_fn)
    snapshot = _snapshot(list(functions.values()), inputs)
    try:
        with silent():
            fn(*TORCH.arguments(args))
        snapshot.restore()
        reference = run(fn, TORCH, args, file=file_of(fn))
        lines: set[int] = set()
        studied = []
        for way in chosen:
            own = functions[way.framework.name]
            seen = lines if own is fn else set()
            subject = Subject(way, own, args, others, snapshot, file_of(own), seen)
            studied.append(_study(subject, reference, names, own is not fn or way.framework is TORCH))
        found = [capture for capture, _ in studied]
        eager_seconds: tuple[float, ...] = ()
        if timing:
            found, eager_seconds = _timed(fn, args, studied, chosen, snapshot, budget)
    finally:
        snapshot.restore()
    source, first_line = _source(fn)
    return Captures(
        function=getattr(fn, "__qualname__", type(fn).__qualname__),
        source=source,
        first_line=first_line,
        captures=tuple(found),
        eager_seconds=eager_seconds,
        unprobed=_unprobed(fn, lines, source, first_line) if "values" in names else (),
        versions=_versions(chosen),
    )


def _probe_names(given: Sequence[str] | None) -> list[str]:
    names = list(given) if given is not None else list(PROBES)
    unknown = [name for name in names if name not in PROBES]
    if unknown:
        raise MeasureError(f"there is no probe {unknown[0]!r}.", advice=f"Probes: {', '.join(PROBES)}.")
    return names


def _snapshot(functions: list[Callable[..., Any]], inputs: Any) -> Snapshot:
    snapshot = Snapshot({"functions": functions, "inputs": inputs})
    if snapshot.unrestorable:
        raise MeasureError(
            "the probes call the function many times, and nothing can rewind"
            f" {', '.join(snapshot.unrestorable)}.",
            advice="Take what the function needs from it first, and pass that.",
        )
    return snapshot


def _study(
    subject: Subject, reference: CallOutcome, probes: Sequence[str], given: bool
) -> tuple[Capture, Captured | None]:
    """One way: whether it captures, whether it then agrees with eager, and what the probes find."""
    way, framework = subject.way, subject.framework

    def absent(reason: str) -> tuple[Capture, None]:
        return Capture(way.name, way.title, "absent", reason), None

    if framework.missing:
        return absent(framework.missing)
    expected = subject.eager(subject.args)
    port = "jax_fn" if framework.name == "JAX" else "tf_fn"
    if expected.error and not given:
        return absent(
            f"the function does not run on {framework.name} arrays ({expected.error}): pass {port}=."
        )
    if expected.error:
        return absent(f"{port} itself raises {expected.error}")
    try:
        made, outcome, seconds, told = _first_capture(subject)
    except Exception as error:
        reason, line = reason_of(error, subject.file)
        return Capture(way.name, way.title, "no", reason, line), None
    if outcome.error:
        return Capture(way.name, way.title, "no", outcome.error, _broken_line(subject, made)), None
    why_not, pieces = made.why_not(), made.pieces()
    if why_not:
        line = pieces[1] if pieces else None
        return Capture(way.name, way.title, "no", why_not, line, notes=told), None
    wrong = difference(expected.values, outcome.values)
    notes = [*told, f"already wrong for the inputs it was captured with: {wrong}"] if wrong else list(told)
    apart = "" if framework is TORCH else difference(reference.values, expected.values, dtypes=False)
    if apart:
        notes.append(f"the port is another function ({apart}); it is compared with itself")
    graphs: tuple[tuple[str, str], ...] = ()
    nodes = None
    try:
        with silent():
            nodes = made.nodes()
            graphs = made.graphs()
    except Exception as error:  # a graph that its own maker cannot print is none the less captured
        notes.append(f"its graph cannot be shown: {reason_of(error, subject.file)[0]}")
    reason, line = (f"graph break: {pieces[0]}", pieces[1]) if pieces else ("", None)
    capture = Capture(
        way.name,
        way.title,
        "in pieces" if pieces else "whole",
        reason,
        line,
        graphs,
        nodes,
        capture_seconds=seconds,
        agrees=not wrong,
        findings=probe_all(subject, probes),
        notes=tuple(notes),
    )
    return capture, made


def _first_capture(subject: Subject) -> tuple[Captured, CallOutcome, float, tuple[str, ...]]:
    """The captured function, its first result, the seconds until then, and what was warned of."""
    subject.snapshot.restore()
    own = subject.framework.arguments(subject.args)
    begun = time.perf_counter()
    with silent() as seen:
        made = subject.way.capture(subject.fn, own)
        told = _told(seen)
    subject.snapshot.restore()
    outcome = run(made.call, subject.framework, subject.args, file=subject.file)
    return made, outcome, time.perf_counter() - begun, told


def _broken_line(subject: Subject, made: Captured) -> int | None:
    """The line that the first call failed at: the call again, for its traceback."""
    subject.snapshot.restore()
    try:
        with silent():
            made.call(*subject.framework.arguments(subject.args))
    except Exception as error:
        return reason_of(error, subject.file)[1]
    return None


def _told(seen: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """What was warned of, but for deprecations, a line each."""
    found = []
    for warning in seen:
        text = str(warning.message).strip().splitlines()[0]
        old = issubclass(warning.category, DeprecationWarning | FutureWarning | PendingDeprecationWarning)
        if not old and "deprecated" not in text:
            found.append(f"it warned: {warning.category.__name__}: {text}")
    return tuple(dict.fromkeys(found))


def _timed(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    studied: Sequence[tuple[Capture, Captured | None]],
    chosen: Sequence[Way],
    snapshot: Snapshot,
    budget: float,
) -> tuple[list[Capture], tuple[float, ...]]:
    """Samples of one call of each way that agrees with eager, in turns with eager."""
    own: dict[str, tuple[Any, ...]] = {"eager": TORCH.arguments(args)}
    calls: dict[str, Callable[[], object]] = {"eager": _bound(fn, own["eager"])}
    for (capture, made), way in zip(studied, chosen):
        if made is not None and capture.agrees:
            own[way.name] = way.framework.arguments(args)
            calls[way.name] = _bound(made.call, own[way.name])
    state = Snapshot({"fn": fn, "inputs": own})
    with quiet(), silent():
        calls["eager"]()
        changes = bool(state.changed())
        for call in calls.values():  # torch.export, if strict, has emptied Dynamo's caches
            state.restore()
            call()
        state.restore()
        counts = {capture.way: _count(made) for capture, made in studied}
        samples = interleaved(calls, budget=budget, warm_up=3, reset=state.restore if changes else None)
    state.restore()
    snapshot.restore()
    found = []
    for capture, made in studied:
        times = tuple(float(f"{s:.4g}") for s in samples.get(capture.way, ()))
        more = _count(made) - counts[capture.way]
        why_not = f"it captured {more} more graph{'s' * (more > 1)} meanwhile" if more else ""
        if made is not None and times and made.why_not():
            why_not = made.why_not()
        if why_not:
            told = (*capture.notes, f"no time of a call: {why_not}")
            found.append(dataclasses.replace(capture, notes=told))
        else:
            found.append(dataclasses.replace(capture, call_seconds=times))
    return found, tuple(float(f"{s:.4g}") for s in samples["eager"])


def _count(made: Captured | None) -> int:
    return made.count() if made is not None and made.count is not None else 0


def _bound(call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], object]:
    return lambda: call(*args)


def _unprobed(fn: Callable[..., Any], lines: set[int], source: str, first_line: int) -> tuple[str, ...]:
    """Lines of the function that no input has reached: nothing is known about these."""
    target = type(fn).forward if isinstance(fn, torch.nn.Module) else getattr(fn, "__func__", fn)
    code = getattr(target, "__code__", None)
    if code is None:
        return ()
    texts = source.splitlines()
    left = sorted(lines_in(code) - lines)
    return tuple(
        f"line {line} never ran: {texts[line - first_line].strip()}"
        for line in left
        if 0 <= line - first_line < len(texts)
    )


def _source(fn: Callable[..., Any]) -> tuple[str, int]:
    try:
        lines, first = inspect.getsourcelines(type(fn).forward if isinstance(fn, torch.nn.Module) else fn)
    except (OSError, TypeError):
        return "", 1
    return "".join(lines), first


def _versions(chosen: Sequence[Way]) -> dict[str, str]:
    import importlib.metadata as metadata

    found: dict[str, str] = {}
    frameworks: Mapping[str, Framework] = {way.framework.name: way.framework for way in chosen}
    for framework in frameworks.values():
        if not framework.missing:
            module = __import__(framework.module)
            found[framework.package] = getattr(module, "__version__", None) or metadata.version(
                framework.package
            )
    return found


def _by_framework(
    fn: Callable[..., Any], jax_fn: Callable[..., Any] | None, tf_fn: Callable[..., Any] | None
) -> dict[str, Callable[..., Any]]:
    if not callable(fn):
        raise MeasureError(f"captures() takes a function, and {fn!r} is none.")
    return {"torch": fn, "JAX": jax_fn or fn, "TensorFlow": tf_fn or fn}


def _tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, Mapping):
        raise MeasureError("captures takes arguments by position.", advice="Pass a tuple of them.")
    return tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)

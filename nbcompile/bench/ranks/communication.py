"""One step under torch.profiler: when collectives were under way, and when compute was too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from nbcompile.bench.measure.timing import synchronize
from nbcompile.record.ranks import Collective, Communication

_STEP = "nbcompile: one step"
Interval = tuple[float, float]

_ABOUT = {
    "cpu": "gloo's own spans, from the start of a collective to its end, against operators and compiled "
    "graphs on the other threads; on a CPU both share the cores",
    "cuda": "NCCL's kernels against all other kernels on this GPU",
}
# Compiled code calls no operators the profiler could see; these are the functions that hold it.
_COMPUTE = ("aten::", "CompiledFunction", "torch::autograd::", "torch::distributed::reducer::")


def profiled(step: Callable[[], object], device: torch.device) -> Communication | None:
    """Run ``step`` once and say how much of its communication was hidden. ``None`` if it had no collective
    that the profiler saw."""
    from torch.profiler import ProfilerActivity, profile, record_function

    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities):
        step()  # the profiler's own start takes longer than a step
    with profile(activities=activities) as profiler:
        # Else a collective would seem to last until the slowest rank's profiler is there.
        dist.barrier()
        synchronize()
        with record_function(_STEP):
            start = time.perf_counter()
            step()
            synchronize()
            seconds = time.perf_counter() - start
    events = _after(list(profiler.events() or ()))
    talking, working = _on_gpu(events) if cuda else _on_cpu(events)
    if not talking:
        return None
    named = {name: [span for other, span in talking if other == name] for name, _ in talking}
    union = merged(span for _, span in talking)
    both = overlap(union, merged(working))
    return Communication(
        step=seconds,
        collectives=_length(union) * 1e-6,
        overlapped=_length(both) * 1e-6,
        kinds=tuple(
            Collective(name, len(spans), sum(end - begin for begin, end in spans) * 1e-6)
            for name, spans in sorted(named.items())
        ),
        about=_ABOUT["cuda" if cuda else "cpu"],
    )


def _after(events: list[Any]) -> list[Any]:
    """Those that begin with the step."""
    begin = next((e.time_range.start for e in events if e.name == _STEP), float("-inf"))
    return [event for event in events if event.time_range.start >= begin and event.name != _STEP]


def _on_cpu(events: Iterable[Any]) -> tuple[list[tuple[str, Interval]], list[Interval]]:
    events = list(events)
    talking = [(e.name, _span(e)) for e in events if e.name.startswith("gloo:")]
    # A collective's own thread copies with operators too: that is communication.
    threads = {e.thread for e in events if e.name.startswith("gloo:")}
    working = [_span(e) for e in events if e.thread not in threads and e.name.startswith(_COMPUTE)]
    return talking, working


def _on_gpu(events: Iterable[Any]) -> tuple[list[tuple[str, Interval]], list[Interval]]:
    talking: list[tuple[str, Interval]] = []
    working: list[Interval] = []
    for event in events:
        if "CUDA" not in str(event.device_type) or event.time_range.elapsed_us() <= 0:
            continue
        if event.name.startswith("ncclDevKernel") or event.name.startswith("ncclKernel"):
            talking.append((_short(event.name), _span(event)))
        elif not getattr(event, "is_user_annotation", False) and not event.name.startswith("nccl:"):
            working.append(_span(event))
    return talking, working


def _short(kernel: str) -> str:
    """``ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`` → ``nccl AllReduce``."""
    parts = kernel.split("(")[0].split("_")
    return f"nccl {parts[1]}" if len(parts) > 1 else kernel


def _span(event: Any) -> Interval:
    return float(event.time_range.start), float(event.time_range.end)


def merged(spans: Iterable[Interval]) -> list[Interval]:
    """Intervals in order, those that touch made one."""
    out: list[Interval] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def overlap(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """Where both lists, each :func:`merged`, are."""
    out: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            out.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return out


def _length(spans: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in spans)

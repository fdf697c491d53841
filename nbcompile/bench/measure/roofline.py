"""The ceilings of the chip that is here, measured: how fast it copies, how fast it multiplies.

What a kernel's bytes and operations mean under them is :mod:`nbcompile.record.roofline`.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nbcompile import targets
from nbcompile.record.compilation import Ceilings, Compilation

_GPU_COPY = 2 << 30  # bytes of one side: far above any L2
_GPU_MATRIX = 8192
_CPU_COPY = 256 << 20  # above the last-level cache of most processors
_CPU_MATRIX = 1024
_SECONDS = 0.25  # a ceiling; less only where the least number of runs takes longer
_LEAST, _MOST = 5, 200
_CACHES = "/sys/devices/system/cpu/cpu0/cache"
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_Clock = Callable[[Callable[[], object]], float]
"""Takes what is to be timed, gives the seconds of one run."""


def ceilings_of(compilation: Compilation) -> tuple[Ceilings, ...]:
    """What bounds the kernels that ran here, measured once a process."""
    kinds = {targets.parse(kernel.target).kind for kernel in compilation.kernels}
    try:
        return tuple(measure_ceilings("cpu" if kind == "cpu" else "cuda") for kind in sorted(kinds))
    except RuntimeError:  # the user's tensors fill the device: the datasheet's rates have to do
        return ()


@functools.cache
def measure_ceilings(device: str | torch.device = "cpu") -> Ceilings:
    """The ceilings of ``device`` ("cpu", "cuda", "cuda:1"), measured once a process.

    Bandwidth: a copy of 2 GiB (CPU: 256 MiB, GPUs with less memory free: a quarter of that), read and
    written bytes both counted. ``matrix_rate``: a bf16 product of 8192 × 8192 matrices on a GPU;
    ``float32_rate`` there is the datasheet's, since no library call is bound by it, and a float32 product
    on the CPU, where both are one. Up to 200 runs within about a quarter of a second: their median, by CUDA
    events, on a GPU; on the CPU their lower quartile, since other work on the machine only ever delays.
    RuntimeError from torch if the device is not there.
    """
    place = torch.device(device)
    if place.type == "cpu":
        return _cpu()
    index = place.index if place.index is not None else torch.cuda.current_device()
    return _gpu(index)


def _cpu() -> Ceilings:
    bandwidth = _copy_rate(torch.device("cpu"), _CPU_COPY, _host_seconds)
    rate = _product_rate(torch.device("cpu"), _CPU_MATRIX, torch.float32, _host_seconds)
    return Ceilings(
        "cpu", _rounded(bandwidth), _rounded(rate), _rounded(rate), "measured", cache=_host_cache()
    )


def _host_cache() -> int:
    """Bytes of the host's largest cache, as Linux knows it; 0 elsewhere."""
    told = [path.read_text().strip() for path in Path(_CACHES).glob("index*/size")]
    return max((int(text[:-1]) * _UNITS[text[-1]] for text in told if text[-1:] in _UNITS), default=0)


def _gpu(index: int) -> Ceilings:
    target = targets.of_device(index)
    place = torch.device("cuda", index)
    with torch.cuda.device(index), torch.no_grad():
        room = torch.cuda.mem_get_info(index)[0]
        size = min(_GPU_COPY, room // 4)
        bandwidth = _copy_rate(place, size, _device_seconds)
        n = _GPU_MATRIX if room > 2 << 30 else _GPU_MATRIX // 4
        matrix = _product_rate(place, n, torch.bfloat16, _device_seconds)
    float32 = target.float32_rate or matrix
    return Ceilings(target.name, _rounded(bandwidth), float32, _rounded(matrix), "measured", target.part,
                    target.l2_bytes)  # fmt: skip


def _copy_rate(device: torch.device, size: int, seconds: _Clock) -> float:
    """Bytes per second, read and written ones, of a copy of ``size`` bytes."""
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds(lambda: target.copy_(source))


def _product_rate(device: torch.device, n: int, dtype: torch.dtype, seconds: _Clock) -> float:
    """Operations per second of a product of two n × n matrices."""
    # Random numbers: with zeros a chip draws less power and clocks higher than real work lets it.
    own = torch.Generator(device)  # the user's draws go on where they were
    left, right = (torch.randn(n, n, device=device, dtype=dtype, generator=own) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * n**3 / seconds(lambda: torch.mm(left, right, out=out))


def _host_seconds(run: Callable[[], object]) -> float:
    """Seconds of one run, of many the lower quartile, on the calling thread's clock."""
    run()
    samples: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(samples) < _LEAST or (time.perf_counter() < end and len(samples) < _MOST):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return statistics.quantiles(samples, n=4)[0]


def _device_seconds(run: Callable[[], object]) -> float:
    """Median seconds of one run on the current CUDA device, by events around each."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    count = min(_MOST, max(_LEAST, int(_SECONDS / max(1e-6, time.perf_counter() - begin))))
    event: Callable[..., Any] = torch.cuda.Event  # not typed
    events = [[event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, stop in events:
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(stop) for start, stop in events)) / 1e3


def _rounded(rate: float) -> float:
    """Three digits: what a measurement like this supports, and what a record need hold."""
    return float(f"{rate:.3g}") if math.isfinite(rate) else rate

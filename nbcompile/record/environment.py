"""Where a compile happens: versions, processor, threads. Plain facts for the record."""

from __future__ import annotations

import functools
import platform
from importlib import metadata

from nbcompile.record.compilation import Environment


def detect(device: str = "cpu") -> Environment:
    """The environment of this process. ``compiler`` and ``flags`` are empty: only the step that
    picks a C compiler knows them (it may replace them in ``Recorder.environment``)."""
    import torch

    return Environment(
        nbcompile=nbcompile_version(),
        python=platform.python_version(),
        torch=torch.__version__,
        triton=_version("triton"),
        platform=platform.platform(),
        processor=_device_name(device),
        device=device,
        threads=torch.get_num_threads(),
    )


@functools.cache
def nbcompile_version() -> str:
    """The installed version, or ``"0+unknown"`` where the package is only on the path."""
    return _version("nbcompile") or "0+unknown"


@functools.cache
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        import torch

        if torch.cuda.is_available():
            return torch.cuda.get_device_name(device if ":" in device else None)
    return processor_name()


@functools.cache
def processor_name() -> str:
    """The processor's own name, e.g. from /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            for line in info:
                if line.lower().startswith(("model name", "hardware", "cpu model")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: platform knows
    return platform.processor() or platform.machine()

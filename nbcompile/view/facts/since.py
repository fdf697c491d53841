"""What has changed since the last run of a cell, as one sentence."""

from __future__ import annotations

from nbcompile.record.compilation import Compilation
from nbcompile.units import clip


def since_text(compilation: Compilation) -> str:
    """``Since In [3]: 1 → 2 kernels; 1.9× slower``; empty for the first run of a cell."""
    since = compilation.since
    if since is None or not since.changes:
        return ""
    return f"Since {clip(since.title, 40)}: " + "; ".join(clip(change, 160) for change in since.changes[:8])

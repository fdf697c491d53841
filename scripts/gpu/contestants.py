"""Who takes part in the GPU benchmark, how each compiles, and whether its compiled code really ran."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # the GPU machine has the working tree, not the installed package
    sys.path.insert(1, str(ROOT))

OURS, PEER, PEER_MAX = "nbcompile", "inductor", "inductor-max"

# name → (backend, mode)
COMPILERS = {
    "nbcompile": ("nbcompile", "default"),
    "nbcompile-max": ("nbcompile", "max-autotune-no-cudagraphs"),
    "nbcompile-graphs": ("nbcompile", "reduce-overhead"),
    "inductor": ("inductor", None),
    "inductor-max": ("inductor", "max-autotune-no-cudagraphs"),
    "inductor-graphs": ("inductor", "reduce-overhead"),
}
NAMES = ("eager", *COMPILERS)
CACHE_VARIABLES = ("NBCOMPILE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")


@dataclass
class Contestant:
    """One function compiled by one contestant. ``eager`` has nothing compiled to run."""

    name: str
    fn: Callable[..., Any]
    recorder: Any = None  # of nbcompile's
    _graphs_before: int = field(default=0)

    def why_eager(self) -> str:
        """Why the call that was made ran (in part) eagerly, in one sentence; empty if it did not."""
        if self.name == "eager":
            return ""
        if compiled_graphs() == self._graphs_before:
            return "ran eagerly: Dynamo captured no graph"
        if self.recorder is not None and self.recorder.ran_eagerly:
            graph, reason = next(iter(self.recorder.ran_eagerly.items()))
            return f"{graph} ran eagerly: {reason}"
        return ""

    def facts(self) -> dict[str, Any]:
        """What is known of the compile: kernels, library calls and operators without a lowering."""
        if self.recorder is None:
            return {}
        record = self.recorder.compilation()
        kinds = [node.kind for graph in record.graphs if graph.stage == "fused" for node in graph.nodes]
        return {"kernels": len(record.kernels), "libraries": kinds.count("library"),
                "fallbacks": kinds.count("fallback")}  # fmt: skip


def compile_with(name: str, fn: Callable[..., Any], **options: Any) -> Contestant:
    """``fn`` as the contestant runs it; nothing is compiled before the first call.

    ``options`` are nbcompile's own. Shapes are taken as static for everyone. ValueError for a name
    that is not in :data:`NAMES`.
    """
    import torch

    if name == "eager":
        return Contestant(name, fn)
    if name not in COMPILERS:
        raise ValueError(f"contestant {name!r} is unknown; known: {', '.join(NAMES)}")
    backend, mode = COMPILERS[name]
    before = compiled_graphs()
    if backend != OURS:
        return Contestant(
            name, torch.compile(fn, backend=backend, mode=mode, dynamic=False), _graphs_before=before
        )
    from nbcompile.backends.nbcompile import register
    from nbcompile.options import Options
    from nbcompile.record.recorder import Recorder

    register()
    chosen = {**options, "mode": mode}
    recorder = Recorder(Options.from_mapping(chosen))
    compiled = torch.compile(fn, backend=OURS, options={**chosen, "recorder": recorder}, dynamic=False)
    return Contestant(name, compiled, recorder, before)


def compiled_graphs() -> int:
    """How many graphs Dynamo has captured in this process since its last reset."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def reset() -> None:
    """Forget every compiled function, so that an item starts with an empty Dynamo cache."""
    import gc

    import torch

    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def own_caches(folder: Path | None = None) -> Path:
    """Point every compiler's cache at (new, empty) folders below ``folder``, for this process and its
    children. Empty folders are all that a cold compile needs: Inductor's switch that turns its caches
    off would change what it does besides."""
    base = Path(tempfile.mkdtemp(prefix="nbcompile-gpu-")) if folder is None else folder
    for name in CACHE_VARIABLES:
        place = base / name.lower()
        place.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(place)
    return base


def empty_caches() -> None:
    """New, empty cache folders from here on, and nothing kept in Inductor's memory: the next compile of
    this process is a cold one, imports and started threads apart."""
    own_caches()
    # torch 2.11 to 2.15 have this hook; only where Inductor is loaded, for loading it takes a second.
    clear = getattr(sys.modules.get("torch._inductor.utils"), "clear_caches", None)
    if clear is not None:
        clear()


def warm_up(names: Iterable[str], device: str) -> None:
    """A first compile of something else, so that imports and compilers' threads are behind us."""
    import torch

    x = torch.randn(32, 32, device=device, requires_grad=True)
    for name in names:
        try:
            compile_with(name, lambda x: (x.exp() * 3 + x.amax(0)).sum(1)).fn(x).sum().backward()
        except Exception as error:  # the items will say the same, each in its record
            print(f"{name}: warm-up failed: {first_line(error)}", file=sys.stderr)
    reset()


def first_line(error: BaseException) -> str:
    """Type and first line of an error, at most 300 characters."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]

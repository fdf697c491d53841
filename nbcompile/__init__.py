"""nbcompile: see, change and trust what a compiler does to a PyTorch cell.

Importing this package imports neither torch nor IPython; both come with the first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbcompile.api import Compiled, compile
    from nbcompile.backends.browse import list_mode_options, list_options
    from nbcompile.bench.bisect.check import check
    from nbcompile.bench.captures.captures import captures
    from nbcompile.bench.compare import compare
    from nbcompile.bench.doctor.examine import doctor
    from nbcompile.bench.export.export import export
    from nbcompile.bench.measure.modes import mode_diff
    from nbcompile.bench.ranks.ranks import Ranks
    from nbcompile.bench.regressions.suite import case
    from nbcompile.compiler.runtime.cache import clear_cache
    from nbcompile.notebook.interacting import interact
    from nbcompile.notebook.play.exploring import explore
    from nbcompile.options import Options
    from nbcompile.record.compilation import Compilation
    from nbcompile.record.recorder import Recorder
    from nbcompile.traces.opening import open as open

    __version__: str

__all__ = [  # without `open`: who imports * keeps Python's own
    "Compilation",
    "Compiled",
    "Options",
    "Ranks",
    "Recorder",
    "captures",
    "case",
    "check",
    "clear_cache",
    "compare",
    "compile",
    "doctor",
    "explore",
    "export",
    "interact",
    "list_mode_options",
    "list_options",
    "load_ipython_extension",
    "mode_diff",
    "unload_ipython_extension",
]

_HOMES = {
    "Compilation": "nbcompile.record.compilation",
    "Compiled": "nbcompile.api",
    "Options": "nbcompile.options",
    "Ranks": "nbcompile.bench.ranks.ranks",
    "Recorder": "nbcompile.record.recorder",
    "captures": "nbcompile.bench.captures.captures",
    "case": "nbcompile.bench.regressions.suite",
    "check": "nbcompile.bench.bisect.check",
    "clear_cache": "nbcompile.compiler.runtime.cache",
    "compare": "nbcompile.bench.compare",
    "compile": "nbcompile.api",
    "doctor": "nbcompile.bench.doctor.examine",
    "explore": "nbcompile.notebook.play.exploring",
    "export": "nbcompile.bench.export.export",
    "interact": "nbcompile.notebook.interacting",
    "list_mode_options": "nbcompile.backends.browse",
    "list_options": "nbcompile.backends.browse",
    "mode_diff": "nbcompile.bench.measure.modes",
    "open": "nbcompile.traces.opening",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from nbcompile.record.environment import nbcompile_version

        value: Any = nbcompile_version()
    elif name in _HOMES:
        import importlib

        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'nbcompile' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext nbcompile``: makes ``%%compile`` and ``%compile`` known to this IPython shell."""
    from nbcompile.notebook.refused import refuse_a_browser

    refuse_a_browser()
    from nbcompile.notebook import magics

    magics.load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext nbcompile``."""
    from nbcompile.notebook import magics

    magics.unload_ipython_extension(shell)


def _register_artifacts() -> None:
    """torch.compiler.load_cache_artifacts() refuses all artifacts if it does not know the type of one."""
    if "torch" in sys.modules:  # else the first compile does it
        from nbcompile.compiler.runtime import artifacts

        artifacts.register()


_register_artifacts()

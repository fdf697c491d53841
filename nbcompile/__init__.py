"""nbcompile: see, change and trust what a compiler does to a PyTorch cell.

Importing this package imports neither torch nor IPython; both come with the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbcompile.api import Compiled, compile
    from nbcompile.backends.browse import list_mode_options, list_options
    from nbcompile.comparison import compare
    from nbcompile.compilation import Compilation
    from nbcompile.distributed.session import Ranks
    from nbcompile.exporting.export import export
    from nbcompile.measure.modes import mode_diff
    from nbcompile.notebook.exploring import explore
    from nbcompile.options import Options
    from nbcompile.recorder import Recorder
    from nbcompile.runtime.cache import clear_cache
    from nbcompile.tracers.captures import captures
    from nbcompile.watch.suite import case

    __version__: str

__all__ = [
    "Compilation",
    "Compiled",
    "Options",
    "Ranks",
    "Recorder",
    "captures",
    "case",
    "clear_cache",
    "compare",
    "compile",
    "explore",
    "export",
    "list_mode_options",
    "list_options",
    "load_ipython_extension",
    "mode_diff",
    "unload_ipython_extension",
]

_HOMES = {
    "Compilation": "nbcompile.compilation",
    "Compiled": "nbcompile.api",
    "Options": "nbcompile.options",
    "Ranks": "nbcompile.distributed.session",
    "Recorder": "nbcompile.recorder",
    "captures": "nbcompile.tracers.captures",
    "case": "nbcompile.watch.suite",
    "clear_cache": "nbcompile.runtime.cache",
    "compare": "nbcompile.comparison",
    "compile": "nbcompile.api",
    "explore": "nbcompile.notebook.exploring",
    "export": "nbcompile.exporting.export",
    "list_mode_options": "nbcompile.backends.browse",
    "list_options": "nbcompile.backends.browse",
    "mode_diff": "nbcompile.measure.modes",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from nbcompile.environment import nbcompile_version

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
    from nbcompile.notebook import magics

    magics.load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext nbcompile``."""
    from nbcompile.notebook import magics

    magics.unload_ipython_extension(shell)

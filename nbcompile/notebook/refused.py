"""Where nothing can be compiled: one sentence, and what can be done there all the same."""

from __future__ import annotations

import sys

from IPython.core.error import UsageError


def refuse_a_browser() -> None:
    """UsageError, which IPython prints in one line, where Python itself runs in a browser (Pyodide)."""
    if sys.platform == "emscripten":
        raise UsageError(
            "nbcompile cannot compile here: there is no torch in a browser (JupyterLite, Pyodide); a saved "
            "record opens here all the same: `nbcompile.view.saved.read_saved('record.json')[0]`."
        )

"""``%compile --cache``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from IPython.utils.capture import capture_output

from nbcompile.compiler.runtime.cache import MANIFEST, DiskCache, key
from tests.notebook.conftest import Notebook


def test_the_cache_is_shown(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "<b>cache"
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(root))
    empty: Any = notebook.shell.run_cell("%compile --cache").result
    assert empty.size == 0 and "0 entries" in repr(empty) and not root.exists()
    for number in range(2):
        DiskCache(root).put(key(number), {"a": bytes(3000)})
        manifest = root / key(number)[:2] / key(number) / MANIFEST
        os.utime(manifest, (86400 * 365 * (30 + number),) * 2)
    shown: Any = notebook.shell.run_cell("%compile --cache").result
    assert shown.size == DiskCache(root).size() > 6000
    text = repr(shown)
    assert "2 entries" in text and str(root) in text and "used 1999" in text and "used 2000" in text
    assert "<b>cache" not in shown._repr_html_() and "2 entries" in shown._repr_html_()
    root.chmod(0o777)
    assert "others may write to it" in repr(notebook.shell.run_cell("%compile --cache").result)
    with capture_output() as out:
        notebook.shell.run_cell("%%compile --cache\n1")
    assert "one %" in out.stdout + out.stderr

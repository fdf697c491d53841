"""The record on screen and on disk."""

from __future__ import annotations

from pathlib import Path

from nbcompile.compilation import Compilation
from nbcompile.notebook.arguments import CellOptions
from nbcompile.notebook.progress import Place


def show(compilation: Compilation, options: CellOptions, place: Place) -> None:
    """Replace the progress line at ``place`` by the record."""
    place.show({"text/plain": "RECORD " + str(compilation.notes)+str(compilation.breaks)})


def save(compilation: Compilation, file: str) -> None:
    Path(file).write_text(compilation.to_json(indent=1), encoding="utf-8")

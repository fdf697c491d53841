"""The explorer as an anywidget: where there is no JupyterLab plugin, and wherever it is asked for."""

from __future__ import annotations

from typing import Any

import anywidget
from traitlets import Dict

from nbcompile import view
from nbcompile.notebook.play.play import Plays
from nbcompile.notebook.play.protocol import Conversation, static_file
from nbcompile.record.compilation import Compilation


class Explorer(anywidget.AnyWidget):
    """Shows one payload; requests of :mod:`nbcompile.notebook.play.protocol` come and go as custom messages.

    ExplorerError if the explorer's files have not been built into this package.
    """

    payload = Dict().tag(sync=True)

    def __init__(self, compilation: Compilation, plays: Plays) -> None:
        self._esm = static_file("explorer.js")
        self._css = static_file("explorer.css")
        super().__init__(payload=view.payload(compilation))
        self._conversation = Conversation(plays, self.send)
        self.on_msg(self._received)

    def _received(self, _: Any, content: Any, buffers: Any) -> None:
        self._conversation.receive(content)

"""The comm target ``nbcompile``: how JupyterLab's plugin plays with the compilations of a kernel."""

from __future__ import annotations

from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from nbcompile.notebook.play.play import Plays
from nbcompile.notebook.play.protocol import Conversation

TARGET = "nbcompile"


def register(shell: InteractiveShell, plays: Plays) -> None:
    """Answer comms to this target, in a kernel; in a terminal there are none."""
    manager = _manager(shell)
    if manager is not None:
        manager.register_target(TARGET, lambda comm, _: _opened(comm, plays))


def unregister(shell: InteractiveShell) -> None:
    """Comms to this target are refused again. Those that are open go on."""
    manager = _manager(shell)
    if manager is not None and TARGET in manager.targets:
        manager.unregister_target(TARGET, None)


def _opened(comm: Any, plays: Plays) -> None:
    conversation = Conversation(plays, comm.send)
    comm.on_msg(lambda message: conversation.receive(message["content"]["data"]))


def _manager(shell: InteractiveShell) -> Any:
    return getattr(getattr(shell, "kernel", None), "comm_manager", None)

"""Messages to a kernel that no explorer of ours would send: each is answered, and does nothing but what its
protocol says, on records of this kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from nbcompile.notebook.play.play import SESSION, Plays
from nbcompile.notebook.play.protocol import Conversation
from tests.nightly import few


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


METHODS = [
    "__class__",
    "__init__",
    "answer",
    "remember",
    "keep",
    "variant",
    "runs",
    "_variants",
    "constructor",
    "",
]
MESSAGES: list[Any] = [
    None, 7, "change", [], [1, 2], {}, deep(100_000), {"id": deep(100_000)},
    {"id": "1", "method": deep(100_000)},
    {"id": "x" * 1_000_000, "method": "y" * 1_000_000}, {"id": {"__proto__": 1}, "method": {"a": 1}},
    {"id": "1", "method": "controls", "params": [1]},
    {"id": "1", "method": "controls", "params": deep(1_000)},
    *({"id": "1", "method": method, "params": {"record": "x"}} for method in METHODS),
    *({"id": "1", "method": method, "params": {"record": name}}
      for method in ("change", "edit", "earlier", "script", "assembly")
      for name in ("__proto__", "constructor", "../../x", "x" * 100_000, None, 7, {"a": 1}, ["x"])),
]  # fmt: skip


def answered(plays: Plays, message: Any) -> dict[str, Any]:
    """The last reply, of which there is one that ends the request."""
    replies: list[dict[str, Any]] = []
    Conversation(plays, replies.append).answer(message)
    ended = [reply for reply in replies if reply["kind"] in ("result", "error")]
    assert len(ended) == 1 and ended[0] is replies[-1]
    return ended[0]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_a_message_of_a_strangers_is_answered_and_does_nothing(number: int) -> None:
    plays, message = Plays(), MESSAGES[number]
    reply = answered(plays, message)
    assert not plays._variants and not len(plays.runs.index())
    assert len(str(reply["id"])) <= 200
    if reply["kind"] == "result":
        assert reply["value"]["live"] is False, "no record of another kernel is live"
    else:
        assert set(reply["error"]) == {"title", "message", "advice", "line", "cancelled"}


@pytest.fixture
def record() -> Iterator[str]:
    """The id of a record that this kernel holds, of a cell that ran."""
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nbcompile")
    shell.user_ns["x"] = torch.randn(8, 32)
    shell.run_cell("%%compile --no-bench --into held\ny = x.tanh() + 1", store_history=False).raise_error()
    yield shell.user_ns["held"].id
    for name in ("x", "y", "held"):
        shell.user_ns.pop(name, None)


def test_a_change_names_a_backend_that_is_listed_and_imports_nothing(record: str) -> None:
    sys.modules.pop("antigravity", None)
    for backend in (
        "os.system",
        "antigravity.geohash",
        "builtins:eval",
        "subprocess:check_output",
        "SESSION",
    ):
        reply = answered(
            SESSION, {"id": "1", "method": "change", "params": {"record": record, "backend": backend}}
        )
        assert reply["kind"] == "error" and "unknown" in reply["error"]["message"]
    assert "antigravity" not in sys.modules


@few(4)
@pytest.mark.parametrize("extent", [10**12, 10**18, "9" * 4_000, float("inf"), -1, 0, "32; import os"])
def test_a_change_makes_no_tensor_of_any_size(record: str, extent: Any) -> None:
    params = {"record": record, "sizes": {"32": extent}}
    reply = answered(SESSION, {"id": "1", "method": "change", "params": params})
    assert reply["kind"] == "error", "not a second of memory"


@pytest.mark.parametrize(
    "params",
    [
        {"kernel": "../../etc/passwd"}, {"kernel": "__proto__"}, {"kernel": {"a": 1}}, {},
    ],
)  # fmt: skip
def test_a_script_is_of_a_kernel_that_is_there_and_its_name_is_no_path(
    record: str, params: dict[str, Any]
) -> None:
    reply = answered(SESSION, {"id": "1", "method": "script", "params": {"record": record, **params}})
    if reply["kind"] == "result":
        assert not set(reply["value"]["name"]) & set("/\\:\0")

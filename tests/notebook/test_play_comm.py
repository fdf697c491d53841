"""The explorer's requests through a real kernel: the comm target, progress, interrupts, errors."""

from __future__ import annotations

import ast
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

manager_module = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

from nbcompile.record.packed import unpack  # noqa: E402

ROOT = Path(__file__).parents[2]
SETUP = """
%load_ext nbcompile
%config NbCompile.bench = False
import torch, time, torch._dynamo
@torch._dynamo.register_backend
def sleepy(module, inputs):
    time.sleep(60)
    return module.forward
"""
CELL = """%%compile --into record
loss = model(x).pow(2).mean()
loss.backward()
"""
DATA = """
torch.manual_seed(5)
model = torch.nn.Linear(32, 16)
x = torch.randn(8, 32)
"""
FACTS = (
    "repr((loss, model.weight.sum(), model.weight.grad.sum(), torch.get_rng_state().sum(), "
    "[name for name in sorted(dir()) if name[0] != '_']))"
)


class Kernel:
    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client
        self.comm = uuid.uuid4().hex
        self.subshell = ""
        self._send("comm_open", target_name="nbcompile", data={})

    def _send(self, kind: str, **content: Any) -> None:
        message = self.client.session.msg(kind, {"comm_id": self.comm, **content})
        if self.subshell:
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)

    def _request(self, message: dict[str, Any]) -> None:
        self._send("comm_msg", data=message)

    def _reply(self, data: dict[str, Any]) -> dict[str, Any] | None:
        return data

    def run(self, code: str) -> dict[str, Any]:
        """What a cell printed, its result and its error."""
        seen: dict[str, Any] = {"streams": "", "result": None, "error": None, "displays": [], "comms": []}
        self.client.execute_interactive(code, timeout=120, output_hook=lambda message: _note(seen, message))
        return seen

    def ask(self, method: str, *, interrupt: bool = False, **params: Any) -> list[dict[str, Any]]:
        """All replies to one request, the last of which is no progress; other outputs are under ``seen``."""
        number = uuid.uuid4().hex
        self._request({"id": number, "method": method, "params": params})
        replies: list[dict[str, Any]] = []
        begun = False
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=120)
            if message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
                raise AssertionError(f"play is silent: {message['content']}")
            if message["msg_type"] != "comm_msg" or message["content"]["comm_id"] != self.comm:
                continue
            reply = self._reply(message["content"]["data"])
            if reply is None:
                continue
            assert reply["id"] == number
            if reply["kind"] == "begun":
                assert not begun and not replies
                begun = True
                continue
            assert begun
            replies.append(reply)
            if reply["kind"] != "progress":
                return replies
            if interrupt and reply["text"] not in ("reading the values", "running the original"):
                interrupt = False
                time.sleep(1.0)
                self.manager.interrupt_kernel()
        raise TimeoutError(method)


class Widget(Kernel):
    """The same over a widget's custom messages."""

    def __init__(self, kernel: Kernel, model: str) -> None:
        self.manager, self.client, self.comm, self.subshell = kernel.manager, kernel.client, model, ""

    def _request(self, message: dict[str, Any]) -> None:
        self._send("comm_msg", data={"method": "custom", "content": message})

    def _reply(self, data: dict[str, Any]) -> dict[str, Any] | None:
        return data["content"] if data["method"] == "custom" else None


def _note(seen: dict[str, Any], message: dict[str, Any]) -> None:
    kind, content = message["msg_type"], message["content"]
    if kind == "stream":
        seen["streams"] += content["text"]
    elif kind == "execute_result":
        seen["result"] = content["data"]["text/plain"]
    elif kind in ("display_data", "update_display_data"):
        seen["displays"].append(content["data"])
    elif kind == "comm_open":
        seen["comms"].append(content)
    elif kind == "error":
        seen["error"] = (content["ename"], content["evalue"])


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager = manager_module.KernelManager(kernel_name="python3")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    manager.start_kernel(env=environment, cwd=str(ROOT))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        client.execute_interactive(SETUP, timeout=120)
        made = Kernel(manager, client)
        assert made.run(DATA + "\n")["error"] is None
        assert made.run(CELL)["error"] is None
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def record(kernel: Kernel) -> str:
    return str(kernel.run("record.id")["result"]).strip("'")


def test_a_change_comes_back_as_a_payload(kernel: Kernel) -> None:
    before = kernel.run(FACTS)["result"]
    (controls,) = kernel.ask("controls", record=record(kernel))
    assert controls["kind"] == "result" and controls["value"]["live"]
    *progress, last = kernel.ask("change", record=record(kernel), fuse=False, bench=True)
    assert last["kind"] == "result", last
    payload = last["value"]["payload"]
    assert json.loads(unpack(payload))["measurements"]
    assert progress and all(0 <= item["done"] < item["of"] for item in progress)
    (again,) = kernel.ask("controls", record=payload["id"])
    assert again["value"]["fuse"] is False
    assert kernel.run(FACTS)["result"] == before


def test_an_interrupt_cancels_and_changes_nothing(kernel: Kernel) -> None:
    before = kernel.run(FACTS)["result"]
    started = time.monotonic()
    *_, last = kernel.ask("change", record=record(kernel), backend="sleepy", interrupt=True)
    assert last["kind"] == "error" and last["error"]["cancelled"], last
    assert time.monotonic() - started < 30
    assert kernel.run(FACTS)["result"] == before
    *_, well = kernel.ask("change", record=record(kernel), fuse=False, bench=False)
    assert well["kind"] == "result"


@pytest.mark.nightly
def test_a_request_from_a_subshell_waits_for_the_main_thread(kernel: Kernel) -> None:
    """JupyterLab sends comms to a thread of their own, while cells run in the main thread."""
    kernel.client.control_channel.send(kernel.client.session.msg("create_subshell_request"))
    answer = kernel.client.control_channel.get_msg(timeout=60)
    if answer["content"].get("status") != "ok":
        pytest.skip("this ipykernel has no subshells")
    before = kernel.run(FACTS)["result"]
    known = record(kernel)
    kernel.subshell = answer["content"]["subshell_id"]
    try:
        *_, last = kernel.ask("change", record=known, fuse=False, bench=False)
        assert last["kind"] == "result", last
        *_, last = kernel.ask("change", record=known, backend="sleepy", interrupt=True)
        assert last["kind"] == "error" and last["error"]["cancelled"], last
        kernel.client.execute("print('go', flush=True); time.sleep(2)")
        while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
            pass  # else the request could come before the cell
        started = time.monotonic()
        *_, last = kernel.ask("controls", record=known)
        assert last["kind"] == "result" and time.monotonic() - started > 1.0
    finally:
        kernel.subshell = ""
    assert kernel.run(FACTS)["result"] == before


def test_errors_are_replies(kernel: Kernel) -> None:
    (unknown,) = kernel.ask("change", record="none")
    assert unknown["kind"] == "error" and "Run the cell again" in unknown["error"]["advice"]
    *_, refused = kernel.ask("change", record=record(kernel), backend="none")
    assert "unknown" in refused["error"]["message"] and not refused["error"]["cancelled"]
    (method,) = kernel.ask("dance")
    assert "dance" in method["error"]["message"]


@pytest.mark.nightly
def test_an_edit_that_crashes_leaves_the_kernel_alive(kernel: Kernel) -> None:
    kernel.run("torch.set_num_threads(2)\nbig = torch.randn(512, 512)")
    assert kernel.run("%%compile --into edits\nout = torch.softmax(big, -1)")["error"] is None
    asked = {"record": kernel.run("edits.id")["result"].strip("'"), "kernel": "g0.fw.k0", "language": "c"}
    text = str(ast.literal_eval(kernel.run("edits.kernels[0].sources['c']")["result"]))
    before = kernel.run("(out.sum(), big.sum())")["result"]
    *_, last = kernel.ask("edit", **asked, source=text)
    assert last["kind"] == "result" and last["value"]["agrees"] and last["value"]["edited"], last
    for source, told in (
        (text.replace("i < 512", "i < 513"), "SIGSEGV"),
        (text.replace("{\n", "{\n  while (1) { volatile int k = 0; (void)k; }\n", 1), "cancelled"),
        (text.replace(";", "", 1), "error:"),
    ):
        *_, last = kernel.ask("edit", **asked, source=source, interrupt=told == "cancelled")
        assert last["kind"] == "error"
        assert last["error"]["cancelled"] if told == "cancelled" else told in last["error"]["message"], last
    assert kernel.run("(out.sum(), big.sum())")["result"] == before


WIDGET = """
import nbcompile.notebook.play.widget as widget, nbcompile.notebook.play.protocol as protocol
{patch}
"""
FILES = "widget.static_file = protocol.static_file = lambda name: 'text of ' + name"
MISSING = """
def missing(name): raise protocol.ExplorerError(name + ' has not been built.', advice='Run `make explorer`.')
widget.static_file = protocol.static_file = missing
"""


def test_the_widget_speaks_the_same_way(kernel: Kernel) -> None:
    pytest.importorskip("anywidget")
    kernel.run(WIDGET.format(patch=FILES))
    shown = kernel.run(CELL.replace("--into", "--live --into"))
    view = shown["displays"][-1]["application/vnd.jupyter.widget-view+json"]
    assert set(shown["displays"][-1]) == {
        "application/vnd.jupyter.widget-view+json",
        "text/html",
        "text/plain",
    }
    (opened,) = [c for c in shown["comms"] if c["comm_id"] == view["model_id"]]
    state = opened["data"]["state"]
    assert state["_esm"] == "text of explorer.js" and state["_css"] == "text of explorer.css"
    assert state["payload"]["id"] == record(kernel)
    assert "view" in json.loads(unpack(state["payload"]))
    widget = Widget(kernel, view["model_id"])
    *_, last = widget.ask("change", record=record(kernel), fuse=False, bench=False)
    assert last["kind"] == "result" and last["value"]["payload"]["id"] != record(kernel)
    (charts,) = widget.ask("charts")
    assert charts["value"] == {"script": "text of plotly.js"}


def test_without_the_explorers_files_the_record_is_shown_plainly(kernel: Kernel) -> None:
    pytest.importorskip("anywidget")
    kernel.run(WIDGET.format(patch=MISSING))
    shown = kernel.run(CELL.replace("--into", "--live --into"))
    assert "make explorer" in shown["streams"] and shown["error"] is None
    assert "application/vnd.nbcompile.v1+json" in shown["displays"][-1]
    failed = kernel.run("import nbcompile; nbcompile.explore(record)")
    assert failed["error"][0] == "ExplorerError"
    (charts,) = kernel.ask("charts")
    assert charts["kind"] == "error" and "make explorer" in charts["error"]["advice"]


def test_unloading_ends_the_target(kernel: Kernel) -> None:
    target = "'nbcompile' in get_ipython().kernel.comm_manager.targets"
    assert kernel.run(target)["result"] == "True"
    kernel.run("%unload_ext nbcompile")
    assert kernel.run(target)["result"] == "False"
    kernel.run("%load_ext nbcompile")
    assert kernel.run(target)["result"] == "True"

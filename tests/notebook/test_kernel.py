"""The same, through a real ipykernel: outputs, errors and interrupts as a notebook sees them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbcompile.record.compilation import Compilation
from tests.nightly import few

manager_module = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[2]
MIME = "application/vnd.nbcompile.v1+json"
SETUP = """
%load_ext nbcompile
%config NbCompile.cold = False
%config NbCompile.bench_seconds = 0.05
import torch, time, torch._dynamo
@torch._dynamo.register_backend
def sleepy(module, inputs):
    print('compiling', flush=True)
    time.sleep(60)
    return module.forward
"""
DATA = "torch.manual_seed(5)\nx = torch.randn(4, 4)\nw = torch.randn(4, 4)\ny = z = k = None\nitems = []\n"


class Kernel:
    def __init__(self, manager: Any, client: Any) -> None:
        self.manager, self.client = manager, client

    def run(self, code: str, *, interrupt_on: str = "", sign: Path | None = None) -> dict[str, Any]:
        """Outputs of a cell in order. Interrupts once ``interrupt_on`` is on stdout and ``sign`` exists."""
        timeout = 120.0
        sent = self.client.execute(code)
        seen: dict[str, Any] = {"streams": "", "displays": [], "result": None, "error": None, "order": []}
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=timeout)
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            seen["order"].append(kind)
            if kind == "stream":
                seen["streams"] += content["text"] if content["name"] == "stdout" else ""
                if interrupt_on and interrupt_on in seen["streams"]:
                    interrupt_on = ""
                    while sign is not None and not sign.exists():
                        time.sleep(0.05)
                    time.sleep(0.3)
                    self.manager.interrupt_kernel()
            elif kind in ("display_data", "update_display_data"):
                seen["displays"].append(content)
            elif kind == "execute_result":
                seen["result"] = content["data"]["text/plain"]
            elif kind == "error":
                seen["error"] = (content["ename"], content["evalue"], "\n".join(content["traceback"]))
            elif kind == "status" and content["execution_state"] == "idle":
                return seen
        raise TimeoutError(code)

    def value(self, expression: str) -> str:
        return str(self.run(expression)["result"])


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager = manager_module.KernelManager(kernel_name="python3")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    manager.start_kernel(env=environment, cwd=str(ROOT))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        made = Kernel(manager, client)
        assert made.run("%colors nocolor\n" + SETUP)["error"] is None
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


FACTS = "repr((x, w, y, z, k, items, torch.get_rng_state().sum()))"

CELLS = {
    "graph break": "y = x + 1\nif y.sum() > 0:\n    z = y * 2\nelse:\n    z = y\nz",
    "in place": "x.add_(1)\ny = x * 2\nx.mul_(y)\nx",
    "prints in order": "print('one')\ny = x + 1\nprint('two')\nz = y.sum()\nprint('three', z.item())\nz",
    "random numbers": "y = torch.rand(3)\nz = torch.randn(3)\nk = torch.nn.functional.dropout(y, 0.5)\nk",
    "an error": "y = x + 1\nitems.append(1)\nz = y @ torch.ones(3, 3)\nk = 1",
    "a syntax error": "y = x + 1\nz = = 3",
    "await": "import asyncio\nawait asyncio.sleep(0)\ny = x + 1\nz = y * 2\nz",
    "silenced": "y = x + 1\ny;",
}


@few(2)
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_does_the_same(kernel: Kernel, name: str) -> None:
    kernel.run(DATA)
    line = "%%compile --backend eager --no-bench"
    plain = kernel.run(f"# {line}\n{CELLS[name]}")
    facts = kernel.value(FACTS)
    kernel.run(DATA)
    compiled = kernel.run(f"{line}\n{CELLS[name]}")
    assert kernel.value(FACTS) == facts
    for key in ("streams", "result"):
        assert compiled[key] == plain[key]
    if plain["error"] is None:
        assert compiled["error"] is None
        assert MIME in compiled["displays"][-1]["data"]
    else:
        assert [_unnumbered(part) for part in compiled["error"]] == [_unnumbered(p) for p in plain["error"]]


def _unnumbered(text: str) -> str:
    import re

    return re.sub(r"In\[\d+\]|/tmp/ipykernel_\S+?\.py|<ipython-input[^>]*>|\(\d+\.py, ", "cell", text)


def test_an_interrupt_while_compiling_leaves_the_names_alone(kernel: Kernel) -> None:
    kernel.run(DATA)
    before = kernel.value(FACTS)
    body = "y = x + 1\nx.add_(1)\nz = y * 2"
    seen = kernel.run(f"%%compile --backend sleepy --no-bench\n{body}", interrupt_on="compiling")
    assert seen["error"][0] == "KeyboardInterrupt"
    assert kernel.value(FACTS) == before


def test_an_interrupt_in_a_loop_leaves_whole_steps(kernel: Kernel) -> None:
    kernel.run(DATA)
    body = (
        "k = 0\nprint('go', flush=True)\nwhile True:\n    z = x + k\n"
        + "    y = z * 2\n    k += 1\n    time.sleep(0.001)"
    )
    seen = kernel.run(f"%%compile --backend eager --no-bench\n{body}", interrupt_on="go")
    assert seen["error"][0] == "KeyboardInterrupt"
    steps = int(kernel.value("k"))
    assert steps > 0
    assert kernel.value("bool(torch.equal(z, x + k) or torch.equal(z, x + (k - 1)))") == "True"
    assert kernel.value("torch.equal(y, z * 2)") == "True"


@pytest.mark.nightly
def test_an_interrupt_while_measuring_keeps_what_the_cell_did(kernel: Kernel, tmp_path: Path) -> None:
    sign = tmp_path / "measuring"
    kernel.run(DATA + SLOW_AGAIN.replace("{sign!r}", repr(str(sign))))
    body = "y = x + 1\nx.add_(1)\nprint('done', flush=True)\ny.sum()"
    line = "%%compile --backend eager --compare eager,slow_again"
    seen = kernel.run(f"{line}\n{body}", interrupt_on="done", sign=sign)
    assert seen["error"] is None and seen["result"] is not None
    assert "interrupted while measuring" in seen["streams"]
    assert MIME in seen["displays"][-1]["data"]
    assert kernel.value("torch.equal(y, x)") == "True"


SLOW_AGAIN = """
@torch._dynamo.register_backend
def slow_again(module, inputs):
    open({sign!r}, "w").close()
    time.sleep(60)
    return module.forward
"""


def test_progress_and_record_are_one_output(kernel: Kernel) -> None:
    kernel.run(DATA)
    seen = kernel.run(
        "%%compile --backend aot_eager --compare eager,aot_eager\ny = x @ w\nz = y.relu()\nz.sum()"
    )
    assert seen["error"] is None
    first = [place for place, kind in enumerate(seen["order"]) if kind == "display_data"]
    assert len(first) == 1, "one display; progress and record update it"
    ids = {content["transient"]["display_id"] for content in seen["displays"]}
    assert len(ids) == 1
    last = seen["displays"][-1]["data"]
    assert set(last) == {MIME, "text/html", "text/plain"}
    assert [m.contestant for m in Compilation.from_dict(last[MIME]).measurements] == ["eager", "aot_eager"]

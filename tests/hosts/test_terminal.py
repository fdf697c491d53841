"""Plain IPython in a terminal: the verdict and the tables as text, in colours where there are any; and Python
in a browser, where there is nothing to compile with."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nbcompile import view
from tests.view import fixtures

ROOT = Path(__file__).resolve().parents[2]
CELL = "%%compile --no-bench\ny = x.softmax(-1) * 2\nprint('a line of its own')\nz = y + 1"
PROGRAM = f"""
import sys
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance(simple_prompt=True, history_load_length=0)
if "nocolor" in sys.argv:
    shell.colors = "nocolor"
shell.run_cell("%load_ext nbcompile\\nimport torch\\nx = torch.randn(8, 8)").raise_error()
shell.run_cell({CELL!r}).raise_error()
"""


def in_a_terminal(tmp_path: Path, *arguments: str, **environment: str) -> str:
    """What IPython prints to a terminal of its own."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    given = {"TERM": "xterm-256color", "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHONPATH": str(ROOT)}
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=slave, stdout=slave, stderr=slave, env={**kept, **given, **environment}, cwd=tmp_path,
    )  # fmt: skip
    os.close(slave)
    said = b""
    try:
        while piece := os.read(master, 65536):
            said += piece
    except OSError:  # Linux: the other end is closed
        pass
    os.close(master)
    assert process.wait(60) == 0, said.decode()
    return said.decode().replace("\r\n", "\n")


@pytest.mark.nightly
def test_a_terminal_gets_text_in_colours(tmp_path: Path) -> None:
    said = in_a_terminal(tmp_path)
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    assert plain.count("a line of its own") == 2, "once printed, once as the cell's source"
    assert "\x1b[31mx\x1b[0m" in said and "graph break" in plain  # a red mark
    assert re.search(r"^\x1b\[1m\S", said, re.M), "the verdict is bold"
    for table in ("Your cell", "Kernels", "Fusion:"):
        assert re.search(rf"^{table}", plain, re.M)
    assert "<div" not in plain and "{'" not in plain and max(map(len, plain.splitlines())) <= 100


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("nocolor",), {})],
    ids=["NO_COLOR", "TERM=dumb", "IPython's own setting"],
)
def test_a_terminal_without_colours(
    arguments: tuple[str, ...], environment: dict[str, str], tmp_path: Path
) -> None:
    said = in_a_terminal(tmp_path, *arguments, **environment)
    assert "Your cell" in said and "\x1b[31m" not in said and "\x1b[1m" not in said


IN_A_BROWSER = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
sys.modules["torch"] = None
import sysconfig; sysconfig.get_config_vars()  # of the Python that this is
sys.platform = "emscripten"
shell.run_cell("%load_ext nbcompile")
shell.run_cell("import sys, nbcompile.view.saved as s")
shell.run_cell("print(sorted(s.read_saved(sys.argv[1])[0]._repr_mimebundle_()))")
"""


def test_python_in_a_browser_is_refused_in_one_sentence_and_opens_records(tmp_path: Path) -> None:
    """JupyterLite: platform ``emscripten``, without torch."""
    record = tmp_path / "record.json"
    record.write_text(fixtures.transformer().to_json())
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    run = subprocess.run(
        [sys.executable, "-c", IN_A_BROWSER, str(record)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    said = (run.stdout + run.stderr).strip().splitlines()
    assert len(said) == 2, run.stdout + run.stderr
    assert "UsageError: nbcompile cannot compile here: there is no torch in a browser" in said[0] + said[1]
    assert str(sorted([view.MIME, "text/html", "text/plain"])) in said

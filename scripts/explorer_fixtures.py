"""Make the payloads that the explorer's unit tests open: small ones, of real compiles.

    python scripts/explorer_fixtures.py [OUTDIR]

writes ``small.json`` (C, on this machine) and ``triton.json`` (for ``cuda:90``, with what Triton makes of it)
to ``labextension/tests/fixtures``, and ``small.python.json``: what Python reads from the first.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from nbcompile.record.compilation import Compilation
from nbcompile.record.provenance import Links
from nbcompile.view import payload

FOLDER = Path(__file__).parent.parent / "labextension" / "tests" / "fixtures"
SETUP = "import torch\ntorch.manual_seed(0)\nx, w = torch.randn(64, 128), torch.randn(128, 128)\n"
BODY = "h = x @ w\np = torch.softmax(h, -1)\nm = p.mean(0)\nz = (torch.tanh(h - m) * p).sum(-1)\nz"
EDITED = "h = x @ w\n# warmer\nh = h / 2\n" + BODY.split("\n", 1)[1].replace("h - m", "h + m")
CELLS = {
    "small": "%%compile --no-bench --save {file}\n" + BODY,
    "no_fuse": "%%compile --no-bench --no-fuse --save {file}\n" + BODY,
    "edited": "%%compile --no-bench --save {file}\n" + EDITED,
    "walk": "%%compile --watch --no-bench --save {file}\n"
    "def scaled(y, by):\n    return torch.relu(y) * by\n\ndef noisy(y):\n    z = scaled(y, 2.0)\n"
    "    print(len(z))\n    return z.sin() + 1\nh = scaled(x @ w, 3)\nout = noisy(h)\nout.sum()",
    "inductor": "%%compile --no-bench --backend inductor --save {file}\n" + BODY,
    "triton": "%%compile --target cuda:90 --no-bench --save {file}\n"
    "h = x + 1\np = torch.softmax(h, -1)\np * 2",
}  # fmt: skip


def make(shell: InteractiveShell, cell: str) -> Compilation:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.json"
        with capture_output() as output:
            result = shell.run_cell(cell.format(file=file))
        result.raise_error()
        if not file.exists():
            raise RuntimeError(output.stdout + output.stderr)
        text = file.read_text(encoding="utf-8").replace(str(file), "record.json")
    return Compilation.from_dict(json.loads(text))


def read_by_python(payload: dict[str, Any]) -> dict[str, Any]:
    """The unpacked record and its links: what TypeScript has to find."""
    record = Compilation.from_dict(payload)
    links = Links(record)
    ids = [*links.nodes, *(kernel.id for kernel in record.kernels), *(each.id for each in record.decisions)]
    count = len(record.cell.source.split("\n")) if record.cell else 0
    found = {
        "record": dataclasses.asdict(record),
        "at_line": {line: sorted(links.at_line(line)) for line in range(1, count + 1)},
        "lines": {id: links.lines(id) for id in ids},
        "up": {id: sorted(links.up(id)) for id in ids},
        "down": {id: len(links.down(id)) for id in ids},
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def main(folder: Path) -> None:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "nbcompile")
    shell.run_cell(SETUP)
    folder.mkdir(parents=True, exist_ok=True)
    for name, cell in CELLS.items():
        text = json.dumps(payload(make(shell, cell)), ensure_ascii=False, indent=None) + "\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text):,} characters")
    write_links(folder)


def write_links(folder: Path) -> None:
    made = read_by_python(json.loads((folder / "small.json").read_text(encoding="utf-8")))
    (folder / "small.python.json").write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)

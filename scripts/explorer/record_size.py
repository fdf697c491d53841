"""How large records are, and how long it takes to pack and to read one: three ``%%compile`` cells.

    python scripts/explorer/record_size.py [--limit KB]

The cells are a softmax of a product, a TransformerEncoderLayer forward and backward, and the same layer's
kernels for a GPU with everything that Triton makes of them (``--target cuda:90``, which needs no GPU). Each
is run as a notebook would, and its sizes are printed in kB of 1000 bytes: the record as JSON, with what the
explorer adds to it (``view``), and that packed, which is what a notebook, a page or a widget holds. Times are
the processor's, the least of five: ``pack`` is from the record to the packed text, working out the view left
aside, and ``read`` from that text to the record. Ends with status 1 if a packed record is over ``--limit``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from nbcompile.record.compilation import Compilation
from nbcompile.record.packed import pack
from nbcompile.view import whole

SETUP = """
import torch
torch.manual_seed(0)
a, b = torch.randn(512, 128), torch.randn(128, 64)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
x = torch.randn(16, 64, 512, requires_grad=True)
"""
LAYER = """y = layer(x)
loss = y.pow(2).mean()
loss.backward()
"""
CELLS = {
    "small cell": "%%compile --into rec\ny = a @ b\ntorch.softmax(y, -1) * 2\n",
    "transformer layer": f"%%compile --train --into rec\n{LAYER}",
    "GPU kernels": f"%%compile --train --target cuda:90 --into rec\n{LAYER}",
}


def compiled(cell: str) -> Compilation:
    """The record of a cell, compiled in a shell."""
    shell: Any = InteractiveShell.instance()
    with capture_output():
        shell.run_line_magic("load_ext", "nbcompile")
        shell.run_cell(SETUP)
        result = shell.run_cell(cell, store_history=True)
    result.raise_error()
    record: Compilation = shell.user_ns["rec"]
    if not record.kernels:
        sys.exit(f"nothing was compiled: {'; '.join(record.notes)}")
    return record


def size(value: Any) -> float:
    """kB of JSON text."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) / 1000


def least(work: Callable[[], object]) -> float:
    """Milliseconds of processor time, the least of five."""
    times = []
    for _ in range(5):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=1000.0, help="kB packed (default: 1000)")
    args = parser.parse_args()
    largest = 0.0
    heads = ("record", "and view", "packed", "pack", "read")
    print(f"{'':18}{'nodes':>6}{'kernels':>8}" + "".join(f"{head:>13}" for head in heads))
    for name, cell in CELLS.items():
        record = compiled(cell)
        values = whole(record)
        text = json.dumps(pack(values))
        largest = max(largest, len(text) / 1000)
        figures = (size(record.to_dict()), size(values), len(text) / 1000)
        times = (
            least(lambda: (record.to_dict(), json.dumps(pack(values)))),  # noqa: B023 - called at once
            least(lambda: Compilation.from_json(text)),  # noqa: B023
        )
        nodes = sum(len(graph.nodes) for graph in record.graphs)
        row = [*(f"{kb:10,.1f} kB" for kb in figures), *(f"{ms:10.1f} ms" for ms in times)]
        print(f"{name:18}{nodes:6,}{len(record.kernels):8}" + "".join(row))
    return int(largest > args.limit)


if __name__ == "__main__":
    sys.exit(main())

"""How large the output of a ``%%compile`` cell is: a TransformerLayer's forward and backward.

    python scripts/explorer/record_size.py [--target cuda:90] [--limit KB]

Runs the cell as a notebook would and prints, in kB of 1000 bytes, the record, what the explorer adds to it
(``view``) and both together: as JSON, and compressed with zlib. Ends with status 1 if both together are over
``--limit`` kB compressed.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from nbcompile.record.compilation import Compilation
from nbcompile.view import payload

SETUP = """
import torch
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
x = torch.randn(16, 64, 512, requires_grad=True)
"""
CELL = """y = layer(x)
loss = y.pow(2).mean()
loss.backward()
"""


def compiled(options: str) -> Compilation:
    """The record of the cell, compiled in a shell of its own."""
    shell: Any = InteractiveShell.instance()
    with capture_output():
        shell.run_line_magic("load_ext", "nbcompile")
        shell.run_cell(SETUP)
        result = shell.run_cell(f"%%compile {options} --into rec\n{CELL}", store_history=True)
    result.raise_error()
    record: Compilation = shell.user_ns["rec"]
    if not record.kernels:
        sys.exit(f"nothing was compiled: {'; '.join(record.notes)}")
    return record


def sizes(value: Any) -> tuple[int, int]:
    """Bytes of JSON text, and of that compressed."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return len(text), len(zlib.compress(text, 9))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="", help="a chip to make code for, e.g. cuda:90")
    parser.add_argument("--limit", type=float, default=300.0, help="kB compressed (default: 300)")
    args = parser.parse_args()
    record = compiled(f"--train{f' --target {args.target}' if args.target else ''}")
    whole = payload(record)
    rows = {
        "record": sizes({key: value for key, value in whole.items() if key != "view"}),
        "view": sizes(whole["view"]),
        "together": sizes(whole),
    }
    nodes = sum(len(graph.nodes) for graph in record.graphs)
    print(f"{len(record.graphs)} graphs, {nodes:,} nodes, {len(record.kernels)} kernels")
    print(f"{'':10}{'JSON':>12}{'compressed':>14}")
    for name, (plain, packed) in rows.items():
        print(f"{name:10}{plain / 1000:9,.1f} kB{packed / 1000:11,.1f} kB")
    return int(rows["together"][1] > 1000 * args.limit)


if __name__ == "__main__":
    sys.exit(main())

"""Cells of known cause: does the sentence under the verdict name it?

    python scripts/causes.py [--only TEXT]

The causes were written down before the first run, from what a cell does. Run it on a machine with nothing
else to do: on a busy one the sentence says so, and nothing else. Sizes are for a CPU with some 30 MB of
cache.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SETUP = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
tiny, small = torch.randn(8), torch.randn(16, 16)
medium, large, larger = torch.randn(512, 512), torch.randn(8192, 4096), torch.randn(16384, 4096)
other, weight = torch.randn(8192, 4096), torch.randn(1024, 1024)
square = torch.randn(1024, 1024)
mlp = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
conv, image = nn.Conv2d(64, 64, 3, padding=1), torch.randn(8, 64, 56, 56)
q = torch.randn(2, 8, 512, 64)
def noisy(x):
    y = x * 2
    print("y")
    return y + 1
def choosing(x):
    if x.sum().item() > 1e9:
        return x - 1
    return x + 1
def listing(x):
    total = x.sum().tolist()
    return x * 2 + total
"""
CELLS: tuple[tuple[str, str, str], ...] = (
    # tensors too small for kernels to matter
    ("add of 8", "tiny + 1", "overhead"),
    ("chain of 8", "(tiny.sin() * 2 + 1).exp()", "overhead"),
    ("softmax of 16", "torch.softmax(small, -1)", "overhead"),
    ("norm of 16", "F.layer_norm(small, (16,))", "overhead"),
    ("sums of 16", "small.sum(0) + small.sum(1)", "overhead"),
    ("products of 16", "(small @ small).relu()", "overhead"),
    # library calls
    ("product", "square @ weight", "library"),
    ("product and bias", "(square @ weight + 1).relu()", "library"),
    ("MLP", "mlp(square)", "library"),
    ("convolution", "conv(image).relu()", "library"),
    ("attention", "F.scaled_dot_product_attention(q, q, q) * 2", "library"),
    ("three products", "(square @ weight).tanh() @ weight @ weight", "library"),
    ("sort", "square.sort(-1).values * 2", "library"),
    # memory
    ("add of 128 MB", "large + 1", "memory"),
    ("sum of two", "large * other + 1", "memory"),
    ("scaled sum", "(large * 2).sum(-1)", "memory"),
    ("relu of 256 MB", "larger.relu() * 2", "memory"),
    ("row maximum", "larger.amax(-1)", "memory"),
    # a cache
    ("add of 1 MB", "((medium + 1) * medium).relu() + medium", "cache"),
    ("double of 1 MB", "(medium * 2 + 1).relu()", "cache"),
    # breaks
    ("print", "noisy(medium)", "breaks"),
    ("branch", "choosing(medium)", "breaks"),
    ("list", "listing(medium)", "breaks"),
    ("print, tiny", "noisy(tiny)", "breaks"),
    # the same code compiled again and again
    ("lengths", "for x in (torch.ones(100), torch.ones(200)) * 9:\n    y = x.sin() + 1", "recompiles"),
    ("two dtypes", "for x in (medium, medium.double()) * 9:\n    y = x.sin() + 1", "recompiles"),
    ("ranks", "for x in (tiny, small, q) * 6:\n    y = x.exp() + 1", "recompiles"),
    # arithmetic, or a kernel that is bound by neither
    ("many exponentials", "sum(torch.exp(medium * k) for k in range(1, 12))", "compute kernel"),
    ("erf of all", "torch.erf(torch.erf(torch.erf(large)))", "compute kernel"),
    ("sines of sines", "large.sin().sin().sin().sin()", "compute kernel"),
)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    arguments = parser.parse_args(argv)
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    from nbcompile.record.provenance import Links
    from nbcompile.view.facts.facts import facts
    from nbcompile.view.facts.why import why

    shell = InteractiveShell.instance()
    with capture_output():
        shell.run_cell(f"%load_ext nbcompile\n{SETUP}").raise_error()
    right, ran = 0, 0
    for name, body, expected in CELLS:
        if arguments.only not in name:
            continue
        with capture_output():
            shell.run_cell(f"%%compile --compare eager,nbcompile --into found\n{body};").raise_error()
        record = shell.user_ns["found"]
        found = why(record, facts(record, Links(record)))
        agrees = found.cause in expected.split()
        right, ran = right + agrees, ran + 1
        print(
            f"{'right' if agrees else 'WRONG':6}{name:20}{expected:16}{found.cause:12}{found.text}",
            flush=True,
        )
    print(f"{right} of {ran} causes named")
    return 0 if right == ran else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Random programs through nbcompile, against eager.

    python scripts/fuzz.py --seeds 0:1000 [--target cpu|interpret|cuda] [--jobs N] [--reduce] [--write]
    python scripts/fuzz.py --seconds 3600 --reduce     # as many as there is time for
    python scripts/fuzz.py --show 17                   # the program of a seed, and what comes of it
    python scripts/fuzz.py --again FILE                # the programs of an --out file

A seed stands for a program of at least 12 operators (tests/fuzz/draw.py): its results, its arguments
afterwards, what shares memory with what, strides, dtypes, gradients and the state of the random generator are
compared with eager, numbers within what eager's own rounding may move them. What aot_eager does differently
from eager as well is counted as torch's own. Workers check the seeds in processes of their own: one that dies
or hangs is a failure of its seed, and another takes its place. ``--reduce`` looks for the smallest program
that still fails; ``--write`` makes it a test in tests/fuzz/found/. ``--out`` takes a JSON line for each
failing seed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seeds", metavar="A:B", help="from A up to B, without B")
    made.add_argument(
        "--count", type=int, default=200, help="how many, from seed 0 (or from A of --seeds A:)"
    )
    made.add_argument("--target", choices=("cpu", "interpret", "cuda"), default="cpu")
    made.add_argument("--jobs", type=int, default=1, help="worker processes")
    made.add_argument(
        "--seconds", type=float, default=0.0, help="stop after so long; with no --seeds, go on till then"
    )
    made.add_argument("--timeout", type=float, default=180.0, help="seconds that one program may take")
    made.add_argument("--reduce", action="store_true", help="reduce what fails")
    made.add_argument("--reduce-seconds", type=float, default=120.0, help="for each")
    made.add_argument("--write", action="store_true", help="write a test of each reduced failure")
    made.add_argument("--out", type=Path, help="JSON lines, one for each failing seed")
    made.add_argument(
        "--torch", type=Path, metavar="FILE", help="keep a small program of each difference of torch's own"
    )
    made.add_argument("--show", type=int, metavar="SEED", help="print one program, check it, and end")
    made.add_argument(
        "--again", type=Path, metavar="FILE", help="check the programs of an --out file once more"
    )
    made.add_argument(
        "--sanitize", default="", help="address,undefined: build the kernels with these sanitizers"
    )
    made.add_argument("--optimize", default="", metavar="LEVEL", help="build the C kernels with -O0 ... -O3")
    made.add_argument("--cc", default="", help="the C compiler of the kernels: gcc, clang")
    made.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of nbcompile"
    )
    made.add_argument(
        "--backend", default="", help="another compiler than nbcompile: inductor, package.module:function"
    )
    made.add_argument(
        "--fallbacks", action="store_true", help="a graph that we leave to eager is a failure too"
    )
    made.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return made


def main() -> int:
    arguments = parser().parse_args()
    from tests.fuzz import running, sanitizers

    if arguments.worker:
        return running.work(json.loads(arguments.worker.read_text()))
    with tempfile.TemporaryDirectory(prefix="nbcompile-fuzz-") as folder:
        os.environ["NBCOMPILE_CACHE_DIR"] = str(Path(folder) / "cache")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.update(
            sanitizers.environment(Path(folder), arguments.cc, arguments.optimize, arguments.sanitize)
        )
        if arguments.show is not None:
            return running.show(arguments)
        return running.run(arguments, Path(__file__).resolve(), Path(folder))


if __name__ == "__main__":
    sys.exit(main())

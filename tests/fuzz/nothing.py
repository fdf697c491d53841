"""Programs without arguments: what they work on they make, and where they work follows from that alone."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

from tests.fuzz.execute import Runner
from tests.fuzz.program import Program, Step

SHARE = 0.02


def from_nothing(program: Program, device: str) -> Program | None:
    """One program in fifty with steps in place of its arguments, if eager takes it: a graph with no tensor
    input works where what it makes is."""
    if random.Random(f"from nothing {program.seed}").random() > SHARE:
        return None
    sizes = program.sizes[0]
    steps: list[Step] = []
    bases: dict[str, str] = {}
    for number, item in enumerate(program.inputs):
        base = bases.get(item.base, f"v{1000 + number}")
        if item.base not in bases:
            shape = eval(item.shape, dict(sizes))
            contents = _contents(shape, item.dtype, item.fill, device)
            steps.append(Step("from_nothing", contents, (base,), exact=True))
        bases[item.name] = base
        view = re.sub(r"\b[A-D]\b", lambda name: str(sizes[name[0]]), re.sub(r"\bb\b", base, item.view))
        steps.append(Step("from_nothing", view, (item.name,), exact=True))
    mode = "grad" if program.trains else program.mode
    made = replace(program, inputs=(), steps=(*steps, *program.steps), sizes=({},), mode=mode)
    return made if Runner(made, device).run(0).error is None else None


def _contents(shape: tuple[int, ...], dtype: str, fill: str, device: str) -> str:
    """Python that makes a tensor of nothing. It names its device: what aot_eager makes under ``with
    torch.device(...)`` is on the CPU, so that no mistake of ours there would count."""
    count = f"torch.arange({math.prod(shape)}, device={device!r})"
    if fill.startswith("index:"):
        count = f"{count} % {max(int(fill[6:]), 1)}"
    elif fill == "distinct":
        count = f"{count} * 1"
    elif dtype == "bool":
        count = f"{count} % 3 == 0"
    elif not dtype.startswith(("float", "bfloat", "complex")):
        count = f"{count} % 9 - {0 if dtype == 'uint8' else 4}"
    elif fill in ("positive", "unit"):
        count = f"({count} % 7 + 1) * 0.125"
    else:
        count = f"{count} % 11 * 0.25 - 1.25"
    return f"({count}).reshape({shape}).to(torch.{dtype})"

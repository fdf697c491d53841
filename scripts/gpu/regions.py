"""A region of the corpus: a straight-line program of ATen calls, as text that any backend can compile.

One line of ``corpus/regions.jsonl`` is one region::

    {"id": "bert-fw-3f2a", "what": "add_layer_norm", "from": "BERT-base, bf16, forward", "bytes": 50331648,
     "inputs": [["a0", "bf16", [32, 512, 768], null, null], ["a1", "i64", [32, 512], null, 30522]],
     "code": ["v0 = aten.add.Tensor(a0, a1)"], "returns": ["v0"]}

An input is (name, dtype, shape, strides or null if contiguous, bound of its integers or null). ``bytes``
are the fewest that must be moved: what is read of each input once, each result once.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from contestants import ROOT

CORPUS = ROOT / "corpus" / "regions.jsonl"
SECOND = ROOT / "corpus" / "second.jsonl"  # of models the first has none of
DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16,
    "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
SHORT = {dtype: name for name, dtype in DTYPES.items()}
Input = tuple[str, str, list[int], list[int] | None, int | None]


@dataclass(frozen=True)
class Region:
    id: str
    what: str
    source: str
    bytes: int
    inputs: tuple[Input, ...]
    code: tuple[str, ...]
    returns: tuple[str, ...]

    def text(self) -> str:
        """The region as a Python function."""
        names = ", ".join(name for name, *_ in self.inputs)
        body = "\n".join(f"    {line}" for line in self.code)
        return f"def region({names}):\n{body}\n    return ({', '.join(self.returns)},)\n"

    def function(self, device: str) -> Callable[..., tuple[torch.Tensor, ...]]:
        """Compiled from :meth:`text`; tensors it makes itself are made on ``device``."""
        names: dict[str, Any] = {
            **DTYPES, "aten": torch.ops.aten, "prims": torch.ops.prims, "torch": torch, "inf": math.inf,
            "nan": math.nan, "device": torch.device(device),
        }  # fmt: skip
        exec(compile(self.text(), f"<region {self.id}>", "exec"), names)
        function: Callable[..., tuple[torch.Tensor, ...]] = names["region"]
        return function

    def arguments(self, device: str, seed: int = 0, *, positive: bool = False) -> tuple[torch.Tensor, ...]:
        """Random inputs; ``positive`` ones are in [0.5, 1.5), for regions that take roots or logarithms."""
        generator = torch.Generator(device).manual_seed(4321 + seed)
        return tuple(_input(each, device, generator, positive) for each in self.inputs)

    def to_json(self) -> str:
        """One line of the corpus."""
        values = asdict(self)
        values["from"] = values.pop("source")
        return json.dumps(values, separators=(",", ":"))


def _input(spec: Input, device: str, generator: torch.Generator, positive: bool) -> torch.Tensor:
    _, name, shape, strides, high = spec
    dtype = DTYPES[name]
    extent = tuple(shape)
    if strides is not None:
        extent = (1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)),)
    if dtype is torch.bool:
        made = torch.rand(extent, device=device, generator=generator) < 0.9
    elif dtype.is_floating_point:
        made = (torch.rand if positive else torch.randn)(
            extent, device=device, generator=generator, dtype=dtype
        )
        made = made.add_(0.5) if positive else made
    else:
        low = 0 if shape else 1  # a number by itself is a count, and may be divided by
        made = torch.randint(low, max(high or 2, 2), extent, device=device, generator=generator, dtype=dtype)
    return made if strides is None else made.as_strided(shape, strides)


def load(path: Path = CORPUS) -> list[Region]:
    """Every region of a corpus file."""
    regions = []
    for line in path.read_text().splitlines():
        values = json.loads(line)
        values["source"] = values.pop("from")
        for name in ("inputs", "code", "returns"):
            values[name] = tuple(tuple(each) if isinstance(each, list) else each for each in values[name])
        regions.append(Region(**values))
    return regions


@functools.cache
def by_id() -> dict[str, Region]:
    """Every region of either corpus, the first's first."""
    return {region.id: region for path in (CORPUS, SECOND) if path.exists() for region in load(path)}


def save(regions: Iterable[Region], path: Path = CORPUS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(region.to_json() + "\n" for region in regions))

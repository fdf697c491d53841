"""Symbolic sizes on a GPU: programs compiled with ``dynamic=True`` beside the same with fixed sizes.

    python scripts/gpu/symbolic.py [--only NAME ...] [--rounds 15]

Each program is compiled four times, by Inductor and by ours, with fixed sizes and with symbolic ones, and
timed by turns: events around one call, behind a kernel that keeps the GPU waiting until all is enqueued, and
after a write of 300 MB that empties the L2 cache. Results are held against eager's within what half types
round. The last two columns say how much faster ours is than Inductor, both symbolic, and how much of our
speed with fixed sizes is left.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils import _pytree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpu_timing import cold_by_turns

from nbcompile.backends.nbcompile import register

DEVICE = "cuda"
NEAR = 3e-2
Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
PROGRAMS: dict[str, Program] = {}


def program(make: Callable[[], tuple[Any, ...]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Note a function, with what makes its arguments."""

    def noted(fn: Callable[..., Any]) -> Callable[..., Any]:
        PROGRAMS[fn.__name__] = fn, make
        return fn

    return noted


def r(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def wide(*shape: int) -> Tensor:
    return r(*shape, dtype=torch.float32)


def below(most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, device=DEVICE)


def picked(*shape: int) -> Tensor:
    return torch.rand(*shape, device=DEVICE) > 0.1


@program(lambda: (r(8192, 1024),))
def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 0.5, -1)


@program(lambda: (r(16, 12, 1000, 1000),))
def float_softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.float() * 0.1, -1).to(x.dtype)


@program(lambda: (r(16, 12, 1000, 1000), picked(16, 1, 1, 1000)))
def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax(x.masked_fill(~mask, -1e9), -1)


@program(lambda: (r(8, 1000, 1000),))
def causal_softmax(x: Tensor) -> Tensor:
    i = torch.arange(x.shape[-1], device=x.device)
    return torch.softmax(x.masked_fill(i[None, :] > i[:, None], -math.inf), -1)


@program(lambda: (r(16, 1000, 768), r(768), r(768)))
def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (768,), w, b)


@program(lambda: (r(16, 1000, 768), r(16, 1000, 768), r(768), r(768)))
def add_layer_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    z = x + y
    return z, F.layer_norm(z, (768,), w, b)


@program(lambda: (r(16, 1000, 4096), r(4096)))
def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    f = x.float()
    return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


@program(lambda: (r(16, 1000, 3072),))
def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


@program(lambda: (r(16, 1000, 2 * 3072),))
def swiglu(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


@program(lambda: (r(16, 1000, 12, 64), r(1000, 64), r(1000, 64)))
def rotary(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * c[None, :, None] + turned * s[None, :, None]


@program(lambda: (r(16, 1000, 12, 64),))
def heads(x: Tensor) -> Tensor:
    return (x * 2).transpose(1, 2).contiguous()


@program(lambda: (r(16, 1000, 768),))
def mean_of_rows(x: Tensor) -> Tensor:
    return x.float().mean(1)


@program(lambda: (r(16_000, 768),))
def column_sums(x: Tensor) -> Tensor:
    return x.float().sum(0)


@program(lambda: (wide(16_000, 768),))
def sum_of_squares(x: Tensor) -> Tensor:
    return (x * x).sum()


@program(lambda: (r(4096, 8000), below(8000, 4096)))
def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x.float(), target)


@program(lambda: (below(30_000, 16, 1000), r(30_000, 768)))
def embedding(i: Tensor, table: Tensor) -> Tensor:
    return F.embedding(i, table) * 27.7


@program(lambda: (r(32, 64, 112, 112), r(64), r(64)))
def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.group_norm(x, 8, w, b))


@program(lambda: (r(32, 64, 112, 112), *(wide(64) for _ in range(3)), wide(64).abs()))
def batch_norm(x: Tensor, w: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, var, w, b))


@program(lambda: (r(32, 64, 56, 56),))
def bilinear(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear")


@program(lambda: (r(32, 64, 112, 112),))
def max_pool(x: Tensor) -> Tensor:
    return F.max_pool2d(x, 3, 2, 1)


@program(lambda: (r(32, 64, 112, 112),))
def mean_of_images(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1)


@program(lambda: (r(16, 1000, 768), r(16, 1000, 768)))
def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y], 1) * 2


@program(lambda: (wide(16, 1000, 768),))
def cumulative(x: Tensor) -> Tensor:
    return x.cumsum(1) * 2


@program(lambda: (wide(4096, 4096), wide(4096, 4096)))
def plus_transposed(x: Tensor, y: Tensor) -> Tensor:
    return x + y.t()


@program(lambda: (wide(8192, 1000),))
def places(x: Tensor) -> Tensor:
    return x.argmax(-1)


@program(lambda: (wide(8192, 1000),))
def variances(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(x, -1)


@program(lambda: (wide(64, 1000, 80), below(999, 64) + 1))
def means_of_lengths(x: Tensor, lengths: Tensor) -> Tensor:
    mask = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
    return (x * mask[..., None]).sum(1) / lengths[:, None]


def compiled(fn: Callable[..., Any], backend: str, dynamic: bool) -> Callable[..., Any]:
    """The function under a code object of its own name, so that none is compiled for another's sizes."""
    own = types.FunctionType(fn.__code__, fn.__globals__, f"{fn.__name__}_{backend}_{dynamic}")
    return torch.compile(own, backend=backend, dynamic=dynamic)


def agrees(got: Any, expected: Any) -> bool:
    pairs = zip(_pytree.tree_leaves(got), _pytree.tree_leaves(expected), strict=True)
    return all(torch.allclose(a.double(), b.double(), rtol=NEAR, atol=NEAR) for a, b in pairs)


def measured(name: str, rounds: int) -> list[float]:
    """Eager, Inductor with fixed and symbolic sizes, ours likewise, in microseconds; says what differs."""
    fn, make = PROGRAMS[name]
    torch._dynamo.reset()
    torch.manual_seed(0)
    args = make()
    ways = [(backend, dynamic) for backend in ("inductor", "nbcompile") for dynamic in (False, True)]
    calls = [fn, *(compiled(fn, *way) for way in ways)]
    expected = fn(*args)
    for way, call in zip(ways, calls[1:], strict=True):
        if not agrees(call(*args), expected):
            print(f"{name}: {way[0]}, dynamic={way[1]}, differs from eager")
    for call in calls:
        call(*args)
    seconds = cold_by_turns([partial(call, *args) for call in calls], rounds)
    return [each * 1e6 for each in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(PROGRAMS), metavar="NAME", choices=PROGRAMS)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    register()
    faster, left = [], []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; µs")
    for name in asked.only:
        eager, fixed, symbolic, own_fixed, own = measured(name, asked.rounds)
        faster.append(symbolic / own)
        left.append(own_fixed / own)
        print(
            f"{name:18} eager {eager:7.1f}  inductor {fixed:6.1f}, symbolic {symbolic:6.1f}  "
            f"nbcompile {own_fixed:6.1f}, symbolic {own:6.1f}  | {faster[-1]:.2f}  {left[-1]:.2f}",
            flush=True,
        )
    print(
        f"over Inductor, both symbolic: geomean {statistics.geometric_mean(faster):.2f} of {len(faster)}; "
        f"of the speed with fixed sizes: {statistics.geometric_mean(left):.2f}"
    )


if __name__ == "__main__":
    main()

"""Hand-written kernel sources that the tests of the GPU run time share."""

from __future__ import annotations

from nbcompile.compiler.stages import Argument, Config, KernelSource, Launch

TEXT = """import triton
import triton.language as tl
from triton.language.extra import libdevice

SCALE = tl.constexpr(2.0)


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def pointwise(x, y, n, BLOCK: tl.constexpr):
    # one block of elements a program
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, inside).to(tl.float32)
    tl.store(y + i, silu(a) * SCALE + libdevice.tanh(a), inside)


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + row + i, inside, other=float("-inf")).to(tl.float32)
    e = tl.exp(a - tl.reduce(a, 0, larger))
    tl.store(y + row + i, e / tl.sum(e, 0), inside)


@triton.jit
def row_sum(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x + row.to(tl.int64) * n + i, i < n, other=0.0).to(tl.float32)
    tl.store(y + row, tl.sum(total, 0))


@triton.jit
def whole_sum(x, y, done, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y, tl.sum(tl.load(x + i, i < n, other=0.0), 0))
    tl.atomic_add(done, 1)
    while tl.atomic_add(done, 0) < tl.num_programs(0):
        pass
    total = tl.load(y)
    tl.store(x + i, tl.load(x + i, i < n, other=0.0) / total, i < n)
"""

_SIZE = Argument("n", "i32", hint=4096)


def _pair(kind: str, out: str = "") -> tuple[Argument, ...]:
    return (Argument("x", kind), Argument("y", out or kind, ours=True), _SIZE)


LAUNCHES = {
    "pointwise": Launch(
        "pointwise", "g0.fw.k0", _pair("*bf16"), ("cdiv(n, BLOCK)",),
        (Config({"BLOCK": 1024}), Config({"BLOCK": 2048}, warps=8)),
    ),
    "softmax": Launch("softmax", "g0.fw.k1", _pair("*bf16"), ("n",), (Config({"BLOCK": 4096}, warps=8),)),
    "row_sum": Launch(
        "row_sum", "g0.fw.k2", _pair("*fp16", "*fp32"), ("n",), (Config({"BLOCK": 256}, stages=2),)
    ),
    "whole_sum": Launch(
        "whole_sum", "g0.fw.k3",
        (Argument("x", "*fp32"), Argument("y", "*fp32", ours=True), Argument("done", "*i32"), _SIZE),
        ("cdiv(n, BLOCK)",), (Config({"BLOCK": 128}),), together=True,
    ),
}  # fmt: skip


def sample(*functions: str, text: str = TEXT, launches: tuple[Launch, ...] = ()) -> KernelSource:
    """A source of the launches named, or of ``launches``."""
    chosen = launches or tuple(LAUNCHES[name] for name in functions)
    return KernelSource("g0.fw", "triton", (text,), (), "def call(args): ...", (), launches=chosen)

"""Backends of which one operator is wrong, on small models: what a check is to name.

``python -m tests.bench.bisect.wrong_backends`` prints a row for each: what was named, and how long it took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional

import nbcompile

aten = torch.ops.aten
Change = Callable[..., Any]


# -- models ----------------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """A transformer block over an embedding, its attention written out, with its loss: in training."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(32, 16)
        self.norm, self.norm2 = torch.nn.LayerNorm(16), torch.nn.LayerNorm(16)
        self.qkv, self.out = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 16)
        self.up, self.down = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-2, -1)) / 4.0
        x = torch.add(x, self.out(torch.softmax(scores, -1) @ v), alpha=0.5)
        x = x + functional.dropout(self.down(functional.gelu(self.up(self.norm2(x)))), 0.25)
        return functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())


def block() -> tuple[Any, tuple[Any, ...]]:
    return Block(), (torch.randint(0, 32, (2, 6)),)


def mlp() -> tuple[Any, tuple[Any, ...]]:
    layers = [torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.SiLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 4), torch.nn.Sigmoid()), (torch.randn(6, 8),)


def convnet() -> tuple[Any, tuple[Any, ...]]:
    layers = [
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 4, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(36, 5),
    ]
    return torch.nn.Sequential(*layers), (torch.randn(2, 3, 10, 10),)


def normed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    center, spread = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
    z = (x - center) * spread
    heights = torch.exp(z) / (1.0 + z.amax(-1, keepdim=True))
    shares = heights / heights.sum(-1, keepdim=True)
    kept = torch.where(shares > 0.05, heights, y)
    return torch.cat([kept * center, y + shares], -1)


def statistics() -> tuple[Any, tuple[Any, ...]]:
    return normed, (torch.randn(5, 12, requires_grad=True), torch.randn(5, 12))


def clipped(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2.0).sum(0)


def with_nan() -> tuple[Any, tuple[Any, ...]]:
    x = torch.randn(5, 40)
    x[2, 17] = float("nan")
    return clipped, (x,)


# -- what is wrong ---------------------------------------------------------------------------------


def slightly(result: Any, *_: Any, **__: Any) -> Any:
    """One per cent off; of several results, the first that there is."""
    if not isinstance(result, tuple | list):
        return result * 1.01
    place = next(n for n, each in enumerate(result) if each is not None)
    return (*result[:place], result[place] * 1.01, *result[place + 1 :])


def shifted(result: torch.Tensor, table: torch.Tensor, rows: torch.Tensor, *_: Any) -> torch.Tensor:
    return table[(rows + 1) % table.shape[0]]


def without_alpha(result: torch.Tensor, a: Any, b: Any, alpha: float = 1.0) -> torch.Tensor:
    return a + b


def reread(result: torch.Tensor, x: torch.Tensor, *_: Any) -> torch.Tensor:
    """The shape is right, and the elements lie as before."""
    return x.contiguous().as_strided(result.shape, torch.empty(result.shape).stride()).clone()


def other_side(result: torch.Tensor, condition: Any, a: Any, b: Any) -> torch.Tensor:
    return torch.where(condition.logical_not(), a, b)


def turned(result: torch.Tensor, parts: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    return torch.cat(list(parts)[::-1], dim)


def biased(result: torch.Tensor, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.var(x, -1, correction=0, keepdim=True)


def no_nan(result: torch.Tensor, *_: Any) -> torch.Tensor:
    return result.nan_to_num(0.0)


def unscaled(result: torch.Tensor, x: torch.Tensor, p: float = 0.5, *_: Any, **__: Any) -> torch.Tensor:
    return result * (1 - p)


@dataclass(frozen=True)
class Wrong:
    """A backend in which ``operator`` is wrong: ATen's in AOTAutograd's graphs, or only in the ``backward``
    one; or, if it is none of ATen's, one of Dynamo's graph. ``named``: what the check is to say."""

    operator: Any
    model: Callable[[], tuple[Any, tuple[Any, ...]]]
    change: Change = slightly
    backward: bool = False
    named: str = ""

    @property
    def expected(self) -> str:
        return self.named or str(self.operator)

    @property
    def id(self) -> str:
        name = getattr(self.operator, "__name__", self.operator)
        return f"{str(self.operator) if self.at_aten else name}{'-backward' if self.backward else ''}"

    @property
    def at_aten(self) -> bool:
        return isinstance(self.operator, torch._ops.OpOverload)

    def backend(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """As torch.compile takes it."""
        if not self.at_aten:
            return self._wronged(module).forward

        def wrong(part: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            return _boxed(self._wronged(part))

        def right(part: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            return _boxed(part)

        return aot_autograd(fw_compiler=right if self.backward else wrong, bw_compiler=wrong)(module, inputs)

    def _wronged(self, module: fx.GraphModule) -> fx.GraphModule:
        graph = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        for node in module.graph.nodes:
            copy = made[node] = graph.node_copy(node, lambda each: made[each])
            if node.target == self.operator and node.op in ("call_function", "call_method"):
                made[node] = graph.call_function(self.change, (copy, *copy.args), dict(copy.kwargs))
        return fx.GraphModule(module, graph)


def _boxed(module: fx.GraphModule) -> Callable[..., Any]:
    def run(inputs: list[Any]) -> Any:
        taken = tuple(inputs)
        inputs.clear()
        return module.forward(*taken)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


WRONG = (
    Wrong(aten.gelu.default, block),
    Wrong(aten._softmax.default, block),
    Wrong(aten.native_layer_norm.default, block),
    Wrong(aten.embedding.default, block, shifted),
    Wrong(aten.add.Tensor, block, without_alpha),
    Wrong(aten.bmm.default, block),
    Wrong(aten.transpose.int, block, reread),
    Wrong(functional.dropout, block, unscaled, named="torch.nn.functional.dropout"),
    Wrong(aten.gelu_backward.default, block),
    Wrong(aten.mm.default, mlp),
    Wrong(aten.addmm.default, mlp),
    Wrong(aten.tanh.default, mlp),
    Wrong(aten.sigmoid.default, mlp),
    Wrong(functional.silu, mlp, named="torch.nn.functional.silu"),
    Wrong(aten.mul.Tensor, statistics, backward=True, named="operator.mul"),
    Wrong(aten.convolution.default, convnet),
    Wrong(aten.convolution_backward.default, convnet),
    Wrong(aten.threshold_backward.default, convnet, backward=True, named="torch.nn.functional.relu"),
    Wrong(aten.rsqrt.default, statistics),
    Wrong(aten.var.correction, statistics, biased),
    Wrong(aten.mean.dim, statistics),
    Wrong(aten.exp.default, statistics),
    Wrong(aten.amax.default, statistics),
    Wrong(aten.sum.dim_IntList, statistics),
    Wrong(aten.div.Tensor, statistics),
    Wrong(aten.where.self, statistics, other_side),
    Wrong(aten.cat.default, statistics, turned),
    Wrong("mean", statistics, named="Tensor.mean"),
    Wrong(aten.relu.default, with_nan, no_nan),
)


def checked(wrong: Wrong) -> tuple[nbcompile.record.check.CheckReport, float]:  # type: ignore[name-defined]
    """The report of a check of this backend, and the seconds that it took."""
    torch.manual_seed(0)
    fn, args = wrong.model()
    start = time.perf_counter()
    report = nbcompile.check(fn, *args, backend=wrong.backend)
    return report, time.perf_counter() - start


def main(only: Sequence[str]) -> None:
    """Print the table."""
    for wrong in WRONG:
        if only and wrong.id not in only:
            continue
        report, seconds = checked(wrong)
        right = (
            "named" if report.operator == wrong.expected else f"NOT NAMED: {report.operator or report.went}"
        )
        cell = report.cell
        shown = "cell shows it" if cell is not None and cell.shows else f"no cell: {report.notes}"
        nodes = f"line {report.line}, {len(report.nodes)} nodes"
        row = (wrong.id, wrong.model.__name__, right, report.part, nodes, shown, f"{seconds:.1f}")
        print("|", " | ".join(row), "|", flush=True)
        if only:
            print(report)


if __name__ == "__main__":
    main(sys.argv[1:])

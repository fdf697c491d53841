"""linear + cross_entropy at full size on a GPU: time, peak memory and error of eager, Inductor and ours.

    python scripts/check_linear_cross_entropy.py [--rows 8192] [--hidden 4096] [--classes 128000] [--quick]

One table: forward and backward in bfloat16, with the logits as they are and with ``.float()``. Peak memory
is torch's own count, whole and without the inputs. Errors are against float64: of the loss, of all of x's
gradient rows sampled, and of the weight's gradient for sampled classes. Then the operator alone for several
numbers of chunks, and its kernel for several configurations. About 40 s on one H200.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile import targets
from nbcompile.compiler.linear_cross_entropy import kernel
from nbcompile.compiler.linear_cross_entropy import operator as operators
from nbcompile.compiler.runtime.gpu import build as triton_build
from nbcompile.compiler.runtime.gpu.launch import launchers

SAMPLES = 256
IGNORED = -100


@dataclass
class Case:
    """x [rows, hidden], weight [classes, hidden], both bfloat16 with gradients; target int64 [rows]."""

    x: torch.Tensor
    weight: torch.Tensor
    target: torch.Tensor

    @classmethod
    def make(cls, rows: int, hidden: int, classes: int) -> Case:
        generator = torch.Generator("cuda").manual_seed(0)

        def draw(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)

        target = torch.randint(0, classes, (rows,), device="cuda", generator=generator)
        target[::10] = IGNORED
        # logits of a standard deviation of about 2, as a model half-way through its training has
        return cls(
            draw(rows, hidden).requires_grad_(),
            (draw(classes, hidden) * (2 / hidden**0.5)).requires_grad_(),
            target,
        )

    def step(self, fn: Callable[..., Any]) -> torch.Tensor:
        self.x.grad = self.weight.grad = None
        loss = fn(self.x, self.weight, self.target)
        loss.backward()
        return loss.detach()


@dataclass
class Exact:
    """The float64 answer: the loss, and gradients by the sampled rows of x and the sampled classes."""

    rows: torch.Tensor
    classes: torch.Tensor
    loss: float
    by_x: torch.Tensor
    by_weight: torch.Tensor

    @classmethod
    def of(cls, case: Case) -> Exact:
        x, weight = case.x.detach().double(), case.weight.detach().double()
        counted = case.target != IGNORED
        rows = torch.arange(0, x.shape[0], max(1, x.shape[0] // SAMPLES), device="cuda")[:SAMPLES]
        known = case.target[counted][: SAMPLES // 2]
        classes = torch.cat([known, torch.arange(SAMPLES // 2, device="cuda") * 31 % weight.shape[0]])
        place = case.target.clamp(min=0)
        normalizer, chosen = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0])
        shares = torch.empty(x.shape[0], len(classes), dtype=torch.float64, device="cuda")
        by_x = torch.empty(len(rows), x.shape[1], dtype=torch.float64, device="cuda")
        for first in range(0, x.shape[0], 512):
            part = slice(first, min(first + 512, x.shape[0]))
            z = x[part] @ weight.T
            normalizer[part] = z.logsumexp(1)
            chosen[part] = z.gather(1, place[part, None])[:, 0]
            share = (z - normalizer[part, None]).exp_()
            share.scatter_add_(1, place[part, None], -torch.ones_like(share[:, :1]))
            share *= counted[part, None] / counted.sum()
            shares[part] = share[:, classes]
            here = (rows >= part.start) & (rows < part.stop)
            by_x[here] = share[rows[here] - first] @ weight
        loss = float((normalizer - chosen)[counted].mean())
        return cls(rows, classes, loss, by_x, shares.T @ x)

    def errors(self, loss: torch.Tensor, case: Case) -> tuple[float, float, float]:
        """Relative errors (Frobenius) of the loss and both gradients."""
        assert case.x.grad is not None and case.weight.grad is not None
        pairs = (case.x.grad[self.rows], self.by_x), (case.weight.grad[self.classes], self.by_weight)
        found = [float((got.double() - true).norm() / true.norm()) for got, true in pairs]
        return abs(float(loss) - self.loss) / abs(self.loss), found[0], found[1]


def plain(x: Any, weight: Any, target: Any) -> Any:
    return F.cross_entropy(F.linear(x, weight), target)


def widened(x: Any, weight: Any, target: Any) -> Any:
    return F.cross_entropy(F.linear(x, weight).float(), target)


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    """The median of ``repeats`` calls, each between two events."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def peak(case: Case, fn: Callable[..., Any]) -> tuple[float, float]:
    """(peak, peak less the inputs) of a training step, in GB."""
    case.x.grad = case.weight.grad = None
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    case.step(fn)
    most = torch.cuda.max_memory_allocated()
    case.x.grad = case.weight.grad = None
    return most / 1e9, (most - before) / 1e9


def compare(case: Case, exact: Exact, repeats: int) -> None:
    print(f"{'':24}{'ms':>9}{'peak GB':>9}{'less inputs':>13}   relative error: loss, x.grad, weight.grad")
    rows: dict[str, tuple[float, float]] = {}
    for what, fn in (("bf16 logits", plain), ("float32 logits", widened)):
        torch._dynamo.reset()
        ours = nbcompile.compile(fn)
        for name, contestant in (("eager", fn), ("inductor", torch.compile(fn)), ("nbcompile", ours)):
            loss = case.step(contestant)
            errors = exact.errors(loss, case)
            most, more = peak(case, contestant)
            time = milliseconds(lambda run=contestant: case.step(run), repeats)  # type: ignore[misc]
            rows[f"{what} {name}"] = time, most
            shown = ", ".join(f"{error:.2e}" for error in errors)
            print(f"{what + ' ' + name:24}{time:9.2f}{most:9.2f}{more:13.2f}   {shown}")
        for note in (*ours.compilation.notes, ours.eager_reason):
            if note:
                print(f"  {note}")
        time, most = rows[f"{what} nbcompile"]
        for other in ("eager", "inductor"):
            its_time, its_most = rows[f"{what} {other}"]
            print(f"  against {other}: {time / its_time:.3f} of the time, {most / its_most:.1%} of the peak")


def sweep_chunks(case: Case, repeats: int) -> None:
    print("\nthe operator alone, forward with all gradients, by chunks")
    call = operators.linear_cross_entropy()
    x, weight = case.x.detach(), case.weight.detach()
    products = milliseconds(lambda: _products(x, weight), repeats)
    print(f"  the three whole matrix products alone: {products:.2f} ms")
    for chunks in (1, 2, 4, 8, 16, 32):
        args = (x, weight, None, case.target, IGNORED, True, 0.0, chunks, [True, True, False], 0)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        time = milliseconds(lambda given=args: call(*given), repeats)  # type: ignore[misc]
        print(f"  {chunks:3} chunks {time:9.2f} ms   peak {torch.cuda.max_memory_allocated() / 1e9:.2f} GB")


def _products(x: torch.Tensor, weight: torch.Tensor) -> None:
    logits = x @ weight.T
    torch.mm(logits, weight)
    torch.mm(logits.T, x)


def sweep_kernel(case: Case, repeats: int) -> None:
    print("\nthe kernel on 1024 rows, by configuration")
    rows, classes = 1024, case.weight.shape[0]
    padded = -(-classes // 64) * 64
    memory = torch.randn(rows, padded, device="cuda").bfloat16()
    target, losses = case.target[:rows].contiguous(), torch.empty(rows, device="cuda")
    scale, chip = torch.tensor(1.0 / rows, device="cuda"), targets.of_device(0)
    moved = memory.nbytes * 2
    for block, warps in ((2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)):
        source = kernel.rows_source(
            torch.bfloat16, classes, smooth=False, gradient=True, block=block, warps=warps
        )
        (launch,) = source.launches
        built = triton_build.begin(source, launch, launch.configs[0], chip).result()
        program = launchers(source, {launch.function: built}, chip, torch.device("cuda", 0))[launch.function]
        time = milliseconds(
            lambda run=program: kernel.launch_rows(  # type: ignore[misc]
                run, memory[:, :classes], target, scale, losses, IGNORED, 0.0
            ),
            repeats,
        )
        print(
            f"  block {block:6} warps {warps:3} {time:8.3f} ms   {moved / time / 1e6:7.0f} GB/s   "
            f"{built.registers} registers"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=128_000)
    parser.add_argument("--quick", action="store_true", help="the table alone")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this check needs a GPU")
    case = Case.make(given.rows, given.hidden, given.classes)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {given.rows} rows of {given.hidden}, "
        f"{given.classes} classes, bfloat16, forward and backward"
    )
    compare(case, Exact.of(case), repeats=10)
    if not given.quick:
        sweep_chunks(case, repeats=5)
        sweep_kernel(case, repeats=20)


if __name__ == "__main__":
    main()

"""Train a small transformer on two ranks under DDP and FSDP2, and hold the loss against one process.

    python3 scripts/gpu/ranks.py                 # two GPUs, NCCL
    python3 scripts/gpu/ranks.py --cpu           # two processes, gloo
    python3 scripts/gpu/ranks.py --backends nbcompile,inductor --ranks 4

Needs torch and nothing of Jupyter. Prints a table of ranks for each, and one line `ok` or `WRONG` with the
largest difference; exits with 1 if any is wrong.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast: off on shared hosts

import torch
from torch import nn
from torch.nn import functional as F

PROGRAM = """
for step in range(steps):
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach().clone())
total = torch.stack(losses)
torch.distributed.all_reduce(total)
total = total / world_size
"""


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, words: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def trained_alone(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor, steps: int) -> torch.Tensor:
    """The losses of one process on the whole batch, eagerly."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def values_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in model.parameters()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="store_true", help="gloo between processes, no GPU")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--backends", default="nbcompile,inductor")
    parser.add_argument("--parallel", default="ddp,fsdp2")
    arguments = parser.parse_args()
    device = "cpu" if arguments.cpu else "cuda"
    if device == "cuda" and torch.cuda.device_count() < arguments.ranks:
        print(f"{arguments.ranks} GPUs are wanted, {torch.cuda.device_count()} are here; --cpu does without")
        return 1
    import ranks as this  # not __main__: plain pickle finds the classes on the ranks

    from nbcompile.bench.ranks.ranks import Ranks

    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = (1000, 128, 2, 4) if arguments.cpu else (8192, 1024, 4, 16)
    rows, length = (8, 32) if arguments.cpu else (16, 512)
    torch.manual_seed(0)
    start = this.Transformer(*sizes).to(device)
    tokens = torch.randint(sizes[0], (rows, length), device=device)
    targets = torch.randint(sizes[0], (rows, length), device=device)
    alone = copy.deepcopy(start)
    reference = trained_alone(alone, tokens, targets, arguments.steps)
    print(f"one process: loss {reference[0]:.6f} → {reference[-1]:.6f} in {arguments.steps} steps")
    wrong = 0
    with Ranks(arguments.ranks, device=device, timeout=300.0) as ranks:
        for backend in arguments.backends.split(","):
            for parallel in arguments.parallel.split(","):
                model = copy.deepcopy(start)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
                names = {
                    "model": model, "optimizer": optimizer, "tokens": tokens, "targets": targets,
                    "steps": arguments.steps, "losses": [], "torch": torch, "functional": F,
                }  # fmt: skip
                begun = time.perf_counter()
                print(f"\n== {backend}, {parallel}", flush=True)
                try:
                    result = ranks.run(
                        PROGRAM, names, parallel=parallel, split=("tokens", "targets"), backend=backend
                    )
                except Exception as error:
                    wrong += 1
                    notes = getattr(error, "__notes__", [])
                    print("WRONG", type(error).__name__, error, *notes, sep="\n", flush=True)
                    continue
                total = result.values["total"].to(reference.device)
                loss_gap = float(((total - reference).abs() / reference.abs()).max())
                gap = max(
                    float((mine - other).norm() / other.norm())
                    for mine, other in zip(values_of(model), values_of(alone))
                )
                good = loss_gap < 1e-4 and gap < 1e-2 and not result.differences
                wrong += not good
                print(result.text)
                for record in result.ranks:
                    for note in record.compilation.notes:
                        print(f"rank {record.rank}: {note}")
                print(
                    f"{'ok' if good else 'WRONG'}: loss → {total[-1]:.6f}, relative difference of a loss "
                    f"{loss_gap:.1e}, of a parameter {gap:.1e}; {time.perf_counter() - begun:.1f} s",
                    flush=True,
                )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

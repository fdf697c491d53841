# %% [markdown]
# # A first compile
#
# `%%compile` runs a cell through a compiler and shows what the compiler did. The cell keeps its meaning:
# the names it binds are bound, what it prints is printed once, its last line is displayed. Under the
# output stands the account of the compile, and every part of that account points back at a line of the
# cell.
#
# This notebook goes from three lines to a language model in training, and then to a convolution net. It
# needs nothing but the package and a C compiler, and downloads nothing.

# %%
import time

import torch
import torch.nn.functional as F
from IPython.display import SVG
from torch import nn

# %load_ext nbcompile
torch.manual_seed(0)
print("torch", torch.__version__, "on", torch.get_num_threads(), "threads")

# %% [markdown]
# ## Three lines
#
# A matrix product, a softmax, a scale. Eager PyTorch runs four operations here and writes each result to
# memory before it starts the next one.

# %%
x = torch.randn(8192, 128)
w = torch.randn(128, 1024) / 128**0.5

# %%
# %%compile --into first
y = x @ w
z = torch.softmax(y, -1) * 2
z[0, :4]

# %% [markdown]
# How to read what stands under the cell:
#
# - **The pipeline** runs from left to right: graphs captured, operations in them, loops they became,
#   kernels the loops were fused into. Fewer kernels than loops means that results stayed on the chip.
# - **The cell again**, each line tinted by what happened to it: compiled into a kernel, a call into
#   PyTorch's own library (the matrix product), or left to Python.
# - **Decisions**: each pair of neighbours that could have been fused, whether it was, the reason, and the
#   memory traffic that it saves. A refusal says what it would have saved.
# - **Kernels**: the C that was generated, with the cell line that each line of it serves.
# - **Times**: eager, ours and Inductor, in turns on the same inputs. *Cold* is a compile from nothing,
#   *warm* one from the cache, *steady* a call after that, and "pays for itself" the number of calls
#   after which the compile has been earned back.
#
# All of it is one value, a plain record, which `--into` put into the variable `first`.


# %%
def told(record, decision):
    """A decision as one line: the pair by name, the verdict, the bytes, the reason."""
    names = {node.id: node.name for graph in record.graphs for node in graph.nodes}
    pair = f"{names[decision.producer]} → {names[decision.consumer]}"
    verdict = "fused" if decision.accepted else "refused"
    return f"{pair:24} {verdict:8} {decision.bytes_saved / 1e6:7.2f} MB  {decision.reason}"


for kernel in first.kernels:
    print(f"{kernel.name}: {len(kernel.loops)} loops, schedule {kernel.schedule}")
for decision in first.decisions:
    print(told(first, decision))

# %% [markdown]
# The generated source is for reading. This is the kernel that the softmax and the scale became:

# %%
print(first.kernels[-1].sources["c"])

# %% [markdown]
# ## A language model, trained
#
# Now a small GPT that predicts the next character. The text is one that every Python has: the help topics
# of the interpreter, from the standard library's `pydoc_data.topics`.

# %%
from pydoc_data.topics import topics

text = "\n\n".join(topics[name] for name in sorted(topics))
alphabet = sorted(set(text))
index = {character: place for place, character in enumerate(alphabet)}
data = torch.tensor([index[character] for character in text])
print(f"{len(text):,} characters, {len(alphabet)} different ones")

# %%
WIDTH, LAYERS, HEADS, BLOCK, BATCH, STEPS = 128, 4, 4, 64, 16, 200


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(len(alphabet), WIDTH)
        self.place = nn.Parameter(torch.randn(BLOCK, WIDTH) * 0.02)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(alphabet))

    def forward(self, tokens):
        x = self.token(tokens) + self.place[: tokens.shape[1]]
        return self.head(self.norm(self.layers(x)))


def fresh():
    """The same model, optimiser and batches each time, from one seed."""
    torch.manual_seed(1234)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    starts = torch.randint(len(data) - BLOCK - 1, (STEPS, BATCH))
    batches = [torch.stack([data[i : i + BLOCK + 1] for i in row]) for row in starts]
    return model, optimizer, batches


print(f"{sum(parameter.numel() for parameter in GPT().parameters()):,} parameters")

# %% [markdown]
# First as it always was, without the magic, so that there is a loss curve to compare with.

# %%
model, optimizer, batches = fresh()
eager_losses = []
started = time.perf_counter()
for batch in batches:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    eager_losses.append(loss.item())
eager_seconds = time.perf_counter() - started
print(f"{eager_seconds:.1f} s, loss {eager_losses[0]:.3f} → {eager_losses[-1]:.3f}")

# %% [markdown]
# And now the same cell under `%%compile --train`. The two lines of tensor work become compiled functions,
# forward and backward; the optimiser, the `.item()` and the loop stay Python's, at their own lines.
# Parameters are updated exactly once a step: what is run to take the times works on restored state.

# %%
model, optimizer, batches = fresh()
losses = []

# %%
# %%compile --train --into training
for batch in batches:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}")

# %% [markdown]
# The two curves are to lie on one another. They cannot be equal to the last bit, since sums are taken in
# another order, and training makes small differences grow; so the allowed distance is a hundredth.


# %%
def curves(**series):
    """Loss curves as a picture, each named."""
    top = max(max(values) for values in series.values())
    colours = dict(zip(series, ("#999999", "#d9534f")))
    lines = ""
    for name, values in series.items():
        points = " ".join(
            f"{40 + 540 * i / len(values):.1f},{10 + 180 * (1 - v / top):.1f}" for i, v in enumerate(values)
        )
        dashes = "" if name == "eager" else ' stroke-dasharray="5 4"'
        lines += (
            f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="2"{dashes}/>'
        )
        row = 30 + 18 * list(series).index(name)
        lines += f'<text x="480" y="{row}" fill="{colours[name]}">{name} {values[-1]:.3f}</text>'
    axes = f'<text x="0" y="20">{top:.1f}</text><text x="0" y="192">0.0</text>'
    axes += '<line x1="40" y1="190" x2="580" y2="190" stroke="#bbbbbb"/>'
    style = "font-family:sans-serif;font-size:13px;fill:#777777;background:#ffffff"
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" width="600" height="200" style="{style}">'
    return SVG(picture + axes + lines + "</svg>")


distance = max(abs(a - b) for a, b in zip(losses, eager_losses))
print(f"largest distance between the curves over {len(losses)} steps: {distance:.1e}")
assert len(losses) == len(eager_losses) == STEPS and distance < 1e-2
assert losses[-1] < losses[0] / 1.5, "the model learns"
curves(eager=eager_losses, compiled=losses)

# %% [markdown]
# Where did the memory traffic go? Every decision carries the bytes it saves in one call, so the best and
# the most expensive refusals are one `sorted` away.

# %%
for title, accepted in (("saved by fusing", True), ("would be saved, but", False)):
    chosen = [decision for decision in training.decisions if decision.accepted is accepted]
    total = sum(decision.bytes_saved for decision in chosen)
    print(f"{title}: {total / 1e6:.1f} MB in {len(chosen)} pairs")
    for decision in sorted(chosen, key=lambda decision: -decision.bytes_saved)[:4]:
        print("  ", told(training, decision))

# %% [markdown]
# ## A convolution net, forward and backward
#
# Convolutions are PyTorch's own library calls. What stands between them is ours: the normalisation, the
# activation, the residual sum, and in the backward pass the same again in reverse. (The activation is SiLU,
# which is smooth. At the kink of a ReLU the last bit of a sum decides whether a gradient flows, so two
# correct programs differ there, eager and float64 among them.)


# %%
class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        y = F.silu(self.norm1(self.conv1(x)))
        return F.silu(x + self.norm2(self.conv2(y)))


def make_net():
    torch.manual_seed(7)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), Residual(32), Residual(32), *head)


net = make_net()
images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))

# %%
# %%compile --train --into convolution
scores = net(images)
loss = F.cross_entropy(scores, labels)
loss.backward()
loss

# %% [markdown]
# The gradients, and the running statistics that the normalisation keeps, are those of eager. The running
# statistics also show that the cell took effect once, although it was run many times to be timed.

# %%
eager_net = make_net()
eager_loss = F.cross_entropy(eager_net(images), labels)
eager_loss.backward()
for (name, ours), theirs in zip(net.named_parameters(), eager_net.parameters()):
    difference = (ours.grad - theirs.grad).norm() / theirs.grad.norm()
    assert difference < 1e-4, f"gradient of {name} differs from eager's by {difference:.1e}"
for (name, ours), theirs in zip(net.named_buffers(), eager_net.buffers()):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
print("gradients and running statistics agree; batches counted:", net[1].norm1.num_batches_tracked.item())

# %% [markdown]
# ## The record outlives the kernel
#
# What you see under the cells is made from the record alone, which is saved inside this notebook: close
# the kernel, open the file next year on a machine without torch, and it is still all there. It is plain
# JSON, with a schema.

# %%
import json

from nbcompile.compilation import Compilation, json_schema

saved = training.to_json()
assert Compilation.from_json(saved).to_json() == saved
print(f"{len(saved) / 1e3:.0f} kB of JSON; fields: {', '.join(json.loads(saved))}")
print("schema:", json_schema()["$id"])

# %% [markdown]
# Next: `%%compile --help` lists the options. `--no-fuse` shows the cell with one kernel a loop,
# `--compare` sets any backends side by side, `--save FILE` writes the record to a file. Outside a
# notebook the compiler is `torch.compile(model, backend="nbcompile")`.

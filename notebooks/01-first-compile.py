# %% [markdown]
# # A first compile
#
# Eager PyTorch runs a program one operation at a time. A compiler reads several lines together, and can put
# them into one loop over memory. Whether it did, and for which lines, decides what you gain, and from
# outside one sees none of it. `%%compile` runs a cell through a compiler and shows what the compiler did.
#
# After this notebook you can compile a cell of your own and read the account under it: the kernels, the
# loops and bytes in each, what is checked before each call, which of your lines each kernel belongs to, and
# why something was left out. It goes from three lines to a language model in training and a convolution
# net. It takes about 25 minutes to read and solve, and all its cells together run in under a minute. It
# needs nothing but the package and a C compiler, and downloads nothing.

# %%
import time

import torch
import torch.nn.functional as F
from IPython.display import SVG
from torch import nn

from nbcompile.record.provenance import Links
from nbcompile.workshop import check
from nbcompile.workshop.fusion import pair_of, told

# %load_ext nbcompile
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "| tensors on", device, "|", torch.get_num_threads(), "threads")

# %% [markdown]
# ## Three lines
#
# A matrix product, a softmax, a scale. Eager PyTorch runs an operation for each of them, and writes its
# result to memory before it starts the next one. The softmax and the scale both walk over the same rows, so
# one walk could do for both.
#
# The cell below keeps its meaning under the magic: the names it binds are bound, what it prints is printed
# once, its last line is displayed. Under the output stands the account of the compile, and every part of
# that account points back at a line of the cell. (This first cell takes a while. It is timed, beside
# Inductor, PyTorch's own compiler, which has to start up. Most other cells here say `--no-bench`.)

# %%
x = torch.randn(8192, 128, device=device)
w = torch.randn(128, 1024, device=device) / 128**0.5

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
# - **Kernels**: the code that was generated, C or on a GPU Triton, with the cell line that each line of it
#   serves.
# - **Times**: eager, ours and Inductor, in turns on the same inputs.
#
# ## The record
#
# A picture is good for looking, and a value for asking. All of the account is made from one value, a plain
# record, which `--into` put into the variable `first`. Here are its kernels, with the loops that each one
# runs and the bytes that it reads and writes in one call, and the decisions that made them:

# %%
for kernel in first.kernels:
    print(f"{kernel.name}: {len(kernel.loops)} loops, schedule {kernel.schedule}")
    print(f"    reads {', '.join(kernel.reads)}: {kernel.bytes_read / 1e6:.1f} MB")
    print(f"    writes {', '.join(kernel.writes)}: {kernel.bytes_written / 1e6:.1f} MB")
for decision in first.decisions:
    print(told(first, decision))
assert len(first.kernels) == 1

# %% [markdown]
# The bytes are what counts here. A softmax with a scale does a handful of operations on each number, and a
# processor does those faster than memory delivers the numbers. So the time of a kernel is mostly the time
# of its bytes, and each accepted pair says how many it keeps out of memory. Notebook 02 measures that.
#
# The generated source is for reading. This is the kernel that the softmax and the scale became:

# %%
print(next(iter(first.kernels[-1].sources.values())))

# %% [markdown]
# Compiled code is right only for what it was compiled for. The loops above have 8192 rows of 1024 in them.
# So before each call some conditions are checked, the **guards**; where one fails, the cell is compiled
# again. A `TENSOR_MATCH` is about a tensor that comes from outside, an `ID_MATCH` about an object such as a
# function, that must still be the same one.

# %%
for guard in first.guards:
    print(f"{guard.kind:14} {guard.name:24} {'; '.join(guard.code)}")
assert any(guard.kind == "TENSOR_MATCH" for guard in first.guards)

# %% [markdown]
# And the times. *Cold* is a compile from nothing, *warm* one from the cache on disk, *steady* a call after
# that. The contestants take turns, so that a busy moment of the machine meets all of them; what counts is
# the median, and the spread beside it says how much to believe. A time stands here only if compiled code
# ran: where a contestant fell back to eager, there is a reason instead of a number.

# %%
for each in first.measurements:
    assert each.counts, each.reason
    spread = f"{each.quantile(0.1) * 1e3:.2f} to {each.quantile(0.9) * 1e3:.2f}"
    cold = "-" if each.cold is None else f"{each.cold:.2f} s"
    print(f"{each.contestant:10} cold {cold:>8}   steady {each.median * 1e3:6.2f} ms ({spread})")
assert {each.contestant for each in first.measurements} >= {"eager", "nbcompile", "inductor"}

# %% [markdown]
# The matrix product is the same library call for all of them; only the rest can differ. Compiling costs
# something once, and each call gives some of it back: "pays off after" in the account is the number of
# calls after which it is earned.
#
# ### Exercise: read a record
#
# Another cell, compiled without the times. Its first kernel normalises rows of `x`.

# %%
# %%compile --no-bench --into mine
centred = x - x.mean(-1, keepdim=True)
scaled = centred / (centred.abs().amax(-1, keepdim=True) + 1)
v = torch.tanh(scaled @ w)

# %% [markdown]
# Say of `mine.kernels[0]`: how many **loops** it runs, and how many **megabytes** (of 10⁶ bytes) it moves
# in one call. And of the whole cell: how many tensors are **guarded**, and how many pairs were **refused**?
# You may read the account or ask the record. Try to say the megabytes before you look: `x` has 4.2 MB.
#
# <details><summary>Hint</summary>
#
# Which names does the cell bind? After the cell you may ask for any of them, so each has to be in memory.
#
# </details>

# %% tags=["exercise"]
answer = {"loops": ..., "megabytes": ..., "guarded": ..., "refused": ...}
check("first.read", answer, mine)

# %% tags=["wrong"]
answer = {"loops": 8, "megabytes": 12.6, "guarded": 2, "refused": 2}  # the loops of the whole cell

# %% tags=["wrong"]
answer = {"loops": 7, "megabytes": 8.4, "guarded": 2, "refused": 2}  # as if centred were never written

# %% tags=["wrong"]
answer = {"loops": 7, "megabytes": 12.6, "guarded": len(mine.guards), "refused": 2}

# %% tags=["solution"]
kernel = mine.kernels[0]
answer = {
    "loops": len(kernel.loops),
    "megabytes": (kernel.bytes_read + kernel.bytes_written) / 1e6,
    "guarded": sum(guard.kind == "TENSOR_MATCH" for guard in mine.guards),
    "refused": sum(not decision.accepted for decision in mine.decisions),
}

# %% [markdown]
# ## Which line is it?
#
# A profiler says that a kernel named `softmax_mul` is slow. To do something about it you must know which of
# your lines it is. A compiler that merges lines makes that harder: one kernel serves several lines, and one
# line may end up in several kernels. So each stage of the record remembers what it was made from, and
# `Links` follows that chain, from a kernel or a single generated line up to the cell. Lines are counted
# from 1, the magic line included.

# %%
links = Links(first)
for kernel in first.kernels:
    print(f"{kernel.name}: cell lines {links.lines(kernel.id)}")
    source = next(iter(kernel.sources.values())).splitlines()
    for link in kernel.line_map[:4]:
        lines = links.lines(links.generated(kernel.id, link.line))
        print(f"    its line {link.line:2}, for cell lines {lines}: {source[link.line - 1].strip()[:60]}")
print("from cell line 2:", ", ".join(links.nodes[id].name for id in links.at_line(2) if id in links.nodes))
assert links.lines(first.kernels[-1].id) == (3,)

# %% [markdown]
# In the account the same links light up: point at a line of the cell, and all that came from it is lit.
#
# ### Exercise: whose kernel is it?
#
# This cell becomes two kernels and a library call. Which lines does each kernel serve?

# %%
# %%compile --no-bench --show fusion --into mapped
h = torch.relu(x) * 2
d = x.abs().sum()
s = h.sum(-1, keepdim=True) + 1
p = (h / s) @ w
d = torch.exp(p)
q = d / d.sum(-1, keepdim=True)

# %%
print([kernel.name for kernel in mapped.kernels])

# %% [markdown]
# <details><summary>Hint</summary>
#
# The magic line is line 1, so `h = ...` is line 2. Each pair above has its lines beside it. Who reads the
# first `d`?
#
# </details>

# %% tags=["exercise"]
answer = {"relu_mul_sum_div": ..., "exp_sum_div": ...}  # a list of line numbers each
check("first.lines", answer, mapped)

# %% tags=["wrong"]
answer = {"relu_mul_sum_div": [1, 3, 4], "exp_sum_div": [5, 6]}  # the magic line not counted

# %% tags=["wrong"]
answer = {"relu_mul_sum_div": [2, 3, 4, 5], "exp_sum_div": [6, 7]}  # the dead line too

# %% tags=["wrong"]
answer = {"relu_mul_sum_div": [2, 4], "exp_sum_div": [6, 7]}  # as if the quotient were in the call

# %% tags=["solution"]
links = Links(mapped)
answer = {kernel.name: list(links.lines(kernel.id)) for kernel in mapped.kernels}

# %% [markdown]
# ## One kernel
#
# A call into a library is a wall. What comes before it must be in memory when it starts, what comes after
# reads its result from memory, and no kernel reaches across. That is the right bargain for a real matrix
# product, which a library does better than a loop of ours. But products are also used to say simpler
# things:

# %%
weights = torch.rand(128, device=device)

# %%
# %%compile --no-bench --show fusion --into four
n = x.shape[1]
averaging = torch.full((n, n), 1 / n, device=x.device)
centred = x - x @ averaging
r = torch.relu(centred @ torch.diag(weights)) + x

# %%
calls = [node.name for graph in four.graphs if graph.stage == "fused" for node in graph.nodes]
print("in this order:", ", ".join(name for name in calls if name not in ("x", "weights")))
moved = sum(kernel.bytes_read + kernel.bytes_written for kernel in four.kernels) / 1e6
print(f"{len(four.kernels)} kernels, which move {moved:.1f} MB; x alone has {x.nbytes / 1e6:.1f} MB")
assert len(four.kernels) > 1

# %% [markdown]
# The compiler does not see through this: to it a product is a product, whatever stands in the matrix. You
# can.
#
# ### Exercise: make it one
#
# Write a function with the same result as `r` that becomes one kernel, with no library call.
#
# <details><summary>Hint</summary>
#
# Each element of `x @ averaging` is a sum along a row, of elements divided by `n`. And a product with a
# diagonal matrix multiplies each column by one number.
#
# </details>


# %% tags=["exercise"]
def one(x, weights):
    return ...  # the same as r


check("first.one", one, four, (x, weights), r)


# %% tags=["wrong"]
def one(x, weights):
    centred = x - x.mean(-1, keepdim=True)
    return torch.relu(centred @ torch.diag(weights)) + x


# %% tags=["wrong"]
def one(x, weights):
    return torch.relu((x - x.mean(0)) * weights) + x


# %% tags=["wrong"]
def one(x, weights):
    return torch.relu((x - x.mean(-1, keepdim=True)) * weights.sum()) + x


# %% tags=["solution"]
def one(x, weights):
    return torch.relu((x - x.mean(-1, keepdim=True)) * weights) + x


# %% [markdown]
# ## When the compiler cannot
#
# Two things can stand in the way, and neither is an error. The compiler has no loops for an operation, or
# none that would be better than a library's: then it calls PyTorch, and goes on. Or Python itself must know
# a number before it can go on, to choose a branch for instance: then the graph ends there, Python decides,
# and another graph begins behind it. That is a **graph break**. In both cases the cell does what it always
# did, and the account says where and why.


# %%
def clipped(x):
    y = x * 2
    if y.mean() > 0:
        return torch.relu(y)
    return y


# %%
# %%compile --no-bench --show fusion --into broken
u = clipped(x) + 1
waves = torch.fft.fft(u).abs()
print("the mean is", u.mean())

# %%
captured = [graph for graph in broken.graphs if graph.stage == "fx"]
print(f"{len(captured)} graphs, {len(broken.breaks)} break")
for item in broken.breaks:
    print(f"break: {item.reason}")
    for span in item.spans:
        print(f"    at line {span.line} of {'what it calls' if span.file else 'the cell'}")
    print(f"    {item.hint}")
for graph in broken.graphs:
    for node in graph.nodes:
        if graph.stage == "fused" and node.kind in ("library", "fallback"):
            print(f"{node.kind}: {node.name}: {node.note}")
torch.testing.assert_close(waves, torch.fft.fft(clipped(x) + 1).abs(), rtol=1e-4, atol=1e-3)
assert len(broken.breaks) == 1 and len(captured) > 1

# %% [markdown]
# The `print` in the cell is neither: `%%compile` leaves a statement that works on the world outside to
# Python, at its own place, and compiles what is before and behind it. And if anything goes wrong on our
# side, or there is no C compiler, the cell still runs, eagerly, and a note under it says so.
#
# ### Exercise: what becomes of it?
#
# For each of these, say what it becomes: `"kernels"` and nothing else; a `"library call"` among the
# kernels; or is there a `"graph break"`?
#
# <details><summary>Hint</summary>
#
# The shape of `x` is known while the cell is compiled, and guarded. The numbers in `x` are not.
#
# </details>

# %%
programs = {
    "softmax": lambda x: torch.softmax(x, -1) * 2,
    "sorted": lambda x: torch.sort(x, -1).values * 2,
    "by shape": lambda x: x * 2 if x.shape[0] > 4 else x - 1,
    "by mean": lambda x: x / x.mean().item(),
    "chosen": lambda x: x[x > 0] * 2,
    "masked": lambda x: torch.where(x > 0, x, 0) * 2,
}

# %% tags=["exercise"]
answer = {"softmax": ..., "sorted": ..., "by shape": ..., "by mean": ..., "chosen": ..., "masked": ...}
check("first.cannot", answer, programs, x)

# %% tags=["wrong"]
answer = {
    "softmax": "kernels",
    "sorted": "library call",
    "by shape": "graph break",  # a shape is known while compiling
    "by mean": "graph break",
    "chosen": "graph break",
    "masked": "kernels",
}

# %% tags=["wrong"]
answer = {
    "softmax": "kernels",
    "sorted": "kernels",
    "by shape": "kernels",
    "by mean": "graph break",
    "chosen": "graph break",
    "masked": "kernels",
}

# %% tags=["wrong"]
answer = {
    "softmax": "kernels",
    "sorted": "library call",
    "by shape": "kernels",
    "by mean": "graph break",
    "chosen": "library call",  # how many there are, only the data can tell
    "masked": "kernels",
}

# %% tags=["solution"]
answer = {
    "softmax": "kernels",
    "sorted": "library call",
    "by shape": "kernels",  # a shape is known while compiling
    "by mean": "graph break",  # Python wants the number
    "chosen": "graph break",  # how many there are, only the data can tell
    "masked": "kernels",
}

# %% [markdown]
# ## A language model, trained
#
# Three lines are a toy. Training is what most people would compile, and it is harder to get right: there is
# a backward pass that no line of yours spells out, and every step changes the parameters for good. So here
# is a small GPT that predicts the next character, trained twice, and the two losses are held against each
# other. The text is one that every Python has: the help topics of the interpreter, from the standard
# library's `pydoc_data.topics`.

# %%
from pydoc_data.topics import topics

text = "\n\n".join(topics[name] for name in sorted(topics))
alphabet = sorted(set(text))
index = {character: place for place, character in enumerate(alphabet)}
data = torch.tensor([index[character] for character in text], device=device)
print(f"{len(text):,} characters, {len(alphabet)} different ones")

# %%
WIDTH, LAYERS, HEADS, BLOCK, BATCH, STEPS = 64, 2, 4, 64, 16, 100


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
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
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
# Parameters are updated exactly once a step. That would hold without `--no-bench` too: what is run to take
# the times works on restored state. (`--show` picks parts of the account, since this one is long; the record
# has all of it.)

# %%
model, optimizer, batches = fresh()
losses = []

# %%
# %%compile --train --no-bench --show cell,fusion --into training
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
        pair, saved = pair_of(training, decision), decision.bytes_saved / 1e6
        print(f"    {saved:.1f} MB  {pair}: {decision.reason}")

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
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.silu(x + self.norm(self.conv(x)))


def make_net():
    torch.manual_seed(7)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), Residual(32), *head).to(device)


net = make_net()
images = torch.randn(16, 3, 32, 32, device=device)
labels = torch.randint(10, (16,), device=device)

# %%
# %%compile --train --no-bench --show cell,fusion --into convolution
scores = net(images)
loss = F.cross_entropy(scores, labels)
loss.backward()
loss

# %% [markdown]
# The gradients, and the running statistics that the normalisation keeps, are those of eager. The statistics
# also count the batches that they have seen: compiling looked at the model, and trained it once.

# %%
tolerance = 1e-4 if device == "cpu" else 1e-2  # a GPU's convolutions round to TF32, unless told not to
eager_net = make_net()
eager_loss = F.cross_entropy(eager_net(images), labels)
eager_loss.backward()
for (name, ours), theirs in zip(net.named_parameters(), eager_net.parameters()):
    difference = (ours.grad - theirs.grad).norm() / theirs.grad.norm()
    assert difference < tolerance, f"gradient of {name} differs from eager's by {difference:.1e}"
for (name, ours), theirs in zip(net.named_buffers(), eager_net.buffers()):
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
    )
print("gradients and running statistics agree; batches counted:", net[1].norm.num_batches_tracked.item())

# %% [markdown]
# ## The record outlives the kernel
#
# What you see under the cells is made from the record alone, which is saved inside this notebook: close
# the kernel, open the file next year on a machine without torch, and it is still all there. It is plain
# JSON, with a schema.

# %%
import json

from nbcompile.record.compilation import Compilation, json_schema

saved = training.to_json()
assert Compilation.from_json(saved).to_json() == saved
print(f"{len(saved) / 1e3:.0f} kB of JSON; fields: {', '.join(json.loads(saved))}")
print("schema:", json_schema()["$id"])

# %% [markdown]
# ## What to take along
#
# A compiled cell means what it meant before. Its account says how many loops became how many kernels, what
# each of them reads and writes, what is checked before each call, and which of your lines each belongs to.
# A call into a library is a wall for fusion, a graph break is a wall for the graph, and both are named with
# the reason. Times count only if compiled code ran, and mean something only beside others from the same
# run. All of it is one record, which you can ask, save and compare.
#
# `%%compile --help` lists the options. Outside a notebook the compiler is
# `torch.compile(model, backend="nbcompile")`.
#
# Next is notebook 02, *Why eager is slow*: where the time goes that a compiler can win back.

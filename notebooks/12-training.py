# %% [markdown]
# # Training
#
# Inference is one program. A training step is three: a forward pass, a backward pass that nobody wrote, and
# the update of the parameters. After this notebook you can say what a compiler does with each of them: which
# tensors the forward pass keeps for the backward pass, what it takes to compile the optimiser, where the
# casts of mixed precision land and what they cost in accuracy, and how a graph is cut so that several
# processes can train together.
#
# It takes about a minute to run, and about forty minutes to read with the exercises.

# %%
import copy
import logging
import time

import torch
import torch.nn.functional as F
from torch import nn

import nbcompile
from nbcompile.workshop import check

# %load_ext nbcompile
torch._logging.set_logs(dynamo=logging.ERROR)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## A step is three programs
#
# The model is small, so that its whole account stays readable: one residual block, which is to turn random
# vectors into others.

# %%
WIDTH, ROWS = 64, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def fresh():
    torch.manual_seed(1)
    return Block().to(device)


model = fresh()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(2, ROWS, WIDTH, device=device)

# %%
# %%compile --train --no-bench --show cell,graph,fusion,kernels --into step
loss = F.mse_loss(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
loss

# %% [markdown]
# The first line was captured as one FX graph. From it AOTAutograd derived a *joint* graph that computes the
# loss and every gradient, and then cut that in two: what runs when you call the model, and what runs when
# you call `backward()`. Each half was lowered, fused and turned into kernels on its own. `zero_grad` and
# `step` stayed Python, at their own lines.

# %%
for graph in step.graphs:
    if graph.stage in ("fx", "joint", "forward", "backward"):
        kernels = [kernel for kernel in step.kernels if kernel.graph == f"{graph.id}.fused"]
        library = [node for node in graph.nodes if node.kind == "library"]
        made = f", {len(kernels)} kernels, {len(library)} library calls" if kernels else ""
        print(f"{graph.stage:9} {len(graph.nodes):4} nodes{made}")
assert [graph.stage for graph in step.graphs if graph.stage in ("forward", "backward")] == [
    "forward",
    "backward",
]

# %% [markdown]
# A matrix product in the forward pass becomes two in the backward pass: one for the gradient of its input,
# one for the gradient of its weight. That is why backward passes are longer than forward passes.
#
# ## What forward keeps for backward
#
# A derivative needs values. The derivative of `exp(x)` is `exp(x)`; that of `sin(x)` is `cos(x)`, so it
# wants `x`. Eager PyTorch decides operation by operation: each keeps what its own derivative wants. A
# compiler sees both passes at once, and has a choice: keep a tensor, or compute it a second time in the
# backward pass. Keeping costs a write in one pass and a read in the other. Computing again is nearly free
# inside a kernel that has its input at hand anyway.


# %%
def kept(record):
    """What the compiled forward hands to backward: (name, kind of node, bytes)."""
    graph = next(graph for graph in record.graphs if graph.stage == "forward")
    nodes = {node.id: node for node in graph.nodes}
    return [(nodes[id].name, nodes[id].kind, nodes[id].bytes) for id in graph.saved]


def kept_eagerly(fn, *inputs):
    """Bytes of what autograd keeps in eager mode, memory that is shared told once."""
    found = {}

    def keep(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = fn(*inputs)
    del out
    return list(found.values())


def chain(x):
    return torch.tanh(torch.exp(torch.sin(x)))


z = torch.randn(512, 512, device=device, requires_grad=True)
compiled = nbcompile.compile(chain)
compiled(z).sum().backward()
eagerly, ours = kept_eagerly(chain, z), kept(compiled.compilation)
print(f"eager keeps    {len(eagerly)} tensors, {sum(eagerly) / 1e6:.1f} MB")
print(f"compiled keeps {len(ours)} tensors, {sum(size for *_, size in ours) / 1e6:.1f} MB:", ours)
assert sum(size for *_, size in ours) < sum(eagerly)

# %% [markdown]
# Eager keeps the input for the sine, the result of `exp`, and the result of `tanh`. The compiled forward
# keeps the input and one result; `exp(sin(x))` is computed again. The rule behind it is a *minimum cut*: the
# joint graph is a network whose edges weigh as many bytes as their tensors have, and the cheapest set of
# edges that separates forward from backward is what is kept. Matrix products are never computed again: they
# cost more than a read.
#
# Which is why the block above gains little from this. Its large tensors are made or read by matrix products.

# %%
eagerly = kept_eagerly(lambda x, y: F.mse_loss(model(x), y), x, y)
ours = kept(step)
print(f"the model: eager keeps    {sum(eagerly) / 1e6:.2f} MB")
print(f"           compiled keeps {sum(size for *_, size in ours) / 1e6:.2f} MB")
for name, kind, size in sorted(ours, key=lambda row: -row[2])[:6]:
    print(f"  {size / 1e3:7.1f} kB  {kind:8} {name}")

# %% [markdown]
# ### Exercise: how many tensors are kept
#
# For `(torch.sigmoid(x) * torch.cos(x)).exp()`, with `x` requiring a gradient: how many tensors of the size
# of `x` does eager keep for the backward pass, and how many does the compiled forward? The input counts.
#
# <details><summary>Hint</summary>
#
# The derivative of a sigmoid `s` is `s * (1 - s)`, that of a product wants both factors, that of `exp` its
# own result. For the compiler ask, of each, whether it can be had from `x`.
#
# </details>

# %% tags=["exercise"]
answer = ...  # {"eager": ..., "compiled": ...}, numbers of tensors
check("training.saved", answer)

# %% tags=["wrong"]
answer = {"eager": 5, "compiled": 2}

# %% tags=["wrong"]
answer = {"eager": 4, "compiled": 4}

# %% tags=["wrong"]
answer = {"eager": 4, "compiled": 1}

# %% tags=["solution"]
answer = {"eager": 4, "compiled": 2}

# %% [markdown]
# ## The optimiser
#
# `optimizer.step()` ran eagerly above. AdamW does a number of pointwise operations for each parameter, and
# eager mode runs each as a pass over memory. There is no matrix product among them, so all of it can be
# fused.
#
# An optimiser's step is a method, and a method can be compiled. Its first step makes the state (two tensors
# of averages a parameter), so we take one step before.

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
optimizer.step()
compiled_step = nbcompile.compile(optimizer.step)
compiled_step()
record = compiled_step.compilation
operations = next(graph for graph in record.graphs if graph.stage == "forward")
computing = [node for node in operations.nodes if node.kind == "compute"]
parameters = len(list(model.parameters()))
print(f"{parameters} parameters, {len(computing)} operations, {len(record.kernels)} kernels")
print(f"{len(computing) / parameters:.0f} operations a parameter, fused into one kernel or so each")
assert compiled_step.ran_compiled and len(record.kernels) < len(computing) / 4

# %% [markdown]
# Whether that is worth a compile depends on what eager mode offers. PyTorch has three forms of AdamW's step:
# the plain loop (`foreach=False`), one that handles all parameters in each operation (`foreach=True`), and
# one written by hand as a single kernel (`fused=True`). A compiled step replaces the first by something like
# the third, for *any* optimiser, also for one that you wrote yourself and that has no fused form.


# %%
def seconds(call, calls=10):
    """The shortest of some calls, in seconds: what other programs take of the machine is no part of it."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


wide = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4))).to(device)
for parameter in wide.parameters():
    parameter.grad = torch.randn_like(parameter)
steps = {}
for name, how in {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}.items():
    each = torch.optim.AdamW(wide.parameters(), lr=1e-6, **how)
    each.step()
    steps[name] = seconds(each.step)
each = torch.optim.AdamW(wide.parameters(), lr=1e-6, foreach=False)
each.step()
compiled_wide = nbcompile.compile(each.step)
compiled_wide()
steps["compiled loop"] = seconds(compiled_wide)
numbers = sum(parameter.numel() for parameter in wide.parameters())
print(f"AdamW on {numbers / 1e6:.1f} million numbers:")
for name, took in steps.items():
    print(f"  {name:14} {took * 1e3:7.2f} ms")

# %% [markdown]
# One thing goes wrong at once in real training: the learning rate changes. `lr=1e-3` is a Python number, and
# a number is part of the program that was compiled.

# %%
for rate in (1e-3, 8e-4, 5e-4):
    optimizer.param_groups[0]["lr"] = rate
    compiled_step()
for recompile in compiled_step.compilation.recompiles:
    print("compiled again, as this no longer held:", recompile.reason)
assert compiled_step.compilation.recompiles

# %% [markdown]
# Dynamo then gives up on the value and makes it symbolic, so the damage is one more compile, not one a step.
# Of a large model that is a long wait, in the second step.
#
# ### Exercise: a schedule without a second compile
#
# Write `make_optimizer(parameters)`, which returns an AdamW whose compiled step survives a changing learning
# rate without any recompile. The check sets the rate as a scheduler does: in place where it can be changed
# in place.
#
# <details><summary>Hint</summary>
#
# Guards on a tensor are about its kind and its shape, not about its value.
#
# </details>

# %% tags=["exercise"]
make_optimizer = ...  # def make_optimizer(parameters): ...
check("training.schedule", make_optimizer)


# %% tags=["wrong"]
def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


# %% tags=["wrong"]
def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=torch.tensor(1e-3))


# %% tags=["wrong"]
def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=torch.tensor(1e-3), weight_decay=0.5)


# %% tags=["solution"]
def make_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=torch.tensor(1e-3))


# %% [markdown]
# ## Mixed precision
#
# `torch.autocast` runs matrix products in bfloat16 and leaves delicate operations in float32. It does so
# operation by operation, by inserting casts: each weight and each input of a product is converted just
# before it. In eager mode every cast is a kernel that reads a tensor and writes it again. For a compiler a
# cast is one more pointwise operation, and goes where its neighbours are.


# %%
def plain(x, y):
    return F.mse_loss(model(x), y)


def mixed(x, y):
    with torch.autocast(device, dtype=torch.bfloat16):
        return F.mse_loss(model(x), y)


model = fresh()
compiled = nbcompile.compile(mixed)
compiled(x, y).backward()
record = compiled.compilation
loops = {node.id: node for graph in record.graphs if graph.stage == "loops" for node in graph.nodes}
alone, inside = [], []
for kernel in record.kernels:
    casts = [loop for loop in kernel.loops if loops[loop].op == "_to_copy" or "_to_copy" in loops[loop].name]
    if casts and len(casts) == len(kernel.loops):
        alone.append(kernel)
    elif casts:
        inside.append((kernel, casts))
print(f"kernels that only cast: {len(alone)}")
for kernel in alone:
    print(f"  {kernel.name:12} reads {kernel.bytes_read / 1e3:7.1f} kB")
print(f"kernels with a cast inside: {len(inside)}")
for kernel, casts in inside:
    print(f"  {kernel.name}: {len(casts)} of {len(kernel.loops)} loops are casts")
assert alone and inside

# %% [markdown]
# Casts of activations are gone: the kernel that makes a value also rounds it, and stores two bytes a number
# instead of four. What remains are casts of weights. A weight comes from memory and goes straight into a
# library call, so there is no kernel to join. The same in the backward pass, where gradients of weights are
# made in bfloat16 by a library call, and converted to float32 for the optimiser.
#
# What does it cost in accuracy? Not "eager and compiled differ", which says nothing about who is right. Both
# are held against the same program in float64.


# %%
def errors(fn):
    """{output: (error of compiled, error of eager)}, relative, against float64."""
    compared = nbcompile.compare(fn, (x, y), ("eager", "nbcompile"), train=True, timing=False)
    return {item.output: (item.error, item.eager_error) for item in compared.accuracy}


worst = {}
for name, fn in (("float32", plain), ("bfloat16 autocast", mixed)):
    found = errors(fn)
    worst[name] = max(found, key=lambda output: found[output][0])
    error, eager = found[worst[name]]
    print(f"{name:18} {len(found)} outputs; worst is {worst[name]}: compiled {error:.1e}, eager {eager:.1e}")
    worst[name] = error
assert worst["float32"] < 1e-4 < worst["bfloat16 autocast"] < 0.1

# %% [markdown]
# bfloat16 has eight bits of significand, so rounding one number costs up to 2⁻⁸ of it, or 0.4 %. The errors
# of gradients are of that order, and training lives with it. The compiled program is as close to float64 as
# the eager one: it takes the casts where autocast put them, and computes in float32 between load and store.
#
# ### Exercise: which type comes out
#
# Under `torch.autocast("cpu", dtype=torch.bfloat16)`, with `x` in float32 and `h = linear(x)`, which type
# has the result of each of these: `h`, `gelu(h)`, `x + h`, `softmax(h)`, and the cross-entropy loss of `h`?
# Write `"bfloat16"` or `"float32"`.
#
# <details><summary>Hint</summary>
#
# Autocast has a list of operations for bfloat16 (products) and one for float32 (delicate ones). What is on
# neither follows its inputs. The lists differ between CPU and GPU; where you doubt, trying it costs four
# lines.
#
# </details>

# %% tags=["exercise"]
answer = ...  # {"linear": ..., "gelu": ..., "x + linear": ..., "softmax": ..., "cross_entropy": ...}
check("training.casts", answer)

# %% tags=["wrong"]
answer = dict.fromkeys(("linear", "gelu", "x + linear", "softmax", "cross_entropy"), "bfloat16")

# %% tags=["wrong"]
answer = {
    "linear": "bfloat16",
    "gelu": "float32",
    "x + linear": "float32",
    "softmax": "float32",
    "cross_entropy": "float32",
}

# %% tags=["solution"]
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = nn.Linear(16, 16)(torch.randn(8, 16))
    results = {
        "linear": h,
        "gelu": F.gelu(h),
        "x + linear": torch.randn(8, 16) + h,
        "softmax": torch.softmax(h, -1),
        "cross_entropy": F.cross_entropy(h, torch.arange(8)),
    }
answer = {name: str(value.dtype).removeprefix("torch.") for name, value in results.items()}

# %% [markdown]
# ## Gradient accumulation
#
# A batch that does not fit into memory is fed in parts: forward and backward for each, and one step of the
# optimiser at the end. `backward()` adds to `.grad`, so the sum comes by itself. To the compiler it is the
# same two graphs, called again. Provided that the parts are of one size:

# %%
model = fresh()
training = nbcompile.compile(lambda x, y: F.mse_loss(model(x), y))
for part in (64, 64, 64, 64):
    training(x[:part], y[:part]).backward()
print("equal parts: compiled", 1 + len(training.compilation.recompiles), "time")
assert not training.compilation.recompiles
training(x[:40], y[:40]).backward()
print("and a last part of 40 rows:", [recompile.reason for recompile in training.compilation.recompiles])
assert len(training.compilation.recompiles) == 1
model.zero_grad()

# %% [markdown]
# The rest at the end of an epoch is a shape like any other, and costs a compile, after which sizes are
# symbolic. `drop_last=True` in the data loader, or `dynamic=True` from the start, avoids it.
#
# The uneven rest has a second trap, which is no compiler's fault.
#
# ### Exercise: accumulate
#
# Write `accumulate(model, batches, loss_of)`. `batches` is a list of pairs `(x, y)`, perhaps of different
# sizes; `loss_of(model(x), y)` is a mean over rows. Afterwards each `.grad` is to be what one backward pass
# over all rows at once would have given.
#
# <details><summary>Hint</summary>
#
# A mean over a small batch gives each of its rows a larger weight than a mean over everything would.
#
# </details>

# %% tags=["exercise"]
accumulate = ...  # def accumulate(model, batches, loss_of): ...
check("training.accumulate", accumulate)


# %% tags=["wrong"]
def accumulate(model, batches, loss_of):
    for x, y in batches:
        loss_of(model(x), y).backward()


# %% tags=["wrong"]
def accumulate(model, batches, loss_of):
    for x, y in batches:
        (loss_of(model(x), y) / len(batches)).backward()


# %% tags=["solution"]
def accumulate(model, batches, loss_of):
    rows = sum(len(x) for x, _ in batches)
    for x, y in batches:
        (loss_of(model(x), y) * len(x) / rows).backward()


# %% [markdown]
# ## Several processes
#
# Data parallelism is accumulation across machines. Each *rank* has a copy of the model and its share of the
# rows; after the backward pass the gradients are averaged over all ranks, in a collective operation called
# all-reduce. `DistributedDataParallel` (DDP) does not wait for the end: it packs parameters into *buckets*,
# and sends a bucket as soon as its gradients are there, while backward still works on earlier layers.
#
# This meets a compiler head on. A backward pass that is one graph delivers all gradients at its end, and
# there is nothing left to overlap with. So Dynamo's DDPOptimizer cuts the graph where a bucket is full: it
# prefers several graphs, and loses the fusions across the cuts.
#
# The next cell runs two lines of training on two processes of this machine, which talk over gloo, a library
# for collectives on CPUs. In a notebook of your own you write `%%compile --ranks 2 --split rows,labels` above
# the two lines, and the processes stay for the next cell; that needs the package `ipyparallel`.

# %%
deep = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(3)))
rows, labels = torch.randn(64, 512), torch.randint(512, (64,))
alone = copy.deepcopy(deep)
STEP = """
loss = torch.nn.functional.cross_entropy(deep(rows), labels)
loss.backward()
"""
names = {"torch": torch, "deep": deep, "rows": rows, "labels": labels}
with nbcompile.Ranks(2, device="cpu") as processes:
    ranks = processes.run(STEP, names, split=("rows", "labels"))
ranks

# %% [markdown]
# Each weight has 512 × 512 float32 numbers, exactly 1 MiB. The first bucket is closed at 1 MiB, later ones
# at 25 MiB: the first is small so that sending begins early. Gradients arrive from the last layer to the
# first, so the buckets are filled in that order, and the last graph is the first to be sent.

# %%
for bucket in ranks.ranks[0].buckets:
    print(f"graph {bucket.graph}: {bucket.bytes / 2**20:.0f} MiB, {', '.join(bucket.parameters)}")
assert ranks.ranks[0].graphs == len(ranks.ranks[0].buckets) == len(ranks.ranks[0].reducer_bytes) == 2
assert not ranks.ranks[0].compilation.notes, "compiled code ran on the ranks"
talk = ranks.ranks[0].communication
if talk is not None:
    print(f"a step: {talk.step * 1e3:.1f} ms; a collective is under way for {talk.collectives * 1e3:.1f} ms,")
    print(f"compute goes on meanwhile for {talk.overlapped * 1e3:.1f} ms of that")

# %% [markdown]
# On a CPU, hiding gains little: gloo needs the same cores as the matrix products. On GPUs the collective runs
# on the network and a few multiprocessors, and it is worth a cut.
#
# Is it the same gradient? The loss is a mean over rows, and the two shares are of one size, so the average
# over ranks is that of the whole batch.

# %%
F.cross_entropy(alone(rows), labels).backward()
for ours, single in zip(deep.parameters(), alone.parameters()):
    distance = float((ours.grad - single.grad).norm() / single.grad.norm())
    print(f"gradient of two ranks against one process: {distance:.1e} apart")
    assert distance < 1e-4

# %% [markdown]
# With a summed loss the average over two ranks would be half of it. This is the accumulation exercise again:
# what is averaged, and over what.
#
# ### Exercise: where is it cut
#
# Six layers like these, 1 MiB each and in a chain, under DDP with `bucket_cap_mb=2`. Into how many graphs
# does DDPOptimizer cut the forward pass?

# %% tags=["exercise"]
answer = ...  # a number of graphs
check("training.buckets", answer)

# %% tags=["wrong"]
answer = 3

# %% tags=["wrong"]
answer = 6

# %% tags=["solution"]
# From the last layer: 1 MiB (the first bucket), then 2, then 2, and the remaining 1.
answer = 4

# %% [markdown]
# ## What to take along
#
# Training is compiled as one joint graph that is then cut in two, and the cut decides what is kept:
# pointwise values may be computed again, matrix products are not. An optimiser's step can be compiled like
# any other function, if what changes from step to step is a tensor. Casts of mixed precision fuse into the
# kernels beside them, except those of weights, and float64 is the judge of what they cost. Equal batches
# keep the number of compiles at one. Across processes the graph is cut on purpose, so that sending can begin
# before backward ends.
#
# Next: notebook 13, *When it helps, and when it does not*: when all this is worth its compile, and how to
# know before you do it.

# %% [markdown]
# # Autograd, ahead of time
#
# Training needs gradients. Eager PyTorch finds out what to differentiate while it runs: each operation that
# it does leaves a note on a tape, and `backward()` plays the tape in reverse. A compiler has a graph before
# anything runs. It can write down the backward pass as a graph too, look at both together, and decide what
# the first is to hand to the second. The part of `torch.compile` that does so is *AOTAutograd*.
#
# After this notebook you can
#
# - read the joint graph of a function, and its forward and backward halves,
# - say which tensors are kept for backward and how many bytes they are,
# - say which operations are done again in backward instead, and change a program so that less is kept,
# - say what becomes of in-place operations, `detach` and `no_grad`.
#
# It takes about 45 minutes to work through, and under a minute to run.

# %%
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import nbcompile
from nbcompile.workshop import check
from nbcompile.workshop.autograd import new_bytes, products, recomputed, saved, trained

# %load_ext nbcompile
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## What eager keeps
#
# To differentiate `sin(x)` one needs `cos(x)`, so `x` must still be there when backward comes. Most
# operations keep something like that: inputs, results, a mask. These are the *saved tensors*, and during
# training they are most of the memory in use. Autograd has a hook that sees each of them, so we can count.
# What is an input anyway is not counted: it costs nothing to keep.


# %%
def held(fn, *inputs):
    """Sizes in bytes of the memory that autograd keeps for the backward of fn(*inputs), inputs aside."""
    found = {}

    def keep(tensor):
        found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = fn(*inputs)  # noqa: F841  (while it lives, no address is used twice)
    for tensor in inputs:
        found.pop(tensor.untyped_storage().data_ptr(), None)
    return list(found.values())


def wave(x):
    for _ in range(3):
        x = torch.cos(torch.exp(torch.sin(x)))
    return x


x = torch.randn(512, 128, device=device, requires_grad=True)
w = torch.randn(128, 64, device=device, requires_grad=True)
eager = held(wave, x)
print(f"x has {x.nbytes / 1e3:.0f} kB; eager keeps {len(eager)} more tensors, {sum(eager) / 1e3:.0f} kB")

# %% [markdown]
# Nine operations. `exp` keeps its result, `sin` and `cos` keep what they were given: five tensors, each as
# large as `x`. Now the same function compiled, through the same hook:

# %%
waved = nbcompile.compile(wave)
compiled = held(waved, x)
print(f"compiled, {sum(compiled) / 1e3:.0f} kB are kept beside x")
torch.testing.assert_close(waved(x), wave(x))
assert len(eager) == 5 and not compiled

# %% [markdown]
# Nothing but `x`. The rest of this notebook is about how that is possible, and when it is not.
#
# ## Three graphs
#
# AOTAutograd runs the captured FX graph once on tensors without data, *with autograd recording*, and then
# runs autograd's own backward on the result, still without data. Everything that PyTorch's dispatcher sees
# on the way, in forward and in backward, goes into one graph of ATen operations: the **joint graph**. Its
# inputs are the inputs of the function (`primals`) and the gradients of its results (`tangents`). Its outputs
# are the results and the gradients of the inputs.
#
# Run the cell. All four graphs are in its record, and below we print two of them.

# %%
# %%compile --train --no-bench --into first
y = torch.tanh(x @ w)
loss = (y * y).mean()
loss.backward()

# %%
for stage in ("fx", "joint", "forward", "backward"):
    (graph,) = [graph for graph in first.graphs if graph.stage == stage]
    print(f"{stage}: {len(graph.nodes)} nodes")
    if stage in ("fx", "joint"):
        print(graph.text, "\n")

# %% [markdown]
# The cell has two results, `y` and `loss`, so there are two tangents. All that depends on them is backward
# work; the rest can be done before. There is nothing of the tape left: `tanh_backward` and the products with
# transposed operands stand there as ordinary operations, and everything that the compiler can do to a forward
# pass it can do to these.
#
# (`alias` and `permute` are views. They cost nothing.)
#
# ## The cut
#
# Next the *partitioner* cuts the joint graph in two. Backward work goes to the backward graph. Where a value
# of the forward half is needed on the other side, there are two ways: **save** it, or save something earlier
# and **compute it again** in backward. What crosses the cut is in the record:


# %%
def account(record):
    """Print what crosses the cut, and what is done twice."""
    for tensor in saved(record):
        whose = "new" if tensor.new else "an input, or a view of one"
        print(f"saved  {tensor.name:10} {tensor.shape!s:12} {tensor.bytes / 1e3:7.1f} kB  {whose}")
    print("again ", ", ".join(recomputed(record)) or "nothing")


account(first)

# %% [markdown]
# Inputs are handed over too, since the gradient of `x @ w` is made of `x` and `w`. They exist anyway. What
# counts is what is *new*, and `new_bytes(record)` adds that up. It is what the hook measures:


# %%
def softly(x, w):
    return torch.sigmoid(torch.tanh(x @ w) * 2).exp()


by_hook = sum(held(nbcompile.compile(softly), x, w))
record = trained(softly, x, w)
account(record)
print(f"\neager {sum(held(softly, x, w)):,} bytes, compiled {by_hook:,}, by the record {new_bytes(record):,}")
assert by_hook == new_bytes(record)

# %% [markdown]
# ### Exercise: count what is saved
#
# How many new tensors does the compiled function below hand to its backward, and how many bytes are they
# together? (`x` is 512 × 128, `w` 128 × 64, both float32.)
#
# <details><summary>Hint</summary>
#
# The gradient of a softmax can be written with its result alone. The derivative of `sin` is `cos` of what it
# was given. Multiplying by 2 needs nothing. How many different tensors is that?
#
# </details>


# %%
def attend(x, w):
    scores = torch.softmax(x @ w, -1)
    return torch.sin(scores) * 2


# %% tags=["exercise"]
answer = ...  # {"tensors": ..., "bytes": ...}
check("autograd.saved", answer, attend, (x, w))

# %% tags=["wrong"]
answer = {"tensors": 3, "bytes": 3 * 512 * 64 * 4}

# %% tags=["wrong"]
answer = {"tensors": 1, "bytes": 512 * 64}

# %% tags=["wrong"]
answer = {"tensors": 2, "bytes": 2 * 512 * 64 * 4}

# %% tags=["solution"]
answer = {"tensors": 1, "bytes": 512 * 64 * 4}

# %% [markdown]
# ## Save or compute again
#
# Why would anybody compute a thing twice? Because a fused kernel does arithmetic while it waits for memory.
# A saved tensor is written once in forward and read once in backward. If backward can make it from something
# that it reads anyway, both trips are gone, and the memory as well. The arithmetic is extra, and for a sine
# in a kernel that is bound by memory it is nearly free. This is what happened to `wave`:

# %%
again = trained(wave, x)
account(again)
for kernel in again.kernels:
    half = "backward" if kernel.graph.startswith("g0.bw") else "forward"
    print(f"{half:8} {len(kernel.loops):2} loops in one kernel, {kernel.bytes_read / 1e3:.0f} kB read")

# %% [markdown]
# Backward is one kernel. It reads `x` and the incoming gradient, does the forward chain again in registers,
# and multiplies its way back.
#
# The partitioner states this as a **minimum cut**. Each value has a price, its bytes. The cut that separates
# forward from backward with the least total price decides what crosses. Some values may not be computed
# again, whatever they weigh: matrix products and convolutions (too much arithmetic), and random numbers (they
# would be others). A reduction is dear to repeat and its result small, so as a rule it is saved.
#
# The memory is saved for certain. The time is not: an exponential or a sine on a CPU is dear enough that to
# do it twice may cost what the saved trips bring. Let us look at both, on a tensor large enough to be
# measured.


# %%
def milliseconds(fn, *inputs, calls=9):
    """The shortest of some calls with backward: what else the machine does can only make one longer."""
    samples = []
    for _ in range(calls):
        start = time.perf_counter()
        torch.autograd.grad(fn(*inputs).sum(), inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return min(samples) * 1e3


large = torch.randn(100_000_000 if device == "cuda" else 1_000_000, device=device, requires_grad=True)
waved = nbcompile.compile(wave)
took = {"eager": milliseconds(wave, large), "compiled": milliseconds(waved, large)}
kept = {"eager": sum(held(wave, large)), "compiled": sum(held(waved, large))}
for name in took:
    print(f"{name:9} {took[name]:6.1f} ms, {kept[name] / 1e6:5.1f} MB kept for backward")
assert took["compiled"] < 2 * took["eager"]

# %% [markdown]
# ### Exercise: which are computed again
#
# Predict which operations of this function's forward graph are done again in backward. Their names are those
# of the operations: `mm`, `relu`, `sum_1` (the only sum), `div`, `sin`, `mul`, `add`.
#
# <details><summary>Hint</summary>
#
# First ask which values backward needs. `sin(n) * n` needs both of its factors. The derivative of `sin` at
# `n` needs `n`. Adding 3 needs nothing. Then ask which of them are cheap to get again from a product and a
# sum that are saved.
#
# </details>


# %%
def ripple(x, w):
    h = torch.relu(x @ w)
    n = h / h.sum(-1, keepdim=True)
    return torch.sin(n) * n + 3


# %% tags=["exercise"]
answer = ...  # a set of names
check("autograd.recomputed", answer, ripple, (x, w))

# %% tags=["wrong"]
answer = {"mm", "relu", "sum_1", "div", "sin"}

# %% tags=["wrong"]
answer = {"relu", "div", "sin", "mul", "add"}

# %% tags=["wrong"]
answer = {"relu", "cos"}

# %% tags=["solution"]
answer = {"relu", "div", "sin"}

# %% [markdown]
# ## Activation checkpointing is the same trade
#
# Where the partitioner refuses to repeat, you may overrule it. `torch.utils.checkpoint` marks a piece of the
# program: *save what goes in, and do the piece again in backward*. In a compiled function the mark travels
# with the nodes to the joint graph, and the partitioner obeys it. Here are four layers, first without
# checkpoints, then in pieces of one, two and four.

# %%
batch = torch.randn(4096, 128, device=device, requires_grad=True)
weights = [torch.randn(128, 128, device=device, requires_grad=True) for _ in range(4)]
with torch.no_grad():
    for weight in weights:
        weight /= 128**0.5


def layers(x, *weights):
    for weight in weights:
        x = F.gelu(x @ weight)
    return x


def in_pieces(length):
    def fn(x, *weights):
        for start in range(0, len(weights), length):
            x = checkpoint(layers, x, *weights[start : start + length], use_reentrant=False)
        return x

    return fn if length else layers


eager = sum(held(layers, batch, *weights))
print(f"{'eager':15} {eager / 1e6:5.1f} MB kept")
kept, done = {}, {}
for length in (0, 1, 2, 4):
    record = trained(in_pieces(length), batch, *weights)
    kept[length], done[length] = new_bytes(record), products(record.graph("g0.bw"))
    what = f"pieces of {length}" if length else "no checkpoints"
    print(f"{what:15} {kept[length] / 1e6:5.1f} MB kept, {done[length]:2} products in backward")
assert kept[0] == eager and kept[4] < kept[2] < kept[1] < kept[0]
assert done[4] > done[0] == 8

# %% [markdown]
# Backward needs 8 products in any case, two for each layer. With checkpoints there are more, and fewer bytes
# are kept.
#
# Look at the first two lines. Without checkpoints the compiled program keeps just what eager does: seven
# tensors, the four that went into a `gelu` and the three that came out into the next product. Why is `gelu`
# not done again, cheap as it is? Because of who reads its result in backward: a matrix product, which is a
# library call and takes its operands from memory. A `gelu` done again would have to be written to memory
# again, and nothing would be gained. Repeating is cheap where the repeated value is used **inside the same
# kernel**.
#
# So here only a checkpoint helps, and it costs four products: twelve in place of eight in backward, sixteen
# in place of twelve in the whole step. If nothing else is running on your machine,
# `milliseconds(nbcompile.compile(in_pieces(4)), batch, *weights)` tells what that is in time.
#
# ### Exercise: keep less
#
# `wide` keeps a large intermediate for its backward. Write `narrow`, which returns the same result with the
# same gradients, keeps at most **a tenth** of the new bytes, and needs no more matrix products than `wide` in
# forward and backward together.
#
# <details><summary>Hint</summary>
#
# A checkpoint would keep less but do a product again. Which shape has the large tensor, and does the
# program need it at all? Write the argument of `tanh` as one formula, without the brackets.
#
# </details>

# %%
rows = torch.randn(1024, 64, device=device)
up, down = torch.randn(64, 512, device=device) / 8, torch.randn(512, 32, device=device) / 23


def wide(rows, up, down):
    return torch.tanh((rows @ up) @ down)


account(trained(wide, *(t.clone().requires_grad_() for t in (rows, up, down))))


# %% tags=["exercise"]
def narrow(rows, up, down): ...


check("autograd.fewer", narrow, wide, [t.clone().requires_grad_() for t in (rows, up, down)])


# %% tags=["wrong"]
def narrow(rows, up, down):
    return torch.tanh((rows @ up).detach() @ down)


# %% tags=["wrong"]
def narrow(rows, up, down):
    return checkpoint(wide, rows, up, down, use_reentrant=False)


# %% tags=["wrong"]
def narrow(rows, up, down):
    return torch.tanh(torch.matmul(rows, up).contiguous() @ down)


# %% tags=["solution"]
def narrow(rows, up, down):
    return torch.tanh(rows @ (up @ down))


# %% [markdown]
# ## What asks for no gradient
#
# The joint graph holds what the gradients of *these* inputs need, and no more. There are several ways to ask
# for less, and each shows in the graphs:
#
# - an input with `requires_grad=False` (data, a frozen layer): its gradient is not there,
# - `detach()` or a block under `no_grad`: its forward work stays, its backward work is not there,
# - the whole call under `no_grad`: there is no joint graph at all, and nothing is saved.


# %%
def teacher(x, w):
    return (torch.tanh(x @ w) - torch.sigmoid(x @ w)) ** 2


def teacher_detached(x, w):
    return (torch.tanh(x @ w) - torch.sigmoid(x @ w).detach()) ** 2


def teacher_no_grad(x, w):
    with torch.no_grad():
        target = torch.sigmoid(x @ w)
    return (torch.tanh(x @ w) - target) ** 2


data = x.detach()
for what, fn, inputs in (
    ("all gradients", teacher, (x, w)),
    ("one side detached", teacher_detached, (x, w)),
    ("... by no_grad", teacher_no_grad, (x, w)),
    ("... and x is data", teacher_no_grad, (data, w)),
):
    backward = trained(fn, *inputs).graph("g0.bw")
    print(f"{what:18} {len(backward.nodes):3} nodes in backward, {products(backward)} products")

unasked = nbcompile.compile(teacher)
with torch.no_grad():
    unasked(x, w)
stages = [graph.stage for graph in unasked.compilation.graphs]
print(f"under no_grad      stages: {', '.join(stages)}")
assert "joint" not in stages and "backward" not in stages

# %% [markdown]
# Neither needs special treatment. `detach` is a view through which no gradient flows, and `no_grad` is over
# once the joint graph is written. All that is left of them in the graph is what is missing.
#
# ### Exercise: count the products
#
# `two` has two matrix products in forward. How many has its backward, in each of the cases below? A case says
# which of `x`, `w1` and `w2` want a gradient.
#
# <details><summary>Hint</summary>
#
# `c = a @ b` has two gradients, `grad_c @ b.T` for `a` and `a.T @ grad_c` for `b`. The gradient of `h` is
# wanted only if something before `h` wants one.
#
# </details>


# %%
def two(x, w1, w2):
    h = torch.tanh(x @ w1)
    return h @ w2


cases = {"all": (True, True, True), "x is data": (False, True, True), "only w2 learns": (False, False, True)}

# %% tags=["exercise"]
answer = ...  # {"all": ..., "x is data": ..., "only w2 learns": ...}
check("autograd.products", answer, two, (x, w, torch.randn(64, 16, device=device)), cases)

# %% tags=["wrong"]
answer = {"all": 2, "x is data": 2, "only w2 learns": 1}

# %% tags=["wrong"]
answer = {"all": 4, "x is data": 3, "only w2 learns": 2}

# %% tags=["solution"]
answer = {"all": 4, "x is data": 3, "only w2 learns": 1}

# %% [markdown]
# ## In-place operations become values
#
# A graph is about values, but PyTorch programs also *write*: `x.mul_(2)`, `y[0] = 0`, a running mean. Writing
# makes reordering unsafe, since a read before it and a read after it are not the same. And through views
# one write changes several names. So AOTAutograd **functionalises** the graph: each write becomes an
# operation with a new result, later reads (through any view) use that, and what the caller can see is copied
# back once, at the end.


# %%
def steps(x, total):
    y = x.clone()
    y.mul_(2)
    row = y[0]
    row.add_(1)
    total.add_(y.sum(0))
    return y.exp()


stepped = nbcompile.compile(steps)
total, expected = torch.zeros(64, device=device), torch.zeros(64, device=device)
data = torch.randn(32, 64, device=device)
torch.testing.assert_close(stepped(data, total), steps(data, expected))
torch.testing.assert_close(total, expected)
print(stepped.compilation.graph("g0.fx").text, "\n")
print(stepped.compilation.graph("g0.fw").text)

# %% [markdown]
# Read the second graph from the end. One `copy_` is left: `total` is the caller's, so it must be changed. The
# others wrote into `y`, which nobody outside has seen before. `mul_` became `mul`. The addition to one row
# became a choice for each element: *if this is row 0, the new value, else the old one* (`where` on an
# `arange`).
#
# That looks like much more work than one short write. It is not: nearly every step is pointwise, and the
# loops fuse. Here are the kernels that they became.

# %%
fused = stepped.compilation.graph("g0.fw.fused")
print(fused.text)
kernels = stepped.compilation.kernels
print(f"\nloops: {sum(len(kernel.loops) for kernel in kernels)}, kernels: {len(kernels)}")

# %% [markdown]
# So inside a compiled function a write in place to a tensor of its own brings nothing over an expression. It
# only makes the program harder to read, for you as for the compiler.
#
# ### Exercise: how many writes
#
# How many operations of `tally` change a tensor in the FX graph, and how many are left in the ATen graph?
# (`y[0] = 0` counts as one.)
#
# <details><summary>Hint</summary>
#
# In the FX graph, count them in the source. In the ATen graph, ask which tensors the caller can see to have
# changed; some are changed twice, or through a view.
#
# </details>


# %%
def tally(x, total, scratch):
    y = x.clone()
    y.mul_(2)
    y[0] = 0
    total.add_(y.sum(0))
    total.clamp_(max=10)
    scratch.t().add_(1)
    return y.exp()


# %% tags=["exercise"]
answer = ...  # {"fx": ..., "aten": ...}
check("autograd.writes", answer, tally, (data, total, torch.zeros(64, 32, device=device)))

# %% tags=["wrong"]
answer = {"fx": 5, "aten": 3}

# %% tags=["wrong"]
answer = {"fx": 5, "aten": 1}

# %% tags=["wrong"]
answer = {"fx": 3, "aten": 2}

# %% tags=["solution"]
answer = {"fx": 5, "aten": 2}

# %% [markdown]
# ## What to take along
#
# Autograd ahead of time turns a captured graph into one joint graph of forward and backward, without writes
# and without a tape, and cuts it in two. What crosses the cut is the memory of training: the partitioner
# finds the cut of the fewest bytes, and lets backward repeat cheap pointwise work in a fused kernel. Matrix
# products it does not repeat unless a checkpoint tells it to. What no gradient needs is not in the graph, so
# `requires_grad`, `detach` and `no_grad` are worth getting right.
#
# Next: **05-loop-ir**, where each operation of these graphs becomes a loop.

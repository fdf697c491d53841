# %% [markdown]
# # Dynamic shapes
#
# A model that is trained sees one size all day. A model that serves sees another size with every request.
# For eager PyTorch that makes no difference. For a compiler it does: it may know a size, or leave it open,
# and either has its price. A program that compiles anew for each length of a sentence is slower than no
# compiler at all.
#
# After this notebook you can say beforehand how often a program will be compiled, read the guard that made
# it compile once more, and choose between a constant, a symbol and padding. It takes about forty minutes
# with its five exercises; the cells themselves run in under a minute.

# %%
import logging
import time

import torch
import torch._dynamo

import nbcompile
from nbcompile.workshop import check
from nbcompile.workshop.shapes import LENGTHS, compiles_of, graphs

# %load_ext nbcompile
torch._logging.set_logs(dynamo=logging.ERROR)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## First a constant
#
# The first time that a function is called, `torch.compile` takes every size as a constant. That is a bet:
# most programs never see a second one, and constants make better code. The bet is written down as a
# **guard**, a condition that is checked before each call.
#
# Open *Guards* in the explorer below, or look at what is printed after it: the tensor must be of exactly
# this size.


# %%
def attend(x):
    return torch.softmax(x * 2, -1)


x = torch.randn(8, 32)

# %%
# %%compile --no-bench --into first
y = torch.softmax(x * 2, -1)

# %%
for guard in first.guards:
    if guard.kind == "TENSOR_MATCH":
        print(guard.name, *guard.code)
assert any("size=[8, 32]" in code for guard in first.guards for code in guard.code)

# %% [markdown]
# ## Then a symbol
#
# Now one compiled function meets three sizes. `nbcompile.compile` is `torch.compile` with a record kept;
# `graphs` counts what was captured, which is how often it was compiled.

# %%
compiled = nbcompile.compile(attend)
for columns in (32, 48, 64):
    started = time.perf_counter()
    compiled(torch.randn(8, columns, device=device))
    took = time.perf_counter() - started
    print(f"8 × {columns}: {took * 1e3:7.1f} ms, {graphs(compiled)} graphs so far")
assert graphs(compiled) == 2
for recompile in compiled.compilation.recompiles:
    print("recompiled because:", recompile.reason)

# %% [markdown]
# The second size broke the guard, so the function was compiled again. This time torch does not bet on 48: a
# size that has changed once will change again, so it becomes a **symbol**. The third size costs nothing.
# This is called *automatic dynamic*.
#
# Only the size that changed is a symbol. The 8 is still a constant, as the loops of the second graph show:

# %%
for number in (0, 1):
    print(compiled.compilation.graph(f"g{number}.fw.loops").text, "\n")
assert "f32[8,32]" in compiled.compilation.graph("g0.fw.loops").text

# %% [markdown]
# ### Exercise: count the compiles
#
# `attend` is compiled and then called with these shapes, in this order. How many times is it compiled? The
# last three need care: what was compiled earlier is kept.

# %% tags=["exercise"]
calls = [(8, 32), (8, 32), (8, 48), (8, 96), (16, 96), (24, 40), (8, 32)]

answer = ...

check("shapes.compiles", answer, attend, calls)

# %% tags=["wrong"]
answer = 2

# %% tags=["wrong"]
answer = 5

# %% tags=["wrong"]
answer = 4

# %% tags=["solution"]
answer = 3  # (8, 32), then (8, s), then (s, s): the rest fits one of these

# %% [markdown]
# ## Saying so beforehand
#
# If it is known that a size will change, the first compile with a constant is wasted. There are three ways
# to say something about it:
#
# - `dynamic=True` makes every size a symbol from the start (`%%compile --dynamic`).
# - `torch._dynamo.mark_dynamic(x, 0)` does that for one dimension of one tensor.
# - `dynamic=False` makes every size a constant for ever (`%%compile --no-dynamic`).

# %%
sizes = [(8, 32), (8, 48), (8, 64), (16, 64), (24, 80)]
for dynamic in (None, True, False):
    made = compiles_of(attend, sizes, dynamic=dynamic)
    print(f"dynamic={dynamic!s:5}  {sum(made)} compiles  " + " ".join("compiled" if m else "·" for m in made))
assert sum(compiles_of(attend, sizes, dynamic=True)) == 1
assert sum(compiles_of(attend, sizes, dynamic=False)) == len(sizes)

# %%
marked = nbcompile.compile(attend)
x = torch.randn(8, 32, device=device)
torch._dynamo.mark_dynamic(x, 1)
marked(x)
marked(torch.randn(8, 48, device=device))
marked(torch.randn(8, 64, device=device))
print("with mark_dynamic on the columns:", graphs(marked), "graph")
assert graphs(marked) == 1

# %% [markdown]
# `mark_dynamic` is a promise, and torch holds you to it: if the function turns the size into a constant,
# say by `assert x.shape[1] == 32`, the compile raises an error instead of quietly compiling for each size.
# (`maybe_mark_dynamic` asks without insisting.)
#
# ## What a branch does to a symbol
#
# A symbol stands for any number, until the program asks something about it. `if x.shape[0] > 10:` has to be
# answered while the graph is captured. Torch looks at the number that is there now, follows that side, and
# adds the answer to the guards. The graph is then good for all sizes with the same answer.


# %%
def clipped(x):
    if x.shape[0] > 10:
        return x[:10].sum()
    return x.sum()


branch = nbcompile.compile(clipped, dynamic=True)
for rows in (20, 50, 11, 6, 3):
    before = graphs(branch)
    branch(torch.ones(rows, device=device))
    print(f"{rows:3} rows: {'compiled' if graphs(branch) > before else '·'}")
for guard in branch.compilation.guards:
    if guard.kind == "SHAPE_ENV":
        print(guard.graph, "needs", " and ".join(guard.code))
assert graphs(branch) == 2

# %% [markdown]
# Two graphs, one for each side, and their guards are ranges. Divisibility is another common question:
# `x.view(-1, 8)` asks whether a size is a multiple of 8, as does any split into heads or blocks.
#
# ## Zero and one
#
# One thing surprises everybody: 0 and 1 do not become symbols. A dimension of size 1 is broadcast, and has
# no stride that matters; an empty tensor has nothing to reduce. Such a size takes other paths through
# PyTorch at every turn. So torch makes them constants, and takes a symbol to be 2 or more.

# %%
ones = nbcompile.compile(attend, dynamic=True)
for rows in (4, 7, 1, 9, 0):
    before = graphs(ones)
    ones(torch.randn(rows, 32, device=device))
    print(f"{rows} rows: {'compiled' if graphs(ones) > before else '·'}")
print("reasons:", "; ".join(recompile.reason for recompile in ones.compilation.recompiles))
assert graphs(ones) == 3

# %% [markdown]
# So a server that usually has a full batch compiles once more on the first quiet night, when a request
# comes alone. Not even `mark_dynamic` makes a symbol of a 1:

# %%
alone = torch.randn(1, 32, device=device)
torch._dynamo.mark_dynamic(alone, 0)
lonely = nbcompile.compile(attend)
lonely(alone)
lonely(torch.randn(5, 32, device=device))
print(graphs(lonely), "graphs:", lonely.compilation.recompiles[0].reason)
assert graphs(lonely) == 2

# %% [markdown]
# ### Exercise: which sizes are compiled for
#
# This function is compiled with `dynamic=True` and called with vectors of these lengths, in this order.
# List the lengths at which it is compiled.
#
# <details><summary>Hint</summary>
#
# Write down the guards after each compile. There are a branch, two answers to its question, and a special
# number.
#
# </details>


# %% tags=["exercise"]
def tiled(x):
    if x.shape[0] % 8 == 0:
        return x.view(-1, 8).sum(1)
    return x * 2


calls = [(32,), (30,), (64,), (31,), (16,), (1,), (2,)]

answer = ...  # a list of lengths

check("shapes.guard", answer, tiled, calls)

# %% tags=["wrong"]
answer = [32]

# %% tags=["wrong"]
answer = [32, 30]

# %% tags=["wrong"]
answer = [32, 30, 64, 31, 16, 1, 2]

# %% tags=["solution"]
answer = [32, 30, 1]

# %% [markdown]
# ## What a symbol costs
#
# With a symbol, the compiler knows less. Here is the C that nbcompile makes for `attend` on a CPU, first
# with constants, then with symbols. They go over each row three times: for the maximum, for the sum, for
# the quotient.

# %%
kernels = {}
for dynamic in (False, True):
    on_cpu = nbcompile.compile(attend, dynamic=dynamic)
    on_cpu(torch.randn(64, 256))
    kernels[dynamic] = on_cpu.compilation.kernels[0].sources["c"]
print(kernels[False])

# %%
print(kernels[True])
assert "[256]" in kernels[False] and "[256]" not in kernels[True]

# %% [markdown]
# ### Exercise: the price in exponentials
#
# How many exponentials does the kernel with symbols compute for each element?

# %% tags=["exercise"]
answer = ...

check("shapes.cost", answer, attend)

# %% tags=["wrong"]
answer = 1

# %% tags=["wrong"]
answer = 3

# %% tags=["solution"]
answer = 2

# %% [markdown]
# Whether that costs time is another question. A kernel that waits for memory has time to compute something
# twice. Measure it on this machine, both in turns:

# %%
rows = torch.randn(2048, 1024, device=device)
contestants = {dynamic: nbcompile.compile(attend, dynamic=dynamic) for dynamic in (False, True)}


def milliseconds(fn, *arguments):
    started = time.perf_counter()
    fn(*arguments)
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3


samples = {dynamic: [] for dynamic in contestants}
for _ in range(30):
    for dynamic, fn in contestants.items():
        samples[dynamic].append(milliseconds(fn, rows))
for dynamic, found in samples.items():
    print(f"{'symbols' if dynamic else 'constants':10} {sorted(found)[len(found) // 2]:.2f} ms")

# %% [markdown]
# On a GPU more is at stake. The length of a row decides the **schedule**: a row of known length that fits
# in registers is read once and held there. Of a row of unknown length that cannot be said, so it is walked
# in blocks, twice. The compiler can be asked without a GPU:

# %%
schedules = {}
for dynamic in (False, True):
    chip = nbcompile.compile(attend, dynamic=dynamic, options={"target": "cuda:90"})
    chip(torch.empty(4096, 1024))
    kernel = chip.compilation.kernels[0]
    loads = kernel.sources["triton"].count("tl.load(")
    schedules[dynamic] = loads
    print(f"{'symbols' if dynamic else 'constants':10} {kernel.schedule}: {loads} loads of x in its text")
assert schedules[False] < schedules[True]

# %% [markdown]
# So make a symbol of what really varies, and of nothing else: the number of rows, not the width of the
# model. `dynamic=True` makes a symbol of every size there is; `mark_dynamic` of those that you name.
#
# ## Numbers, and the limit
#
# Sizes are not all that varies. A Python number that a function is called with is a constant at first, and
# guarded. After a second value an integer or a float becomes a symbol too. But a number that **selects**
# something cannot be one: here `step` picks an element of a list, so each value is another program.

# %%
rates = [0.5**k for k in range(20)]


def scheduled(x, step):
    return x * rates[step]


stepping = nbcompile.compile(scheduled)
for step in range(12):
    stepping(torch.ones(4, device=device), step)
    if step in (0, 1, 7, 8, 11):
        print(f"step {step:2}: {graphs(stepping)} graphs, compiled code ran: {stepping.ran_compiled}")
print(stepping.eager_reason.partition(" by ")[0])
assert graphs(stepping) == 8 and not stepping.ran_compiled

# %% [markdown]
# Eight graphs, and then no more. That is the **recompile limit**: torch makes at most eight for one
# function. A call that none of them fits runs eagerly from then on, with one warning in the log (switched off
# in the first cell, as it is five lines long). Nothing is wrong in the results. Here each new step is such a
# call: as slow as if nothing had ever been compiled, and eight compiles have been paid for.
#
# `%%compile --recompile-limit N` moves the limit, which is seldom the cure. In a benchmark of ten variants
# of one function the ninth and tenth run eagerly in the same way; nbcompile gives each compile a limit of
# its own, and reports no time as compiled unless compiled code ran.
#
# ### Exercise: one compile for every step
#
# `apply(x, factor)` returns `x * factor`, and is compiled as it stands. Write `factor(step)`: it returns
# what `apply` is to be called with at that step, so that the result is `x * 0.5**step`, for twenty steps,
# with a single compile.
#
# <details><summary>Hint</summary>
#
# A Python number is guarded at least once before it becomes a symbol. Which kind of argument is guarded by
# its shape and type only?
#
# </details>


# %% tags=["exercise"]
def factor(step): ...


check("shapes.steps", factor)


# %% tags=["wrong"]
def factor(step):
    return 0.5**step


# %% tags=["wrong"]
def factor(step):
    return [0.5**step]


# %% tags=["wrong"]
def factor(step):
    return torch.full((step + 1,), 0.5**step)[-1:].expand(4) if step < 10 else 0.5


# %% tags=["solution"]
def factor(step):
    return torch.tensor(0.5**step)


# %% [markdown]
# ## Padding to buckets
#
# The other way out is to make sizes vary less. Pad each input to the next of a few sizes, the **buckets**,
# and say in a mask what is padding. The compiler sees few sizes, each a constant if you like, with the best
# code there is. The price is the work done on padding.
#
# How much is that? For lengths spread evenly up to 64:

# %%
lengths = range(1, 65)
plans = {
    "one bucket of 64": lambda n: 64,
    "powers of two": lambda n: 1 << (n - 1).bit_length(),
    "multiples of 16": lambda n: -(-n // 16) * 16,
    "multiples of 8": lambda n: -(-n // 8) * 8,
}
for name, padded in plans.items():
    extra = sum(map(padded, lengths)) / sum(lengths) - 1
    print(f"{name:17} {len(set(map(padded, lengths))):2} sizes, {extra:4.0%} more work")

# %% [markdown]
# Buckets by powers grow with the logarithm of the longest input, and never more than double the work.
# Multiples waste less and are more sizes. One can have both: pad to multiples, and let the padded size be a
# symbol.
#
# Padding must not change the answer. A sum over padded rows is right if the padding is zero *after* the
# last operation before the sum; a mean has to divide by the number of real rows; a softmax needs `-inf`.
# Notebook 09 met the same question in the masked lanes of a kernel.
#
# ### Exercise: a server
#
# `score` takes tokens of shape `[length, 16]` and a mask `valid` of shape `[length]`, and averages over the
# valid ones. Requests come in the lengths printed below. Write `prepare(tokens)`, which returns the tokens
# and the mask to call the compiled `score` with. There may be at most two compiles for all requests, every
# answer must be the same as without padding, and at most twice as many rows may be computed as there are
# tokens.
#
# <details><summary>Hint</summary>
#
# `torch.nn.functional.pad(tokens, (0, 0, 0, extra))` appends `extra` rows of zeros. Mind what happens to a
# size of 1, and that two dimensions which change together are one symbol.
#
# </details>

# %%
mix = torch.randn(16, 16)


def score(tokens, valid):
    hidden = torch.nn.functional.gelu(tokens @ mix + 1)
    return (hidden * valid[:, None]).sum(0) / valid.sum()


print("lengths of the requests:", *LENGTHS)


# %% tags=["exercise"]
def prepare(tokens): ...


check("shapes.serve", prepare, score)


# %% tags=["wrong"]
def prepare(tokens):
    return tokens, torch.ones(len(tokens), dtype=torch.bool)


# %% tags=["wrong"]
def prepare(tokens):
    extra = 64 - len(tokens)
    return torch.nn.functional.pad(tokens, (0, 0, 0, extra)), torch.arange(64) < len(tokens)


# %% tags=["wrong"]
def prepare(tokens):
    length = max(16, 1 << (len(tokens) - 1).bit_length())
    padded = torch.nn.functional.pad(tokens, (0, 0, 0, length - len(tokens)))
    return padded, torch.ones(length, dtype=torch.bool)


# %% tags=["solution"]
def prepare(tokens):
    length = -(-len(tokens) // 16) * 16
    padded = torch.nn.functional.pad(tokens, (0, 0, 0, length - len(tokens)))
    return padded, torch.arange(length) < len(tokens)


# %% [markdown]
# ## What to take along
#
# Sizes are constants at first; one that changes becomes a symbol at the second compile, and `mark_dynamic`
# saves the first. A branch on a size splits the graphs by its answer, and 0 and 1 are always apart. A
# symbol costs the kernel what it could have known, so use it for the sizes that vary and no others. After
# eight graphs of a function torch makes no more, and what fits none of them runs eagerly; a Python number
# that selects something, step by step, gets there. Padding to a few sizes is the remedy where a symbol costs
# too much.
#
# Next: notebook 12, *Training*.

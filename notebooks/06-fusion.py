# %% [markdown]
# # Fusion
#
# Fusion puts several loops into one kernel, so that what passes between them never goes to memory. It is
# where a compiler for PyTorch earns most of its keep, and it is a long list of small decisions: may these
# two be one kernel, and would it pay?
#
# After this notebook you can make that decision yourself for any pair of loops, predict what it saves
# before you measure it, overrule the compiler, and say when fusing makes a program slower. Notebook 05
# taught how to read loops. This one takes about an hour; its cells run in about a minute, half of it for
# Inductor.

# %%
import torch

import nbcompile
from nbcompile.workshop import check
from nbcompile.workshop.fusion import (
    FUSED_WINDOW,
    blurred,
    chain,
    groups_of,
    inductor_record_of,
    milliseconds,
    pair_of,
    record_of,
    stack_moves,
    told,
    traffic,
    with_options,
)

# %load_ext nbcompile
torch.manual_seed(0)
print("torch", torch.__version__, "on", torch.get_num_threads(), "threads")

# %% [markdown]
# Some of the rules depend on the machine, so the exercises here compile for the CPU, where everybody gets
# the same decisions. The last section repeats a measurement on a GPU if there is one.
#
# ## Why fuse
#
# A kernel reads its inputs from memory and writes its results there. A processor can do many operations in
# the time that one number takes to arrive. So for loops with little arithmetic, time is bytes. Take two
# cheap operations on a tensor of 64 MB, too large for the caches near a core:

# %%
x = torch.randn(4096, 4096)


def two(x):
    return x * 2 + 1


variants = {"apart": {"fuse": False}, "fused": {}}
times, records = with_options(two, (x,), variants)
for name, record in records.items():
    print(f"{name:6} {len(record.kernels)} kernels  {traffic(record) / 1e6:5.0f} MB  {times[name]:6.1f} ms")
bytes_ratio = traffic(records["apart"]) / traffic(records["fused"])
print(f"bytes: {bytes_ratio:.1f} times less, time: {times['apart'] / times['fused']:.1f} times less")
assert bytes_ratio == 2

# %% [markdown]
# Apart, the intermediate tensor is written once and read once. Fused, it is a number in a register. Two of
# four tensors' worth of traffic are gone, and with them, as the last line shows, much of the time.
#
# ### Exercise: predict the speedup
#
# `chain` is `torch.relu(x * 2 + 1) * 0.5 - x`. How many times as fast is it fused, compared with a kernel
# for each loop? Count, write your number down, and let the judge measure. Within a factor of 2 is right.
#
# <details><summary>Hint</summary>
#
# Go through the five loops: how many tensors does each read, and how many does it write? Then the same for
# one kernel that does it all.
#
# </details>

# %% tags=["exercise"]
answer = ...
check("fusion.speedup", answer)

# %% tags=["wrong"]
answer = 1.2  # "the arithmetic is the same, only the calls are saved"

# %% tags=["wrong"]
answer = 25  # five loops, each saving five

# %% tags=["solution"]
# Apart: mul, add, relu and the second mul read one tensor and write one, the subtraction reads two: 11.
# Fused: x is read and the result written: 2.
answer = 11 / 2

# %% [markdown]
# ## Four ways to become one
#
# The compiler looks at pairs of loops that have something to share, and asks of each pair: is there one
# nest of loops in which both can be done? Here are the cases that have one, each as the record tells it.


# %%
def normalised(x):
    return x / x.sum(1, keepdim=True)


def two_sums(x):
    return x.sum(0), x.amax(1)


def joined(x):
    return torch.cat([x, x * 2], 1).exp()


small = torch.randn(512, 1024)
for fn in (two, normalised, two_sums, joined):
    record = record_of(fn, small)
    print(f"{fn.__name__}: {len(record.kernels)} kernel")
    for decision in record.decisions:
        print("   ", told(record, decision))
    assert len(record.kernels) == 1

# %% [markdown]
# - **Same points.** Both loops go over the same points, and one reads what the other has just made there.
#   The value stays in a register. This is the case of `two`.
# - **Same rows.** A reduction gives one number a row, and the next loop reads it on that row. Both walk the
#   row, one after the other, while it is still in the core's cache. This is the case of `normalised`, and
#   of a softmax.
# - **Shared read.** Neither needs the other, but both read the same tensor. Fused *horizontally* they read
#   it once. `two_sums` even has its two reductions along different axes.
# - **Inlined.** The shapes differ, but the first loop is cheap and pointwise, so it is computed wherever it
#   is read. That is what `joined` does with `x * 2`.
#
# The number in MB is what the decision saves in one call. A fused pair saves the reading, and the writing
# too if nobody else needs the tensor in memory. The compiler tries the largest saving first, because each
# fusion can rule out others.
#
# ### Exercise: decide yourself
#
# Here is a program with a bit of everything.


# %%
def program(x, w):
    h = torch.relu(x @ w)
    c = h - h.mean(-1, keepdim=True)
    s = c.abs().sum(0)
    return c / (s + 1)


weights = torch.randn(1024, 1024)
ours = record_of(program, small, weights)
print(next(graph.text for graph in ours.graphs if graph.stage == "loops"))

# %% [markdown]
# For each pair, say whether it is fused: `True` or `False`. Mind that fusing is not only about the pair. If
# the second must wait for something that is known only when the whole first kernel is done, they cannot be
# one.
#
# <details><summary>Hint</summary>
#
# `sum_1[j]` adds up columns, while the loops before it walk rows. When is its first element known? Who has
# to wait for that?
#
# </details>

# %% tags=["exercise"]
answer = {
    "aten.mm → relu": ...,
    "relu → sum": ...,
    "mean → sub": ...,
    "abs_1 → sum_1": ...,
    "sum_1 → add": ...,
    "sub → div": ...,
    "add → div": ...,
}
check("fusion.pairs", answer, program)

# %% tags=["wrong"]
answer = {
    "aten.mm → relu": True,  # not here: the product is a library's
    "relu → sum": True,
    "mean → sub": True,
    "abs_1 → sum_1": True,
    "sum_1 → add": False,
    "sub → div": False,
    "add → div": True,
}

# %% tags=["wrong"]
answer = {
    "aten.mm → relu": False,
    "relu → sum": True,
    "mean → sub": True,
    "abs_1 → sum_1": True,
    "sum_1 → add": False,
    "sub → div": True,  # same points, but the column sums stand between them
    "add → div": True,
}

# %% tags=["wrong"]
answer = {
    "aten.mm → relu": False,
    "relu → sum": True,
    "mean → sub": True,
    "abs_1 → sum_1": False,  # each thread can keep partial column sums while it walks its rows
    "sum_1 → add": False,
    "sub → div": False,
    "add → div": True,
}

# %% tags=["solution"]
answer = {
    "aten.mm → relu": False,  # a library call
    "relu → sum": True,  # same rows
    "mean → sub": True,  # the row's mean is known when the row is walked again
    "abs_1 → sum_1": True,  # partial sums a thread, added up at the end
    "sum_1 → add": False,  # known only when all rows are done
    "sub → div": False,  # the same rows, but add stands between them, and must wait
    "add → div": True,  # cheap, computed where it is read
}

# %% [markdown]
# ## The reasons for a refusal
#
# A refusal has a short code, a sentence, and the bytes that fusing would have saved. These are the ones you
# will meet:
#
# | code | what it means |
# | --- | --- |
# | `library-call` | one of the two is a call into PyTorch's library, which cannot take in a loop of ours |
# | `different-axes` | they reduce along different axes, and one needs the other's result |
# | `cycle` | a third kernel needs the first and makes something for the second |
# | `scatter` | a scatter writes at places known only at run time, so nothing may be read before its end |
# | `recompute` | the first would be computed many times over |
# | `few-rows` | there are too few rows for the cores to share: one kernel would leave cores idle |
# | `too-many-buffers` | one kernel would touch more than 64 tensors |
# | `left` | they were joined, until the first could join a kernel that saves far more |
#
# The first four are about what is *possible*. `recompute` and `few-rows` are about *cost*: the kernel could
# be made, and would be correct, and the compiler estimates that it is slow. The record marks these as
# `forceable`. `too-many-buffers` is a plain limit.

# %%
for decision in ours.decisions:
    if not decision.accepted:
        print(told(ours, decision), "(forceable)" if decision.forceable else "")
refused = sum(decision.bytes_saved for decision in ours.decisions if not decision.accepted)
print(f"left on the table: {refused / 1e6:.1f} MB a call")

# %% [markdown]
# ### Exercise: give the reason
#
# `x` has 512 rows of 1024, `v` is one row, `table` has 64 rows, `i` has 512 places in it. Each of these has
# a pair that is refused. Answer with the code. Three of the five are about what is possible, two about cost.
#
# <details><summary>Hint</summary>
#
# Write the loops down. How often is `exp(v[j])` needed? A sum over all axes is one single row: what does that
# leave to a second core?
#
# </details>

# %% tags=["exercise"]
answer = {
    "torch.relu(x @ w)": ...,
    "x * torch.exp(v)": ...,
    "x / x.sum()": ...,
    "torch.softmax(x - x.mean(0), 1)": ...,
    "table.index_add(0, i, x) * 2": ...,
}
check("fusion.reasons", answer)

# %% tags=["wrong"]
answer = {
    "torch.relu(x @ w)": "library-call",
    "x * torch.exp(v)": "different-axes",
    "x / x.sum()": "few-rows",
    "torch.softmax(x - x.mean(0), 1)": "different-axes",
    "table.index_add(0, i, x) * 2": "scatter",
}

# %% tags=["wrong"]
answer = {
    "torch.relu(x @ w)": "library-call",
    "x * torch.exp(v)": "recompute",
    "x / x.sum()": "few-rows",
    "torch.softmax(x - x.mean(0), 1)": "recompute",
    "table.index_add(0, i, x) * 2": "scatter",
}

# %% tags=["solution"]
answer = {
    "torch.relu(x @ w)": "library-call",
    "x * torch.exp(v)": "recompute",  # once for each row
    "x / x.sum()": "few-rows",  # the whole tensor is one row
    "torch.softmax(x - x.mean(0), 1)": "different-axes",  # columns first, then rows
    "table.index_add(0, i, x) * 2": "scatter",
}

# %% [markdown]
# ## Another compiler, other decisions
#
# Inductor, PyTorch's own compiler, has the same problem and other rules. nbcompile listens to its scheduler
# while it compiles, and records its decisions in the same form. (The pairs with the matrix product, a
# library call for both, are left out below.) First the loops, which already differ:

# %%
theirs = inductor_record_of(program, small, weights)
print(next(graph.text for graph in theirs.graphs if graph.stage == "loops"))
for name, record in (("nbcompile", ours), ("inductor", theirs)):
    print(f"\n{name}: {len(record.decisions)} pairs, {groups_of(record)} groups of loops")
    for decision in record.decisions:
        if decision.code != "library-call":
            print("   ", told(record, decision))

# %% [markdown]
# Inductor has fewer loops to begin with. It inlines a cheap pointwise operation into its readers already
# while it lowers, so many of our decisions are no decision for it: `relu`, `abs` and the subtraction have
# no line of their own. What is left are mostly reductions, whose pairs its scheduler scores by the bytes
# they share. Its reason `no shared data` means that two loops read no buffer in the same order, so fusing
# would save nothing by its count.
#
# ### Exercise: who fuses more
#
# Which compiler ends with fewer groups of loops: `"nbcompile"`, `"inductor"`, or is it the `"same"`? Think
# of the refusals that you have just met.
#
# <details><summary>Hint</summary>
#
# One of the three has its reductions along different axes of the same tensor. One has very few rows, which
# only one of the two compilers minds.
#
# </details>

# %% tags=["exercise"]
answer = {
    "torch.softmax(x, 1)": ...,  # 512 rows of 1024
    "x.sum(0), x.amax(1)": ...,  # the same
    "torch.softmax(x, 1) of 4 rows": ...,  # of 262,144 each, for eight threads
}
check("fusion.inductor", answer)

# %% tags=["wrong"]
answer = {
    "torch.softmax(x, 1)": "same",
    "x.sum(0), x.amax(1)": "same",
    "torch.softmax(x, 1) of 4 rows": "inductor",
}

# %% tags=["wrong"]
answer = {
    "torch.softmax(x, 1)": "same",
    "x.sum(0), x.amax(1)": "nbcompile",
    "torch.softmax(x, 1) of 4 rows": "same",
}

# %% tags=["solution"]
answer = {
    "torch.softmax(x, 1)": "same",
    "x.sum(0), x.amax(1)": "nbcompile",  # rows and columns in one pass
    "torch.softmax(x, 1) of 4 rows": "inductor",  # we keep them apart, so that all cores have work
}

# %% [markdown]
# ## Overruling a decision
#
# No rule is right on every machine, so each decision can be overruled. In the explorer under a cell that
# this kernel has compiled, *Fusion* has a switch at each decision: it compiles the cell again without that
# pair, or with it, and shows what changed. In a cell, `--no-fuse a:b` keeps two loops apart, by the names
# in the record, and `-o force_fuse=a:b` fuses a pair that was refused for its cost:

# %%
# %%compile --no-bench --no-fuse exp:sum --show fusion --into kept_apart
y = torch.softmax(small, 1)

# %% [markdown]
# One pair kept apart can cost more than its own bytes, because others then meet only through memory. Which
# one is the most expensive? Try each:

# %%
plain = record_of(lambda x: torch.softmax(x, 1), small)
print(f"all fused: {traffic(plain) / 1e6:.1f} MB")
costs = {}
for decision in plain.decisions:
    pair = pair_of(plain, decision)
    record = record_of(lambda x: torch.softmax(x, 1), small, no_fuse=pair.replace(" → ", ":"))
    costs[pair] = traffic(record) - traffic(plain)
    print(
        f"{pair:16} apart: {len(record.kernels)} kernels, {costs[pair] / 1e6:4.1f} MB more; "
        f"its decision says {decision.bytes_saved / 1e6:.1f} MB"
    )
assert all(cost >= 0 for cost in costs.values())
assert traffic(kept_apart) - traffic(plain) == costs["exp → sum"]

# %% [markdown]
# The decision counts what passes between the two. What really changes depends on the rest of the program: a
# kernel boundary anywhere in the softmax sends whole rows through memory.
#
# A refusal for cost can be overruled the other way. Four long rows are too few for one kernel that eight
# threads run, says `few-rows`; is that so on this machine? (By default the option `threads` is torch's own
# number.)

# %%
long = torch.randn(4, 1 << 20)
refused = {"threads": 8}
forced = {**refused, "force_fuse": "max:exp,exp:sum,sum:_softmax"}
times, records = with_options(lambda x: torch.softmax(x, 1), (long,), {"refused": refused, "forced": forced})
for name, record in records.items():
    print(f"{name:7} {len(record.kernels)} kernels  {traffic(record) / 1e6:5.1f} MB  {times[name]:6.1f} ms")
print("faster here:", min(times, key=times.get))
assert len(records["forced"].kernels) == 1

# %% [markdown]
# The rule asks whether there are at least two rows for each three threads. Fewer leave cores idle, but the
# kernels apart do about half as much work again: with two threads one kernel is better.
#
# ## Where fusion hurts
#
# Fusing saves bytes, and bytes are not everything. There are three ways to lose.
#
# **Work done again.** An inlined value is computed wherever it is read. If it is costly and read often,
# that costs more than memory would. `lgamma` is costly, and here one row of it is used by 2048 rows. The
# compiler refuses; let us insist:


# %%
def scaled(x, v):
    return x * torch.lgamma(v)


rows, v = torch.randn(2048, 2048), torch.rand(2048) + 1
times, records = with_options(scaled, (rows, v), {"refused": {}, "forced": {"force_fuse": "lgamma:mul"}})
(decision,) = records["refused"].decisions
print(told(records["refused"], decision))
for name, record in records.items():
    print(f"{name:7} {len(record.kernels)} kernels  {traffic(record) / 1e6:5.2f} MB  {times[name]:6.1f} ms")
print(f"computed {rows.shape[0]} times over: {times['forced'] / times['refused']:.1f} times as slow")
assert traffic(records["forced"]) <= traffic(records["refused"])
assert times["forced"] > times["refused"]

# %% [markdown]
# Fewer bytes, and much slower.
#
# **Too many values at once.** A core of an x86 processor has 16 or 32 vector registers. A kernel that has
# more values in use than that *spills*: it writes some to the stack and reads them again. The next cell makes
# a kernel that keeps more and more values for later, and counts in its x86 assembly the instructions that
# move a vector register to or from the stack.


# %%
def keeping(count):
    def fn(x):
        value, kept = x, []
        for n in range(count):
            value = value * x + (n + 1)
            kept.append(value)
        result = value
        for each in kept:
            result = result * each + value
        return result

    return fn


moves = {}
for count in (8, 24, 38):
    moves[count] = stack_moves(keeping(count), torch.randn(1 << 16))
    print(f"{count:2} values kept: {moves[count]:3} moves to or from the stack")
assert moves[8] <= moves[38]

# %% [markdown]
# On a CPU the stack is in the nearest cache, so a few spills cost little. On a GPU the registers are shared
# by all threads of a processor, and a kernel that needs many leaves fewer threads to hide the wait for
# memory.
#
# **Too many inputs.** Each tensor that a kernel walks through is a stream for the memory system to keep up
# with. Beyond a limit, the compiler starts another kernel:


# %%
def total(*tensors):
    result = tensors[0]
    for each in tensors[1:]:
        result = result + each
    return result


for count in (40, 80):
    record = record_of(total, *(torch.randn(4096) for _ in range(count)))
    reasons = {decision.reason for decision in record.decisions if not decision.accepted}
    print(f"{count} tensors: {len(record.kernels)} kernels", *reasons, sep="; ")

# %% [markdown]
# ### Exercise: beat the compiler
#
# A compiler's estimate can be wrong. `blurred` takes the `tanh` of an image, averages it over windows of 5
# by 5, and cuts off below: `torch.relu(F.avg_pool2d(torch.tanh(x * 0.5)[None], 5, stride=1) - 0.1)`. All of
# it can be one kernel, and has the fewest bytes then:

# %%
image = torch.randn(1024, 1024)
whole = record_of(blurred, image, **FUSED_WINDOW)
for decision in whole.decisions:
    print(told(whole, decision))
print(f"{len(whole.kernels)} kernel, {traffic(whole) / 1e6:.1f} MB")

# %% [markdown]
# Give options, as a dict, with which it is clearly faster, in two kernels at most: `{"no_fuse": "a:b"}`
# with the names of a pair, or others. The judge measures yours against the one kernel, and asks that it is
# your options that keep a pair apart: what the compiler would do by itself overrules nothing.
#
# <details><summary>Hint</summary>
#
# How often is each `tanh` computed if it is computed where it is read? Each result reads 25 of them.
#
# </details>

# %% tags=["exercise"]
answer = ...
check("fusion.overrule", answer)

# %% tags=["wrong"]
answer = {"fuse": False}  # faster, but every loop goes through memory

# %% tags=["wrong"]
answer = {"force_fuse": "tanh:avg_pool2d"}

# %% tags=["wrong"]
answer = {}  # the compiler's own choice: as fast, and overrules nothing

# %% tags=["solution"]
answer = {"no_fuse": "tanh:avg_pool2d"}  # each tanh once, instead of 25 times

# %% [markdown]
# With the right pair kept apart the bytes go up and the time goes down. That is why the compiler lets you
# overrule it, and why a decision is worth measuring when much depends on it.
#
# ## On a GPU
#
# The argument about bytes holds on a GPU too, with larger numbers. If this machine has one, here is `chain`
# on it; if not, the same on the CPU in half precision, where each element has half the bytes:

# %%
device = "cuda" if torch.cuda.is_available() else "cpu"
again = x.to(device) if device == "cuda" else x.bfloat16()
compiled = {
    name: nbcompile.compile(chain, options=options, dynamic=False) for name, options in variants.items()
}
for each in compiled.values():
    each(again)
times = milliseconds({name: lambda each=each: each(again) for name, each in compiled.items()})
print(f"{device}, {again.dtype}:", ", ".join(f"{name} {value:.2f} ms" for name, value in times.items()))
print(f"fused is {times['apart'] / times['fused']:.1f} times as fast")
assert times["fused"] < times["apart"]

# %% [markdown]
# ## What to take along
#
# Two loops can be one kernel if there is a nest of loops in which the second always finds what it reads: at
# the same point, on the same row, or computed on the spot. What a fusion saves is the bytes that no longer
# go through memory, and for cheap loops that predicts the time. It is refused when something must be
# complete first, and when it would repeat costly work or leave cores idle. The last two are estimates,
# which you can overrule and should measure.
#
# Next is notebook 07, *Reductions*: how few passes over memory a softmax or a norm needs.

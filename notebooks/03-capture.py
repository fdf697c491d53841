# %% [markdown]
# # Capture: from Python to graphs
#
# A compiler needs a graph: a list of tensor operations with nothing left to decide. A PyTorch function is
# not a graph but a Python program, and Python may do anything between two operations. *Capture* is the step
# that gets one from the other. In `torch.compile` it is TorchDynamo's.
#
# After this notebook you can
#
# - say which parts of a function become graph and which are fixed at capture ("baked in"),
# - read the guards of a graph, and say which call will make it compile again,
# - find each graph break, with its line and its reason, and mend it.
#
# It takes about 45 minutes to work through. To run it takes well under a minute, on any machine.

# %%
import contextlib
import dis
import io
import logging
import textwrap
import time

import torch

import nbcompile
from nbcompile.record.watched.walk import states
from nbcompile.workshop import check

# %load_ext nbcompile
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## Bytecode is all there is
#
# Python does not run your text. It first translates each function to *bytecode*, a list of small
# instructions for a stack machine, and an interpreter executes these. Here is a function of two lines and
# its bytecode.


# %%
def blend(x, y, weight):
    mixed = x * weight + y
    return torch.relu(mixed)


for instruction in dis.get_instructions(blend):
    if instruction.opname not in ("RESUME", "CACHE", "NOP", "PRECALL", "PUSH_NULL"):
        print(f"{instruction.opname:16} {instruction.argrepr}")

# %% [markdown]
# There is no tensor in sight. `BINARY_OP *` multiplies whatever lies on the stack: only at run time does it
# turn out to be a tensor, and which function `torch.relu` is.
#
# So Dynamo waits until the function is called. CPython lets it look at each frame just before that runs
# (PEP 523). Dynamo then goes through the bytecode itself, instruction by instruction, with a *symbolic*
# stack: where a tensor would be, it has a stand-in with a shape and a dtype and no data. An operation on a
# stand-in is written down in a graph. Everything else (an addition of two integers, an attribute, a loop
# over a list) it simply computes, there and then.
#
# The graph that it writes is an *FX graph*. A compilation of ours records it as the first stage.


# %%
def fx_graphs(compiled):
    """The FX graphs of a compilation, as text."""
    graphs = [graph for graph in compiled.compilation.graphs if graph.stage == "fx"]
    return "\n\n".join(f"{graph.title}\n{graph.text}" for graph in graphs)


x, y = torch.randn(64, 32, device=device), torch.randn(64, 32, device=device)
blended = nbcompile.compile(blend)
blended(x, y, 0.25)
print(fx_graphs(blended))

# %% [markdown]
# `watch=True` keeps the walk itself. Below is each instruction with the top of the symbolic stack after it,
# and the operations that were written down at it. (Under a cell, `%%compile --watch` does it, and the
# explorer's tab *Capture* goes through it step by step.)

# %%
watched = nbcompile.compile(blend, watch=True)
watched(x, y, 0.25)
(walk,) = watched.compilation.walks
names = {node.id: node.name for graph in watched.compilation.of_stage("fx") for node in graph.nodes}
for step, state in zip(walk.steps, states(walk)):
    instruction = walk.instructions[step.at]
    if instruction.name not in ("RESUME", "PRECALL", "PUSH_NULL"):
        top = state.stack[-1] if state.stack else ""
        made = ", ".join(names[id] for id in step.made)
        print(f"{instruction.name + ' ' + instruction.argument:22} {top:34} {made}")
assert {id for step in walk.steps for id in step.made} == set(names)

# %% [markdown]
# A tensor becomes an input of the graph when it is first *used*, not when it is loaded: Dynamo looks at as
# little as it can, and guards only that.
#
# Two inputs and three operations: the stack is gone, and so is `weight`. It was a Python number, so its
# value stands in the graph: `0.25`. It has been **baked in**. The graph is right for this call. It would be
# wrong for another weight, and Dynamo knows it.
#
# ## Guards: the conditions of reuse
#
# For every fact that Dynamo used while it went through the bytecode, it notes a *guard*: a condition that
# must still hold when the function is called again. If all hold, the compiled code runs at once and no
# Python of yours is looked at. If one fails, the function is captured anew.

# %%
for guard in blended.compilation.guards:
    print(f"{guard.kind:14} {guard.name:18} {guard.code[0]}")

# %% [markdown]
# Read them from the top:
#
# - `G[...]` is a global, `L[...]` a local, here an argument. `torch` must be the same module, and
#   `torch.relu` the same function. If you replaced `torch.relu`, your program would still be right.
# - `EQUALS_MATCH` on `weight`: the number that was baked in must still be that number.
# - `TENSOR_MATCH` checks what a stand-in stands for: type, device, dtype, sizes, strides and
#   `requires_grad`. It does not check the data. That is the whole bargain: **the values in tensors are
#   free, everything else is fixed until a guard says otherwise**.
#
# (Each graph also has guards on torch's global state, such as whether gradients are on. They are the same
# for every graph, so the record leaves them out.)

# %% [markdown]
# ### Exercise: input or baked in
#
# `gather_up` below uses two arguments besides `x`, and two globals. Which of these five names bring tensors
# into the graph as an *input*, whose values may change freely from call to call? Which are *baked in*?
#
# <details><summary>Hint</summary>
#
# Ask of each: is it a tensor, or is it something that Python alone has used? A list is no tensor; what it
# holds may be.
#
# </details>

# %% tags=["exercise"]
rate = 0.5
table = [torch.ones(8, device=device), torch.zeros(8, device=device)]


def gather_up(x, n, name):
    for entry in table:
        x = x + entry
    for _ in range(n):
        x = x * rate
    return x.cos() if name == "cos" else x.sin()


answer = ...  # {"x": "input", "n": ..., "name": ..., "rate": ..., "table": ...}, each "input" or "baked in"
check("capture.baked", answer, gather_up, (torch.randn(4, 8, device=device), 3, "cos"))

# %% tags=["wrong"]
answer = {"x": "input", "n": "input", "name": "input", "rate": "baked in", "table": "baked in"}

# %% tags=["wrong"]
answer = {"x": "input", "n": "baked in", "name": "baked in", "rate": "input", "table": "input"}

# %% tags=["wrong"]
answer = {"x": "input", "n": "baked in"}

# %% tags=["solution"]
answer = {"x": "input", "n": "baked in", "name": "baked in", "rate": "baked in", "table": "input"}

# %% [markdown]
# ## Recompiles: when a guard fails
#
# A failed guard costs a whole compile, and the old code is kept: Dynamo then has two graphs for one function
# and tries their guards in turn. The record lists each **recompile** with the guard that failed. Below, one
# function is called with a sequence of arguments, and we note after each call what happened.


# %%
def scale(x, factor):
    return torch.sin(x) * factor


def call_in_turn(fn, calls):
    compiled = nbcompile.compile(fn)
    for what, args in calls:
        known = len(compiled.compilation.recompiles)
        start = time.perf_counter()
        compiled(*args)
        spent = (time.perf_counter() - start) * 1e3
        new = [item.reason for item in compiled.compilation.recompiles[known:]]
        print(f"{what:24} {spent:7.1f} ms  {'recompile: ' + new[0] if new else ''}")
    return compiled


def ones(*sizes, **keywords):
    return torch.ones(*sizes, device=device, **keywords)


called = call_in_turn(
    scale,
    [
        ("4 × 8, factor 2", (ones(4, 8), 2)),
        ("the same again", (ones(4, 8), 2)),
        ("other values", (ones(4, 8) * 7, 2)),
        ("5 rows", (ones(5, 8), 2)),
        ("6 rows", (ones(6, 8), 2)),
        ("700 rows", (ones(700, 8), 2)),
        ("1 row", (ones(1, 8), 2)),
        ("float64", (ones(6, 8, dtype=torch.float64), 2)),
        ("factor 3", (ones(6, 8), 3)),
        ("factor 4", (ones(6, 8), 4)),
    ],
)
recompiles = called.compilation.recompiles
assert len(recompiles) == 4, [item.reason for item in recompiles]

# %% [markdown]
# Compare the times. A call whose guards hold takes a fraction of a millisecond, a recompile hundreds of times
# as much.
#
# The calls show three rules:
#
# - **Automatic dynamic shapes.** The first other number of rows is a recompile. The second is not: having
#   seen one size change, Dynamo captures the new graph with a *symbol* for it. Integers get the same
#   treatment, which is why factor 4 passes where factor 3 did not.
# - **0 and 1 are special.** A size of one broadcasts, a size of zero has no elements. So a symbolic size
#   always means "2 or more", and one row is captured by itself.
# - **The reason names one guard**: the first that failed, of the graph that was made last.
#
# The symbol can be seen in the second graph, and its guard in place of the number:

# %%
symbolic = called.compilation.graph("g1.fx")
print(symbolic.text, "\n")
for guard in called.compilation.guards:
    if guard.graph == "g1" and guard.kind in ("SHAPE_ENV", "TENSOR_MATCH"):
        print(f"{guard.kind:14} {guard.name:18} {guard.code[0]}")

# %% [markdown]
# Not every changing value settles like that. A number that is read from a global, or that selects an element
# of a list, stays a constant: a step counter used so recompiles at every step, until Dynamo reaches its limit
# and compiles no more. The cure is to put what changes into a tensor, since values in tensors are free.
# Notebook 11 has both, the limit and the cure.
#
# ### Exercise: exactly one guard
#
# `scale` was called with the arguments in `first_call`. Write a call that a person would take for the same:
# its tensor has the same shape and *equal elements*, its number is *equal* (`==`). Yet it must recompile, and
# because of exactly one property that the guards check, not two.
#
# <details><summary>Hint</summary>
#
# `TENSOR_MATCH` checks six things; they are listed under the guards above. Which of them can differ while
# shape and elements agree? For the number: is `2` the only thing that equals 2?
#
# </details>

# %% tags=["exercise"]
first_call = (torch.ones(4, 8, device=device), 2)
answer = ...  # (a tensor, a number)
check("capture.disguise", answer, scale, first_call)

# %% tags=["wrong"]
answer = (torch.ones(4, 8, device=device), 2)

# %% tags=["wrong"]
answer = (torch.ones(4, 8, device=device), 3)

# %% tags=["wrong"]
answer = (torch.ones(8, 4, device=device, requires_grad=True).t(), 2)

# %% tags=["solution"]
answer = (torch.ones(8, 4, device=device).t(), 2)  # strides (1, 4) in place of (8, 1)

# %% [markdown]
# ### Exercise: three recompiles
#
# Now the other way round: cause exactly **three** recompiles of `scale`, with at most five calls in all. To
# make it worth while, the factor is always 2 and every tensor is float32, on this device, without
# `requires_grad`.
#
# <details><summary>Hint</summary>
#
# Four different sizes of one dimension will not do: the second change is absorbed by a symbol. Which size
# does a symbol not cover? What of a tensor's form is no size?
#
# </details>

# %% tags=["exercise"]
answer = ...  # a list of at most five tensors; scale(tensor, 2) is called with each in turn
check("capture.recompiles", answer, scale)

# %% tags=["wrong"]
answer = [torch.ones(rows, 8, device=device) for rows in (2, 3, 4, 5)]

# %% tags=["wrong"]
answer = [torch.ones(4, 8, device=device, dtype=t) for t in (torch.float32, torch.float64, torch.int32)]

# %% tags=["wrong"]
answer = [torch.ones(4, device=device), torch.ones(4, 4, device=device), torch.ones(4, 4, 4, device=device)]

# %% tags=["solution"]
answer = [torch.ones(sizes, device=device) for sizes in ((4, 8), (5, 8), (1, 8), (4, 8, 2))]

# %% [markdown]
# ## Graph breaks: what a graph cannot hold
#
# Some instructions have no place in a graph: a `print`, a file, a decision that depends on a tensor's value.
# Dynamo does not fail there. It ends the graph, lets Python execute that one instruction, and begins
# another graph behind it. That is a **graph break**. The result is right, as always. The price is paid
# elsewhere.


# %%
def loud(x):
    y = torch.sin(x) * 2
    print("half way")
    return torch.cos(y) + 1


def quiet(x):
    y = torch.sin(x) * 2
    return torch.cos(y) + 1


big = torch.randn(2_000_000, device=device)
broken, whole = nbcompile.compile(loud), nbcompile.compile(quiet)
torch.testing.assert_close(broken(big), whole(big))
print(fx_graphs(broken))

# %% [markdown]
# The value `y` now has to cross from one graph to the next, so it must be written to memory and read again,
# and the two halves cannot be fused. Count the bytes, and take the time (printing is silenced meanwhile, so
# that it is not the terminal that is measured). The bytes double. The time grows by less where the sine and
# the cosine take most of it, or where a cache holds `y` in between.


# %%
def milliseconds(fn, *args, calls=20):
    with contextlib.redirect_stdout(io.StringIO()):
        samples = []
        for _ in range(calls):
            start = time.perf_counter()
            fn(*args)
            if device == "cuda":
                torch.cuda.synchronize()
            samples.append(time.perf_counter() - start)
    return min(samples) * 1e3  # the others were disturbed


def moved(compiled):
    return sum(kernel.bytes_read + kernel.bytes_written for kernel in compiled.compilation.kernels)


for name, compiled in (("with print", broken), ("without", whole)):
    kernels = len(compiled.compilation.kernels)
    took = milliseconds(compiled, big)
    print(f"{name:11} kernels: {kernels}, {moved(compiled) / 1e6:.0f} MB moved, {took:.2f} ms")
assert moved(broken) == 2 * moved(whole)

# %% [markdown]
# ### Breaks in the record
#
# Each break is one entry: the line, the reason, and what to change. Here are the breaks that one meets most
# often. Each small function below has one.


# %%
def reads_a_value(x):
    total = x.sum().item()
    return x / total


def branches(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def shape_from_data(x):
    return x[x > 0].sum()


log = logging.getLogger("training")


def logs(x):
    y = x * 2
    log.info("half way")
    return y + 1


def prints_in_a_loop(x):
    for i in range(3):
        x = torch.sin(x)
        print(i)
    return x


def count(number, what):
    return f"{number} {what}" + ("" if number == 1 else "s")


breaking = {}
for fn in (loud, reads_a_value, branches, shape_from_data, logs, prints_in_a_loop):
    breaking[fn.__name__] = compiled = nbcompile.compile(fn)
    with contextlib.redirect_stdout(io.StringIO()):
        compiled(x)
    made = compiled.compilation
    graphs = sum(graph.stage == "fx" for graph in made.graphs)
    print(f"{fn.__name__}: {count(graphs, 'graph')}, {count(len(made.breaks), 'break')}")
    for item in made.breaks:
        for text in (f"line {item.spans[0].line} of its cell: {item.reason}", f"→ {item.hint}"):
            print(textwrap.fill(text, 100, initial_indent="   ", subsequent_indent="     "))

# %% [markdown]
# The last one is the worst case. Dynamo cannot resume in the middle of a loop, so the *whole function* runs
# eagerly and there is no graph at all.
#
# Two of these deserve a second look.
#
# **`.item()` bakes in.** The second graph of `reads_a_value` holds a number that came from the data. With
# other data a guard fails, and that graph is captured again. (`___stack0` is Dynamo's name for what lay on
# the stack at the break.) Dynamo then makes the number a symbol, but the break stays, and on a GPU so does
# the wait for the value.
#
# **A branch on data has one side compiled.** The graph of the other side is made when it is first taken.

# %%
print(fx_graphs(breaking["reads_a_value"]))
breaking["reads_a_value"](x + 1)
for item in breaking["reads_a_value"].compilation.recompiles:
    print("\nrecompile:", item.reason)
breaking["branches"](x - x.mean() + 1)  # sum > 0
breaking["branches"](x - x.mean() - 1)  # sum < 0
print("\n" + fx_graphs(breaking["branches"]))

# %% [markdown]
# In a `%%compile` cell the advice stands at the line, and the **Guards** pane of the explorer has each guard
# with the line that caused it. The first break here is inside `loud`, which line 2 calls; the second is in
# the cell itself. Statements of a cell that only Python can do end a graph just as they do in a function. So
# two breaks make four graphs: two halves of `loud`, the product, the softmax. (A line that calls something
# with a break in it is compiled by itself.)

# %%
# %%compile --no-bench --into noisy
a = loud(x)
b = a @ a.T
print("largest:", b.max().item())
c = torch.softmax(b, -1)

# %% [markdown]
# Without this package, `torch._dynamo.explain(fn)(x)` lists the breaks of a function and their reasons.
#
# ### Exercise: how many graphs
#
# Predict, before you compile: how many graphs and how many breaks has each of the two functions below, when
# called with a tensor of shape 64 × 32 whose values are between 1 and 2?
#
# <details><summary>Hint</summary>
#
# A decision about a *shape* is made by Dynamo itself, at capture. Only instructions that Dynamo cannot
# do end a graph. Then look where in each function they stand.
#
# </details>


# %% tags=["exercise"]
def first(x):
    y = torch.sin(x)
    print("sine taken")
    if y.shape[0] > 4:
        y = y * 2
    largest = y.max()
    if largest > 0.5:
        y = y / largest
    return y.cos()


def second(x):
    y = x * 2
    for _ in range(3):
        if y.sum() > 0:
            y = y - 1
    return y.exp()


answer = ...  # {"first": (graphs, breaks), "second": (graphs, breaks)}
check("capture.graphs", answer, {"first": first, "second": second}, torch.rand(64, 32, device=device) + 1)

# %% tags=["wrong"]
answer = {"first": (4, 3), "second": (4, 3)}

# %% tags=["wrong"]
answer = {"first": (3, 2), "second": (2, 1)}

# %% tags=["wrong"]
answer = {"first": (2, 2), "second": (0, 1)}

# %% tags=["solution"]
answer = {"first": (3, 2), "second": (0, 1)}

# %% [markdown]
# ## Insisting on one graph
#
# With `fullgraph=True` (in a cell, `%%compile --fullgraph`) a break is an error. It is a good habit for code
# that is meant to be fast: a break that creeps in later is then found at once and not by its slowness.

# %%
assert len(noisy.breaks) == 2 and sum(graph.stage == "fx" for graph in noisy.graphs) == 4
try:
    nbcompile.compile(branches, fullgraph=True)(x)
except torch._dynamo.exc.Unsupported as error:
    print("\n".join(str(error).strip().splitlines()[:2]))
else:
    raise AssertionError("a branch on data should not be one graph")

# %% [markdown]
# How would `branches` become one graph? `torch.where` computes both sides, for every element, and chooses.
# Both sides are pointwise, so they fuse into one kernel and the second side is almost free. If each side were
# a large network it would not be: `torch.cond` puts both sides into the graph and runs one of them. Not every
# backend can compile that; ours leaves such a graph to ATen and says so in a note.

# %%
# %%compile --no-bench --into chosen
z = torch.where(x.sum() > 0, x * 2, x - 1)

# %% [markdown]
# ### Exercise: mend it
#
# `report` has several graph breaks. Write `mended`, which returns the same for every input and is one graph.
# What it prints is not part of the result and may go.
#
# <details><summary>Hint</summary>
#
# Begin with the list of its breaks: the cell below prints them. A number that stays a tensor needs no
# `.item()`. A sum over selected elements is a sum over all elements, with zeros in place of the others.
#
# </details>


# %%
def report(x):
    scale = x.abs().max().item()
    y = x / scale
    if y.mean() > 0:
        y = y - y.mean()
    else:
        y = y + 1
    print("shifted", tuple(y.shape))
    positive = y[y > 0].sum()
    return y * positive


reported = nbcompile.compile(report)
reported(x)
for item in reported.compilation.breaks:
    print(f"   line {item.spans[0].line}: {item.reason}")


# %% tags=["exercise"]
def mended(x): ...


check("capture.mend", mended, report)


# %% tags=["wrong"]
def mended(x):
    y = x / x.abs().max()
    y = y - y.mean() if y.mean() > 0 else y + 1
    return y * torch.where(y > 0, y, 0).sum()


# %% tags=["wrong"]
def mended(x):
    y = x / x.abs().max()
    y = y - y.mean()
    return y * torch.where(y > 0, y, 0).sum()


# %% tags=["wrong"]
def mended(x):
    y = x / x.abs().max()
    y = torch.where(y > 0, y - y.mean(), y + 1)
    return y * torch.where(y > 0, y, 0).sum()


# %% tags=["solution"]
def mended(x):
    y = x / x.abs().max()
    mean = y.mean()
    y = torch.where(mean > 0, y - mean, y + 1)
    return y * torch.where(y > 0, y, 0).sum()


# %% [markdown]
# ## What to take along
#
# Dynamo runs your bytecode with stand-ins for tensors: tensor operations go into a graph, everything else is
# computed once and baked in, and a guard stands for each fact that was used. Values in tensors are free.
# Numbers, sizes, strides, flags and globals are fixed until a guard fails, which costs a compile. What a
# graph cannot hold breaks it, and a break costs the memory traffic and the fusion across that line. The
# record names the line, the reason and the remedy of each, and `fullgraph=True` keeps breaks out for good.
#
# Next: **04-autograd**, where the captured graph gets its backward pass.

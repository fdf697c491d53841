# %% [markdown]
# # The other compilers
#
# A compiler for Python programs has to get a graph out of Python first. There are half a dozen ways to do
# that, and you have probably used several: `torch.jit.trace` runs the function once and writes down what
# the tensors did; `torch.jit.script` reads the source; `torch.fx.symbolic_trace` runs it on stand-ins;
# `torch.export` runs it on fake tensors and insists on one graph; `torch.compile` watches the bytecode and
# hands back to Python what it cannot take; `jax.jit` and `tf.function` trace with their own arrays.
#
# They differ less in how fast the result runs than in **what becomes of the Python in it**. A branch, a
# print, a loop over a size, a number from an enclosing function: some ways keep it, some refuse it, some
# look again when it changes, and some quietly write down the value of that day.
#
# `nbcompile.captures` finds out by running. It hands your function to every way, then changes one thing at
# a time (the values, the sizes, a Python number, what the function reads from around it), calls what was
# captured, and holds the answer against eager. It knows nothing about the ways: each verdict comes with the
# values it was reached by. Here are five small functions, and one each of the ways' typical failures.
#
# JAX comes with `pip install "nbcompile[backends]"`. TensorFlow is left to you.

# %%
import torch

import nbcompile

torch.manual_seed(0)
x = torch.linspace(-1, 2, 12).reshape(4, 3)

try:
    import tensorflow as tf
except ImportError:
    tf = None
    print("TensorFlow is not installed here: its two rows will say so. (pip install tensorflow)")

# %% [markdown]
# ## 1. Pure mathematics: everyone agrees
#
# Only operators, no Python that matters. `jax.jit` and `tf.function` get the very same function, since `*`,
# `+` and `/` mean the same on their arrays.


# %%
def pure(x, y):
    return (x * y + 1) / (y * y + 1)


everyone = nbcompile.captures(pure, (x, x + 3))
everyone

# %% [markdown]
# Read a row from left to right: was it captured, how many operations are in the graph, how long did it take
# to get the first result, what one call takes afterwards (all taken in turns with eager, on the same
# inputs, and given only where the graph ran and its answer is right). Then one column for each thing that
# was changed. Hold the pointer over a mark for the evidence, or unfold a row.
#
# Two marks differ already. Other **sizes** are an error for `torch.export`, which promised one graph for
# these sizes (dimensions can be declared dynamic); `torch.compile` and `jax.jit` capture again (↻), which
# costs time but is right; TorchScript and `fx` keep no sizes at all. A call of twelve numbers is all
# overhead, so the times tell what one call of each *costs*, not how good its kernels are.
#
# The graphs themselves are in the rows, and here is the same function as four of them write it down:

# %%
for way in ("dynamo", "trace", "export", "jax"):
    title, text = everyone[way].graphs[0]
    print(f"--- {everyone[way].title}: {title}\n{text}\n")

# %% [markdown]
# ## 2. A branch that depends on the data


# %%
def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def branch_tf(x):
    if tf.reduce_sum(x) > 0:
        return x * 2
    return x - 1


# Any backend of torch.compile sees the same captures, and so does strict export: the rest is without them.
ways = ["dynamo", "script", "trace", "fx", "export", "jax", "tf", "tf-xla"]
branching = nbcompile.captures(branch, x, ways=ways, tf_fn=branch_tf if tf else None)
print(branching)

# %% [markdown]
# Five different answers to one `if`:
#
# - `torch.jit.trace` wrote down the side that was taken. With the signs flipped the other one should run,
#   and the result is wrong. It says so while tracing, in a warning that most programs never show.
# - `torch.jit.script` and `tf.function` read the source and keep both sides (look for `if` in the graph).
# - `torch.compile` breaks the graph at that line and lets Python decide.
# - `fx`, `torch.export` and `jax.jit` refuse, with the line. `torch.cond`, or `jax.lax.cond`, is what they
#   want you to write.

# %%
assert branching["trace"]["values"].verdict == "silently wrong"
assert branching["script"]["values"].verdict == "right"
assert branching["dynamo"].captured == "in pieces" and branching["export"].captured == "no"
print(branching["trace"]["values"].evidence)
print(branching["script"].graphs[0][1])

# %% [markdown]
# ## 3. A print


# %%
def loud(x):
    print("the sum is", x.sum())
    return x * 2


printing = nbcompile.captures(loud, x, ways=ways, timing=False)
for capture in printing.captures:
    if capture.findings:
        print(f"{capture.title:30} {capture['effects'].evidence}")

# %% [markdown]
# Three calls, so three lines are due. A way that runs the Python while it captures prints then, and never
# again, and what it prints is the stand-in rather than a number. `torch.compile` pays a graph break to
# print properly; TorchScript has a print of its own, which writes tensors differently. Prints are only the
# visible kind: appending to a list, counting calls or logging goes the same way.
#
# ## 4. A loop as long as a tensor


# %%
def loop(x):
    total = x[0] * 0
    for row in range(x.shape[0]):
        total = total + x[row] * row
    return total


looping = nbcompile.captures(loop, x, ways=ways, timing=False)
looping

# %% [markdown]
# The trace holds four additions, because there were four rows, and with seven rows it still adds four: the
# wrong answer, without a word (no warning either). `torch.jit.script` keeps the loop, so its graph is the
# same for every size. Everyone else unrolls it as well, but *knows* that it did: `torch.compile` and
# `jax.jit` look at the sizes and capture again, `torch.export` refuses the call.

# %%
print(looping["trace"]["sizes"].evidence)
print(looping["export"]["sizes"].evidence)
assert looping["trace"]["sizes"].verdict == "silently wrong"
print(dict(looping["script"].graphs)["TorchScript"])

# %% [markdown]
# ## 5. What the function reads from around it


# %%
def make(scale, history):
    def scaled(x):
        history.append(scale)
        x += 1
        return x * scale

    return scaled


surrounded = nbcompile.captures(make(2.0, []), x, ways=ways, timing=False)
print(surrounded)

# %% [markdown]
# `scale` is a Python number of the enclosing function. Change it between two calls: `torch.compile` guards
# what it has read and captures anew. Every tracer has baked in the 2.0. For `jax.jit` and `tf.function`
# that is by design, they ask you for pure functions, but nobody checks that yours is one. The list tells
# the same story, and `x += 1` another: `fx` records an addition, and the caller's tensor stays as it was.
# (JAX's arrays cannot be changed, so there the line means something else in eager mode too; each way is
# held against its own framework's eager.)

# %%
wrong = {c.title: [f.probe for f in c.baked_in] for c in surrounded.captures if c.baked_in}
for title, probes in wrong.items():
    print(f"{title:30} silently wrong: {', '.join(probes)}")
assert surrounded["dynamo"].baked_in == () and "closure" in [f.probe for f in surrounded["jax"].baked_in]

# %% [markdown]
# ## All five at once

# %%
studies = {"pure": everyone, "branch": branching, "print": printing, "loop": looping, "around": surrounded}
print(f"{'':14}" + "".join(f"{name:<22}" for name in studies))
for way in ways:
    cells = []
    for study in studies.values():
        capture = study[way]
        bad = ", ".join(finding.probe for finding in capture.baked_in)
        cells.append(f"wrong: {bad}" if bad else capture.captured)
    print(f"{way:14}" + "".join(f"{cell:<22}" for cell in cells))

# %% [markdown]
# ## Which one, then?
#
# - **`torch.compile`** (with any backend, ours included) for a program that runs in Python anyway. It is
#   the only way in this table that took all five and was never silently wrong: what it assumed is guarded,
#   what it cannot take stays Python. The price is those guards at each call, and captures when things change.
# - **`torch.export`** for a model that leaves Python: one whole graph or an error that names the line, and
#   guards that turn a wrong size into an error. What it reads from around the function is fixed for good.
# - **`jax.jit`, `tf.function`** for programs written as pure functions from the start; recompiles follow
#   shapes, dtypes and static arguments, and everything else is a constant. Try `captures` on the port
#   (`jax_fn=`, `tf_fn=`): it tells you where yours is not pure.
# - **`torch.fx.symbolic_trace`** for rewriting models you know, as a tool for compiler writers. No guards.
# - **`torch.jit.script` and `trace`** for what already uses them: PyTorch has deprecated both. Script is the
#   only one of torch's that keeps a loop as a loop; trace writes down what it saw.
#
# No probe proves anything: they try what can be made from the inputs that you give. Lines that no input
# reached are listed under the table ("not looked at"); `other_inputs=` adds yours.


# %%
def rare(x):
    if x.abs().max() > 1e6:
        return torch.zeros_like(x)
    return x + 1


before = nbcompile.captures(rare, x, ways=["trace", "script"], timing=False)
after = nbcompile.captures(rare, x, [(x * 1e7,)], ways=["trace", "script"], timing=False)
print(before.unprobed)
print(before["trace"]["values"].verdict, "→", after["trace"]["values"].verdict)
assert before.unprobed and not after.unprobed

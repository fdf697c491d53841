# %% [markdown]
# # The other compilers
#
# Every notebook until now had one compiler in it, and Inductor beside it for the times. There are others,
# and knowing how they differ is knowing which of the things you have learned are facts about compiling and
# which are choices that somebody made. After this notebook you can say what a way of capturing bakes into
# its graph, when `jax.jit` traces again and when `torch.compile` does, read XLA's HLO and count what it
# fused, find out who copies your input, and tell a compiler that fuses loops from one that looks for
# patterns. It takes about 40 minutes to read and solve, and runs in about half a minute.
#
# The first half is about getting a graph, the second about what becomes of it. For the second, XLA and ONNX
# Runtime come with `pip install "nbcompile[backends]"`; TensorFlow is left to you. What is not installed
# says so below, and the rest runs without it.
#
# ## Getting a graph
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

# %%
import re

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.workshop import check
from nbcompile.workshop.other_compilers import (
    COMPARED,
    PROGRAMS,
    absent,
    copied,
    counted_captures,
    hlo,
    steps_of,
    unusual,
)

torch.manual_seed(0)
x = torch.linspace(-1, 2, 12).reshape(4, 3)

try:
    import tensorflow as tf
except ImportError:
    tf = None
    print("TensorFlow is not installed here: its two rows will say so. (pip install tensorflow)")
for name in COMPARED:
    if absent(name):
        print(absent(name))

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
    for title, text in everyone[way].graphs[:1]:
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
assert surrounded["dynamo"].baked_in == ()
assert absent("xla") or "closure" in [f.probe for f in surrounded["jax"].baked_in]

# %% [markdown]
# ## All five at once

# %%
studies = {"pure": everyone, "branch": branching, "print": printing, "loop": looping, "around": surrounded}
print(f"{'':8}" + "".join(f"{name:<21}" for name in studies))
for way in ways:
    cells = []
    for study in studies.values():
        capture = study[way]
        bad = ", ".join(finding.probe for finding in capture.baked_in)
        cells.append(f"wrong: {bad}" if bad else capture.captured)
    print(f"{way:8}" + "".join(f"{cell:<21}" for cell in cells))

# %% [markdown]
# ## How often is it captured?
#
# A graph is good for some calls and not for others, and each compiler has its own idea of which. `jax.jit`
# looks at the *arguments*: the shapes and dtypes of arrays. A Python number that is passed in becomes an
# array too, so its value makes no difference; strides do not exist in JAX. `torch.compile` looks at what
# the code has *read*, which is why it noticed the closure above. And it learns: where a size or a number
# has changed once, it is captured the second time as a symbol.
#
# `counted_captures` calls a function a few times under both, and counts.


# %%
def scaled(x, factor):
    return x * factor + 1


ones = torch.ones(4)
print("the same three times: ", counted_captures(scaled, [(ones, 2.0)] * 3))
print("other values in x:    ", counted_captures(scaled, [(ones * n, 2.0) for n in range(3)]))
print("one axis more:        ", counted_captures(scaled, [(ones, 2.0), (torch.ones(2, 2), 2.0)]))

# %% [markdown]
# ### Exercise: how often?
#
# How often does each capture in the course of these calls?
#
# <details><summary>Hint</summary>
#
# Go from call to call, and ask of each: would what is captured so far do for this one? Dynamo's second
# capture is not like its first.
#
# </details>

# %%
stories = {
    "four sizes": [(torch.ones(n), 2.0) for n in (4, 5, 6, 7)],
    "four numbers": [(ones, factor) for factor in (2.0, 3.0, 4.0, 5.0)],
    "another dtype, and back": [(ones, 2.0), (ones.half(), 2.0), (ones, 2.0)],
    "transposed": [(torch.ones(2, 3), 2.0), (torch.ones(3, 2).T, 2.0)],
}

# %% tags=["exercise"]
answer = {
    "four sizes": {"torch.compile": ..., "jax.jit": ...},
    "four numbers": {"torch.compile": ..., "jax.jit": ...},
    "another dtype, and back": {"torch.compile": ..., "jax.jit": ...},
    "transposed": {"torch.compile": ..., "jax.jit": ...},
}
check("others.retrace", answer, scaled, stories)

# %% tags=["wrong"]
answer = {
    "four sizes": {"torch.compile": 4, "jax.jit": 4},  # as if a guard that failed taught nothing
    "four numbers": {"torch.compile": 2, "jax.jit": 1},
    "another dtype, and back": {"torch.compile": 2, "jax.jit": 2},
    "transposed": {"torch.compile": 2, "jax.jit": 1},
}

# %% tags=["wrong"]
answer = {
    "four sizes": {"torch.compile": 2, "jax.jit": 4},
    "four numbers": {"torch.compile": 2, "jax.jit": 4},  # as if numbers were constants to jax
    "another dtype, and back": {"torch.compile": 2, "jax.jit": 2},
    "transposed": {"torch.compile": 2, "jax.jit": 1},
}

# %% tags=["wrong"]
answer = {
    "four sizes": {"torch.compile": 2, "jax.jit": 4},
    "four numbers": {"torch.compile": 2, "jax.jit": 1},
    "another dtype, and back": {"torch.compile": 3, "jax.jit": 3},  # as if the first were forgotten
    "transposed": {"torch.compile": 2, "jax.jit": 1},
}

# %% tags=["solution"]
answer = {
    "four sizes": {"torch.compile": 2, "jax.jit": 4},  # the second of Dynamo's is for any size
    "four numbers": {"torch.compile": 2, "jax.jit": 1},
    "another dtype, and back": {"torch.compile": 2, "jax.jit": 2},
    "transposed": {"torch.compile": 2, "jax.jit": 1},  # strides are Dynamo's to guard
}

# %% [markdown]
# ## Which way of capturing, then?
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

# %% [markdown]
# ## What XLA makes of a graph
#
# `jax.jit` hands its graph to XLA, and with `backend="xla"` our bench hands it PyTorch's. XLA answers in a
# text, **HLO**. What runs is the computation marked `ENTRY`, one instruction after the other. An instruction
# `fusion(...)` is one kernel: it *calls* a computation, whose instructions all run in one pass over memory.
# So the same two questions as ever can be asked of it: how many kernels, and what is written between them?

# %%
wide = torch.randn(512, 256)
print(hlo(lambda x: torch.relu(x * 2 + 1) - x, wide))

# %% [markdown]
# Read it from below. `ENTRY` has a parameter and one fusion; the fusion's computation has the multiply, the
# add, the maximum and the subtract, and constants that are broadcast in registers. (`kLoop` is a plain loop
# over elements.) Four operations of PyTorch and no memory in between: the same as our kernel.
#
# Now one with reductions in it, a layer norm over the rows.


# %%
def norm(x):
    return F.layer_norm(x, (x.shape[-1],))


print(hlo(norm, wide))

# %% [markdown]
# ### Exercise: count fusions
#
# How many **fusions** does XLA run for this layer norm, how many of them write a **whole** tensor of
# 512 × 256, and how many **kernels** does nbcompile make of it?
#
# <details><summary>Hint</summary>
#
# In `ENTRY`, to the right of each `=` stands the shape of what the instruction writes.
# `steps_of(norm, wide)` has the steps of ours.
#
# </details>

# %% tags=["exercise"]
answer = {"fusions": ..., "whole": ..., "kernels": ...}
check("others.fusions", answer, norm, wide)

# %% tags=["wrong"]
answer = {"fusions": 8, "whole": 2, "kernels": 1}  # every computation counted

# %% tags=["wrong"]
answer = {"fusions": 5, "whole": 5, "kernels": 1}  # some write only a number a row

# %% tags=["wrong"]
answer = {"fusions": 5, "whole": 2, "kernels": 5}

# %% tags=["solution"]
entry = hlo(norm, wide).partition("ENTRY")[2]
answer = {
    "fusions": len(re.findall(r" fusion\(", entry)),
    "whole": len(re.findall(r"= f32\[512,256\]\S* fusion\(", entry)),
    "kernels": len(steps_of(norm, wide)),
}

# %% [markdown]
# Here XLA ends a fusion at each reduction: the mean must be complete before it is subtracted from anything.
# Our compiler sees that it must be complete *for that row*, and stays on the row. (XLA makes up for some
# of it. Look which computations subtract the mean: it is cheaper to do it twice than to read the result.)
# On a GPU, XLA has emitters that keep rows on the chip too; a statement such as "XLA does not fuse
# reductions" is always one about a device and a version.
#
# ### Exercise: who needs fewer steps?
#
# For each of these, who has fewer steps (kernels, and calls between them) in one run: `"nbcompile"`,
# `"xla"`, or is it the `"same"`? `x` has 512 × 256 elements, the 80 tensors have 4096 each.
#
# <details><summary>Hint</summary>
#
# Notebook 06 has the table of reasons for which we refuse. One of them is a plain limit, which XLA has not.
#
# </details>

# %%
print("\n".join(PROGRAMS))

# %% tags=["exercise"]
answer = {
    "torch.relu(x * 2 + 1) - x": ...,
    "torch.relu(x), torch.exp(x.T)": ...,
    "torch.cat([x * 2, x + 1], -1) * 3": ...,
    "torch.cumsum(x, -1) * 2": ...,
    "the sum of 80 tensors": ...,
}
check("others.fewer", answer)

# %% tags=["wrong"]
answer = {
    "torch.relu(x * 2 + 1) - x": "same",
    "torch.relu(x), torch.exp(x.T)": "same",
    "torch.cat([x * 2, x + 1], -1) * 3": "nbcompile",
    "torch.cumsum(x, -1) * 2": "nbcompile",
    "the sum of 80 tensors": "xla",
}

# %% tags=["wrong"]
answer = {
    "torch.relu(x * 2 + 1) - x": "same",
    "torch.relu(x), torch.exp(x.T)": "nbcompile",
    "torch.cat([x * 2, x + 1], -1) * 3": "nbcompile",
    "torch.cumsum(x, -1) * 2": "nbcompile",
    "the sum of 80 tensors": "same",
}

# %% tags=["wrong"]
answer = {
    "torch.relu(x * 2 + 1) - x": "nbcompile",
    "torch.relu(x), torch.exp(x.T)": "nbcompile",
    "torch.cat([x * 2, x + 1], -1) * 3": "nbcompile",
    "torch.cumsum(x, -1) * 2": "nbcompile",
    "the sum of 80 tensors": "xla",
}

# %% tags=["solution"]
answer = {
    "torch.relu(x * 2 + 1) - x": "same",  # a chain is a chain
    "torch.relu(x), torch.exp(x.T)": "nbcompile",  # both read x, and one of the two in another order
    "torch.cat([x * 2, x + 1], -1) * 3": "nbcompile",
    "torch.cumsum(x, -1) * 2": "nbcompile",  # a call and a kernel; XLA computes the scan in parts
    "the sum of 80 tensors": "xla",  # we stop at 64 tensors a kernel
}

# %% [markdown]
# ## Who copies your input?
#
# The best kernel is no use if its input is copied first. A PyTorch tensor is memory and *strides*, which say
# how far apart neighbours lie; a transposed tensor is the same memory with its strides exchanged. Not every
# compiler has strides. XLA takes any memory without gaps, in any order of its axes, and begins its program
# with the permutation. ONNX Runtime knows one order only. Whoever cannot take a tensor as it lies copies it,
# at every call, before its own clock starts.
#
# `copied` compiles, calls twice, and counts the bytes of the copies in the second call.


# %%
def doubled(x):
    return torch.softmax(x, -1) * 2


here = [name for name in COMPARED if not absent(name)]
for title, tensor in {"as it was made": wide, "some of its rows": torch.randn(600, 256)[7:519]}.items():
    print(f"{title:20}", {name: copied(doubled, tensor, name) for name in here})

# %% [markdown]
# Rows of a larger tensor begin somewhere else and have no gaps, so nobody minds.
#
# ### Exercise: who copies?
#
# For each of these tensors of 512 × 256 elements, write the set of those that copy it, of `"nbcompile"`,
# `"xla"` and `"onnxrt"`; `set()` if none does.
#
# <details><summary>Hint</summary>
#
# The strides are printed below. Where does the next element of a row lie, and is there memory between the
# elements that is not part of the tensor? And where does the next row of an expanded one lie?
#
# </details>

# %%
layouts = {
    "transposed": torch.randn(256, 512).T,
    "every other column": torch.randn(512, 512)[:, ::2],
    "one row, expanded": torch.randn(1, 256).expand(512, 256),
}
for title, tensor in layouts.items():
    print(f"{title:20} strides {tensor.stride()}, {tensor.untyped_storage().nbytes() / 1e6:.3f} MB of memory")

# %% tags=["exercise"]
answer = {"transposed": ..., "every other column": ..., "one row, expanded": ...}
check("others.copies", answer, doubled, layouts)

# %% tags=["wrong"]
answer = {  # as if XLA had no orders either
    "transposed": {"xla", "onnxrt"},
    "every other column": {"xla", "onnxrt"},
    "one row, expanded": {"xla", "onnxrt"},
}

# %% tags=["wrong"]
answer = {
    "transposed": {"onnxrt"},
    "every other column": {"xla", "onnxrt"},
    "one row, expanded": set(),  # 512 rows in the memory of one: nobody but strides can say that
}

# %% tags=["solution"]
answer = {
    "transposed": {"onnxrt"},
    "every other column": {"xla", "onnxrt"},
    "one row, expanded": {"xla", "onnxrt"},
}

# %% [markdown]
# ## Loops or patterns
#
# There are two ways to make one kernel out of several operations. One is what this workshop is about: write
# them down as loops, and merge loops. The other is to have good kernels ready, and to *look for* the
# operations that they can stand in for. ONNX Runtime does the second. Its optimised graph says what it has
# found:


# %%
def spelled_out(x, weight):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5) * weight + weight


def without_weight(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)


matrix, weight = torch.randn(256, 256), torch.rand(256)
tried = {
    "relu(x @ matrix + weight)": (lambda x, m, v: torch.relu(x @ m + v), wide, matrix, weight),
    "F.layer_norm": (norm, wide),
    "a layer norm, spelled out": (spelled_out, wide, weight),
    "the same without a weight": (without_weight, wide),
}
found = {}
for title, (function, *inputs) in tried.items():
    for backend in ("nbcompile", "onnxrt"):
        if backend in here:
            steps = found[title, backend] = steps_of(function, *inputs, backend=backend)
            print(f"{title:26} {backend:10} {len(steps)}: {', '.join(steps)}")
assert all(len(steps) == 1 for (title, who), steps in found.items() if who == "nbcompile" and "norm" in title)
assert absent("onnxrt") or len(found["the same without a weight", "onnxrt"]) > 1

# %% [markdown]
# A pattern can do what loops cannot: the bias and the ReLU go into the product (`FusedGemm`), which we leave
# to a library and read back. And it is all or nothing. The layer norm with a weight is recognised, even
# spelled out; without the weight it is not, and each of its operators makes a trip through memory. Loops
# are indifferent to how a formula is written.
#
# ### Exercise: be recognised
#
# Somebody has multiplied out the GELU: `unusual(x)` is `x * (0.5 + 0.5 * torch.erf(x / 2**0.5))`. Write the
# same function so that ONNX Runtime runs one operator.
#
# <details><summary>Hint</summary>
#
# A pattern was written by somebody who had seen many models. How is the GELU written in most of them?
#
# </details>

# %%
if not absent("onnxrt"):
    print(steps_of(unusual, wide, backend="onnxrt"))
print(steps_of(unusual, wide))


# %% tags=["exercise"]
def known(x):
    return ...  # the same as unusual(x)


check("others.pattern", known)


# %% tags=["wrong"]
def known(x):
    return x * 0.5 * (torch.erf(x * 0.7071067811865476) + 1)


# %% tags=["wrong"]
def known(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


# %% tags=["wrong"]
def known(x):
    return x * torch.sigmoid(1.702 * x)


# %% tags=["solution"]
def known(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))  # or F.gelu(x), which says it by name


# %% [markdown]
# ## What to take along
#
# Ways of capturing differ in what becomes of the Python: kept, refused, looked at again, or quietly written
# down. When a graph is captured again follows from what it was made to depend on: arguments for `jax.jit`,
# whatever was read for `torch.compile`. Behind the graph all compilers save the same thing, trips through
# memory, and count the same way: kernels, and whole tensors between them. They differ in where a kernel must
# end, in which memory they can read as it lies, and in whether they merge loops or look for patterns. All of
# that can be asked, of a compiler and a version; nothing of it need be believed.
#
# Next is notebook 16, *Write your own*: an operator, a fusion rule, a backend.

# %% [markdown]
# # The loop IR
#
# Between the graph of operators and the text of a kernel stands one more form of your program, in which
# each line says what one *element* is. It is called the loop IR (intermediate representation), and it is
# where fusion is decided.
#
# After this notebook you can read that form aloud, write the index of any view yourself, count the bytes
# that a loop has to move, and say how many loops a function becomes. In the end you write the step that
# makes one loop out of two. It takes about 45 minutes; the cells run in well under a minute.

# %%
import itertools
import time
from dataclasses import replace

import torch
import torch.nn.functional as F

from nbcompile.compiler.loop_ir.expr import Load
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.workshop import check
from nbcompile.workshop.loops import loop_program, milliseconds_in_order, naive_c

# %load_ext nbcompile
torch.manual_seed(0)
x = torch.randn(64, 16)
print("torch", torch.__version__, "on", torch.get_num_threads(), "threads")

# %% [markdown]
# The loops are the same for every device, so this notebook keeps its tensors on the CPU, with or without a
# GPU.
#
# ## Why another form
#
# A graph of operators hides what costs time. Here are two operators on a tensor of 64 rows:

# %%
# %%compile --no-bench --show graph --into softmax
y = torch.softmax(x, -1) * 2

# %% [markdown]
# Two nodes in the graph, but a softmax goes over its row several times: for the largest element, for the
# sum, for the result. How often memory is read depends on whether these passes share their reading. A
# compiler that sees only `softmax` has nothing to share. So the first thing it does is to *lower* each
# operator: to write it as loops.

# %%
program = loop_program(lambda x: torch.softmax(x, -1) * 2, x)
print(program.as_text())

# %% [markdown]
# Read it aloud, one line at a time:
#
# - `max[i] = max x[i, j] over j<16`: the element `i` of the buffer `max` is the maximum of row `i` of `x`.
# - `exp[i, j] = exp(x[i, j] - max[i])`: one element needs one element of `x` and one row's maximum.
# - `sum[i]`, then `_softmax[i, j]`, then `mul[i, j]`, each from what stands above it.
#
# The names to the left are *buffers*, memory for a tensor, with its type at the right end of the line. A
# name is given once and never changed. `i` and `j` are *axes*: numbers that run from 0 up to an extent.
#
# Two kinds of line make up most programs. In a **pointwise** loop each point of the axes gives one
# element. In a **reduction** many points give one, and `over` names the axes that disappear.
#
# All of it is data, which you can take apart:

# %%
for loop in program.statements:
    kept = ", ".join(f"{axis.name}<{axis.extent}" for axis in loop.kept)
    reduced = ", ".join(f"{axis.name}<{axis.extent}" for axis in loop.reduced) or "nothing"
    reads = ", ".join(map(str, loop.reads()))
    print(f"{loop.kind:9} {loop.name:9} for {kept:11} over {reduced:8} reads {reads}")
assert [loop.kind for loop in program.statements].count("reduction") == 2

# %% [markdown]
# ## What a line means
#
# A line says what each element is. It does not say in which order the elements are made, on how many cores,
# or whether a buffer is ever stored. Those are decisions, and they come later. To see that the meaning
# needs no order, here is the line of `exp`, one point at a time, in an order drawn at random:

# %%
exp = program.statements[1]
largest = x.amax(1)
by_hand = torch.empty(64, 16)
points = list(itertools.product(range(64), range(16)))
for n in torch.randperm(len(points)).tolist():
    i, j = points[n]
    by_hand[i, j] = torch.exp(x[i, j] - largest[i])
torch.testing.assert_close(by_hand, torch.exp(x - x.amax(1, keepdim=True)))
print(f"{exp.name}: {exp.points()} points in a random order, the same result")

# %% [markdown]
# That can be done for all lines. The *interpreter* goes through a program line by line and computes each
# element as it is written. It is the reference that generated kernels are tested against, so it is
# meant to be obviously right, and it may be slow.

# %%
(result,) = interpret(program, [x])
torch.testing.assert_close(result, torch.softmax(x, -1) * 2)


def microseconds(call, times=50):
    call()  # once before the clock runs: the first call sets things up
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times * 1e6


slow, eager = microseconds(lambda: interpret(program, [x])), microseconds(lambda: torch.softmax(x, -1) * 2)
print(f"the interpreter agrees with eager, and takes {slow:.0f} µs where eager takes {eager:.0f} µs")

# %% [markdown]
# ## Views cost nothing
#
# A transpose moves no data. In PyTorch it is a *view*: the same memory with other strides. In the loop IR
# there is no loop for it at all. Whoever reads the view reads the original at another index.


# %%
def views(x):
    return x.t()[2:, ::4].unsqueeze(0).expand(3, -1, -1) + 1


print(loop_program(views, x).as_text())
assert len(loop_program(views, x).statements) == 1
for fn in (lambda x: x.reshape(32, 32) + 1, lambda x: x.reshape(64, 4, 4) + 1, lambda x: x.reshape(-1) + 1):
    print(loop_program(fn, x).as_text().splitlines()[1])

# %% [markdown]
# Four views, one loop, and everything that the views did stands in one pair of brackets: `j + 2` for the
# slice, `4*k` for the step, `j` and `k` exchanged for the transpose, and no `i` at all for the `expand`.
#
# A reshape, in the last three lines, takes one step more: count the elements through, then split the count
# again by the other shape. Quotient and remainder do it. Where the shapes allow, they cancel: splitting a
# row into four parts needs no division.
#
# ### Exercise: where an element comes from
#
# `x` has 6 rows of 8. For each of these tensors write a function from its own indices to the pair of
# indices into `x`. The first one is done. The last one is a copy in PyTorch, but its elements come from `x`
# all the same.
#
# <details><summary>Hint</summary>
#
# For a reshape: at which place does the element stand if all elements are counted row by row? Divide that
# place by the length of a row of `x`.
#
# </details>

# %% tags=["exercise"]
answer = {
    "x.t()": lambda i, j: (j, i),
    "x[1::2, 3:]": ...,
    "x[:, :1].expand(6, 8)": ...,
    "x.reshape(4, 12)": ...,
    "x.t().reshape(48)": ...,
}
check("loops.index", answer)

# %% tags=["wrong"]
answer = {
    "x.t()": lambda i, j: (j, i),
    "x[1::2, 3:]": lambda i, j: (i + 1, j + 3),
    "x[:, :1].expand(6, 8)": lambda i, j: (i, 0),
    "x.reshape(4, 12)": lambda i, j: ((12 * i + j) // 8, (12 * i + j) % 8),
    "x.t().reshape(48)": lambda i: (i % 6, i // 6),
}

# %% tags=["wrong"]
answer = {
    "x.t()": lambda i, j: (j, i),
    "x[1::2, 3:]": lambda i, j: (2 * i + 1, j + 3),
    "x[:, :1].expand(6, 8)": lambda i, j: (i, 0),
    "x.reshape(4, 12)": lambda i, j: ((12 * i + j) // 8, (12 * i + j) % 8),
    "x.t().reshape(48)": lambda i: (i // 8, i % 8),
}

# %% tags=["solution"]
answer = {
    "x.t()": lambda i, j: (j, i),
    "x[1::2, 3:]": lambda i, j: (2 * i + 1, j + 3),
    "x[:, :1].expand(6, 8)": lambda i, j: (i, 0),
    "x.reshape(4, 12)": lambda i, j: ((12 * i + j) // 8, (12 * i + j) % 8),
    "x.t().reshape(48)": lambda i: (i % 6, i // 6),
}

# %% [markdown]
# ## Strides are coefficients
#
# An index such as `2*i + 1` is a polynomial in the axes. Memory is one long line, so a buffer turns the
# indices into one number, the *offset*: each index times the stride of its dimension, added up. That is a
# polynomial again, and the coefficient of an axis in it says how far one step of that axis moves in memory.

# %%
w = torch.randn(16)
broadcast = loop_program(lambda x, w: x.t() * w[:, None], x, w)
(loop,) = broadcast.statements
buffers = broadcast.buffers()
print(broadcast.as_text().splitlines()[2])
for load in loop.reads():
    offset = buffers[load.buffer].offset(load.index)
    steps = {axis.name: offset.coefficient(axis) for axis in loop.axes}
    print(f"{load!s:8} is element {offset} of {load.buffer}: strides {steps}")

# %% [markdown]
# `w` is **broadcast**: its offset does not contain `j`, so its stride along `j` is 0, and a step of `j`
# reads the same number again. This is all that broadcasting is. The numbers of `w` are fetched from memory
# once and stay in a register or in the cache.
#
# Strides decide which order is a good one. The program does not say it, so let us try both on a larger
# tensor, as the plainest C there is:

# %%
large = torch.randn(2048, 2048)
doubled = loop_program(lambda x: x * 2, large)
print(naive_c(doubled, "ij"))
times = milliseconds_in_order(doubled, ["ij", "ji"], large)
print({order: f"{value:.2f} ms" for order, value in times.items()})
assert times["ji"] > times["ij"], "a stride of 2048 in the innermost loop is slower than one of 1"

# %% [markdown]
# Same loop, same result, another order of the two `for`s. A processor fetches memory in lines, mostly of 64
# bytes: 16 elements of float32. With `j` innermost each line is used whole. With `i` innermost each step is
# on another line.
#
# ### Exercise: the order of loops
#
# In which order should the axes be walked, the outermost first? The axes of a result are named in their
# order: `i` is dimension 0, `j` is 1, `k` is 2. Note that PyTorch keeps the strides of its input for a
# pointwise result: `x.t() * 2` is stored as `x` is.
#
# <details><summary>Hint</summary>
#
# Write down the stride of each axis of the result. The axis with stride 1 belongs innermost, and that with
# the largest stride outermost.
#
# </details>

# %% tags=["exercise"]
answer = {
    "x + 1": "ij",  # x has 2048 rows of 2048
    "x.t() * 2": ...,
    "x.permute(2, 0, 1) - 1": ...,  # of a contiguous x with three dimensions
}
check("loops.order", answer)

# %% tags=["wrong"]
answer = {"x + 1": "ij", "x.t() * 2": "ij", "x.permute(2, 0, 1) - 1": "jki"}

# %% tags=["wrong"]
answer = {"x + 1": "ij", "x.t() * 2": "ji", "x.permute(2, 0, 1) - 1": "kij"}

# %% tags=["solution"]
answer = {"x + 1": "ij", "x.t() * 2": "ji", "x.permute(2, 0, 1) - 1": "jki"}

# %% [markdown]
# ## Reductions
#
# A reduction's points outnumber its results. Which of its axes disappear decides what it can share with
# others, so it is worth being able to tell them apart at a glance:

# %%
for name, fn in {
    "of rows": lambda x: x.sum(1),
    "of columns": lambda x: x.sum(0),
    "of everything": lambda x: x.sum(),
    "the place of the largest": lambda x: x.argmax(1),
    "mean and variance": lambda x: torch.var_mean(x, 1),
}.items():
    print(f"{name}:")
    for line in loop_program(fn, x).as_text().splitlines()[1:-1]:
        print("   ", line)

# %% [markdown]
# The variance is a reduction with two outputs, mean and sum of squared deviations, both kept up to date as
# the row is walked once (Welford's method, which does not lose digits as `E[x²] - E[x]²` would).
#
# ### Exercise: how many loops
#
# Say how many loops each of these becomes, before fusion. You may add `print(loop_program(...).as_text())`
# to see where you were wrong, but predict first.

# %% tags=["exercise"]
answer = {
    "x * 2 + 1": ...,
    "x.t()[::2].unsqueeze(0) + 1": ...,
    "x.reshape(32, 32).mean(-1)": ...,
    "torch.softmax(x + 1, -1)": ...,
    "F.gelu(x).sum(0)": ...,
}
check("loops.count", answer)

# %% tags=["wrong"]
answer = {
    "x * 2 + 1": 2,
    "x.t()[::2].unsqueeze(0) + 1": 4,
    "x.reshape(32, 32).mean(-1)": 2,
    "torch.softmax(x + 1, -1)": 5,
    "F.gelu(x).sum(0)": 2,
}

# %% tags=["wrong"]
answer = {
    "x * 2 + 1": 2,
    "x.t()[::2].unsqueeze(0) + 1": 1,
    "x.reshape(32, 32).mean(-1)": 2,
    "torch.softmax(x + 1, -1)": 2,
    "F.gelu(x).sum(0)": 2,
}

# %% tags=["solution"]
answer = {
    "x * 2 + 1": 2,  # one loop an operator
    "x.t()[::2].unsqueeze(0) + 1": 1,  # views are none
    "x.reshape(32, 32).mean(-1)": 2,  # a sum, and a division by the length
    "torch.softmax(x + 1, -1)": 5,  # the addition, max, exp, sum, division
    "F.gelu(x).sum(0)": 2,  # one formula, however long, and a sum
}

# %% [markdown]
# ## What a loop costs
#
# Nearly all of these loops do little arithmetic for each element, and a processor waits for memory most of
# the time. So the cost of a loop is, to a good first guess, the bytes that it has to move: each element
# that it reads, once, and each that it writes. The IR has all that is needed to count them:

# %%
sliced = loop_program(lambda x: x[::2, 1:5] * 2, torch.randn(6, 8))
(loop,) = sliced.statements
print(sliced.as_text().splitlines()[1])
for point in itertools.islice(itertools.product(*(range(axis.extent.constant) for axis in loop.axes)), 5):
    at = dict(zip(loop.axes, point))
    (load,) = loop.reads()
    print("point", point, "reads", load.buffer, tuple(place.evaluate(at.get) for place in load.index))

# %% [markdown]
# ### Exercise: count the bytes
#
# Write `bytes_of(loop, buffers)`: the bytes a loop has to move, each element that it touches counted once,
# and its outputs. `loop.reads()` are the loads of one point; `buffers[name].dtype.itemsize` is the size of
# an element; `out.bytes_hint()` is the size of a whole buffer. The cell above shows how to go through all
# points.
#
# <details><summary>Hint</summary>
#
# Put `(buffer, index)` of each load of each point into a set.
#
# </details>


# %% tags=["exercise"]
def bytes_of(loop, buffers):
    """How many bytes this loop has to read and write."""
    return ...  # what to write


check("loops.bytes", bytes_of)


# %% tags=["wrong"]
def bytes_of(loop, buffers):
    loads = sum(buffers[load.buffer].dtype.itemsize for load in loop.reads())
    return loop.points() * loads + sum(out.bytes_hint() for out in loop.outputs)


# %% tags=["wrong"]
def bytes_of(loop, buffers):
    names = {load.buffer for load in loop.reads()} | {out.name for out in loop.outputs}
    return sum(buffers[name].bytes_hint() for name in names)


# %% tags=["solution"]
def bytes_of(loop, buffers):
    touched = set()
    for point in itertools.product(*(range(axis.extent.constant) for axis in loop.axes)):
        at = dict(zip(loop.axes, point))
        for load in loop.reads():
            touched.add((load.buffer, *(place.evaluate(at.get) for place in load.index)))
    read = sum(buffers[name].dtype.itemsize for name, *_ in touched)
    return read + sum(out.bytes_hint() for out in loop.outputs)


# %% [markdown]
# Now put the count to use. If each loop of the softmax is a kernel of its own, each reads and writes
# memory. The compiler's record has the bytes of each kernel, so both ways can be compared:

# %%
# %%compile --no-bench --no-fuse --show kernels --into apart
y = torch.softmax(x, -1) * 2

# %%
for name, record in (("a kernel a loop", apart), ("fused", softmax)):
    total = sum(kernel.bytes_read + kernel.bytes_written for kernel in record.kernels)
    print(f"{name}: {len(record.kernels)} kernels, {total:,} bytes")
least = 2 * x.numel() * x.itemsize
print(f"x read once and the result written once: {least:,} bytes")
assert sum(kernel.bytes_read + kernel.bytes_written for kernel in softmax.kernels) == least

# %% [markdown]
# ## Why fusion is decided here
#
# In the graph, "fuse softmax and mul" means that somebody has written a kernel of that name. In generated
# C, two loops have been given an order, threads and temporaries, and to merge them one would have to take
# all that apart again. In the loop IR the question is plain arithmetic: *at which index does one loop read
# what the other makes?*

# %%
pair = loop_program(lambda x: (x * 2).t() + 1, torch.randn(6, 8))
producer, consumer = pair.statements
print(pair.as_text())
(load,) = consumer.reads()
print(f"\n{consumer.name}[i, j] reads {load}, which is made with", dict(zip(producer.axes, load.index)))
print("there it is", producer.body.substitute(dict(zip(producer.axes, load.index))))

# %% [markdown]
# The producer's axes are replaced by the index at which its result is read, and its formula stands there in
# place of a load. Nothing passes through memory any more. If the producer is a reduction this does not do,
# since each element would be a loop again; then the two have to walk their rows together. Notebook 06 is
# about when that may be done and when it pays.
#
# ### Exercise: two loops into one
#
# Write `inline(producer, consumer)`, which returns the consumer with the producer's formula in place of
# each load of the producer's buffer. The judge runs your loop in the interpreter, on five programs. What
# you need:
#
# - `consumer.body` is a tree. `expr.children()` are the parts of a node, `expr.rebuild(children,
#   expr.indices())` is the same node with other parts.
# - A `Load` has `.buffer`, a name, and `.index`.
# - `replace(consumer, body=new)` is the loop with another body.
#
# <details><summary>Hint</summary>
#
# Write an inner function `visit(expr)`. If `expr` is a load of `producer.name` it returns what the last
# cell printed; else it rebuilds the node from the visited children.
#
# </details>


# %% tags=["exercise"]
def inline(producer, consumer):
    """The consumer, computing for itself what it read from the producer."""
    return ...  # what to write


check("loops.inline", inline)


# %% tags=["wrong"]
def inline(producer, consumer):
    return consumer


# %% tags=["wrong"]
def inline(producer, consumer):
    def visit(expr):
        if isinstance(expr, Load) and expr.buffer == producer.name:
            return producer.body  # at the producer's own index, not where it is read
        return expr.rebuild(tuple(visit(child) for child in expr.children()), expr.indices())

    return replace(consumer, body=visit(consumer.body))


# %% tags=["solution"]
def inline(producer, consumer):
    def visit(expr):
        if isinstance(expr, Load) and expr.buffer == producer.name:
            return producer.body.substitute(dict(zip(producer.axes, expr.index)))
        return expr.rebuild(tuple(visit(child) for child in expr.children()), expr.indices())

    return replace(consumer, body=visit(consumer.body))


# %% [markdown]
# ## What is not a loop
#
# A matrix product is left to PyTorch's library, which has tuned code for it. Such a call stands in the
# program as itself, between the loops. And a padding or a concatenation is a loop with a condition in it,
# which reads from one place or another:

# %%
print(loop_program(lambda x, w: F.pad(torch.cat([x, x * 2], 1) @ w, (1, 1)), x, torch.randn(32, 4)).as_text())

# %% [markdown]
# ## What to take along
#
# The loop IR says what each element of each buffer is, and leaves order, storage and threads open. Views
# and broadcasting are index polynomials in whoever reads them, and strides are the coefficients. A
# pointwise loop or a reduction costs about the bytes that it moves, which can be counted from its line. Two
# loops can become one when the index at which one reads matches the index at which the other makes.
#
# Next is notebook 06, *Fusion*, where you decide for each pair of loops whether it should be done.

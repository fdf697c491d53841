# %% [markdown]
# # Reductions, and the softmax that needs one pass less
#
# A pointwise operation can be fused with its neighbours almost anywhere. A reduction (a sum, a maximum, a
# mean) cannot: nobody can use its result before the last element of the row has been read. Softmax and the
# norms are made of reductions, and they are where a good kernel and a poor one differ most.
#
# After this notebook you can count the passes that a kernel makes over memory, write a softmax with one pass
# less and prove it right, merge partial results of a row, and say which schedule our compiler will choose for
# a row of a given length, and why. It takes about an hour to work through, and less than a minute to run.

# %%
import inspect
import math
import statistics

import torch

import nbcompile
from nbcompile import targets
from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.workshop import check
from nbcompile.workshop.reductions import CASES, TRAFFIC, Counted, kernels_for

# %load_ext nbcompile
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## A reduction is a place to wait
#
# Softmax of a row `x` is `y[j] = exp(x[j] - m) / s`, where `m` is the largest element and `s` the sum of all
# `exp(x[j] - m)`. So:
#
# 1. To know `m`, the whole row must have been read.
# 2. To know `s`, `m` must be known, and the whole row is needed again.
# 3. To write `y`, `s` must be known, and the whole row is needed once more.
#
# What does *needed again* cost? That depends on where the row is meanwhile. If it waits in registers or in a
# cache, next to nothing. If it has to come from memory, as much as the first time. A kernel like this does a
# handful of operations an element, and memory is slower than that by far, so **the passes over memory are the
# cost**, and we shall count them.
#
# `Counted` is a tensor in slow memory. Whatever is read from it or written to it is counted, in bytes.

# %%
print(inspect.getsource(Counted))

# %% [markdown]
# ### Three passes
#
# The formulas as they stand. A chip cannot hold a row of any length, so each pass takes the row in blocks.
#
# ### One pass
#
# The other extreme: the chip has room for the row. Then it is read once, and everything happens there.

# %%
BLOCK = 256


def blocks(width):
    return [slice(start, start + BLOCK) for start in range(0, width, BLOCK)]


def three_passes(x, y):
    rows, width = x.tensor.shape
    for row in range(rows):
        m = torch.tensor(-math.inf)
        for block in blocks(width):
            m = torch.maximum(m, x[row, block].max())
        s = torch.tensor(0.0)
        for block in blocks(width):
            s = s + torch.exp(x[row, block] - m).sum()
        for block in blocks(width):
            y[row, block] = torch.exp(x[row, block] - m) / s


def one_pass(x, y):
    for row in range(len(x.tensor)):
        held = x[row, :]  # on chip from here on
        e = torch.exp(held - held.max())
        y[row, :] = e / e.sum()


# %%
def counted(walk, given):
    """Bytes read and written by a walk, in multiples of the matrix; its result must be softmax's."""
    x, y = Counted(given), Counted(torch.empty_like(given))
    walk(x, y)
    torch.testing.assert_close(y.tensor, torch.softmax(given, -1))
    return x.read / given.nbytes, y.written / given.nbytes


given = torch.randn(16, 4096)
traffic = {walk.__name__: counted(walk, given) for walk in (three_passes, one_pass)}
for name, (read, written) in traffic.items():
    print(f"{name:14} matrix read {read:.0f} x, result written {written:.0f} x: {read + written:.0f} in all")
assert traffic == {"three_passes": (3, 1), "one_pass": (1, 1)}

# %% [markdown]
# Half the bytes, so about half the time, where memory is what limits. There is something in between, and it
# is the most useful trick of this notebook. But first: why the maximum at all?
#
# ## Why the maximum is subtracted
#
# Mathematically it cancels: numerator and denominator are both multiplied by `exp(-m)`. In floating point it
# decides whether there is a result.

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    largest = torch.finfo(dtype).max
    print(f"{dtype!s:15} largest number {largest:9.3g}: exp(x) overflows above x = {math.log(largest):.1f}")

row = torch.tensor([100.0, 101.0, 102.0])
naive = row.exp() / row.exp().sum()
print("without:", naive.tolist())
print("with:   ", torch.softmax(row, -1).tolist())
assert naive.isnan().all() and torch.softmax(row, -1).sum().isclose(torch.tensor(1.0))

# %% [markdown]
# With the maximum subtracted, every exponent is at most 0, so no exponential exceeds 1: nothing overflows.
# One of them is exactly 1, so `s` is at least 1: nothing is divided by zero. Those that vanish were
# negligible beside it. Any number near the maximum would do as well. Far below it, exponentials overflow;
# far above it, all of them vanish, and 0 is divided by 0.
#
# Three special values, because kernels get them wrong first:
#
# - `-inf` is what a mask writes. Its exponential is 0, as it should be. A row of nothing but `-inf` has `m =
#   -inf`, and `-inf - (-inf)` is NaN: eager returns NaN there, and so must a compiler.
# - `inf` gives `inf - inf` as well: NaN.
# - NaN must stay NaN. A maximum written as `a if a > b else b` loses it, as every comparison with NaN is
#   false.

# %%
special = torch.tensor([[1.0, -math.inf, 2.0], [-math.inf] * 3, [1.0, math.inf, 2.0], [1.0, math.nan, 2.0]])
softmax = nbcompile.compile(lambda x: torch.softmax(x, -1))
print(softmax(special))
assert torch.allclose(softmax(special), torch.softmax(special, -1), equal_nan=True)

# %% [markdown]
# ## Two passes: the online softmax
#
# The first two passes wait for each other only because `s` is taken relative to a maximum that is not known
# yet. So take it relative to *the largest seen so far*, and repair it whenever that changes.
#
# Keep a state `(m, s)`, and promise this about it after any number of elements:
#
#     m = the largest x[j] seen so far
#     s = the sum of exp(x[j] - m) over all j seen so far
#
# Before anything is seen, it is `(-inf, 0)`. Let a block come. The new maximum `m'` is the larger of `m` and
# the block's own, and the sum that the promise asks for is
#
#     s' = sum over seen j of exp(x[j] - m')               +  sum over the block of exp(x[j] - m')
#        = exp(m - m') * sum over seen j of exp(x[j] - m)  +  sum over the block of exp(x[j] - m')
#        = exp(m - m') * s                                 +  sum over the block of exp(x[j] - m')
#
# So the old elements are not needed again: multiplying `s` by `exp(m - m')` does for all of them at once. By
# induction the promise holds at the end of the row, which is the proof. Since `m` is not larger than `m'`,
# the factor is at most 1 and does not overflow.
#
# ### Exercise: the online update
#
# Write `update(m, s, block)`, which returns the new `(m, s)`. `m` and `s` are tensors of one number, `block`
# is part of a row. The judge runs it over eleven kinds of rows in blocks of three sizes, finishes the
# softmax with your `(m, s)`, and compares that with `torch.softmax`, NaN included. A block of nothing but
# `-inf` must leave the state as it is, the initial one too.
#
# <details><summary>Hint</summary>
#
# `torch.maximum` and `.max()` keep NaN. The trouble is `-inf - (-inf)`: while everything so far is
# `-inf`, subtract some other number than the maximum. Any finite one will do, since all the exponentials are
# 0.
#
# </details>


# %% tags=["exercise"]
def update(m, s, block):
    return ...  # the new (m, s)


check("reductions.online", update)


# %% tags=["wrong"]
def update(m, s, block):
    higher = torch.maximum(m, block.max())
    return higher, s + torch.exp(block - higher).sum()


# %% tags=["wrong"]
def update(m, s, block):
    higher = torch.maximum(m, block.max())
    return higher, s * torch.exp(m - higher) + torch.exp(block - higher).sum()


# %% tags=["wrong"]
def update(m, s, block):
    # NaN is lost by these comparisons
    higher = max(float(m), max([-1e30, *[v for v in block.tolist() if v == v]]))
    return higher, float(s) * math.exp(float(m) - higher) + sum(
        math.exp(v - higher) for v in block.tolist() if v == v
    )


# %% tags=["solution"]
def update(m, s, block):
    higher = torch.maximum(m, block.max())
    pivot = torch.where(higher == -math.inf, 0.0, higher)
    return higher, s * torch.exp(m - pivot) + torch.exp(block - pivot).sum()


# %% [markdown]
# With it, softmax takes two passes. (The walk below has an update of its own, so that it runs whether or not
# you have solved the exercise. It is the short one, which fails on rows that begin with `-inf`.)


# %%
def two_passes(x, y):
    rows, width = x.tensor.shape
    for row in range(rows):
        m, s = torch.tensor(-math.inf), torch.tensor(0.0)
        for block in blocks(width):
            part = x[row, block]
            higher = torch.maximum(m, part.max())
            s = s * torch.exp(m - higher) + torch.exp(part - higher).sum()
            m = higher
        for block in blocks(width):
            y[row, block] = torch.exp(x[row, block] - m) / s


traffic["two_passes"] = counted(two_passes, given)
for name, (read, written) in sorted(traffic.items(), key=lambda item: -sum(item[1])):
    print(f"{name:14} {read:.0f} + {written:.0f} = {read + written:.0f} times the matrix")
assert sum(traffic["two_passes"]) == 3

wide = torch.randn(4, 40_000)

# %% [markdown]
# Four, three, two. The price of the online rule is arithmetic: one more exponential a block. The price of
# one pass is room: the whole row must fit on the chip.
#
# ## Where our compiler uses it
#
# On a GPU a kernel runs as many *programs* at once, each with registers of its own. A row of 40,000 float32
# does not fit into the registers of one program on an H100. There are only four rows here, 640 kB in all, so
# a second reading finds them in the chip's cache. So the compiler walks the row in blocks, twice.
# `--interpret` runs the Triton kernel on the CPU, checked against eager. (Triton, and how to read it, is the
# subject of notebook 08; here it is enough to look for the update in the listing.)

# %%
# %%compile --interpret --no-bench --into looped
z = torch.softmax(wide, -1)

# %%
kernel = looped.kernels[0]
print(kernel.name, "has the schedule", kernel.schedule)
assert kernel.schedule == "looped rows" and "pivot" in kernel.sources["triton"]

# %% [markdown]
# The first loop is the online update, with the same guard for rows that begin with `-inf`. The second loop
# walks the blocks *backwards*: what was read last is what the cache still holds.
#
# The state can do more than grow at its end. Two parts of a row, each with a state of its own, can be
# merged: that is how several programs share a row, and how the lanes of a vector and the threads of a CPU
# do.
#
# ### Exercise: merge two states
#
# Write `merge(a, b)` for two states `(m, s)` of different parts of one row. It must not matter which comes
# first, and a state of nothing, `(-inf, 0)`, must change nothing.


# %% tags=["exercise"]
def merge(a, b):
    return ...  # the (m, s) of both parts together


check("reductions.merge", merge)


# %% tags=["wrong"]
def merge(a, b):
    return torch.maximum(a[0], b[0]), a[1] + b[1]


# %% tags=["wrong"]
def merge(a, b):
    m = torch.maximum(a[0], b[0])
    return m, a[1] * torch.exp(a[0] - m) + b[1] * torch.exp(b[0] - m)


# %% tags=["wrong"]
def merge(a, b):
    pivot = torch.where(a[0] == -math.inf, 0.0, a[0])
    return a[0], a[1] + b[1] * torch.exp(b[0] - pivot)


# %% tags=["solution"]
def merge(a, b):
    m = torch.maximum(a[0], b[0])
    pivot = torch.where(m == -math.inf, 0.0, m)
    return m, a[1] * torch.exp(a[0] - pivot) + b[1] * torch.exp(b[0] - pivot)


# %% [markdown]
# An operation that is associative, commutative and has a neutral element is all that a parallel reduction
# needs. A sum has one, a maximum has one, and now the softmax's pair has one. Here is a kernel in which 16
# programs hold a part of each row and meet. It is for an H100 and needs none: `kernels_for` prints a kernel
# for tensors that have a shape and no memory.

# %%
(shared,) = kernels_for(lambda x: torch.softmax(x, -1), (4096, 131_072))
print("schedule:", shared.schedule, "\n")
print(shared.sources["triton"])
assert "shared" in shared.schedule

# %% [markdown]
# Each program stores its `(max_, sum_)`, waits until all 16 have done so, loads all of them, and merges. The
# row itself stays in registers all the while and is never read again. `pivots` and `pivot_2` are the guard
# once more.
#
# ## Welford: the variance online
#
# Layer norm needs a mean and a variance. The textbook's short cut, the mean of the squares minus the square
# of the mean, needs one pass, and floating point punishes it: it subtracts two large numbers to get a small
# one.
#
# Welford's method keeps a count `n`, the `mean`, and `m2`, the sum of the squared distances from the mean,
# and each new element moves all three. It squares only distances from a mean nearby, which are small, and
# never the numbers themselves.

# %%
values = torch.randn(10_000) + 10_000
shortcut = (values * values).mean() - values.mean() ** 2
two_pass = (values - values.mean()).square().mean()
exact = values.double().var(correction=0)
print(f"exact {exact:.4f}   two passes {two_pass:.4f}   short cut {shortcut:.4f}")
assert abs(two_pass - exact) < 0.01 * exact and abs(shortcut - exact) > 0.5 * exact


def welford(values):
    n, mean, m2 = 0, torch.tensor(0.0), torch.tensor(0.0)
    for value in values:
        n += 1
        delta = value - mean
        mean = mean + delta / n
        m2 = m2 + delta * (value - mean)
    return n, mean, m2


n, mean, m2 = welford(values[:2000])
print(f"of 2000: online {m2 / n:.4f}   exact {values[:2000].double().var(correction=0):.4f}")

# %% [markdown]
# ### Exercise: merge two parts of a variance
#
# Write `merge_moments(a, b)` for two parts `(n, mean, m2)`. Think of all the elements of a part as sitting
# at its mean, and their distances from it as known: what is missing in the sum of both `m2` is how far the
# two means are from the common one. A part may be empty. Numbers are about 10,000 in one of the tests.
#
# <details><summary>Hint</summary>
#
# Let `delta` be the mean of `b` minus that of `a`, and `n` the count of both. The common mean lies `delta *
# nb / n` above that of `a`. So the elements of `a` are that far from it on average, and those of `b` are
# `delta * na / n`. Square, multiply by how many there are, add, simplify.
#
# </details>


# %% tags=["exercise"]
def merge_moments(a, b):
    return ...  # the (n, mean, m2) of both parts together


check("reductions.welford", merge_moments)


# %% tags=["wrong"]
def merge_moments(a, b):
    n = a[0] + b[0]
    if n == 0:
        return a
    return n, (a[1] * a[0] + b[1] * b[0]) / n, a[2] + b[2]


# %% tags=["wrong"]
def merge_moments(a, b):
    (na, ma, sa), (nb, mb, sb) = a, b
    n = max(na + nb, 1)
    mean = (na * ma + nb * mb) / n
    squares = sa + na * ma * ma + sb + nb * mb * mb
    return na + nb, mean, squares - n * mean * mean


# %% tags=["wrong"]
def merge_moments(a, b):
    (na, ma, sa), (nb, mb, sb) = a, b
    n = na + nb
    delta = mb - ma
    return n, ma + delta * nb / n, sa + sb + delta * delta * na * nb / n


# %% tags=["solution"]
def merge_moments(a, b):
    (na, ma, sa), (nb, mb, sb) = a, b
    n = na + nb
    if n == 0:
        return a
    delta = mb - ma
    return n, ma + delta * (nb / n), sa + sb + delta * delta * (na * nb / n)


# %% [markdown]
# ## How long may a sum be?
#
# One more trap of reductions: the running sum has the type's precision, and it grows. In float16 the gap
# between neighbours reaches 2 at 2048. From there on, adding 1 changes nothing.

# %%
total = torch.tensor(0.0, dtype=torch.float16)
for _ in range(5000):
    total = total + 1
print("5000 ones added up in float16:", total.item())
ones = torch.ones(1, 5000, dtype=torch.float16)
print("torch.sum:", ones.sum().item(), "  compiled:", nbcompile.compile(lambda x: x.sum(-1))(ones).item())
assert total == 2048 and ones.sum() == 5000

x = torch.randn(2048, 2048)

# %% [markdown]
# Both add up in a wider type and round once, at the end. In C our compiler goes further: sums of more than
# 256 float32 are kept in float64, as you see in the kernel below.
#
# ## What our compiler does on a CPU

# %%
# %%compile --no-bench --into on_cpu
y = torch.softmax(x, -1) * 2

# %%
kernel = on_cpu.kernels[0]
moved = kernel.bytes_read + kernel.bytes_written
print(
    f"schedule '{kernel.schedule}': reads {kernel.bytes_read / 1e6:.1f} MB, moves {moved / 1e6:.1f} MB in all"
)
assert len(on_cpu.kernels) == 1 and kernel.bytes_read == kernel.bytes_written == x.nbytes

# %% [markdown]
# Three loops over `j`, so three passes, and yet its record says that it reads the matrix once. Both are
# true. The three loops are inside one loop over rows: a row of 2048 float32 is 8 kB, and the second and
# third time it comes from the nearest cache. The exponentials of a row wait in `exp_kept`, also 8 kB. **What
# a pass costs depends on how far away the row has gone in the meantime**, and fusion is what keeps it near.
#
# Without fusion, each loop is a kernel over the whole matrix. By the time the next one starts, the first
# rows have gone from the near caches.
#
# The cell times both, and then lists what the compiler does with other reductions. Along the other axis the
# neighbours in memory belong to different rows, so it takes a wide tile of columns together, one accumulator
# each. Where a whole tensor becomes one number, each thread keeps a part: a split.

# %%
fused = nbcompile.compile(lambda x: torch.softmax(x, -1) * 2)
apart = nbcompile.compile(lambda x: torch.softmax(x, -1) * 2, options={"fuse": False})
large = torch.randn(8192, 2048, device=device)
for compiled in (fused, apart):
    torch.testing.assert_close(compiled(large), torch.softmax(large, -1) * 2)
with quiet():
    times = interleaved(
        {"one kernel": lambda: fused(large), "a kernel each": lambda: apart(large)}, budget=1.0
    )
for (name, seconds), compiled in zip(times.items(), (fused, apart)):
    kernels = compiled.compilation.kernels
    moved = sum(item.bytes_read + item.bytes_written for item in kernels)
    median = statistics.median(seconds)
    print(f"{name:14} kernels: {len(kernels)}  {moved / 1e6:6.0f} MB  {median * 1e3:7.2f} ms")
assert statistics.median(times["one kernel"]) < statistics.median(times["a kernel each"])

for what, fn in {
    "softmax along dim 1": lambda x: torch.softmax(x, 1),
    "softmax along dim 0": lambda x: torch.softmax(x, 0),
    "sum of everything": lambda x: x.sum(),
    "rows and columns summed": lambda x: (x.sum(0), x.sum(1)),
}.items():
    compiled = nbcompile.compile(fn)
    compiled(x)
    print(f"{what:24}", [item.schedule for item in compiled.compilation.kernels])

# %% [markdown]
# ### Exercise: bytes of a layer norm
#
# Layer norm without weights, in float32, of a matrix whose shape is `TRAFFIC`. How many bytes does each of
# these move between chip and memory? Count the matrix and the result, and leave out the one or two numbers
# kept for each row.
#
# - `three`: a pass over all rows for the means, one for the variances (distances from the mean), one that
#   writes.
# - `two`: a pass with Welford's update, one that writes.
# - `one`: each row is held on the chip.

# %% tags=["exercise"]
print("rows, columns:", TRAFFIC)
answer = ...  # {"three": bytes, "two": bytes, "one": bytes}
check("reductions.bytes", answer)

# %% tags=["wrong"]
elements = TRAFFIC[0] * TRAFFIC[1]
answer = {"three": 4 * elements, "two": 3 * elements, "one": 2 * elements}

# %% tags=["wrong"]
size = TRAFFIC[0] * TRAFFIC[1] * 4
answer = {"three": 3 * size, "two": 2 * size, "one": size}

# %% tags=["wrong"]
size = TRAFFIC[0] * TRAFFIC[1] * 4
answer = {"three": 4 * size, "two": 4 * size, "one": 2 * size}

# %% tags=["solution"]
size = TRAFFIC[0] * TRAFFIC[1] * 4
answer = {"three": 4 * size, "two": 3 * size, "one": 2 * size}

# %% [markdown]
# ## What our compiler does on a GPU
#
# What a program on a GPU has read can stay in its registers, and there are many of them. For rows, the
# compiler has four ways:
#
# | schedule | how | passes |
# |---|---|---|
# | persistent rows | a program holds whole rows in registers | one |
# | rows shared by N programs | each holds a part, and they meet to merge | one |
# | looped rows | a program walks a row in blocks, again after each result that it waits for | one or more |
# | split rows | programs take parts of a row, a second function merges what they found | one |
#
# Which one? Ask for a few shapes. Nothing here is run.

# %%
chip = targets.parse("cuda:90")
print(f"{chip.part}: {chip.multiprocessors} multiprocessors, {chip.registers:,} registers each\n")
functions = {"softmax": lambda x: torch.softmax(x, -1), "sum": lambda x: x.sum(-1)}
print(f"{'rows':>6} {'width':>8}   " + "".join(f"{name:28}" for name in functions))
table = {}
for shape in [(4096, 1024), (4096, 16_384), (4096, 16_385), (4096, 65_536), (4, 16_384), (4, 65_536)]:
    table[shape] = [kernels_for(fn, shape)[0].schedule for fn in functions.values()]
    print(f"{shape[0]:6} {shape[1]:8}   " + "".join(f"{schedule:28}" for schedule in table[shape]))
assert table[4096, 1024] == ["persistent rows"] * 2 and table[4, 65_536] == ["looped rows", "split rows"]

# %% [markdown]
# How to read the table:
#
# - **Up to 16,384 numbers, a row is held.** That is a quarter of a multiprocessor's registers for the row
#   alone, and the kernel needs others.
# - **Longer rows, many of them:** softmax needs the row again when `s` is known, so it is worth holding it
#   among several programs. A sum does not need it again: it walks the row once, and there is nothing to
#   hold.
# - **Few rows:** four rows on 132 multiprocessors leave most of them idle. A sum is split, because parts of
#   it can be added up later. Softmax at this size is walked, because at 1 MB the second walk finds the row
#   in the cache anyway.
#
# ### Exercise: predict the schedule
#
# All five are float32 on an H100 (`CASES` has them as functions with shapes). Answer each with a word:
# `"persistent"`, `"looped"`, `"shared"` or `"split"`. Think before you ask the compiler.
#
# | | what | rows | width |
# |---|---|---|---|
# | a | softmax | 8192 | 2048 |
# | b | sum | 2 | 1,000,000 |
# | c | softmax | 2048 | 100,000 |
# | d | sum | 8192 | 100,000 |
# | e | logsumexp | 2 | 100,000 |
#
# <details><summary>Hint</summary>
#
# The last is the hard one. A sum of exponentials is taken relative to the maximum, so one reduction waits
# for another, and the compiler splits only reductions that wait for nothing.
#
# </details>

# %% tags=["exercise"]
answer = ...  # {"a": "...", "b": "...", "c": "...", "d": "...", "e": "..."}
check("reductions.schedules", answer)

# %% tags=["wrong"]
answer = dict.fromkeys(CASES, "persistent")

# %% tags=["wrong"]
answer = {"a": "persistent", "b": "split", "c": "looped", "d": "split", "e": "split"}

# %% tags=["wrong"]
answer = {"a": "persistent", "b": "shared", "c": "shared", "d": "shared", "e": "looped"}

# %% tags=["solution"]
answer = {"a": "persistent", "b": "split", "c": "shared", "d": "looped", "e": "looped"}

# %% [markdown]
# Case e shows a limit of our compiler, and you hold the remedy. With your `merge` the parts of a logsumexp
# could be combined by a second function, just as those of a sum are. The compiler does not do that for two
# rows: it walks each with the online update.
#
# ## What to take along
#
# A reduction makes everything after it wait, so its row is read again or kept: count the passes, and ask
# where the row is between them. Online rules replace a pass by a little arithmetic. They rest on a state
# that can be merged, and a state that can be merged is also what lets threads, lanes and programs share a
# row. Subtracting the maximum, guarding `-inf`, accumulating in a wider type and Welford's update belong to
# the algorithm: without them a kernel is fast and wrong.
#
# Next: notebook 08, code generation, reads such kernels line by line, in C and in Triton, and changes them.

# %% [markdown]
# # Reading kernels, and writing better ones
#
# The last stage of a compiler prints text: C for a CPU, Triton for a GPU. It is the only stage whose result
# runs, and the one that people are most shy of. There is no need to be: a kernel is some twenty lines, and
# each of them is there for a reason that you already know.
#
# After this notebook you can read a generated kernel line by line in either language, say how an index
# became an address, tell a mask that protects memory from one that protects the result, look at the vector
# instructions behind a loop, and replace a kernel's text by your own, checked and timed. It takes about an
# hour to work through, and less than a minute to run.

# %%
import html
import re

import torch
from IPython.display import HTML

import nbcompile
from nbcompile.bench.measure.timing import interleaved, quiet
from nbcompile.compiler.attempt import KERNEL_FILE, Attempt, assembly_of, find_toolchain
from nbcompile.errors import NbcompileError
from nbcompile.view.facts.assembly import machine_code
from nbcompile.workshop import check
from nbcompile.workshop.codegen import (
    FASTER,
    WIDTH,
    broken_mask,
    broken_tail,
    example,
    kernels,
    norm,
    slow,
    text_of,
    tried,
)

# %load_ext nbcompile
x, w = example()
few = x[:4].clone()
print("torch", torch.__version__, "on", torch.get_num_threads(), "threads;", tuple(x.shape), tuple(w.shape))

# %% [markdown]
# ## One function, two languages
#
# RMS norm: each row is divided by the root of its mean square, and each column has a weight. It holds all
# that we want to see: a reduction, a value for each row, a value for each column, and a row length that is
# no power of two.

# %%
# %%compile --no-bench --into seen
y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w

# %% [markdown]
# One kernel. In the explorer's *Code* pane you can point at any line and see which line of the cell it is
# for. From here on we read the text. `norm` is the same program as a function, `text_of` compiles it and
# gives the kernel. For the Triton text, four rows are enough, as the interpreter runs it on this CPU.


# %%
def beside(**texts):
    """Texts in columns, with line numbers."""
    font = "font: 11px/1.4 monospace; white-space: pre-wrap; margin: 0"
    style = "vertical-align: top; text-align: left; padding: 0 12px"
    cells = ""
    for title, text in texts.items():
        lines = "\n".join(f"{n:3}  {line}" for n, line in enumerate(text.splitlines(), start=1))
        body = f'<pre style="{font}">{html.escape(lines)}</pre>'
        cells += f'<td style="{style}"><b>{title}</b>{body}</td>'
    return HTML(f'<div style="overflow-x: auto"><table><tr>{cells}</tr></table></div>')


in_c = text_of(norm, x, w)
in_triton = text_of(norm, few, w, interpret=True)
assert len(kernels(norm, x, w)) == 1 and "omp" in in_c and "tl.load" in in_triton
beside(C=in_c, Triton=in_triton)

# %% [markdown]
# They are one program in two ways of speaking. C says what *one thread does, step by step*. Triton says what
# *one program does to a whole tile at once*, and leaves it to its compiler how the threads share the tile.
#
# | | C | Triton |
# |---|---|---|
# | which row | a loop over `i`, shared out by `omp parallel for` | `tl.program_id(0)`: a program a row |
# | which columns | a loop over `j`, in vectors by `omp simd` | `tl.arange(0, RBLOCK)`: all of them |
# | where the row ends | the loop's bound | a mask, `j_in` |
# | the sum | a variable that each step adds to | a whole tile, then `tl.sum` across it |
# | the row's second use | read again, from the nearest cache | `x` is still in registers |
# | the weights | `w[j]`, the same for each row | `w_ptr + j`, the same for each program |
#
# What stands for a row is a plain variable (`rsqrt`), what stands for an element is an array entry or a
# tile. No intermediate of the cell is an array: `x * x` was a tensor of 8 MB in eager mode, and here it is
# `mul`, or not even named. This is fusion, seen from its end. `gdc_wait()` waits for the kernel before; on a
# recent GPU a launch may begin early.
#
# ### Exercise: find the line
#
# Give the line numbers, as shown above.
#
# - `threads`: in C, the line that shares the rows out among threads.
# - `permission`: in C, the line that allows a sum to be taken in another order than it is written.
# - `weights`: in C, the line that reads the weights.
# - `edge`: in Triton, the line that decides which columns exist.
# - `neutral`: in Triton, the line that sees to it that columns which do not exist do not count.

# %% tags=["exercise"]
answer = ...  # {"threads": 0, "permission": 0, "weights": 0, "edge": 0, "neutral": 0}
check("codegen.lines", answer)

# %% tags=["wrong"]
answer = {"threads": 3, "permission": 14, "weights": 17, "edge": 7, "neutral": 10}

# %% tags=["wrong"]
answer = {"threads": 3, "permission": 6, "weights": 17, "edge": 7, "neutral": 8}

# %% tags=["wrong"]
answer = {"threads": 3, "permission": 6}


# %% tags=["solution"]
def line_with(text, *marks):
    return next(n for n, line in enumerate(text.splitlines(), start=1) if all(m in line for m in marks))


answer = {
    "threads": line_with(in_c, "omp parallel"),
    "permission": line_with(in_c, "reduction(+"),
    "weights": line_with(in_c, "w[j]"),
    "edge": line_with(in_triton, "j_in = "),
    "neutral": line_with(in_triton, "tl.where"),
}

# %% [markdown]
# ## How an index becomes an address
#
# A tensor is a stretch of memory, and a stride for each axis: element `[i, j]` lies `i * stride(0) + j *
# stride(1)` elements after the first. A view (a transpose, a slice, a broadcast) moves nothing. It only has
# other strides and another first element, and the compiler folds all of that into the one number in the
# brackets.

# %%
base = torch.randn(400, 300)
views = {
    "base": lambda base: base + 1,
    "base.t()": lambda base: base.t() + 1,
    "base[10:, 5:]": lambda base: base[10:, 5:] + 1,
    "base[:, ::2]": lambda base: base[:, ::2] + 1,
    "base[0].expand(400, 300)": lambda base: base[0].expand(400, 300) * base,
    "base.flip(1)": lambda base: base.flip(1) + 1,
}
for name, fn in views.items():
    text = text_of(fn, base)
    read = re.findall(r"base\[[^]]*\]", text)
    print(f"{name:26} reads {', '.join(dict.fromkeys(read))}")

# %% [markdown]
# Which of `i` and `j` is which axis, and which loop is the inner one, the compiler chose by memory:
# neighbours in memory should be neighbours in time. Where two axes lie in memory without a gap, or with the
# same gap throughout, one loop walks both: so the first line has no `j`. In Triton the same number is added
# to a pointer, as in `x_ptr + i*1000 + j`. With `j` a tile of 1024 columns, that is a tile of 1024 addresses,
# and the load fetches all of them.
#
# ### Exercise: the offset of an element
#
# `base` is contiguous, of shape (40, 30), and `view = base[5:, 2::3].t()`. Write `offset(i, j)`: how many
# elements after the first of `base` does `view[i, j]` lie?


# %% tags=["exercise"]
def offset(i, j):
    return ...  # a whole number


check("codegen.offset", offset)


# %% tags=["wrong"]
def offset(i, j):
    return (5 + i) * 30 + 2 + 3 * j


# %% tags=["wrong"]
def offset(i, j):
    return 3 * i + 30 * j


# %% tags=["wrong"]
def offset(i, j):
    return (5 + j) * 30 + 3 * (2 + i)


# %% tags=["solution"]
def offset(i, j):
    return (5 + j) * 30 + (2 + 3 * i)


# %% [markdown]
# ## Changing a kernel
#
# Where this notebook is live in JupyterLab, *edit* in the Code pane changes a kernel in place, runs it on
# copies, compares with eager, and times both. The same from Python: an `Attempt` is a compile with some
# kernels' text replaced. The first call of an edited C function is made in a process of its own, on copies
# of its arguments that end where forbidden memory begins. A kernel that writes past an end takes no notebook
# along.

# %%
(kernel,) = kernels(norm, x, w)
edited = in_c.replace("sqrtf((mean + 1e-06f))", "sqrtf((mean + 0.5f))")
assert edited != in_c

attempt = Attempt([(kernel.id, edited)], watch=kernel.id)
compiled = nbcompile.compile(norm, compile_aten=attempt.compile_aten)
changed = compiled(x, w)
attempt.check()  # raises what went wrong with the edit, if anything did
print("largest difference from eager:", float((changed - norm(x, w)).abs().max()))
assert not torch.allclose(changed, norm(x, w), atol=1e-2)

# %% [markdown]
# The edit was run: the result is another. `tried(fn, inputs, text)` is these lines as a function: it
# gives the `result`, and a `run()` that calls the kernel alone, to be timed.
#
# ## Masks
#
# A tile has a power of two as its size, and the row has 1000 columns. So of its 1024 places, called *lanes*,
# 24 stand for columns that do not exist. They need two kinds of care:
#
# - **Memory.** A load without a mask reads what lies behind the row: the next row's beginning, and after the
#   last row whatever comes then. A store without one overwrites it.
# - **The result.** A masked lane holds *something*. Before a reduction it must be made neutral: 0 for a sum,
#   `-inf` for a maximum, 1 for a product.
#
# Leave out either and see. The interpreter checks every access, so the first is found on the spot.

# %%
no_mask = in_triton.replace("i*1000 + j, mask=j_in)", "i*1000 + j)", 1)
assert no_mask != in_triton
try:
    tried(norm, (few, w), no_mask, interpret=True)
    found = False
except NbcompileError as error:
    found = True
    print("load without a mask:", error)
assert found

not_neutral = in_triton.replace("tl.where(j_in, mul, 0.0)", "mul").replace(
    "mask=j_in)", "mask=j_in, other=3.0)", 1
)
got = tried(norm, (few, w), not_neutral, interpret=True).result
ratio = (got / norm(few, w)).mean()
print(f"a masked lane that counts as 3: every element times {ratio:.3f}, and no error")
assert 0.8 < ratio < 0.95

# %% [markdown]
# The second is the dangerous one. Nothing crashes, and the numbers are off by a tenth. If the width were
# 1024, they would be right: such a kernel passes its tests until somebody has another shape.
#
# ### Exercise: mend the masks
#
# This softmax by hand is wrong: for every row a little, and for some rows altogether. Mend it. Your answer
# is the whole text of the kernel; `broken.replace(old, new)` will do.

# %%
broken = broken_mask()
print(broken)

# %% [markdown]
# <details><summary>Hint</summary>
#
# What do the 24 lanes hold after the load, what does the maximum make of them in a row whose numbers are all
# negative, and what does the sum make of them afterwards? One change can put both right.
#
# </details>

# %% tags=["exercise"]
answer = ...  # the text of the mended kernel
check("codegen.mask", answer)

# %% tags=["wrong"]
answer = broken.replace(", mask=j_in, other=0.0", "")

# %% tags=["wrong"]
answer = broken.replace("tl.sum(exp, axis=0)", "tl.sum(tl.where(j_in, exp, 0.0), axis=0)")

# %% tags=["wrong"]
answer = broken.replace("other=0.0", "other=-100.0")

# %% tags=["solution"]
answer = broken.replace("other=0.0", 'other=float("-inf")')

# %% [markdown]
# ## Vectors
#
# One instruction of a CPU works on a whole vector of numbers. The C text says nothing of vectors but `omp
# simd`; what became of it is in the assembly. Here are the instructions that the C compiler made for the two
# lines of the first loop, as far as its jump back.

# %%
whole = tried(norm, (x, w))
code = machine_code(assembly_of(whole.call.source, kernel.id, find_toolchain()), KERNEL_FILE)
lines = in_c.splitlines()
load, add = (n for n, line in enumerate(lines, start=1) if "x_ =" in line or "+=" in line)
shown = [
    (row.place[1], line)
    for line, row in zip(code.lines, code.rows)
    if row.place and row.place[1] in (load, add)
]
for place, line in shown[:12]:
    print(f"line {place}  {line.expandtabs(4)}")

bits = {"zmm": 512, "ymm": 256, "xmm": 128}
used = {name: sum(name in line for _, line in shown) for name in bits}
widest = next((name for name in bits if used[name]), None)
if widest:
    print(f"\nwidest registers: {widest}, {bits[widest]} bits, {bits[widest] // 32} float32 at once")

# %% [markdown]
# Where the registers are `zmm`, as on the machine on which this notebook was stored, 16 numbers are loaded by
# one instruction and squared by another. Then they are widened to float64, which makes two vectors of 8, and
# added to **two accumulators**. (With `ymm` all of these are half as wide.) That is the other half of the
# story of `reduction(+:sum)`. There is not one running sum but one a lane. They are added up after the loop.
#
# That is another order of additions than the text has. In floating point it gives another last digit, so a C
# compiler must not do it unless told that it may: the pragma is that permission. What does it bring?

# %%
# On one thread, so that nothing else is compared; the fastest sample of each, as other work only ever delays.
strict = tried(norm, (x, w), in_c.replace("    #pragma omp simd reduction(+:sum)\n", "", 1))
with quiet(threads=1):
    times = interleaved({"in any order": whole.run, "in order": lambda: strict.run(whole)}, budget=1.0)
fastest = {name: min(seconds) for name, seconds in times.items()}
for name, seconds in fastest.items():
    print(f"{name:14} {seconds * 1e3:6.2f} ms")
print(f"the permission is worth a factor of {fastest['in order'] / fastest['in any order']:.1f}")

# %% [markdown]
# Each addition in order has to wait for the one before it, some cycles each, however wide the vectors are.
#
# A GPU has vectors of another kind. On NVIDIA's, 32 threads execute one instruction together, and besides, a
# thread may load 16 bytes, four float32, at once. Whether it may depends on the width of the rows. Compiled
# for an H100, which need not be here:

# %%
for width in (1000, 1001, 1024):
    (made,) = kernels(norm, torch.randn(512, width), torch.randn(width), target="cuda:90")
    loads = re.findall(r"(@%p\d+ )?ld\.global[.\w]*?(\.v4)?\.b32", made.sources["ptx"])
    wide = sum(bool(vector) for _, vector in loads)
    masked = sum(bool(predicate) for predicate, _ in loads)
    print(
        f"rows of {width}: {len(loads):2} loads a thread, {wide:2} of them of four numbers, {masked:2} masked"
    )

# %% [markdown]
# With 1001 columns, most rows start at addresses that are no multiple of 16 bytes, so each number is loaded
# by itself. With 1000 they do start at such addresses, and the edge falls between groups of four, so that a
# mask serves four lanes. With 1024 no mask is left: the compiler saw that the tile and the row have one
# length, and wrote none. Widths are worth choosing.
#
# ## The tail
#
# C has no masks, but it has the same edge. 1000 is 62 vectors of 16 and 8 numbers more: the **tail**. The C
# compiler makes a second loop for it by itself. Who writes vectors by hand has to write the tail by hand,
# too.
#
# ### Exercise: mend the tail
#
# This kernel uses vectors of 16 explicitly. Its results are right, or seem to be, and yet it must not be run:
# look at what the last round of the last loop reads and writes in each row, and then in the last row.

# %%
vectors = broken_tail()
print(vectors)
try:
    tried(norm, (x, w), vectors)
except NbcompileError as error:
    print("\n", error)

# %% tags=["exercise"]
answer = ...  # the text of the mended kernel
check("codegen.tail", answer)

# %% tags=["wrong"]
answer = vectors.replace("for (long j = 0; j < 1000; j += 16)", "for (long j = 0; j + 16 <= 1000; j += 16)")

# %% tags=["wrong"]
last = "    for (long j = 992; j < 1000; j++) out[j] = row[j] * scale;\n  }\n}"
answer = vectors.replace("long j = 0; j < 1000; j += 16", "long j = 0; j + 16 <= 1000; j += 16")
answer = answer.removesuffix("  }\n}") + last

# %% tags=["solution"]
last = "    for (long j = 1000 / 16 * 16; j < 1000; j++) out[j] = row[j] * scale * w[j];\n  }\n}"
answer = vectors.replace("long j = 0; j < 1000; j += 16", "long j = 0; j + 16 <= 1000; j += 16")
answer = answer.removesuffix("  }\n}") + last

# %% [markdown]
# Within the matrix, the 8 numbers too many land on the beginning of the next row, and are overwritten when
# that row's turn comes. With several threads it may have come already. The last row writes outside the
# result, and every row reads 8 weights that do not exist. None of this need show in the numbers, which is
# why the trial is made where it does show.
#
# ## Making one fast
#
# This one is right, and slow. Three things are wrong with it, and you have met them all: in which order it
# walks through memory, what it does for each element although it is the same all along a row, and what keeps
# vectors away.

# %%
poor = slow()
print(poor)
poor_run = tried(norm, (x, w), poor)
copy = torch.empty_like(x)
with quiet():
    times = interleaved(
        {
            "slow": poor_run.run,
            "the compiler's": lambda: whole.run(poor_run),
            "a copy of x": lambda: copy.copy_(x),
        },
        budget=1.0,
    )
for name, seconds in times.items():
    print(f"{name:15} {min(seconds) * 1e3:7.2f} ms")

# %% [markdown]
# ### Exercise: make it fast
#
# Write a kernel with the same head that gives the same numbers and takes at most an eighth of the time
# (`FASTER`), both measured in turns on this machine. You may begin from either text. Then see how near you
# come to the compiler's, or past it.
#
# <details><summary>Hint</summary>
#
# Rows outside, columns inside: then neighbours in time are neighbours in memory, and a row is still in the
# cache when it is needed again. One division and one root a row, then a product an element. `#pragma omp
# simd reduction(+:sum)` before the sum. `#pragma omp parallel for` before the rows, if there are idle cores.
#
# </details>

# %% tags=["exercise"]
print(f"{FASTER} times as fast is asked for")
answer = ...  # the text of your kernel
check("codegen.fast", answer)

# %% tags=["wrong"]
answer = poor

# %% tags=["wrong"]
answer = poor.replace("float", "double")

# %% tags=["wrong"]
answer = in_c.replace("sum_row / 1000.0f", "sum_row / 1024.0f")

# %% tags=["solution"]
answer = f"""{poor.splitlines()[0]}
  for (long i = 0; i < {len(x)}; i++) {{
    const float *row = x + i*{WIDTH};
    float *out = {poor.splitlines()[0].rpartition("*")[2].partition(")")[0]} + i*{WIDTH};
    float sum = 0;
    #pragma omp simd reduction(+:sum)
    for (long j = 0; j < {WIDTH}; j++) sum += row[j] * row[j];
    const float scale = 1.0f / __builtin_sqrtf(sum / {WIDTH} + 1e-6f);
    #pragma omp simd
    for (long j = 0; j < {WIDTH}; j++) out[j] = row[j] * scale * w[j];
  }}
}}"""

# %% [markdown]
# Where could one beat the compiler for good? The copy above moves the same bytes and computes nothing, so it
# is about the least that better loops can come to: what lies between the last two times above is all there is
# to win. What you have and it has not is knowledge: that the weights are all ones, that three digits are
# enough, that half of the rows are zero. Such knowledge is worth writing down in the program, where every
# compiler can use it, before it is written into a kernel.
#
# ## What to take along
#
# A kernel is its loops (or its tile), its addresses, its edge and its accumulators. Addresses are strides,
# folded into one number; views cost nothing but that. Edges need care twice: for memory, and for what the
# lanes beyond the edge do to a result. Vectors and threads come from permissions to reorder, and from
# neighbours in memory being neighbours in time. An edit is worth nothing until it has been compared and
# timed in turns.
#
# Next: notebook 09, Triton without a GPU, runs and inspects such kernels for chips that one does not have.

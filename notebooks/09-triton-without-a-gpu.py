# %% [markdown]
# # Triton without a GPU
#
# Kernels for GPUs are written in Triton these days, by people and by compilers alike: Inductor prints
# Triton, and so does nbcompile. Learning it seems to need a GPU. It does not. Triton comes with an
# **interpreter** that runs a kernel on the CPU, and its **compiler** makes machine code for a chip that it
# has never met.
#
# After this notebook you can read a Triton kernel, write one with a mask and one with a reduction, have
# every access to memory checked, and read off the compiled code whether its loads are wide, how many
# registers it takes and whether it spills. It takes about an hour with its five exercises; the cells
# themselves run in under a minute. It needs the package `triton`, which exists for Linux.

# %%
import torch
import triton
import triton.language as tl

from nbcompile.errors import EditError
from nbcompile.workshop import check
from nbcompile.workshop.triton import accesses, compile_for, interpret, readable

# %load_ext nbcompile
torch.manual_seed(0)
print("torch", torch.__version__, "| triton", triton.__version__, "| a GPU:", torch.cuda.is_available())

# %% [markdown]
# ## The same cell, here and there
#
# A softmax over seven short rows. With `--interpret`, nbcompile prints the Triton kernel that a GPU would
# get and runs it in the interpreter, on CPU tensors. The result is compared with eager's.

# %%
x = torch.randn(7, 100)

# %%
# %%compile --interpret --no-bench --into here
y = torch.softmax(x * 2, -1)

# %%
print(here.execution)
print(here.kernels[0].sources["triton"])
assert here.execution == "interpreted"
torch.testing.assert_close(y, torch.softmax(x * 2, -1))

# %% [markdown]
# Most of these lines will be familiar by the end. Three names will not be met again: `max_nan` is a
# maximum that keeps NaN, as torch's does; `libdevice` is NVIDIA's library of mathematical functions; and
# `gdc_wait()` waits for the kernel before this one, since chips from the H100 on may start a kernel a
# little before its predecessor has ended.
#
# With `--target cuda:90` the same cell is compiled for an H100 (compute capability 9.0). The tensors are on
# the CPU, so the cell itself runs eagerly, and the record holds what would be sent: Triton and every stage
# below it, down to the machine code. Open *Code* in the explorer to see them side by side.

# %%
# %%compile --target cuda:90 --no-bench --into there
y = torch.softmax(x * 2, -1)

# %%
print(there.execution)
for language, text in there.kernels[0].sources.items():
    print(f"{language:7} {len(text.splitlines()):5} lines")

# %% [markdown]
# The rest of this notebook takes that apart. First how such a kernel is written, then what becomes of it.
#
# ## Programs and blocks
#
# In CUDA one writes what a single *thread* does with a single element. In Triton one writes what a
# **program** does with a **block** of elements: a small tensor, whose size is a constant. The function
# below is started many times over, and all that differs from one program to the next is `tl.program_id(0)`.
#
# This kernel stores in each element the number of the program that has it. `who` is its address; adding a
# tensor of offsets to an address gives a tensor of addresses.


# %%
@triton.jit
def mine(who, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(who + at, tl.program_id(0), mask=at < n)


who = torch.full((20,), -1, dtype=torch.int32)
interpret(mine, who, 20, programs=3, BLOCK=8)
print(who.tolist())
assert who.tolist() == [0] * 8 + [1] * 8 + [2] * 4

# %% [markdown]
# `interpret` is this workshop's door to the interpreter: the kernel, its arguments, how many programs to
# start, and the constants. `BLOCK` is a `constexpr`, known when the kernel is compiled. It has to be a
# power of two.
#
# ### Exercise: how many programs
#
# A tensor has 5000 elements, and a program takes a block of 512. How many programs are needed to cover it,
# and how many lanes of the last one have no element (`idle`)?

# %% tags=["exercise"]
answer = {"programs": ..., "idle": ...}

check("triton.grid", answer, mine, 5000, 512)

# %% tags=["wrong"]
answer = {"programs": 9, "idle": 0}

# %% tags=["wrong"]
answer = {"programs": 10, "idle": 392}

# %% tags=["wrong"]
answer = {"programs": 512, "idle": 0}

# %% tags=["solution"]
answer = {"programs": -(-5000 // 512), "idle": 10 * 512 - 5000}

# %% [markdown]
# ## Masks
#
# Sizes are seldom a multiple of the block, so the last program reaches past the end. On a GPU a store out
# there lands in whatever lies next in memory: another tensor of yours, most likely. Nothing raises an
# error, unless no memory at all lies there. The result is wrong, somewhere, later.
#
# The interpreter as nbcompile runs it checks every access against the tensor that its address was made
# from. Here is the kernel again with its mask forgotten:


# %%
@triton.jit
def unmasked(who, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(who + at, tl.program_id(0))


caught = None
try:
    interpret(unmasked, who, 20, programs=3, BLOCK=8)
except EditError as error:
    caught = str(error)
print(caught)
assert caught is not None and "element 20" in caught

# %% [markdown]
# A second kind of mistake is a **race**. Programs run in no particular order, so none may read what another
# writes. Here each program adds to its left neighbour's element. Run one after another, as on this CPU,
# that gives some answer; on a GPU it may give another each time. The interpreter refuses it.


# %%
@triton.jit
def running_sum(x):
    at = tl.program_id(0) + 1
    tl.store(x + at, tl.load(x + at) + tl.load(x + at - 1))


caught = None
try:
    interpret(running_sum, torch.ones(6), programs=5)
except EditError as error:
    caught = str(error)
print(caught)
assert caught is not None and "which comes first is not known" in caught

# %% [markdown]
# ### Exercise: add two vectors
#
# Write `out = x + y` for vectors of `n` elements. It is started with as many programs as cover `n`, in
# blocks of `BLOCK`. The checker interprets it at 1024, 1000, 1, 255 and 257 elements, then compiles it for
# an H100.
#
# <details><summary>Hint</summary>
#
# `tl.load(address, mask=...)` takes a mask as `tl.store` does. Both loads and the store need the same one.
#
# </details>


# %% tags=["exercise"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr): ...


check("triton.add", add)


# %% tags=["wrong"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at), mask=at < n)


# %% tags=["wrong"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


# %% tags=["wrong"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n - 1
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


# %% tags=["solution"]
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


# %% [markdown]
# ## A row a program
#
# A reduction such as `tl.sum(block, axis=0)` makes one number of a block, within one program. That suggests
# the usual plan for softmax, layer_norm and their like: one program a row, the whole row in its block. The
# row is read once and stays in registers, however often the formula mentions it. A generated kernel of this
# kind is called *persistent rows* in the explorer.
#
# Masked lanes need care here. They are still there when the reduction comes, and hold whatever `other=`
# says. For a sum that must be 0. What is it for a maximum? Try a row whose numbers are all negative:


# %%
@triton.jit
def row_max(x, out, columns, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=OTHER)
    tl.store(out + row, tl.max(value, axis=0))


below = -1 - torch.rand(2, 5)
found = {}
for other in (0, -(10**9)):
    result = torch.empty(2)
    interpret(row_max, below, result, 5, programs=2, OTHER=other, BLOCK=8)
    found[other] = result
    print(f"other={other}: {result.tolist()}, and torch says {below.amax(1).tolist()}")
assert not torch.equal(found[0], below.amax(1)) and torch.equal(found[-(10**9)], below.amax(1))

# %% [markdown]
# ### Exercise: softmax
#
# Write the softmax of each row: `exp(x - max) / sum(exp(x - max))`. Row `i` of `x` begins at element `i *
# x_stride`, that of `out` at `i * out_stride`. There is one program a row, and `BLOCK` is at least
# `columns`. The checker tries short rows, long ones, rows of one element, rows of large and of negative
# numbers, and rows that are part of a wider tensor.
#
# <details><summary>Hint</summary>
#
# With `other=float("-inf")` the masked lanes cannot win the maximum, and `exp` makes them 0, so the sum
# needs nothing more.
#
# </details>


# %% tags=["exercise"]
@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr): ...


check("triton.softmax", softmax)


# %% tags=["wrong"]
@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    e = tl.exp(tl.load(x + row * x_stride + at, mask=mask, other=float("-inf")))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


# %% tags=["wrong"]
@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * x_stride + at, mask=mask, other=0.0)
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


# %% tags=["wrong"]
@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=float("-inf"))
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


# %% tags=["solution"]
@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * x_stride + at, mask=mask, other=float("-inf"))
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


# %% [markdown]
# ## From Triton to machine code
#
# Now the compiler. The kernel below scales a vector; `compile_for` gives it to Triton's compiler for a
# chip, with arguments like the ones listed. What comes back has every stage as text.


# %%
@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * 2, mask=mask)


v = torch.empty(4096)
built = compile_for("cuda:90", scale, v, v, 4096, BLOCK=1024)
print(readable(built.texts["ttir"]))

# %% [markdown]
# **TTIR** is the kernel as it was written, one operation a line. Read the types: `tensor<1024xi32>` is the
# block of offsets. There are no threads yet.
#
# **TTGIR** is where threads come in. Each type gets a layout, and the layouts are defined at the top:

# %%
ttgir = readable(built.texts["ttgir"])
layout = next(line for line in ttgir.splitlines() if line.startswith("#blocked"))
print(layout)
print(next(line.strip() for line in ttgir.splitlines() if "tt.load" in line))
assert "sizePerThread = [4]" in layout

# %% [markdown]
# `sizePerThread = [4]`, `threadsPerWarp = [32]`, `warpsPerCTA = [4]`: a thread has 4 elements that lie side
# by side, a warp 128, the program's four warps 512. The block has 1024, so all of them go round twice.
#
# Why four side by side? A load instruction of this chip moves at most 16 bytes for a thread, and that is
# four `float32`. The **PTX**, NVIDIA's portable assembly, has the outcome. `ld.global.v4.b32` reads four
# 32-bit words at once:

# %%
for line in built.texts["ptx"].splitlines():
    if "ld.global" in line or "st.global" in line:
        print(line.strip())
print()
for name, size in accesses(built.texts["ptx"]):
    print(f"{name:22} {size} bytes a thread")
assert ("ld.global.v4.b32", 16) in accesses(built.texts["ptx"])

# %% [markdown]
# The `@%p1` in front is the mask: a predicate, one for all four lanes. That is allowed only if the mask
# cannot cut through the four, and the compiler has to prove it. It knows that in each thread `at` starts at
# a multiple of 4. Of `n` it knows whether it was divisible by 16 when the kernel was compiled; Triton
# compiles a kernel of its own for each case. If `n` is 4094, a mask may end between any two lanes, and each
# element needs a predicate, hence a load, of its own:

# %%
loads = {}
for n in (4096, 4094):
    built = compile_for("cuda:90", scale, v, v, n, BLOCK=1024)
    loads[n] = [item for item in accesses(built.texts["ptx"]) if item[0].startswith("ld")]
    print(f"n = {n}: {len(loads[n])} loads of {loads[n][0][1]} bytes: {loads[n][0][0]}")
assert loads[4096][0][1] == 16 and loads[4094][0][1] == 4

# %% [markdown]
# So a masked kernel on an awkward size issues four times as many instructions for the same bytes. Compilers
# avoid that where they can. nbcompile leaves a mask out where it knows the size and the block divides it.
#
# ### Exercise: the width of a load
#
# How many bytes does one load of one thread move when this kernel is compiled for an H100? Each case gives
# the type, `n`, `BLOCK` and the number of warps. Work out first how many elements of a block a thread has.

# %% tags=["exercise"]
cases = {  # dtype, n, BLOCK, warps
    "A": (torch.float32, 4096, 256, 4),
    "B": (torch.float16, 4096, 1024, 4),
    "C": (torch.float16, 4096, 512, 8),
    "D": (torch.float16, 4095, 1024, 4),
}


@triton.jit
def product(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) * tl.load(y + at, mask=mask), mask=mask)


answer = {"A": ..., "B": ..., "C": ..., "D": ...}

check("triton.width", answer, product, cases)

# %% tags=["wrong"]
answer = {"A": 16, "B": 16, "C": 16, "D": 16}

# %% tags=["wrong"]
answer = {"A": 8, "B": 8, "C": 4, "D": 2}

# %% tags=["wrong"]
answer = {"A": 8, "B": 16, "C": 4, "D": 16}

# %% tags=["solution"]
answer = {"A": 2 * 4, "B": 8 * 2, "C": 2 * 2, "D": 2}

# %% [markdown]
# ## Registers and spills
#
# A block lives in the registers of its threads. Each thread has at most 255, of 32 bits each, and the
# H100's multiprocessor has 65,536 for all the threads that it holds. What does not fit is **spilled**:
# written to memory and read back, which is what keeping the row on chip was to avoid. The compiler does not
# warn.
#
# Here is a kernel that keeps a row of 8192 in one program, with more and more warps:


# %%
@triton.jit
def normalise(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * x_stride + at, mask=mask, other=float("-inf"))
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * out_stride + at, e / tl.sum(e, axis=0), mask=mask)


row = torch.empty(1, 8192)
spilled = {}
print("warps  elements a thread  registers  bytes spilled")
for warps in (1, 2, 4, 8, 16):
    built = compile_for("cuda:90", normalise, row, row, 8192, 8192, 8192, warps=warps, BLOCK=8192)
    spilled[warps] = built.spill_bytes
    print(f"{warps:5}  {8192 // (32 * warps):17}  {built.registers:9}  {built.spill_bytes:13}")
assert spilled[1] and not spilled[16]

# %% [markdown]
# ### Exercise: as few warps as possible
#
# The rows are now 16384 long. What is the smallest number of warps (a power of two) with which `normalise`
# does not spill? Answer from the table first; the checker compiles your choice, and the one below it.

# %% tags=["exercise"]
answer = ...

check("triton.spills", answer, normalise, 16384)

# %% tags=["wrong"]
answer = 2

# %% tags=["wrong"]
answer = 8

# %% tags=["wrong"]
answer = 3

# %% tags=["solution"]
answer = 4

# %% [markdown]
# ## Three chips
#
# Matrix products have hardware of their own, and each generation has other instructions for it. `tl.dot` is
# the one way to say it in Triton; the compiler finds the instruction. Here is a plain product of `float16`
# matrices, first run by the interpreter, then compiled for an A100, an H100 and AMD's MI300.


# %%
@triton.jit
def matmul(a, b, out, N, K, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.arange(0, COLUMNS)[None, :]
    k = tl.arange(0, STEP)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + m * K + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * N + n)
        total += tl.dot(left, right)
    tl.store(out + m * N + n, total)


sizes = {"ROWS": 64, "COLUMNS": 64, "STEP": 32}
a, b, out = torch.randn(128, 64).half(), torch.randn(64, 64).half(), torch.empty(128, 64)
interpret(matmul, a, b, out, 64, 64, programs=2, **sizes)
torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-4, atol=1e-4)
print("the interpreter agrees with torch")

# %%
import re

INSTRUCTION = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|v_mfma)[\w.:]*")
used = {}
for chip, name in (("cuda:80", "A100"), ("cuda:90", "H100"), ("hip:gfx942", "MI300")):
    built = compile_for(chip, matmul, a, b, out, 64, 64, **sizes)
    used[chip] = set(INSTRUCTION.findall(built.texts.get("ptx") or built.texts["amdgcn"]))
    print(f"{name:6} {', '.join(used[chip])}")
assert any("wgmma" in name for name in used["cuda:90"]) and any("mma.sync" in n for n in used["cuda:80"])
assert used["hip:gfx942"], "AMD's matrix cores are used"

# %% [markdown]
# `mma.sync` is one warp's work, 16×8 results of 16 products each. `wgmma` is done by four warps together,
# with an operand straight from shared memory: 64×64 results here. A kernel whose PTX has neither, only
# `fma`, leaves most of such a chip unused. It is the first thing to look for in the code of a product.
#
# ## What this cannot tell
#
# There is no time in any of this. The interpreter is slower than any chip by far, and compiled code says
# what is executed, not how long it waits. What can be had without the chip is a bound: a kernel cannot be
# faster than its bytes at the published rate of the memory. The record of a compile for a target has that
# bound as `predicted_seconds`, with 2 µs added for the launch.

# %%
import nbcompile


def softmax_of_double(x):
    return torch.softmax(x * 2, -1)


wide = torch.randn(4096, 4096)
elsewhere = nbcompile.compile(softmax_of_double, options={"target": "cuda:90"})
elsewhere(wide)

kernel = elsewhere.compilation.kernels[0]
launch = kernel.launches[0]
moved = kernel.bytes_read + kernel.bytes_written
print(f"{kernel.schedule}: {launch.grid[0]} programs of {launch.warps} warps, {launch.registers} registers")
print(f"{moved / 1e6:.0f} MB, at least {kernel.predicted_seconds * 1e6:.0f} µs on that chip")
assert launch.spill_bytes == 0 and moved >= 2 * wide.nbytes

# %% [markdown]
# If there is a GPU, the next cell takes the time of that very function, so that you can see how near the
# bound it comes.

# %%
if torch.cuda.is_available():
    on_gpu = wide.cuda()
    compiled = nbcompile.compile(softmax_of_double)
    for _ in range(3):
        compiled(on_gpu)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        compiled(on_gpu)
    end.record()
    torch.cuda.synchronize()
    print(f"{begin.elapsed_time(end) / 20 * 1e3:.0f} µs on {torch.cuda.get_device_name()}")
else:
    print("no GPU here: the bound is all there is")

# %% [markdown]
# ## What to take along
#
# A Triton program works on a block, and a mask says which of its lanes count; a reduction counts masked
# lanes too, so choose what they hold. The interpreter finds what a GPU would pass over in silence: accesses
# outside a tensor, and races. In compiled code look at three things: 16-byte loads (`v4.b32`), no spills,
# and for products the matrix instruction of the chip. Whether loads are wide is decided by what the
# compiler can prove about sizes. Times need the chip; bounds do not.
#
# Next: notebook 10, *Modes*.

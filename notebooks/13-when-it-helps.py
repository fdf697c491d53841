# %% [markdown]
# # When it helps, and when it does not
#
# A compiler is an investment: some seconds now, some milliseconds back with each call. After this notebook
# you can say before you compile whether it is worth it, find out afterwards whether you were right,
# recognise the five ways in which it is not, and keep a gain from being lost by the next change.
#
# It takes about a minute to run, and half an hour to read with the exercises.

# %%
import inspect
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import nbcompile
from nbcompile.testing import AssertCompiles
from nbcompile.workshop import check, worth

# %load_ext nbcompile
torch._logging.set_logs(dynamo=logging.ERROR)
torch.manual_seed(0)
torch.set_num_threads(1)  # what else the machine does disturbs several threads more than one
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device, "with", torch.get_num_threads(), "threads")

# %% [markdown]
# ## One formula
#
# A compile of `C` seconds turns a call of `e` seconds into one of `c` seconds. It has paid for itself after
# `C / (e − c)` calls, the *break-even*. If `c` is not smaller than `e`, it never does. So there are three
# numbers to know, and none of them is "how many times as fast".
#
# This chain of eight pointwise operations is a compiler's best case: eager mode walks over memory eight
# times, a fused kernel once.

# %%
x = torch.randn(1 << 18, device=device)

# %%
# %%compile --compare eager,nbcompile --into first
y = torch.sin(x) * torch.exp(-x * x) + torch.tanh(x) * 0.5
y[:3]


# %%
def milliseconds(seconds):
    return f"{seconds * 1e3:.3f} ms"


def told(record):
    """The three numbers of a record, and what follows from them."""
    eager, ours, compiling = worth.figures(record)
    print(f"compile {milliseconds(compiling)}")
    print(f"a call {milliseconds(eager)} eager, {milliseconds(ours)} compiled")
    if ours < eager:
        calls = compiling / (eager - ours)
        print(f"{eager / ours:.1f} times as fast; has paid for itself after {calls:,.0f} calls")
    else:
        print("never pays for itself")
    return eager, ours, compiling


eager, ours, compiling = told(first)
assert ours < eager

# %% [markdown]
# (The view above takes the median of the calls, this cell the shortest, which a busy machine disturbs less:
# hence two break-evens. And "compiled in" is the first compile of this process, in which torch itself still
# warms up; `C` is measured afterwards, with the kernel's cache empty.)
#
# The kernel is on disk now. A second process that compiles the same code finds it there; what remains is
# Dynamo's work and AOTAutograd's, done anew in each process. That is the *warm* compile, and it has a
# break-even of its own.

# %%
warm = first.measurements[-1].warm
print(f"cold {milliseconds(compiling)}, warm {milliseconds(warm)}")
print(f"break-even after {compiling / (eager - ours):,.0f} calls cold, {warm / (eager - ours):,.0f} warm")

# %% [markdown]
# ### Exercise: predict a break-even
#
# `worth.chain` is the same function. Below it is compiled and measured with 2¹⁴ numbers; with 2²⁰ only calls
# are measured, no compile. Predict after how many calls a compile would pay for itself at 2²⁰ numbers. The
# check compiles it once more; within a factor of two is right.
#
# <details><summary>Hint</summary>
#
# Of the three numbers in the formula, which one is still missing, and does it know how large the tensor is?
#
# </details>

# %%
SMALL, LARGE = 1 << 14, 1 << 20
C, e, c = float("inf"), 0.0, 0.0
for _ in range(2):  # the shorter of two compiles
    record = nbcompile.compare(
        worth.chain, (torch.randn(SMALL),), ("eager", "nbcompile"), budget=0.3, accuracy=False
    )
    e, c, compiling = worth.figures(record)
    C = min(C, compiling)
record = nbcompile.compare(
    worth.chain, (torch.randn(LARGE),), ("eager", "nbcompile"), budget=0.5, cold=False, accuracy=False
)
e_large, c_large, _ = worth.figures(record)
print(f"{SMALL:9,} numbers: C = {milliseconds(C)}, e = {milliseconds(e)}, c = {milliseconds(c)}")
print(f"{LARGE:9,} numbers: e = {milliseconds(e_large)}, c = {milliseconds(c_large)}")
earned = f"after {C / (e - c):,.0f} calls" if c < e else "never"
print(f"break-even with {SMALL:,} numbers: {earned}")

# %% tags=["exercise"]
answer = ...  # a number of calls
check("worth.break_even", answer, record)

# %% tags=["wrong"]
answer = C / max(e - c, 1e-9)  # as if the size did not matter

# %% tags=["wrong"]
answer = LARGE / SMALL * C / (e_large - c_large)  # as if a compile took longer for a larger tensor

# %% tags=["wrong"]
answer = e_large / (e_large - c_large)  # the compile left out

# %% tags=["solution"]
answer = C / (e_large - c_large)  # the kernel is the same for every size, and so is its compile

# %% [markdown]
# ## Bound by matrix products
#
# A matrix product is a library call before and after. What a compiler can gain is the rest: if products are
# a share `p` of the time, the whole can become at most `1 / p` times as fast. This is Amdahl's law, and the
# record has what it takes to apply it, the time of each kernel and library call.

# %%
w = torch.randn(768, 768, device=device)


def layer(x):
    return torch.relu(x @ w)


record = nbcompile.compare(layer, (torch.randn(768, 768, device=device),), ("eager", "nbcompile"), budget=0.5)
product_eager, product_ours, _ = told(record)
times = worth.time_of_calls(record)
for name, seconds in times.items():
    print(f"  {milliseconds(seconds):>10}  {seconds / sum(times.values()):4.0%}  {name}")
assert next(iter(times)).startswith("aten."), "the library call takes longest"

# %% [markdown]
# The share of the product is `p`, and what stands below it is all that fusing can win, which may be less than
# timings scatter. Large linear layers and convolutions on their own are like that. A transformer in training
# is not: between its products stand normalisations, activations, casts and the optimiser.
#
# ## Tiny tensors
#
# Every call of compiled code checks its guards first: is this still the shape, the type, the device that was
# compiled for? That costs some microseconds, whatever the size. So does each operation that eager mode
# dispatches.

# %%
for size in (1 << 4, 1 << 10, 1 << 16):
    record = nbcompile.compare(
        worth.nudge, (torch.randn(size),), ("eager", "nbcompile"), budget=0.2, cold=False, accuracy=False
    )
    eager, ours, _ = worth.figures(record)
    print(f"{size:6} numbers, one operation: eager {eager * 1e6:6.1f} µs, compiled {ours * 1e6:6.1f} µs")
    if size == 16:
        assert ours > eager

# %% [markdown]
# One operation on sixteen numbers is a loss of more than its own time. The fixed cost is paid once a *call*,
# so put more into a call: compile the function that calls the small one. On a GPU `--mode reduce-overhead`
# replays a recorded graph, and takes most of the launches away too.
#
# ## Breaks, recompiles and changing shapes
#
# A graph break cuts a function in two: values that were to stay in registers are stored at the cut, and
# guards are checked twice. A recompile spends the whole of `C` again. Both are in the record.


# %%
def broken(x):
    y = torch.sin(x) * torch.exp(-x * x)
    if y.sum() > 0:
        y = y + torch.tanh(x) * 0.5
    return y


compiled = nbcompile.compile(broken)
compiled(x.abs())
compiled(-x.abs())
record = compiled.compilation
graphs = [graph for graph in record.graphs if graph.stage == "fx"]
print(f"{len(graphs)} graphs, {len(record.kernels)} kernels")
for item in record.breaks:
    print(f"line {item.spans[-1].line}: {item.reason}. {item.hint}")
assert record.breaks

# %% [markdown]
# Shapes that change are the commonest reason for a recompile. Dynamo makes a size symbolic when it changes
# for the first time, so the usual number of compiles is two. With sizes held constant it is one a size,
# until a limit of eight; then Dynamo compiles no more, and *every further size runs eagerly*.

# %%
sizes = range(1000, 1012)
for dynamic in (False, None, True):
    compiled = nbcompile.compile(worth.chain, dynamic=dynamic)
    start = time.perf_counter()
    for size in sizes:
        compiled(torch.randn(size))
    spent = time.perf_counter() - start
    made = sum(graph.stage == "fx" for graph in compiled.compilation.graphs)
    end = "compiled code ran to the end" if compiled.ran_compiled else "it ended running eagerly"
    print(f"dynamic={dynamic!s:5}  {len(sizes)} sizes, {made} compiles, {spent:.2f} s; {end}")
    if dynamic is False:
        assert made == 8 and not compiled.ran_compiled
    if dynamic:
        assert made == 1 and compiled.ran_compiled

# %% [markdown]
# ### Exercise: few sizes for many lengths
#
# Where sizes must be constants (CUDA graphs want them so), lengths are padded. Write `size_for(length)` for
# lengths from 16 to 128: the size to which a text of this length is padded. The twelve lengths of the check
# may take four compiles at most, and no length may be padded to more than twice itself.

# %% tags=["exercise"]
size_for = ...  # def size_for(length): ...
check("worth.lengths", size_for)


# %% tags=["wrong"]
def size_for(length):
    return 128


# %% tags=["wrong"]
def size_for(length):
    return length + -length % 8  # to the next multiple of eight


# %% tags=["wrong"]
def size_for(length):
    return 1 << length.bit_length() - 1


# %% tags=["solution"]
def size_for(length):
    return 1 << (length - 1).bit_length()  # the next power of two


# %% [markdown]
# ### Exercise: compile it, or not
#
# Four workloads, each a function with its inputs and the number of calls in the life of its process. Say of
# each whether compiling is worth it: whether all calls, the compile with empty caches included, take at most
# two thirds of the time that they take eagerly. The check measures all of them.

# %%
for name, work in worth.workloads().items():
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in work.inputs)
    what = (work.fn.__doc__ or "x + 1").partition(":")[0]
    print(f"{name:18} {work.calls:7,} calls of {work.fn.__name__} on {shapes}: {what}")

# %% tags=["exercise"]
answer = ...  # {"chain in a server": ..., "chain in a script": ..., "product": ..., "tiny": ...}
check("worth.choose", answer)

# %% tags=["wrong"]
answer = dict.fromkeys(worth.workloads(), True)

# %% tags=["wrong"]
answer = {"chain in a server": True, "chain in a script": True, "product": False, "tiny": False}

# %% tags=["wrong"]
answer = {"chain in a server": True, "chain in a script": False, "product": False, "tiny": True}

# %% tags=["solution"]
answer = {"chain in a server": True, "chain in a script": False, "product": False, "tiny": False}

# %% [markdown]
# ## A sweep, and its advice
#
# Where one formula is not enough, measure. `nbcompile.compare` with a grid runs a function at every
# combination, each beside eager and on inputs of its own.

# %%
found = nbcompile.compare(
    worth.chain,
    lambda n: (torch.randn(n),),
    {"backend": ["eager", "nbcompile"], "n": [64, 16_384, 1 << 20]},
    budget=0.3,
    progress=lambda text: None,
)
found.table()[["backend", "n", "cold", "steady", "speedup", "status"]]

# %%
print(found.advice())
assert all(row["status"] == "ok" for row in found.rows())

# %% [markdown]
# The sentence calls a tie a tie and counts only points that agree with eager; where it recommends a compiler,
# it says after how many calls the compile is paid for. Add `"inductor"`, a `"dtype"` or a `"mode"` to the
# grid, and it decides between those as well.
#
# ### Exercise: find the bottleneck
#
# `worth.report` gains next to nothing from being compiled. Which of its operations takes the time? Name one
# of matmul, tanh, softmax, sort, cumsum, sum.

# %%
print(inspect.getsource(worth.report))
record = nbcompile.compare(worth.report, worth.report_inputs(), ("eager", "nbcompile"), budget=0.5)
eager, ours, _ = worth.figures(record)
print(f"{eager / ours:.2f} times as fast as eager")

# %% tags=["exercise"]
answer = ...  # "matmul", "tanh", ...
check("worth.bottleneck", answer)

# %% tags=["wrong"]
answer = "matmul"

# %% tags=["wrong"]
answer = "softmax"

# %% tags=["solution"]
longest = next(iter(worth.time_of_calls(record)))
print(worth.time_of_calls(record))
answer = longest.removeprefix("aten.")

# %% [markdown]
# ## Keeping what was gained
#
# A gain is lost without anybody noticing: a print, a branch on a value, a view that is no longer contiguous.
# The results stay right, only slower. So hold a program to how it compiles, as you hold it to its results.
# In pytest there is a fixture `assert_compiles`; here we call it by hand.


# %%
def softmax(x):
    return torch.softmax(x, -1) * 2


def softmax_with_a_check(x):
    y = torch.softmax(x, -1)
    if y.isnan().any():
        raise ValueError("not a number")
    return y * 2


assert_compiles = AssertCompiles()
assert_compiles(softmax, torch.randn(64, 512), breaks=0, kernels="<=1")
print("softmax: one kernel, no break")
try:
    assert_compiles(softmax_with_a_check, torch.randn(64, 512), breaks=0, kernels="<=1")
except AssertionError as error:
    print("softmax_with_a_check:", error)
else:
    raise AssertionError("the check was to be noticed")

# %% [markdown]
# For times there is the command line. A *suite* is a file of programs; `nbcompile bench` runs each in a
# process of its own and saves records and times, `nbcompile diff` holds two such files against each other,
# and exits with 1 if something got worse. A time only counts as worse beyond the noise of several processes;
# a lost fusion always counts.

# %%
SUITE = """
import torch, nbcompile

@nbcompile.case
def softmax():
    {body}
    return f, (torch.randn(64, 512),)
"""
BEFORE = "f = lambda x: torch.softmax(x, -1) * 2"
AFTER = "f = lambda x: torch.sort(torch.softmax(x, -1)).values * 2"


def command(*arguments):  # in the suite's folder
    run = subprocess.run(
        [sys.executable, "-m", "nbcompile", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, run.stdout


with tempfile.TemporaryDirectory() as folder:
    suite = Path(folder, "suite.py")
    for name, body in (("before", BEFORE), ("after", AFTER)):
        suite.write_text(SUITE.format(body=body))
        status, text = command(
            "bench", suite.name, "--save", f"{name}.json", "--repeat", "1", "--budget", "0.1"
        )
        assert status == 0, text
    status, text = command("diff", "before.json", "after.json")
print(text)
print("exit status", status)
assert status == 1

# %% [markdown]
# ## What to take along
#
# Compiling pays after `C / (e − c)` calls, so ask how often a function is called before you ask how fast it
# gets. What is bound by matrix products, works on tiny tensors, or is called three times gains nothing.
# Breaks, recompiles and shapes that change spend the gain, and the record names each with its line. When in
# doubt measure a few points and take the sentence; and once it is fast, let a test say so when it no longer
# is.
#
# Next: notebook 14, *Export*, for programs that should start fast too.

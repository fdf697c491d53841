# %% [markdown]
# # Modes
#
# `torch.compile(model, mode="max-autotune")` sounds as if there were a dial from slow to fast. There is
# none. A mode is a name for a few **switches**, each of which trades something: time to compile, memory, or
# freedom in how the program may use its tensors. Whether a switch helps depends on the program, and it can
# make things worse.
#
# After this notebook you know what `default`, `reduce-overhead` and `max-autotune` switch on, what CUDA
# graphs remove and what they demand, what a search costs, and after how many calls it has paid for itself.
# It takes about forty minutes with its five exercises; the cells themselves run in under a minute. Most
# modes matter on a GPU only. Where there is none, the notebook shows what can be shown without, and quotes
# measured figures with their source.

# %%
import math
import time

import torch
from torch import nn

import nbcompile
from nbcompile.errors import OptionError
from nbcompile.workshop import check
from nbcompile.workshop.modes import FIGURES, launches

# %load_ext nbcompile
torch.manual_seed(0)
has_gpu = torch.cuda.is_available()
device = "cuda" if has_gpu else "cpu"
print("torch", torch.__version__, "on", torch.cuda.get_device_name() if has_gpu else "the CPU")

# %% [markdown]
# ## A mode is a few switches
#
# Any backend can be asked what its modes set. Here are ours, and Inductor's (without `lite`, in which it
# compiles only what is marked for it):

# %%
for backend in ("nbcompile", "inductor"):
    print(backend)
    for mode, switches in nbcompile.list_mode_options(None, backend).items():
        if mode != "lite":
            print(
                f"   {mode:27}", ", ".join(f"{name}={value}" for name, value in switches.items()) or "nothing"
            )

# %% [markdown]
# Two ideas, in all combinations. **Replay** (`triton.cudagraphs`) makes starting the kernels cheap.
# **Search** (`max_autotune`, and `coordinate_descent_tuning`, which goes on from the best it found) tries
# several versions of each kernel and keeps the fastest. The rest of this notebook is about these two. The
# default has neither.
#
# ## Options
#
# Below the modes are options, one value each. They go to `torch.compile(options={...})`, or behind `-o` in
# a cell. All of them are listed by `%compile --list-options`, with a pattern if there are many:

# %%
# %compile --list-options --backend inductor coordinate_descent*

# %%
for backend in ("nbcompile", "inductor"):
    print(f"{backend}: {len(nbcompile.list_options(backend))} options")

# %% [markdown]
# An option that a backend does not have is refused, with the nearest names. That matters more than it
# seems: an option misspelt and ignored is an experiment that shows "no difference".

# %%
refused = None
try:
    nbcompile.list_options("inductor").check(["triton.cudagraph"])
except OptionError as error:
    refused = str(error)
print(refused)
assert refused is not None and "triton.cudagraphs" in refused

# %% [markdown]
# ### Exercise: a mode spelt out
#
# `torch.compile` takes a mode or options, not both. Suppose you want Inductor's `reduce-overhead` and an
# option of your own besides: then the mode has to be written as options. Write those, without your own.

# %% tags=["exercise"]
answer = ...  # a dict

check("modes.option", answer)

# %% tags=["wrong"]
answer = {"cudagraphs": True}

# %% tags=["wrong"]
answer = {"triton.cudagraphs": True, "max_autotune": True}

# %% tags=["wrong"]
answer = {"triton.cudagraphs": False}

# %% tags=["solution"]
answer = {"triton.cudagraphs": True}

# %% [markdown]
# ## What a mode really changes, for this cell
#
# A mode's name does not say what it does to *your* program. `--mode-diff` compiles the cell in several
# modes and shows what differs: options, kernels, choices, whether graphs were replayed, and why not.

# %%
x = torch.randn(64, 256, device=device)
weight = torch.randn(256, 256, device=device) / 16

# %%
# %%compile --no-bench --mode-diff reduce-overhead,max-autotune
y = torch.nn.functional.gelu(x @ weight)

# %%
differences = nbcompile.mode_diff(
    lambda x: torch.nn.functional.gelu(x @ weight), (x,), ("default", "reduce-overhead"), timing=False
)
print(differences["reduce-overhead"].replayed)
if not has_gpu:
    assert differences["reduce-overhead"].replayed.startswith("no")
    assert not differences.kernels("reduce-overhead")

# %% [markdown]
# On a CPU both modes change nothing here: no launches to save, and no search. That is the honest answer,
# and worth knowing before a mode is left in a script for good luck.
#
# ## What a launch costs
#
# To start a kernel, Python finds the operator, a result is allocated, arguments are packed, and the driver
# puts the kernel into a queue. That takes microseconds, whatever the size of the tensors. Eager on a CPU
# has the same kind of floor. Measure one operator on fewer and fewer elements:

# %%


def microseconds(fn, repeats=50):
    fn()
    best = math.inf
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(repeats):
            fn()
        if has_gpu:
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - started) / repeats)
    return best * 1e6


costs = {}
for size in (100_000, 10_000, 1_000, 100, 1):
    values, result = torch.randn(size, device=device), torch.empty(size, device=device)
    costs[size] = microseconds(lambda values=values, result=result: torch.add(values, 1, out=result))
    print(f"{size:>9,} elements {costs[size]:8.2f} µs")
assert costs[1] > costs[100] / 4, "below some size, smaller is not faster"

# %% [markdown]
# Below some thousand elements the time hardly falls. What remains is overhead, paid once for each operator.
# A network of many small operators consists of it. Such a network is this one, which also stands in the
# table of figures further down:

# %%
net = nn.Sequential(*[nn.Sequential(nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(8)])
batch = torch.randn(32, 128)
with torch.no_grad():
    print(net(batch).shape)

# %% [markdown]
# ### Exercise: count the launches
#
# How many launches does one call of `net` make on a GPU: eagerly, compiled by nbcompile in the default mode
# (matrix products are library calls), and replayed as one CUDA graph? Count a linear layer's product, its
# bias included, as one launch. The checker runs the first and compiles the second for an H100.

# %% tags=["exercise"]
answer = {"eager": ..., "default": ..., "replayed": ...}

check("modes.launches", answer, net, batch)

# %% tags=["wrong"]
answer = {"eager": 24, "default": 8, "replayed": 1}

# %% tags=["wrong"]
answer = {"eager": 24, "default": 16, "replayed": 16}

# %% tags=["wrong"]
answer = {"eager": 8, "default": 1, "replayed": 1}

# %% tags=["solution"]
answer = {"eager": 8 * 3, "default": 8 * 2, "replayed": 1}

# %% [markdown]
# ## What a graph demands
#
# A **CUDA graph** is a recording of launches: which kernels, with which arguments, in which order.
# Replaying it is one call to the driver. Arguments are *addresses*. Everything that a graph demands follows
# from that one word.
#
# A recording can be made on a CPU too, if only to see what it means. This one notes each operator with the
# tensors it read and the memory it wrote, and replays it into the same memory. It has the rules of a CUDA
# graph, though none of its speed.

# %%
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


class Recording(TorchDispatchMode):
    def __init__(self, fn, *inputs):
        super().__init__()
        self.steps = []
        with self, torch.no_grad():
            self.result = fn(*inputs)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        for func, args, kwargs, out in self.steps:
            if not func.is_view:  # a view is the same memory, so there is nothing to do again
                tree_map(lambda old, new: old.copy_(new), out, func(*args, **kwargs))
        return self.result


def double_and_sum(x):
    print("Python runs")
    return (x * 2).sum()


static = torch.tensor([1.0, 2.0, 3.0])
recording = Recording(double_and_sum, static)
print("recorded:", recording.result.item(), "with", len(recording.steps), "steps")
print("replayed:", recording.replay().item())

# %% [markdown]
# The first demand: **no Python**. The function printed when it was recorded and is silent now. A branch, a
# counter, a `print`, an `.item()` happen once. (`.item()` would also have to wait for the GPU, so capturing
# it is an error.)
#
# The second: **the same addresses**. The replay reads the memory of `static`. A new tensor is simply not
# seen. To give the graph other numbers, they have to be copied to where it looks:

# %%
fresh = torch.tensor([10.0, 20.0, 30.0])
print("not copied:", recording.replay().item())
static.copy_(fresh)
print("copied:    ", recording.replay().item())
assert recording.replay().item() == 120

# %% [markdown]
# The same holds for sizes: a graph has one set of them, so each new size is a new recording (notebook 11
# says how to have few).
#
# The third: **results live in the graph's memory**, and the next replay overwrites them.
#
# ### Exercise: three results
#
# What does this function return? Replace the dots by three lists.


# %% tags=["exercise"]
def story():
    source = torch.tensor([1.0, 2.0])
    recording = Recording(lambda x: x * 10, source)
    a = recording.result
    source.copy_(torch.tensor([3.0, 4.0]))
    b = recording.replay()
    source = torch.tensor([5.0, 6.0])
    c = recording.replay()
    return [a.tolist(), b.tolist(), c.tolist()]


answer = [..., ..., ...]

check("modes.replay", answer, story)

# %% tags=["wrong"]
answer = [[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]

# %% tags=["wrong"]
answer = [[10.0, 20.0], [30.0, 40.0], [30.0, 40.0]]

# %% tags=["wrong"]
answer = [[50.0, 60.0], [50.0, 60.0], [50.0, 60.0]]

# %% tags=["solution"]
answer = [[30.0, 40.0], [30.0, 40.0], [30.0, 40.0]]

# %% [markdown]
# A compiler that promises to leave the meaning of a program alone has to work around all three. Inductor
# copies each input that is no parameter into the graph's memory, and raises an error if a result is read
# after it was overwritten. nbcompile replays a graph only while nobody holds its results, and changes the
# addresses inside the graph rather than copy a large input. Both say so when a graph cannot be replayed at
# all.
#
# ## Figures
#
# These were measured on one H200 with torch 2.11, on 2026-11-21. They are quoted from
# `docs/gpu-backends.md`, which has the spreads, other backends, and the command that made them. They are
# not of this machine. Of nbcompile's `max-autotune` the seconds are those until its first result; its search
# comes after that (more on this below).

# %%
for program, rows in FIGURES.items():
    print(program)
    for contestant, (call, cold) in rows.items():
        print(f"   {contestant:38} {call:6.1f} µs a call   {cold:6.2f} s to compile")

# %% [markdown]
# Look at the second program, which is `net`. With nbcompile, fusion alone takes off a third of eager's time;
# the graph takes off more than half of what is left. For each launch that is a saving of

# %%
small = FIGURES["8 × (linear, layer_norm, gelu) f32 32×128"]
saved = small["nbcompile:default"][0] - small["nbcompile:reduce-overhead"][0]
per_launch = saved / launches(net, batch)["default"]
print(f"{saved:.0f} µs in all, {per_launch:.1f} µs for each of {launches(net, batch)['default']} launches")

# %% [markdown]
# Now look at the first, a softmax of one large tensor. There is a single launch, so there is nothing to
# save. And yet Inductor takes far longer with a graph (`reduce-overhead`) than without (`default`).
#
# ### Exercise: what the graph adds
#
# The input has 8192 × 8192 elements of bfloat16, and is no parameter. How many megabytes (10⁶ bytes) pass
# through memory because of the way in which Inductor's graph takes its input, in addition to the softmax?

# %% tags=["exercise"]
answer = ...

check("modes.copy", answer, 8192, 8192)

# %% tags=["wrong"]
answer = 134.2

# %% tags=["wrong"]
answer = 67.1

# %% tags=["wrong"]
answer = 512

# %% tags=["solution"]
answer = 2 * 8192 * 8192 * 2 / 1e6  # read once, written once, two bytes an element

# %% [markdown]
# So `reduce-overhead` is for programs of many small launches whose inputs are small beside their
# parameters, which stay where they are.
#
# ## What a search is
#
# How large should a block be, with how many warps? Rules of thumb are right most of the time.
# `max-autotune` measures instead: it compiles several candidates, runs each, and keeps the fastest.
# Anything with a parameter can be tuned like that. Here is a search on this machine, over the rows that a
# chain of operators takes at a time. Small pieces stay in the cache from one operator to the next; too
# small ones pay the overhead of above.

# %%
data = torch.randn(2048, 1024, device=device)
target = torch.empty_like(data)


def chain(rows):
    for part, out in zip(data.split(rows), target.split(rows)):
        torch.mul(part, 2, out=out)
        out.add_(1).clamp_(min=0).mul_(0.5)


candidates = (2048, 512, 128, 32, 8, 2)
samples = {rows: [] for rows in candidates}
threads = torch.get_num_threads()
torch.set_num_threads(1)
started = time.perf_counter()
for _ in range(7):  # in turns, so that a busy moment hits all of them alike
    for rows in candidates:
        samples[rows].append(microseconds(lambda rows=rows: chain(rows), repeats=1))
searching = time.perf_counter() - started
torch.set_num_threads(threads)

medians = {rows: sorted(found)[len(found) // 2] for rows, found in samples.items()}
best = min(medians, key=medians.get)
for rows, median in medians.items():
    print(f"{rows:5} rows at a time {median / 1e3:7.2f} ms{'  chosen' if rows == best else ''}")
print(f"the search took {searching:.1f} s")
gain = (medians[2048] - medians[best]) * 1e-6
print(f"paid for after {searching / gain:,.0f} calls" if gain > 0 else "nothing was gained")

# %% [markdown]
# All the questions of a real search are here. Candidates take turns, and one thread is used, because
# machines have moods: other programs run beside this one. The result holds for these sizes only. And the
# search has a price, which only later calls can earn back.
#
# The two compilers pay it differently. Inductor searches while it compiles: the first call waits. nbcompile
# answers the first call with its first choice and measures afterwards on your own data, for at most
# `--autotune-seconds` a graph (30 by default). What either tried is in the record, `record.autotune`, one
# row a candidate. On a GPU, the next cell shows it.

# %%
searched = nbcompile.compile(lambda x: torch.softmax(x, -1), mode="max-autotune")
rows = torch.randn(4096, 8192 if has_gpu else 64, device=device)
for _ in range(4):
    searched(rows)
tried = searched.compilation.autotune
for choice in tried:
    took = "failed" if choice.seconds is None else f"{choice.seconds * 1e6:7.1f} µs"
    print(f"{choice.kernel:12} {choice.candidate:50} {took} {'chosen' if choice.chosen else ''}")
print(f"{len(tried)} candidates measured" + ("" if has_gpu else ": on a CPU there is nothing to search"))
assert has_gpu or not tried

# %% [markdown]
# ### Exercise: when it pays
#
# Write a function that says after how many calls another mode has caught up with the default: the total of
# compile and calls is no longer the larger one. Times are in seconds. It returns 0 if the other mode is
# ahead from the start, and `math.inf` if it never catches up. The checker tries it on the figures above.

# %% tags=["exercise"]


def calls_to_pay(cold, call, other_cold, other_call): ...


check("modes.payback", calls_to_pay)

# %% tags=["wrong"]


def calls_to_pay(cold, call, other_cold, other_call):
    return other_cold / call


# %% tags=["wrong"]


def calls_to_pay(cold, call, other_cold, other_call):
    return (other_cold - cold) / (call - other_call)


# %% tags=["wrong"]


def calls_to_pay(cold, call, other_cold, other_call):
    return max(0, (other_cold - cold) / (call - other_call))


# %% tags=["solution"]


def calls_to_pay(cold, call, other_cold, other_call):
    if other_call >= call:
        return math.inf
    return max(0, (other_cold - cold) / (call - other_call))


# %% [markdown]
# Put the transformer layer's figures in: Inductor's `max-autotune` compiles for 43 s rather than 2.6, and
# saves 89 µs a call. That is some 450,000 calls: nothing for a server, a lot for an afternoon in a
# notebook. `max-autotune-no-cudagraphs` took longer still to compile, and its calls were slower than the
# default's. A mode is a hypothesis.
#
# ## How to choose
#
# 1. Measure the default first. Often it is enough.
# 2. If the GPU waits for Python (many launches of a few microseconds), try `reduce-overhead`. Look whether
#    graphs are replayed, and whether large inputs move.
# 3. If single kernels take most of the time and the program will run for hours, try `max-autotune`, or its
#    variant without graphs.
# 4. Keep a mode only if `--mode-diff` shows a difference in what runs, and the times agree.
#
# Several modes are compared on one cell by `%%compile --mode default,reduce-overhead,max-autotune`, and in
# Python by `nbcompile.compare(f, make_inputs, {"mode": [...]})`.
#
# ## What to take along
#
# A mode is a name for two ideas, replay and search. A replayed graph starts all its kernels at once, and
# demands the same addresses, the same sizes and no Python in between; with large inputs that move it may
# cost more than it saves. A search makes single kernels faster by a little, and its price is paid before
# the gain begins. On a CPU nbcompile's modes change nothing. Ask `--mode-diff` what a mode does to your
# program, and keep it only if the answer is good.
#
# Next: notebook 11, *Dynamic shapes*.

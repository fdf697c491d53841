# %% [markdown]
# # Export
#
# `torch.compile` works in the process that has your source, when it is first called. Export works once, on
# your machine, and makes a file; another process loads it, without your source and without a compile. After
# this notebook you can export a model with sizes that may change, mend what cannot be exported, make a file
# of machine code, and say with your own model's figures when to export and when to compile.
#
# It takes about a minute to run, half of it in one cell, and about half an hour to read with the exercises.

# %%
import inspect
import os
import subprocess
import sys
import tempfile

import torch
from torch import nn

import nbcompile
from nbcompile.errors import ExportError
from nbcompile.workshop import check, export

# %load_ext nbcompile
torch.manual_seed(0)
torch.set_num_threads(1)  # a model this small is served by one
device = "cuda" if torch.cuda.is_available() else "cpu"
home, folder = os.getcwd(), tempfile.TemporaryDirectory()
os.chdir(folder.name)
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## A file
#
# The model is a small network that scores rows of 64 numbers.


# %%
class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 10)
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        return torch.softmax(self.down(nn.functional.gelu(self.up(self.norm(x)))), -1)


model = Scorer().to(device).eval()
x = torch.randn(8, 64, device=device)
exported = torch.export.export(model, (x,))
for node in exported.graph.nodes:
    if node.op == "call_function":
        print(f"{node.name:12} {node.target!s:28} {tuple(node.meta['val'].shape)}")

# %% [markdown]
# This is all that is exported: a list of tensor operations, with shapes, and the parameters beside it. There
# is no Python left in it. What was Python when the model was traced (branches, loops, attributes, prints)
# has either been turned into operations or is gone.
#
# The shapes have an 8 in them. It came from the example input, and it is now part of the program.

# %%
fixed = exported.module()
print("8 rows:", tuple(fixed(torch.randn(8, 64, device=device)).shape))
try:
    fixed(torch.randn(9, 64, device=device))
except Exception as error:
    print("9 rows:", type(error).__name__, str(error).splitlines()[0])
else:
    raise AssertionError("a size was to be fixed")

# %% [markdown]
# ## Sizes that may change
#
# A dimension that may change is *named*. The export then carries a symbol where the 8 was, and proves for
# each operation that it works for every value. With `nbcompile` one writes the parameter, the axis and the
# name, and if need be the least and the largest size:
#
# `%compile --export model.pt2 --dynamic-dim x[0]=batch:1:64 model(x)`
#
# The same from Python is `nbcompile.export`, which returns the report as a value. It saves the file, runs it
# in a fresh process, compares the answers with eager and float64 at two sizes, and holds the file beside the
# same model compiled here.

# %%
report = nbcompile.export(
    model, (x,), "model.pt2", dynamic={"x": {0: ("batch", 1, 64)}}, compilers=("nbcompile",), budget=0.3
)
assert report.agrees
report

# %% [markdown]
# A name means two things. One name is one size: two inputs whose first dimension is called `batch` must
# agree in it, and the file checks that. And a name is a promise that no line of the model depends on the
# number. If one does, the export fails and says which.

# %% [markdown]
# One oddity is worth knowing. torch.export takes for granted that a named size is 2 or more, because sizes
# of 0 and 1 behave differently (they broadcast). But it does not *check* a least size of 2: a file exported
# with `batch:2:32` takes one row, if the operations do.

# %%
rows = torch.export.Dim("batch", min=2, max=32)
from_two = torch.export.export(nn.Linear(16, 4), (torch.randn(8, 16),), dynamic_shapes={"input": {0: rows}})
print("min=2, one row:", tuple(from_two.module()(torch.randn(1, 16)).shape))

# %% [markdown]
# ### Exercise: which sizes does it take
#
# `nn.Linear(16, 4)` is exported with an input of 8 × 16 and the named dimension `input[0]=batch:4:32`. Which
# of these inputs does the file take?

# %% tags=["exercise"]
answer = ...  # {(3, 16): ..., (4, 16): ..., (32, 16): ..., (33, 16): ..., (8, 17): ...}, True or False
check("export.sizes", answer)

# %% tags=["wrong"]
answer = {(3, 16): True, (4, 16): True, (32, 16): True, (33, 16): True, (8, 17): False}

# %% tags=["wrong"]
answer = {(3, 16): False, (4, 16): True, (32, 16): True, (33, 16): False, (8, 17): True}

# %% tags=["solution"]
linear = nn.Linear(16, 4)
rows = torch.export.Dim("batch", min=4, max=32)
made = torch.export.export(linear, (torch.randn(8, 16),), dynamic_shapes={"input": {0: rows}}).module()
answer = {}
for size in [(3, 16), (4, 16), (32, 16), (33, 16), (8, 17)]:
    try:
        made(torch.randn(size))
        answer[size] = True
    except Exception:
        answer[size] = False

# %% [markdown]
# ### Exercise: name the dimensions
#
# `export.Mixer` has two inputs, `query` of batch × 16 and `keys` of batch × length × 16. Write the argument
# `dynamic` for `nbcompile.export` so that the file takes batches from 1 to 64 and lengths from 1 to 128, and
# nothing beyond. It is exported with 8 × 16 and 8 × 10 × 16.
#
# <details><summary>Hint</summary>
#
# What is one size has one name, wherever it stands.
#
# </details>

# %%
print(inspect.getsource(export.Mixer))

# %% tags=["exercise"]
answer = ...  # {"query": {0: ...}, "keys": {...}}
check("export.dims", answer)

# %% tags=["wrong"]
answer = {"query": {0: ("batch", 1, 64)}}

# %% tags=["wrong"]
answer = {"query": {0: ("queries", 1, 64)}, "keys": {0: ("keys", 1, 64), 1: ("length", 1, 128)}}

# %% tags=["wrong"]
answer = {"query": {0: "batch"}, "keys": {0: "batch", 1: "length"}}

# %% tags=["solution"]
batch = ("batch", 1, 64)
answer = {"query": {0: batch}, "keys": {0: batch, 1: ("length", 1, 128)}}

# %% [markdown]
# ## What blocks an export
#
# `torch.compile` may stop at a line that it cannot capture, run it in Python and go on: a graph break. A
# file has no Python to go back to, so for an export each such line is an error. nbcompile lists all of them
# at once, with the lines, and not only the first.


# %%
class Blocked(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        if y.max() > 3:
            y = y / y.max()
        count = int((y > 0).sum())
        return y, count


try:
    nbcompile.export(Blocked(), (x,), "blocked.pt2", dynamic={"x": {0: "batch"}}, compilers=())
except ExportError as error:
    for blocker in error.blockers:
        print(f"line {blocker.spans[-1].line}: {blocker.reason}")
        print(f"         {blocker.hint}")
    assert len(error.blockers) == 2
else:
    raise AssertionError("this was not to be exported")

# %% [markdown]
# Both lines turn a tensor into a Python value, and Python decides by it. There are three ways out. Compute
# both sides and choose with `torch.where`: right for cheap sides. Keep both sides as graphs and choose when
# it runs, with `torch.cond`: right for expensive ones. Or leave the value a tensor: `(y > 0).sum()` is a
# fine result without `int`.
#
# ### Exercise: mend it
#
# `export.Limiter` cannot be exported. Write a class `Mended(export.Limiter)` with a `forward` that does the
# same and can be.

# %%
print(inspect.getsource(export.Limiter))

# %% tags=["exercise"]
Mended = ...  # class Mended(export.Limiter): ...
check("export.mend", Mended)


# %% tags=["wrong"]
class Mended(export.Limiter):
    def forward(self, x):
        h = self.score(x)
        return h / h.norm()


# %% tags=["wrong"]
class Mended(export.Limiter):
    def forward(self, x):
        h = self.score(x)
        return h / max(1.0, h.norm().item())


# %% tags=["wrong"]
class Mended(export.Limiter):
    def forward(self, x):
        return self.score(x)


# %% tags=["solution"]
class Mended(export.Limiter):
    def forward(self, x):
        h = self.score(x)
        return h / h.norm().clamp(min=1)


# %% [markdown]
# ## What is baked in without a word
#
# Worse than what blocks an export is what does not. A Python number that the model reads is written into the
# graph as the constant that it was. So is the outcome of `if self.training`: a model exported in training
# mode drops out for ever. `eval()` comes before export.
#
# ### Exercise: what does the file say
#
# `export.Scaled` is exported with `scale` 2.0 and `offset` 0. Then we set `scale` to 10 and fill `offset`
# with 5, and call the file three times with ones. What does each element of the result equal, and how often
# is "called" printed by these three calls?

# %%
print(inspect.getsource(export.Scaled))

# %% tags=["exercise"]
answer = ...  # {"result": ..., "printed": ...}
check("export.baked", answer)

# %% tags=["wrong"]
answer = {"result": 15.0, "printed": 3}

# %% tags=["wrong"]
answer = {"result": 7.0, "printed": 0}

# %% tags=["wrong"]
answer = {"result": 2.0, "printed": 3}

# %% tags=["solution"]
answer = {"result": 2.0, "printed": 0}

# %% [markdown]
# ## Machine code in a file
#
# A `.pt2` file of `torch.export` is a graph: loading it is quick, and its operations are run by ATen one by
# one, as in eager mode, after a check of its inputs' sizes. So a call is no faster than eager's, and with a
# model as small as this the check shows. AOTInductor goes on. It compiles the graph with Inductor to C++ or
# Triton, builds a shared library, and packs that with the parameters. It needs a C++ compiler when it is
# built, and none when it runs. Building takes its time, even for a model of this size, so we do it once.

# %%
try:
    compiled_file = nbcompile.export(
        model, (x,), "compiled.pt2", dynamic={"x": {0: ("batch", 1, 64)}}, package="aoti", budget=0.5
    )
except ExportError as error:
    compiled_file = None  # no C++ compiler here: what follows goes on without it
    print(error)
compiled_file

# %% [markdown]
# The table has two kinds of rows. *In a fresh process* is what a new process has to wait for: loading, and
# the first call. *Here* is the file, eager and the compiler taking turns in this process, which is the only
# fair way to hold the time of one call against another.

# %%
if compiled_file is not None:
    assert compiled_file.agrees
    ready = compiled_file.load + compiled_file.first
    (own,) = [item for item in compiled_file.in_turns if item.contestant == "nbcompile"]
    print(f"built in {compiled_file.build:.1f} s, once")
    print(f"the file: a first result after {ready * 1e3:.0f} ms")
    print(
        f"compiled: after {own.cold * 1e3:.0f} ms with empty caches, {own.warm * 1e3:.0f} ms with full ones"
    )
    print(f"size: {report.bytes / 1e3:.0f} kB as a graph, {compiled_file.bytes / 1e3:.0f} kB with code")
    assert ready < own.cold

# %% [markdown]
# ## A process of its own
#
# This is what deployment looks like. The program below is all that the new process has: no class `Scorer`,
# no nbcompile.

# %%
PROGRAM = """
import sys, time
begun = time.perf_counter()
import torch
if sys.argv[2] == "pt2":
    from torch.export import load
else:
    from torch._inductor import aoti_load_package as load
start = time.perf_counter()
model = load(sys.argv[1])
if sys.argv[2] == "pt2":
    model = model.module()
loaded = time.perf_counter()
for rows in (1, 64, 65):
    x = torch.ones(rows, 64, device=sys.argv[3])
    try:
        print(rows, "rows:", tuple(model(x).shape))
    except Exception as error:
        print(rows, "rows:", type(error).__name__, str(error).strip().splitlines()[0][:100])
print(f"imports {start - begun:.1f} s, load {loaded - start:.2f} s; Scorer known: {'Scorer' in globals()}; "
      f"nbcompile imported: {'nbcompile' in sys.modules}")
"""
files = [("model.pt2", "pt2")] + ([("compiled.pt2", "aoti")] if compiled_file is not None else [])
for path, package in files:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, package, device], capture_output=True, text=True, check=True
    )
    print(f"{path}\n{run.stdout}")
    assert "1 rows: (1, 10)" in run.stdout and "64 rows: (64, 10)" in run.stdout

# %% [markdown]
# Two things in these lines are worth a look. The seconds are imports, torch's own and those that it makes
# when it first loads a file; the reports above leave them out on all sides, and no file helps there. And
# compare what becomes of 65 rows: the file of `torch.export` checks the bounds that it was given.
# AOTInductor leaves such checks out unless it is told otherwise, so a server in front of it has to check.
#
# ## Export or compile
#
# Each report above ends with an advice, made of this model's own figures, and its second table has what the
# figures do not say. A file has the sizes that you named, one kind of device, no gradients (in the
# AOTInductor form), and the Python of the day on which it was exported. A compile adapts to what comes, and
# costs each new process its start. Serving a finished model many times over: a file. Training, research, and
# whatever changes weekly: compile.

# %%
os.chdir(home)
folder.cleanup()

# %% [markdown]
# ## What to take along
#
# An export is a list of tensor operations with shapes; what was Python is gone, and what was a number is a
# constant. Name each dimension that may change, with its bounds, and give one size one name. What blocks an
# export is a tensor that becomes a Python value, and `torch.where`, `torch.cond` or leaving it a tensor
# mends it. AOTInductor's file starts in milliseconds and needs no compiler where it runs; it is built
# slowly, once. Try each file in a fresh process before you ship it, at other sizes than the one exported.
#
# Next: notebook 15, *The other compilers*: what other ways of capturing bake in.

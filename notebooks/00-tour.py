# %% [markdown]
# # A tour in ten minutes
#
# `torch.compile` takes a Python function and gives back a faster one. In between it does something, and
# usually one does not see what. This workshop is about that: eighteen notebooks in which you look at each
# step, change it, and in the end build a small compiler yourself.
#
# After this first one you can put a cell through the compiler and read what it says about it, and you know
# which notebook answers which question. You need to know PyTorch, and nothing about compilers. There is
# nothing to download, no GPU is needed, and all cells together run in about a minute.

# %%
import importlib.util

import torch
import torch.nn.functional as F
from IPython.display import HTML

import nbcompile
from nbcompile.record.provenance import Links
from nbcompile.workshop import check
from nbcompile.workshop.tour import PICTURE

# %load_ext nbcompile
torch.manual_seed(0)
torch.set_num_threads(1)  # what else the machine does disturbs the times of one thread least
device = "cuda" if torch.cuda.is_available() else "cpu"
print(f"nbcompile {nbcompile.__version__}, torch {torch.__version__}, tensors on {device}")

# %% [markdown]
# ## 1. One picture
#
# Eager PyTorch runs a program one operation at a time. Each reads its inputs from memory and writes its
# result to memory before the next one begins. A compiler is told about several operations before any of
# them runs. So it can arrange that a result which only the next operation needs never goes to memory.
#
# To get there it rewrites the program four times. Each form says the same thing, closer to the machine:

# %%
PICTURE

# %% [markdown]
# - **Capture** finds out which tensor operations your Python performs, and writes them down as a graph.
# - **Lowering** writes each operation as loops over elements. A matrix product is left to PyTorch's
#   library.
# - **Fusion** decides which loops share a kernel.
# - **Code generation** writes the kernels, in C for a CPU and in Triton for a GPU, and a compiler of that
#   language turns them into machine code.
#
# All of this happens once. The calls after that only run the kernels.
#
# ## 2. One cell
#
# A layer as it stands in many networks: a product, a bias, an activation, a residual, a normalisation.
# `%%compile` at the top of the cell is all there is to do. The cell keeps its meaning: `out` is bound as
# always. The name after `--into` is where the account of the compile goes.

# %%
x = torch.randn(32768 if device == "cuda" else 512, 64, device=device)
w = torch.randn(64, 1024, device=device) / 8
b = torch.randn(1024, device=device)

# %%
# %%compile --into tour
y = x @ w
z = y + 0.1 * F.gelu(y + b)
out = F.layer_norm(z, (1024,))

# %% [markdown]
# ## 3. How to read it
#
# What stands under the cell answers five questions, from top to bottom. It is a view of one value, the
# **record**, which is now in the variable `tour`. So each part can also be read by a program, which is what
# the next cells do.
#
# **What became of the program?** The strip at the top counts its forms: operations, loops, kernels. Fewer
# kernels than loops means that something was fused.

# %%
for graph in tour.graphs:
    names = [node.name for node in graph.nodes if node.kind not in ("input", "output")]
    print(f"{graph.stage:8} {len(names):2}  {', '.join(names)}")

# %% [markdown]
# `fx` is the graph as captured, and `forward` the same in PyTorch's basic operators. GELU and the
# normalisation are one operator each there. `loops` shows what a normalisation is really made of (the
# matrix product stands among them, but is no loop of ours), and `fused` is what runs.
#
# **What happened to my line?** The cell is shown again with each line tinted: fused into a kernel, given to
# PyTorch's library, or left to Python. The record keeps, for everything in it, where it came from. `Links`
# follows that in both directions.

# %%
links = Links(tour)
runs = [node for node in tour.graphs[-1].nodes if node.kind in ("kernel", "library")]
for line, text in enumerate(tour.cell.source.splitlines(), 1):
    if line > 1:  # the first is the magic
        print(f"line {line}: {text:30} {', '.join(n.name for n in runs if line in links.lines(n.id))}")

# %% [markdown]
# **Which pairs were fused, and why not the others?** For each pair of neighbours there is a decision with
# its reason, and the bytes that it saves or would have saved in one call.

# %%
names = {node.id: node.name for graph in tour.graphs for node in graph.nodes}
for decision in sorted(tour.decisions, key=lambda decision: -decision.bytes_saved)[:6]:
    pair = f"{names[decision.producer]} → {names[decision.consumer]}"
    verdict = "fused" if decision.accepted else "refused"
    print(f"{pair:44}{verdict:9}{decision.bytes_saved / 1e6:6.1f} MB   {decision.reason}")

# %% [markdown]
# **What code came out?** Each kernel is listed, in C here and in Triton where the tensors are on a GPU. You
# need not be able to read it yet. Two things to note: all that happens to a row of the matrix happens while
# the row is at hand, and `z` is written to memory although the next line has it already. The cell binds
# that name, so you might look at it. In a function it would stay inside.

# %%
kernel = tour.kernels[-1]
language, source = next(iter(kernel.sources.items()))
print(
    f"{kernel.name}: {len(kernel.loops)} loops, {kernel.bytes_read / 1e6:.1f} MB read, "
    f"{kernel.bytes_written / 1e6:.1f} MB written, in {language}\n"
)
print(source)
assert len(tour.kernels) < sum(len(kernel.loops) for kernel in tour.kernels), "something was fused"

# %% [markdown]
# **Was it worth it?** Eager, our compiler and PyTorch's own (Inductor) took turns on the same inputs. In the
# table of times *one call* is the median once all is compiled, *cold compile* a first compile with nothing
# cached, and *warm compile* one that finds the cache full. A compile is an investment, so the last column
# says after how many calls it has paid for itself. It may say "never", or that the difference is within the
# spread: part of this cell is the matrix product, which all three leave to a library.

# %%
times = {measured.contestant: measured for measured in tour.measurements if measured.steady}
for name, measured in times.items():
    cold = f"compiled in {measured.cold:.1f} s" if measured.cold else "nothing to compile"
    print(f"{name:10} {measured.median * 1e3:7.2f} ms a call, {cold}")
saved = times["eager"].median - times["nbcompile"].median
if saved > 0:
    calls = times["nbcompile"].cold / saved
    print(f"nbcompile saves {saved * 1e3:.2f} ms a call: worth it after about {calls:,.0f} calls")
else:
    print("nbcompile is no faster than eager here: it would never pay off")
for found in tour.accuracy:
    assert found.agrees
    print(f"{found.contestant:10} {found.output}: error {found.error:.1e}, eager's {found.eager_error:.1e}")

# %% [markdown]
# The last lines are about trust. Compiled and eager results differ in the last bits, because sums are taken
# in another order. Which of the two is *right*? Both are compared with the same program in float64, and the
# errors are of the same size.
#
# ## 4. The explorer
#
# In JupyterLab and Notebook 7 the account is not a picture but something to point at. Move the pointer over
# anything: a line of the cell, an operation in the graph, a kernel, a line of generated code. Whatever it
# was made from and whatever was made from it lights up, and the rest dims. A click, or Enter, holds it
# there. Try it on the line `z = ...` above.
#
# It can be played with as long as the kernel lives: *Fusion* has a switch at each decision that overrules
# it, *Graph and kernels* shows the code, where a kernel can be edited, and *Play* changes backend, mode,
# dtype or a size. Each change is compiled and measured, and your variables stay as they are. `%%compile
# --live` shows the same as a widget, for places without the extension. `%%compile --save page.html` writes
# a file that can be mailed; it shows everything, and nothing in it can be changed.
#
# (Where the extension is not installed, as on GitHub, you see a plain account without pointing.) What a click
# on a line does can be written down as well:

# %%
line = 3
lit = [id for id in links.at_line(line) if id in links.nodes]
print(f"line {line}: {tour.cell.source.splitlines()[line - 1]}")
for graph in tour.graphs:
    inside = [node.name for node in graph.nodes if node.id in lit]
    print(f"  {graph.stage:8} {', '.join(inside)}")
generated = [id for id in links.at_line(line) if id.rpartition(":")[0] in links.kernels]
for id in generated:
    number = int(id.rpartition(":")[2])
    print(f"  line {number:2} of the kernel: {source.splitlines()[number - 1].strip()}")
assert generated, "a line of the cell is linked to lines of the kernel"

# %% [markdown]
# ## 5. Your turn
#
# Another program, not timed (`--no-bench`), so that it is done at once:

# %%
u, v = torch.randn(2048, 512, device=device), torch.randn(512, 512, device=device)

# %%
# %%compile --no-bench --into second
mean_square = (u * u).mean(-1, keepdim=True)
scaled = u * torch.rsqrt(mean_square + 1e-6)
relu = torch.relu(scaled @ v)

# %% [markdown]
# Exercises in this workshop all work like the next one. You write your answer in place of the dots and run
# the cell. `check` compiles or measures and says whether you are right, and if not, where to look. The
# solution is in the fold below. A wrong answer costs nothing.
#
# ### Exercise: read the account
#
# How many loops, library calls and kernels does this second program have?

# %% tags=["exercise"]
answer = {"loops": ..., "library calls": ..., "kernels": ...}
check("tour.counts", answer)

# %% tags=["wrong"]
answer = {"loops": 8, "library calls": 1, "kernels": 1}

# %% tags=["wrong"]
answer = {"loops": 1, "library calls": 1, "kernels": 2}

# %% tags=["wrong"]
answer = {"loops": len(second.decisions), "library calls": 0, "kernels": len(second.kernels)}

# %% tags=["solution"]
loops = next(graph for graph in second.graphs if graph.stage == "loops")
answer = {
    "loops": sum(node.kind in ("pointwise", "reduction") for node in loops.nodes),
    "library calls": sum(node.kind == "library" for node in loops.nodes),
    "kernels": len(second.kernels),
}

# %% [markdown]
# ### Exercise: what fusion saved
#
# The same program with one kernel a loop is one option away, `--no-fuse`:

# %%
# %%compile --no-bench --no-fuse --into apart --show kernels
mean_square = (u * u).mean(-1, keepdim=True)
scaled = u * torch.rsqrt(mean_square + 1e-6)
relu = torch.relu(scaled @ v)

# %% [markdown]
# How many times fewer bytes do the kernels of `second` move than those of `apart`? (5 % either way is fine.
# The strip on top counts what the matrix product moves as well; here only the kernels count.)
#
# <details><summary>Hint</summary>
#
# Each kernel of a record has `bytes_read` and `bytes_written`.
#
# </details>

# %% tags=["exercise"]
answer = ...
check("tour.bytes", answer)

# %% tags=["wrong"]
answer = 38.9 / 26.2

# %% tags=["wrong"]
answer = len(apart.kernels) / len(second.kernels)

# %% tags=["wrong"]
answer = sum(kernel.bytes_read for kernel in apart.kernels) / sum(k.bytes_written for k in second.kernels)

# %% tags=["solution"]
moved = [sum(k.bytes_read + k.bytes_written for k in record.kernels) for record in (apart, second)]
answer = moved[0] / moved[1]

# %% [markdown]
# ### Exercise: write one
#
# Write a function of a 2048 × 512 matrix `x` and a 512 × 512 matrix `w` that compiles to exactly one
# library call and two kernels, with four loops or more. What it computes is up to you.


# %% tags=["exercise"]
def program(x, w):
    return ...


check("tour.write", program)


# %% tags=["wrong"]
def program(x, w):
    return torch.softmax(x @ w, -1) * 2


# %% tags=["wrong"]
def program(x, w):
    return torch.relu(torch.relu(x) @ w)


# %% tags=["wrong"]
def program(x, w):
    return torch.relu(torch.softmax(x, -1) @ w @ w)


# %% tags=["solution"]
def program(x, w):
    return torch.relu(torch.softmax(x, -1) @ w)


# %% [markdown]
# ## 6. The map
#
# Take the notebooks in their order, or start where your question is. Each says at its top what you can do
# after it. None needs a GPU. Some use something more than this package, and say so if it is missing; the
# table looks what is here.

# %%
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.errors import ToolchainError


def here(what):
    if what == "a C compiler":
        try:
            return bool(find_toolchain())
        except ToolchainError:
            return False
    return importlib.util.find_spec(what) is not None


C = "a C compiler"
plan = [
    ("Begin", "00-tour", "What does the compiler tell me?", [C]),
    ("", "01-first-compile", "What does it make of three lines, a language model, a convolution net?", [C]),
    ("", "02-why-eager-is-slow", "Where does the time go, and what could fusion buy?", [C]),
    ("The stages", "03-capture", "How does Python become a graph, and when does it not?", [C]),
    ("", "04-autograd", "Where does the backward graph come from, and what is kept for it?", [C]),
    ("", "05-loop-ir", "What does an operation look like as loops?", [C]),
    ("", "06-fusion", "Which loops share a kernel, who decides, and was it right?", [C]),
    ("", "07-reductions", "Why is a softmax one pass, two or three?", [C]),
    ("", "08-codegen", "How do I read a kernel, and make one faster?", [C, "triton"]),
    ("Using it", "09-triton-without-a-gpu", "How do I write for a GPU that I do not have?", ["triton"]),
    ("", "10-modes", "What do the modes and options change?", [C]),
    ("", "11-dynamic-shapes", "Why does it compile again, and how do I stop that?", [C]),
    ("", "12-training", "What of the optimiser, mixed precision, several processes?", [C, "ipyparallel"]),
    ("", "13-when-it-helps", "Should I compile this at all?", [C]),
    ("", "14-export", "How do I ship a model without its Python?", [C]),
    ("Beyond", "15-the-other-compilers", "What do XLA, jax.jit, ONNX Runtime and others do?", ["jax"]),
    ("", "16-write-your-own", "How do I add an operator, a fusion rule, a backend?", [C]),
    ("", "17-build-a-compiler", "How does it all fit in one notebook?", [C]),
]
rows = ""
for part, name, question, needs in plan:
    used = ", ".join(f"{need} ({'here' if here(need) else 'not here'})" for need in needs)
    rows += (
        f'<tr><td style="text-align:left"><b>{part}</b></td>'
        f'<td style="text-align:left; white-space:nowrap"><a href="{name}.ipynb">{name}</a></td>'
        f'<td style="text-align:left">{question}</td><td style="text-align:left">{used}</td></tr>'
    )
assert here(C), "without a C compiler everything runs eagerly, and most of the workshop has nothing to show"
HTML(
    f'<table><tr><th></th><th style="text-align:left">notebook</th><th style="text-align:left">question</th>'
    f'<th style="text-align:left">uses</th></tr>{rows}</table>'
)

# %% [markdown]
# Short of time? In two hours: 00, 02, 06, 13. If you write models: 01, 03, 11, 12, 13. If you want to write
# kernels: 02, 05, 06, 07, 08, 09. If you want to know how compilers work: all of them, and 17 at the end.
#
# ## What to take along
#
# A compiler rewrites a program in steps: a graph, loops, groups of loops, kernels. Speed comes mostly from
# results that no longer go through memory. Everything that happened is in one record, with a reason for
# each decision and a link from each part to your line. The times in it count only calls in which compiled
# code ran.
#
# Next: notebook 01, a first compile, or 02, why eager is slow, if you want to know first what there is to
# gain.

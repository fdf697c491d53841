# %% [markdown]
# # Write your own
#
# After this notebook you can extend the compiler without changing a file of it: teach it an operator,
# forbid it a fusion, and put a compiler of your own beside it, in the same record and the same table. Each
# takes thirty lines or fewer and lives in a cell. It takes half an hour to read with its exercises, and under
# a minute to run; a C compiler must be on the machine, and nothing is downloaded.
#
# | what | how | where the package does it |
# | --- | --- | --- |
# | an operator | `@lowering(target)` | `nbcompile/compiler/lower/operators/` |
# | a fusion rule | `@fusion_rule(name)` | `nbcompile/compiler/fuse/rules.py` |
# | a backend | a function, or a `Backend` | `nbcompile/backends/` |
#
# Why would you? An operator of your own is a wall to every compiler: it cannot look inside, so it stores
# what goes in and reads what comes out. A rule is how you ask "what if this pair were apart?" of a whole
# model. And a backend is how you measure an idea against compilers that others have spent years on.

# %%
import importlib.util
import operator
import statistics
import time

import torch

import nbcompile
from nbcompile.workshop import check

# %load_ext nbcompile
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
print("torch", torch.__version__, "on", device)

# %% [markdown]
# ## An operator that nobody knows
#
# Squareplus is a smooth relative of ReLU: half of *x* plus the square root of *x² + b*. As a line of
# PyTorch it would be traced through, and there would be no wall. Here it arrives as operators often do, as
# a finished function from somewhere else: registered with `torch.library`, with its gradient as a second
# operator. `register_fake` says what shape the result has, without computing it, which is what tracing
# needs.


# %%
@torch.library.custom_op("workshop::squareplus", mutates_args=())
def squareplus(x: torch.Tensor, b: float) -> torch.Tensor:
    return (x + torch.sqrt(x * x + b)) / 2


@torch.library.custom_op("workshop::squareplus_backward", mutates_args=())
def squareplus_backward(grad: torch.Tensor, x: torch.Tensor, b: float) -> torch.Tensor:
    return grad * (1 + x / torch.sqrt(x * x + b)) / 2


@squareplus.register_fake
def _(x, b):
    return torch.empty_like(x)


@squareplus_backward.register_fake
def _(grad, x, b):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.b = inputs[1]


def gradient(ctx, grad):
    return squareplus_backward(grad, *ctx.saved_tensors, ctx.b), None


squareplus.register_autograd(gradient, setup_context=keep)
x = torch.randn(2048, 512, device=device)

# %% [markdown]
# What does the compiler make of it in the middle of a pointwise chain?

# %%
# %%compile --no-bench --into walled
w = torch.exp(-squareplus(torch.sigmoid(x) * 3, 4.0)) + 1
w[0, :4]


# %%
def told(record):
    """What ran, in order, and each decision in one line."""
    names = {node.id: node.name for graph in record.graphs for node in graph.nodes}
    for graph in record.graphs:
        if graph.stage == "fused":
            print(
                "ran:", ", ".join(f"{node.kind} {node.name}" for node in graph.nodes if node.kind != "input")
            )
    for d in record.decisions:
        verdict = "fused" if d.accepted else f"refused ({d.code})"
        pair = f"{names[d.producer]} → {names[d.consumer]}"
        print(f"  {pair:28} {verdict:24} {d.bytes_saved / 1e6:6.1f} MB  {d.reason}")


told(walled)
assert any(decision.code == "library-call" for decision in walled.decisions)

# %% [markdown]
# The operator is a *fallback*: the compiler stores its input, calls it, and reads its result. It says so,
# and it says what that costs. A refused pair counts what its fusion would save: the read by the one and the
# write by the other.
#
# ### Exercise: the price of a wall
#
# How many megabytes (millions of bytes) of memory traffic would be saved in one call if the operator could
# be fused with its neighbours on both sides? Work it out from the shape, 2048 × 512 numbers of 4 bytes, and
# see whether the decisions above agree.
#
# <details><summary>Hint</summary>
#
# Two tensors pass through memory at the wall, one going in and one coming out. Each is written once and
# read once.
#
# </details>

# %% tags=["exercise"]
megabytes = ...
check("own.saved", megabytes, squareplus)

# %% tags=["wrong"]
megabytes = 4.2

# %% tags=["wrong"]
megabytes = 8.4

# %% tags=["solution"]
megabytes = 2 * 2 * 2048 * 512 * 4 / 1e6

# %% [markdown]
# ## Its lowering
#
# A lowering is a function from a *builder* and the node's arguments to a *view* of the result. The builder
# has few moves: `pointwise` for what happens to each element, `reduce` for sums and maxima, `view` for
# another look at the same memory. The function that `pointwise` takes is called once, with expressions
# instead of numbers; what comes back is a formula, and what language it will be printed in is not its
# business.
#
# This is all that the two operators need. The decorator registers them, here as in the package's own files.

# %%
from nbcompile.compiler.loop_ir.expr import op
from nbcompile.compiler.lower.registry import lowering, registry
from nbcompile.compiler.lower.samples import unary


@lowering(torch.ops.workshop.squareplus.default, samples=unary(b=[4.0, 0.5]))
def lower_squareplus(build, x, b):
    return build.pointwise(lambda x: (x + op("sqrt", x * x + b)) / 2, x)


@lowering(torch.ops.workshop.squareplus_backward.default)
def lower_squareplus_backward(build, grad, x, b):
    return build.pointwise(lambda g, x: g * (1 + x / op("sqrt", x * x + b)) / 2, grad, x)


# %%
# %%compile --no-bench --into opened
w = torch.exp(-squareplus(torch.sigmoid(x) * 3, 4.0)) + 1
w[0, :4]

# %%
told(opened)
for name, record in (("walled", walled), ("opened", opened)):
    traffic = sum(kernel.bytes_read + kernel.bytes_written for kernel in record.kernels)
    print(f"{name}: kernels of ours: {len(record.kernels)}, which move {traffic / 1e6:.1f} MB")
assert all(decision.accepted for decision in opened.decisions)
(kernel,) = opened.kernels
print("", next(iter(kernel.sources.values())), sep="\n")

# %% [markdown]
# One kernel, and the formula stands in the middle of it, with the line of the cell that it was made for.
#
# ## Is it right?
#
# The `samples` in the decorator are not for show. In the package each sample of each registered operator is
# compared with ATen by one test, which nobody has to extend. `unary` makes the awkward ones: every float
# type, NaN, infinity, huge and tiny numbers, empty, zero-dimensional, transposed. The same comparison fits
# in a cell.

# %%
entry = registry().find(torch.ops.workshop.squareplus.default)
halves = (torch.float16, torch.bfloat16)
compared = 0
for sample in entry.samples:
    args, kwargs = sample.make(torch.Generator().manual_seed(0))
    compiled = nbcompile.compile(lambda x, b: entry.target(x, b))
    got = compiled(*args, **kwargs)
    assert compiled.ran_compiled, compiled.eager_reason
    (tensor,) = args
    if tensor.dtype in halves:  # eager rounds each step to half precision, a kernel only its result
        tensor = tensor.float()
    wanted = entry.target(tensor, **kwargs).to(got.dtype)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    compared += 1
print(f"{compared} samples agree with eager")

# %% [markdown]
# Two things more come for free. Autograd makes a backward graph with the second operator in it, which is
# lowered like any other. And a lowering says nothing of the machine: the same lines make a Triton kernel, if
# Triton is installed, for a GPU that need not be there.


# %%
def chain(x):
    return torch.exp(-squareplus(torch.sigmoid(x) * 3, 4.0)) + 1


leaf = x.clone().requires_grad_()
trained = nbcompile.compile(chain)
trained(leaf).sum().backward()
got, leaf.grad = leaf.grad, None
chain(leaf).sum().backward()
torch.testing.assert_close(got, leaf.grad)
for graph in trained.compilation.graphs:
    if graph.stage == "fused":
        print(graph.id, [f"{n.kind} {n.name}" for n in graph.nodes if n.kind in ("kernel", "fallback")])
assert not any(node.kind == "fallback" for graph in trained.compilation.graphs for node in graph.nodes)

if importlib.util.find_spec("triton") is not None:
    elsewhere = nbcompile.compile(chain, options={"target": "cuda:90"})
    elsewhere(x)
    print("", elsewhere.compilation.kernels[0].sources["triton"], sep="\n")

# %% [markdown]
# ### Exercise: lower an operator that looks at a row
#
# `workshop::peak_scale` divides each row by its largest absolute value. Its lowering needs both moves, a
# `reduce` and a `pointwise`. The signatures are
#
# `build.reduce(kind, x, dims, keepdim=..., body=..., name=...)`, where `kind` is `"max"` or `"sum"` and
# `body(element, *indices)` changes each element before it is combined, and `build.pointwise(function,
# *views)`, which broadcasts its views.
#
# To pass, the results have to be right, there must be no fallback, and `peak_scale(x) * 2` has to be one
# kernel.
#
# <details><summary>Hint</summary>
#
# `op("abs", element)` is an absolute value. Keep the reduced dimension, so that the row's result lies
# beside its row. `nbcompile/compiler/lower/operators/softmax.py` reduces in just this way.
#
# </details>


# %%
@torch.library.custom_op("workshop::peak_scale", mutates_args=())
def peak_scale(x: torch.Tensor) -> torch.Tensor:
    return x / x.abs().amax(-1, keepdim=True)


@peak_scale.register_fake
def _(x):
    return torch.empty_like(x)


# %% tags=["exercise"]
def lower_peak_scale(build, x): ...  # return a view


check("own.lowering", lower_peak_scale, peak_scale)


# %% tags=["wrong"]
def lower_peak_scale(build, x):
    top = build.reduce("max", x, [-1], keepdim=True, name="top")
    return build.pointwise(lambda x, top: x / top, x, top)


# %% tags=["wrong"]
def lower_peak_scale(build, x):
    top = build.reduce("max", x, [0], keepdim=True, body=lambda e, *at: op("abs", e), name="top")
    return build.pointwise(lambda x, top: x / top, x, top)


# %% tags=["wrong"]
def lower_peak_scale(build, x):
    return build.call(torch.ops.workshop.peak_scale.default, [x])


# %% tags=["solution"]
def lower_peak_scale(build, x):
    top = build.reduce("max", x, [-1], keepdim=True, body=lambda e, *at: op("abs", e), name="top")
    return build.pointwise(lambda x, top: x / top, x, top)


# %% [markdown]
# ## A fusion rule
#
# Whether a pair *can* be one kernel is a matter of correctness, and the compiler's alone. Whether it
# *should* be is a judgement, and there yours may be better: you know that a kernel has grown too large to
# read, or that you want to time one part by itself. A rule is a function of a candidate. It is asked of
# each pair that could be fused, sees the kernel that the pair would become, and returns a reason against it
# or nothing. It cannot allow what is illegal.

# %%
from nbcompile.compiler.fuse.rules import fusion_rule


@fusion_rule("readable")
def readable(candidate):
    if len(candidate.merged.loops) > 3:
        names = ", ".join(loop.name for loop in candidate.merged.loops)
        return f"one kernel of {names} is more than three loops"


# %% [markdown]
# Registering does nothing by itself: a compile names the rules that it wants, with `-o rules=NAME` or
# `options={"rules": [...]}`. So two cells that differ in their rules differ in their first line, and in the
# record.

# %%
# %%compile --no-bench --into ruled -o rules=readable
shares = torch.softmax(x * 2, -1) + 1
shares[0, :4]

# %%
told(ruled)
assert any(d.code == "readable" for d in ruled.decisions) and all(len(k.loops) <= 3 for k in ruled.kernels)

# %% [markdown]
# The rule's name is the code of its refusals, its sentence is the reason, and in the explorer they look
# like the compiler's own. They can be overruled, too: `-o force_fuse=A:B` is your word about one pair, and
# that weighs more than a rule. What has the rule cost? The record counts the traffic, and the clock has the
# last word.

# %%
shared = lambda x: torch.softmax(x * 2, -1) + 1  # noqa: E731
free, held = nbcompile.compile(shared), nbcompile.compile(shared, options={"rules": ["readable"]})
torch.testing.assert_close(free(x), held(x))
torch.testing.assert_close(shared(x), held(x))


def median(call, rounds=15):
    """Seconds of a call, the first not counted."""
    call(x)
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        call(x)
        if device == "cuda":
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


for name, compiled in (("without the rule", free), ("with it", held)):
    kernels = compiled.compilation.kernels
    traffic = sum(kernel.bytes_read + kernel.bytes_written for kernel in kernels)
    print(f"{name:17} kernels: {len(kernels)}, {traffic / 1e6:5.1f} MB, {median(compiled) * 1e3:6.2f} ms")
assert len(held.compilation.kernels) > len(free.compilation.kernels)

# %% [markdown]
# ### Exercise: one reduction a kernel
#
# While you look for the part of a model that is slow, it can help if no kernel holds more than one
# reduction, so that the time of each has a name. Write that rule. Pointwise loops may join as they like,
# and softmax, which has two reductions, has to fall apart. A rule sees the kernel as it would be at that
# moment: loops that come later may still join, and the rule is asked again.
#
# <details><summary>Hint</summary>
#
# `candidate.merged.loops` are all loops of the kernel. `loop.reduction` is `"max"`, `"sum"` and the like,
# or `None`.
#
# </details>


# %% tags=["exercise"]
def one_reduction(candidate): ...  # a sentence, or None


check("own.rule", one_reduction)


# %% tags=["wrong"]
def one_reduction(candidate):
    if candidate.producer.reduction and candidate.consumer.reduction:
        return "both are reductions"


# %% tags=["wrong"]
def one_reduction(candidate):
    if any(loop.reduction for loop in candidate.merged.loops):
        return "there is a reduction in it"


# %% tags=["wrong"]
def one_reduction(candidate):
    return "a kernel is to have one loop"


# %% tags=["solution"]
def one_reduction(candidate):
    found = [loop.name for loop in candidate.merged.loops if loop.reduction]
    if len(found) > 1:
        return f"one kernel would hold {' and '.join(found)}"


# %% [markdown]
# ## A backend that is a function
#
# For `torch.compile` a backend is a function from a graph and example inputs to something callable. It is
# called once for each captured graph, and what it returns is called each time the program runs. Here is the
# smallest that does something: it removes what does nothing to a floating-point number, a product with 1.
# `nbcompile.compile` takes it as it is, and `%%compile` by its name, `--backend tidy`.


# %%
def tidy(gm, inputs):
    removed = 0
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is operator.mul and node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
            removed += 1
    gm.recompile()
    print(f"tidy: {removed} of {removed + len(gm.graph.nodes)} nodes removed, {len(inputs)} inputs")
    return gm.forward


tidied = nbcompile.compile(lambda x: torch.tanh(x * 1) * 1, backend=tidy)
torch.testing.assert_close(tidied(x), torch.tanh(x))
record = tidied.compilation
print("backend:", record.backend, "| graphs:", len(record.graphs), "| kernels:", len(record.kernels))
assert tidied.ran_compiled and record.backend == "tidy" and len(record.graphs) == 1

# %% [markdown]
# The record has its graph, and no kernels, for the backend told of none.
#
# ### Exercise: a backend that counts
#
# Write a backend that counts the operators that *run*. `counting(counts)` gets a `Counter` and returns a
# backend; each time compiled code runs, it adds the number of operators of its graph to
# `counts["operators"]`. An operator is a node that calls something, so `node.op` begins with `call`.
# Results must stay what they are.
#
# <details><summary>Hint</summary>
#
# The backend itself runs once, when the graph is compiled. What it returns runs each time: return a
# function of `*inputs` that counts and then calls `gm.forward`.
#
# </details>


# %% tags=["exercise"]
def counting(counts):
    def backend(gm, inputs): ...  # return a function of *inputs

    return backend


check("own.backend", counting)


# %% tags=["wrong"]
def counting(counts):
    def backend(gm, inputs):
        counts["operators"] += sum(node.op.startswith("call") for node in gm.graph.nodes)
        return gm.forward

    return backend


# %% tags=["wrong"]
def counting(counts):
    def backend(gm, inputs):
        def run(*inputs):
            counts["operators"] += len(gm.graph.nodes)
            return gm.forward(*inputs)

        return run

    return backend


# %% tags=["wrong"]
def counting(counts):
    def backend(gm, inputs):
        def run(*inputs):
            counts["operators"] += 1
            return inputs

        return run

    return backend


# %% tags=["solution"]
def counting(counts):
    def backend(gm, inputs):
        operators = sum(node.op.startswith("call") for node in gm.graph.nodes)

        def run(*inputs):
            counts["operators"] += operators
            return gm.forward(*inputs)

        return run

    return backend


# %% [markdown]
# ## A backend with a record
#
# A function sees what Dynamo captured: modules' own operators, no backward pass. Most compilers want what
# stands one stage below, AOTAutograd's flat ATen graphs, forward and backward, and they have something to
# tell of themselves. That is what the class `Backend` is for. `compile_fx_graph` is the same capture that
# our own compiler stands on, so graphs, gradients, links to the cell's lines and the fallback to eager come
# with it. What is left to write is `compile_aten`: one ATen graph in, one callable out, and whatever it
# wants to say goes to the recorder.
#
# This one hands the graph to `torch.fx.Interpreter`, which runs it operator by operator, as eager does, and
# frees each tensor right after its last use. What it adds is a count of how much memory that makes
# unnecessary.

# %%
from nbcompile.backends.base import Backend
from nbcompile.compiler.capture.fx_to_aten import AtenForm, compile_fx_graph
from nbcompile.compiler.stages import CompiledModule
from nbcompile.options import Options


def size(node):  # a view counts like a tensor of its own
    value = node.meta.get("val")
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def compile_aten(aten, options, recorder):
    nodes = list(aten.module.graph.nodes)
    last_use = {source: node for node in nodes for source in node.all_input_nodes}
    made = held = peak = 0
    for node in nodes:
        made, held = made + size(node), held + size(node)
        peak = max(peak, held)
        held -= sum(size(source) for source, last in last_use.items() if last is node)
    recorder.add(f"{aten.id}: {made / 1e6:.1f} MB in all, {peak / 1e6:.1f} MB of it at once")
    return CompiledModule(aten.id, torch.fx.Interpreter(aten.module).boxed_run)


def compiler(settings):
    def compile_graph(graph, example_inputs, recorder):
        form = AtenForm(ours=False)
        return compile_fx_graph(graph, example_inputs, Options(), recorder, compile_aten, form)

    return compile_graph


thrifty = Backend("thrifty", "ATen, operator by operator, nothing kept longer than needed", compiler)

# %% [markdown]
# `--backend` takes the name of the variable, and so does `--compare`. The cell below is measured, so it
# takes a moment: three contestants in turns on the same inputs.

# %%
# %%compile --backend thrifty --compare eager,thrifty,nbcompile --into table
h = torch.sigmoid(x) * 3
h = torch.exp(-h) + torch.tanh(h)
h = torch.softmax(h, -1)
h[0, :4]

# %%
print(*table.notes, sep="\n")
for measured in table.measurements:
    time_of = f"{measured.median * 1e3:7.2f} ms a call" if measured.counts else f"no time: {measured.reason}"
    print(f"{measured.contestant:10} {time_of}")
assert {"eager", "thrifty", "nbcompile"} <= {measured.contestant for measured in table.measurements}
assert all(measured.counts for measured in table.measurements)
assert any("at once" in note for note in table.notes)

# It trains as well, because AOTAutograd made the backward graph.
leaf = x.clone().requires_grad_()
careful = nbcompile.compile(chain, backend=thrifty)
careful(leaf).sum().backward()
got, leaf.grad = leaf.grad, None
chain(leaf).sum().backward()
torch.testing.assert_close(got, leaf.grad)
print([graph.id for graph in careful.compilation.graphs], *careful.compilation.notes, sep="\n")

# %% [markdown]
# To give it to others, put the same value into a file of `nbcompile/backends/`, as `BACKEND`: the registry
# finds it, nothing else lists it, and its modes and options are completed and checked. `CONTRIBUTING.md`
# has the rest.
#
# ## What to take along
#
# An operator that the compiler does not know is a wall, and what it costs stands in the record before you
# decide to do anything. A lowering says what each element is and nothing about loops, memory or machines,
# so two lines give a C kernel, a Triton kernel and every fusion with its neighbours. A rule may refuse what
# is legal but never allow what is not; its reasons stand beside the compiler's own. A backend is a function
# from a graph to a function, and a few lines more put it into the same record and the same table as the
# others. What you add is tested as everything else is: against eager, on the awkward inputs first.
#
# Next: notebook 17, *Build a compiler*, which has all four stages in one notebook.

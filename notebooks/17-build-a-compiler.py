# %% [markdown]
# # Build a compiler
#
# After this notebook you will have read, run and extended a whole compiler for PyTorch: capture, lower,
# fuse, codegen, forward and backward, in five cells of this notebook, which together have fewer than 400
# lines. It takes an hour to read with its exercises, and about a minute to run. A C compiler must be on the
# machine; nothing is downloaded.
#
# The real compiler of this package has the same four stages in the same order. What makes it larger is not
# another idea but a hundred cases, and at the end we look at where they are.
#
# | stage | from → to | here | in nbcompile |
# | --- | --- | --- | --- |
# | capture | Python → graph of ATen operators | torch's hooks | `capture/` |
# | lower | operators → loops | part 2 | `lower/` |
# | fuse | loops → kernels | part 3 | `fuse/` |
# | codegen | kernels → C | part 4 | `codegen/` |
# | run time | C → a function | part 5 | `runtime/` |

# %%
import ctypes
import math
import operator
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from functorch.compile import make_boxed_func
from IPython import get_ipython
from torch import nn
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch.utils._pytree import tree_leaves, tree_map

import nbcompile
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.workshop import check

torch.manual_seed(0)
aten = torch.ops.aten
print("torch", torch.__version__, "on", torch.get_num_threads(), "threads;", find_toolchain().version)

# %% [markdown]
# Our compiler writes C for the CPU. With a GPU in the machine this notebook is the same: what the GPU needs
# besides is in the last section.
#
# ## Capture is somebody else's work
#
# `torch.compile` turns Python into a graph: Dynamo reads the bytecode, AOTAutograd adds the backward pass
# as a second graph and removes mutation, and a table of *decompositions* rewrites rare operators in terms
# of common ones. torch offers all three to backends, and both compilers, ours here and the real one, stand
# on them. A backend is a function from a graph and example inputs to a function. This one compiles nothing
# and prints.


# %%
def printing(gm, inputs):
    for node in gm.graph.nodes:
        if node.op == "call_function":
            print(f"  {node.name:12} = {node.target}{tuple(node.args)}")
    print()
    return make_boxed_func(gm.forward)


WHOLE = "_softmax _softmax_backward_data native_layer_norm native_layer_norm_backward gelu gelu_backward silu"
TABLE = core_aten_decompositions() | get_decompositions([getattr(aten, name) for name in WHOLE.split()])


def printer(gm, inputs):
    return aot_autograd(fw_compiler=printing, bw_compiler=printing, decompositions=TABLE)(gm, inputs)


x = torch.randn(64, 128, requires_grad=True)
torch.compile(lambda x: torch.softmax(x, -1) * 2, backend=printer, dynamic=False)(x).sum().backward()

# %% [markdown]
# The first graph is the forward pass, the second the backward pass: a product, a sum over rows, a
# difference. From here on there is no autograd any more, no module, no Python. Each node also carries a
# *fake tensor* in `node.meta["val"]`: the shape, type and strides of its result, without the data. That is
# all that a compiler needs to know.
#
# ## The loop IR: what an operator does, element by element
#
# An operator's name says nothing about which elements it reads. For fusion that is the one thing to know,
# so the names have to go. The intermediate representation below has three classes. A `View` says where the
# elements of a tensor lie: a buffer, a stride for each axis, an offset. A stride of 0 repeats an element,
# which is broadcasting. An `Op` is a piece of C with holes. A `Loop` computes its body at each point of its
# shape and stores it, or combines it along the reduced axes.


# %%
# tiny compiler, part 1: the loop IR
@dataclass(frozen=True)
class View:
    """A tensor: element (i, j) is number offset + i * strides[0] + j * strides[1] of the buffer."""

    buffer: str
    shape: tuple
    strides: tuple
    offset: int = 0

    def over(self, shape):
        """The same elements, broadcast to a larger shape."""
        lead = (0,) * (len(shape) - len(self.shape))
        strides = (0 if extent == 1 else stride for extent, stride in zip(self.shape, self.strides))
        return View(self.buffer, tuple(shape), (*lead, *strides), self.offset)


@dataclass(frozen=True)
class Op:
    """A piece of C with holes {}, and what fills them: views, numbers, other Ops."""

    c: str
    args: tuple

    def loads(self):
        for arg in self.args:
            yield from arg.loads() if isinstance(arg, Op) else [arg] if isinstance(arg, View) else []


@dataclass(eq=False)
class Loop:
    """out = body at each point of out.shape; or, with combine, of all that has the same place in out."""

    out: View  # of stride 0 along the reduced axes
    body: Op
    combine: str = ""  # "sum" or "max"
    reduced: tuple = ()  # axes

    name = property(lambda self: self.out.buffer)
    shape = property(lambda self: self.out.shape)
    reads = property(lambda self: list(self.body.loads()))


@dataclass(eq=False)
class Call:
    """An operator that is left to ATen. Its arguments hold views where the node's hold tensors."""

    name: str
    target: object
    args: tuple
    kwargs: dict

    @property
    def reads(self):
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, View)]


# %% [markdown]
# A loop prints as one line, in the notation of a textbook. The letters are the axes; an axis along which a
# view does not move is left out.


# %%
def text(loop):
    def at(view):
        letters = [axis for axis, stride in zip("ijkl", view.strides) if stride]
        return view.buffer + (f"[{','.join(letters)}]" if letters else "")

    def written(item):
        if isinstance(item, Op):
            return item.c.format(*map(written, item.args))
        return at(item) if isinstance(item, View) else f"{item:.4g}"

    over = f"   over {','.join('ijkl'[axis] for axis in loop.reduced)}" if loop.combine else ""
    left = f"{at(loop.out)} = {loop.combine} {written(loop.body)}".replace("=  ", "= ")
    return f"{left:44}{over:10} points {'×'.join(map(str, loop.shape))}"


rows = View("x", (64, 128), (128, 1))
print(text(Loop(View("y", (64, 128), (128, 1)), Op("expf({})", (rows,)))))
print(text(Loop(View("m", (64, 128), (1, 0)), Op("{}", (rows,)), "max", (1,))))

# %% [markdown]
# ## Lower: one small function an operator
#
# The builder below has the two moves that lowerings are made of, `pointwise` and `reduce`. A lowering gets
# it and the node's arguments, each tensor as a view. It returns the view of its result, or
# `NotImplemented`: then the operator stays a call into ATen. So the compiler is complete from its first
# line on, and only gets better.


# %%
# tiny compiler, part 2: lowering
class Builder:
    def __init__(self):
        self.steps, self.buffers = [], {}

    def buffer(self, name, shape, strides=None):
        """A new buffer, and all of it as a view. Without strides, rows lie one after the other."""
        while name in self.buffers:
            name += "_"
        strides = strides or tuple(math.prod(shape[n + 1 :]) for n in range(len(shape)))
        self.buffers[name] = (tuple(shape), tuple(strides))
        return View(name, tuple(shape), tuple(strides))

    def result(self, shape, name):
        """The buffer of a node's result, with the strides that torch expects; or a helper's, by its name."""
        if name or not isinstance(self.fake, torch.Tensor) or tuple(self.fake.shape) != tuple(shape):
            return self.buffer(f"{self.name}_{name}", shape)
        return self.buffer(self.name, shape, self.fake.stride())

    def pointwise(self, c, *args, name=""):
        shape = torch.broadcast_shapes(*(arg.shape for arg in args if isinstance(arg, View)))
        out = self.result(shape, name)
        args = tuple(arg.over(shape) if isinstance(arg, View) else arg for arg in args)
        self.steps.append(Loop(out.over(shape), Op(c, args)))
        return out

    def reduce(self, combine, x, dims, keepdim, c="{}", name=""):
        kept = [1 if n in dims else extent for n, extent in enumerate(x.shape)]
        out = self.result([e for n, e in enumerate(kept) if keepdim or n not in dims], name)
        strides = iter(out.strides)
        along = [0 if n in dims and not keepdim else next(strides) for n in range(len(kept))]
        spread = View(out.buffer, tuple(kept), tuple(along)).over(x.shape)
        self.steps.append(Loop(spread, Op(c, (x.over(x.shape),)), combine, tuple(dims)))
        return out


LOWERINGS = {}


def pointwise(c):
    def lower(b, *args, **kwargs):
        return NotImplemented if kwargs else b.pointwise(c, *args)

    return lower


def reduction(combine):
    def lower(b, x, dims=None, keepdim=False):
        last = len(x.shape) - len(dims or x.shape)  # only along rows, and not over everything
        if not last or sorted(dim % len(x.shape) for dim in dims) != list(range(last, len(x.shape))):
            return NotImplemented
        return b.reduce(combine, x, range(last, len(x.shape)), keepdim)

    return lower


for target, c in {
    aten.add.Tensor: "({} + {})", aten.sub.Tensor: "({} - {})", aten.mul.Tensor: "({} * {})",
    aten.div.Tensor: "({} / {})", aten.neg.default: "(-{})", aten.exp.default: "expf({})",
    aten.erf.default: "erff({})", aten.rsqrt.default: "(1.0f / sqrtf({}))",
}.items():  # fmt: skip
    LOWERINGS[target] = pointwise(c)
LOWERINGS[aten.sum.dim_IntList] = reduction("sum")
LOWERINGS[aten.amax.default] = reduction("max")


def var_mean(b, x, dims, correction=0, keepdim=False):
    """Two walks over the row: the mean, then the squares of the distances from it."""
    if not keepdim or sorted(dim % len(x.shape) for dim in dims) != [len(x.shape) - 1]:
        return NotImplemented
    count, last = x.shape[-1], [len(x.shape) - 1]
    total = b.reduce("sum", x, last, True, name="total")
    mean = b.pointwise("({} / {})", total, count, name="mean")
    centred = b.pointwise("({} - {})", x, mean, name="centred")
    squares = b.reduce("sum", centred, last, True, c="({0} * {0})", name="squares")
    return b.pointwise("({} / {})", squares, count - correction, name="var"), mean


LOWERINGS[aten.var_mean.correction] = var_mean


def lower(gm):
    """A graph of ATen nodes → a builder with loops and calls, names of the inputs, values of the outputs."""
    b, values = Builder(), {}
    inputs = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    for node in gm.graph.nodes:
        b.name, b.fake = node.name, node.meta.get("val")
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), values.get)
        if node.op == "output":
            return b, inputs, args[0]
        tensors = [item.meta["val"] for item in (*node.all_input_nodes, node)]
        ours = all(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in tensors[:-1])
        made = NotImplemented
        if node.target is operator.getitem and isinstance(args[0], tuple):
            made = args[0][args[1]]
        elif node.op == "call_function" and ours and is_view(node.target):  # torch knows where it lies
            offset = args[0].offset + b.fake.storage_offset() - tensors[0].storage_offset()
            made = View(args[0].buffer, tuple(b.fake.shape), tuple(b.fake.stride()), offset)
        elif node.target in LOWERINGS and ours:
            made = LOWERINGS[node.target](b, *args, **kwargs)
        if made is NotImplemented:
            if node.op == "call_function":
                b.steps.append(Call(node.name, node.target, args, kwargs))
            tensor = isinstance(b.fake, torch.Tensor)
            made = b.buffer(node.name, b.fake.shape, b.fake.stride()) if tensor else View(node.name, (), ())
        values[node] = made


def is_view(target):
    schema = getattr(target, "_schema", None)
    return schema is not None and any(item.alias_info for item in schema.returns)


# %% [markdown]
# Views cost nothing here: a transpose or a slice makes no loop, only another `View` of the same buffer, and
# where it lies we read off the fake tensor. Softmax becomes five loops, and its backward pass four; the
# product with 2 adds one to each:


# %%
def stages(gm, inputs):
    b, _, _ = lower(gm)
    for step in b.steps:
        print("  ", text(step) if isinstance(step, Loop) else f"{step.name} = ATen {step.target}")
    print()
    return make_boxed_func(gm.forward)


def show_loops(fn, *inputs):
    def backend(gm, inputs):
        return aot_autograd(fw_compiler=stages, bw_compiler=stages, decompositions=TABLE)(gm, inputs)

    torch.compile(fn, backend=backend, dynamic=False)(*inputs).sum().backward()


show_loops(lambda x: torch.softmax(x, -1) * 2, x)

# %% [markdown]
# ## Fuse: which loops become one kernel
#
# Each loop alone would read its inputs from memory and write its result to memory. Two loops in one kernel
# can hand a value on in a register. When is that allowed? Our rules fit on a hand:
#
# 1. Both walk the same points. A loop of one point a row (a mean, say) may join a kernel that walks rows.
# 2. All reductions of a kernel are over the same axes, so that a kernel is "for each row, walk the row".
# 3. What one makes, the other reads at the same point: same strides, same offset.
# 4. No third step stands between them, needing one and needed by the other.
# 5. What must be kept of a row fits on the stack.
#
# The algorithm is greedy: each loop in turn is offered to the kernels that make what it reads. Each refusal
# has a sentence, for a compiler that cannot say why is hard to help.


# %%
# tiny compiler, part 3: fusion
@dataclass(eq=False)
class Kernel:
    """Loops that share one nest: for each row, walk the inner axes, once or several times."""

    loops: list
    stored: set = field(default_factory=set)  # what somebody outside needs in memory

    made = property(lambda self: {loop.name: loop for loop in self.loops})
    space = property(lambda self: tuple(map(max, zip(*(loop.shape for loop in self.loops)))))
    inner = property(lambda self: sorted({axis for loop in self.loops for axis in loop.reduced}))
    outer = property(lambda self: [axis for axis in range(len(self.space)) if axis not in self.inner])

    def points(self, axes):
        return math.prod(self.space[axis] for axis in axes)

    def is_row(self, loop):
        """Whether it has one point a row."""
        return bool(self.inner) and not loop.combine and all(loop.shape[axis] == 1 for axis in self.inner)

    def walks(self):
        """Loop → in which walk over the row it runs: after all walks whose results it needs."""
        walk, ready = {}, {}
        for loop in self.loops:
            walk[loop] = max((ready[v.buffer] for v in loop.reads if v.buffer in ready), default=0)
            ready[loop.name] = walk[loop] + bool(loop.combine)
        return walk

    def kept(self):
        """Names of what one walk makes and a later one reads: a copy of the row stays on the stack."""
        walk, made = self.walks(), self.made
        each = {name for name, loop in made.items() if not (loop.combine or self.is_row(loop))}
        return {
            view.buffer for loop in self.loops for view in loop.reads
            if view.buffer in each - self.stored and walk[made[view.buffer]] < walk[loop]
        }  # fmt: skip


RULES = []  # functions of a merged kernel: why it should not be, or nothing


def refusal(merged):
    """Why these loops cannot be one kernel; nothing if they can."""
    if len({len(loop.shape) for loop in merged.loops}) > 1:
        return "they have different numbers of axes"
    row = tuple(1 if axis in merged.inner else extent for axis, extent in enumerate(merged.space))
    for loop in merged.loops:
        if loop.combine and list(loop.reduced) != merged.inner:
            return "they reduce over different axes"
        if loop.shape != merged.space and not (merged.inner and loop.shape == row):
            return "they walk different points"
        for view in loop.reads:
            maker = merged.made.get(view.buffer)
            if maker and (view.strides, view.offset) != (maker.out.strides, maker.out.offset):
                return f"{view.buffer} is read at other points than it is made at"
    if 4 * merged.points(merged.inner) * len(merged.kept()) > 256 * 1024:
        return "a row is too long to be kept"
    return next(filter(None, (rule(merged) for rule in RULES)), None)


def fuse(b, outputs):
    """Steps in running order, loops merged into kernels; and the decisions, one line a pair."""
    order = {step: n for n, step in enumerate(b.steps)}
    group = {step: Kernel([step]) if isinstance(step, Loop) else step for step in b.steps}
    maker = {step.name: step for step in b.steps}
    decisions = []

    def members(item):
        return item.loops if isinstance(item, Kernel) else [item]

    def before(item):
        reads = {view.buffer for step in members(item) for view in step.reads}
        return {group[maker[name]] for name in reads if name in maker} - {item}

    def leads_to(start, goals, seen):
        """Whether start needs one of the goals, through whatever else."""
        new = before(start) - seen
        seen |= new
        return bool(new & goals) or any(leads_to(item, goals, seen) for item in new)

    def note_stored(kernel):
        inside = set(members(kernel))
        needed = {view.buffer for step in b.steps if step not in inside for view in step.reads}
        needed |= {view.buffer for view in outputs if isinstance(view, View)}
        kernel.stored = needed & kernel.made.keys()
        return kernel

    for loop in b.steps:
        for name in dict.fromkeys(view.buffer for view in loop.reads if view.buffer in maker):
            one, two = group[maker[name]], group[loop]
            if one is two or not (isinstance(one, Kernel) and isinstance(two, Kernel)):
                continue
            merged = note_stored(Kernel(sorted(one.loops + two.loops, key=order.get)))
            between = (before(one) | before(two)) - {one, two}
            cycle = any(leads_to(item, {one, two}, set()) for item in between)
            why = "something between them needs one and makes the other" if cycle else refusal(merged)
            decisions.append(f"{name} → {loop.name}: {why or 'fused'}")
            if not why:
                group.update(dict.fromkeys(merged.loops, merged))
    done = {}

    def visit(item):
        for earlier in sorted(before(item) - done.keys(), key=lambda e: order[members(e)[-1]]):
            visit(earlier)
        done[item] = None

    for step in b.steps:
        if group[step] not in done:
            visit(group[step])
    return [note_stored(item) if isinstance(item, Kernel) else item for item in done], decisions


# %% [markdown]
# ## Codegen: a kernel as C
#
# A kernel of rows walks each row as often as its reductions demand: softmax once for the maximum, once for
# the exponentials and their sum, once for the quotient. `Kernel.walks` has counted that above. A value that
# is made in one walk and read in a later one stays in a small array on the stack, a row long, which means
# in the nearest cache. Everything else is a local variable of C.
#
# Two details make the C fast. The pragma shares out the rows to threads. And the declarations at its top
# say that the exponential has a vector version in the C library (`simd`), so that the C compiler may
# compute 4, 8 or 16 of them at a time.


# %%
# tiny compiler, part 4: code generation
def header(toolchain):
    """Declarations of what we call, those with a vector version marked so."""
    lines = []
    for name in ("expf", "erff", "tanhf", "sqrtf"):
        vector = name in toolchain.vector_math and toolchain.kind == "gcc"
        attribute = '__attribute__((simd("notinbranch"), const)) ' if vector else ""
        lines.append(f"{attribute}float {name}(float);")
    return "\n".join(lines)


START = {"sum": "0.0f", "max": "-__builtin_inff()"}
COMBINE = {"sum": "{0} += {1};", "max": "{0} = {1} > {0} || {1} != {1} ? {1} : {0};"}  # NaN stays NaN


def inner_pragma(reductions):
    """What stands before a walk over the row that combines these [(variable, "sum" or "max")]."""
    return ""


def times(stride, index):
    return index if stride == 1 else f"{stride} * {index}"


def place(view, axes):
    terms = [times(stride, f"i{axis}") for axis, stride in enumerate(view.strides) if stride and axis in axes]
    return " + ".join([*terms, *([str(view.offset)] if view.offset or not terms else [])])


def kernel_source(kernel, name, pragma):
    """The C function of a kernel, and the buffers that it takes."""
    made, walk, kept = kernel.made, kernel.walks(), kernel.kept()
    inputs = list(
        dict.fromkeys(v.buffer for loop in kernel.loops for v in loop.reads if v.buffer not in made)
    )
    outputs = [loop.name for loop in kernel.loops if loop.name in kernel.stored]
    everywhere = range(len(kernel.space))
    flat = " + ".join(times(math.prod(kernel.space[n + 1 :]), f"i{n}") for n in kernel.inner)

    def value(item, reader):
        if isinstance(item, Op):
            return item.c.format(*(value(arg, reader) for arg in item.args))
        if not isinstance(item, View):
            return f"{float(item)!r}f"
        maker = made.get(item.buffer)
        if maker is None or (item.buffer in kernel.stored and later(maker, reader)):
            return f"p_{item.buffer}[{place(item, everywhere)}]"
        return f"{item.buffer}_row[{flat}]" if later(maker, reader) else item.buffer

    def later(maker, reader):
        return not (maker.combine or kernel.is_row(maker)) and walk[maker] < walk[reader]

    def store(loop):
        if loop.name in kernel.stored:
            yield f"p_{loop.name}[{place(loop.out, everywhere)}] = {loop.name};"

    def nest(axes):
        return [f"for (long i{axis} = 0; i{axis} < {kernel.space[axis]}; i{axis}++) {{" for axis in axes]

    parameters = [f"const float *p_{name}" for name in inputs] + [
        f"float *restrict p_{name}" for name in outputs
    ]
    shared = kernel.outer if kernel.inner else kernel.outer[:-1]
    collapse = f" collapse({len(shared)})" if len(shared) > 1 else ""
    lines = [
        f"void {name}({', '.join(parameters)}) {{",
        f"#pragma omp parallel for{collapse}",
        *nest(kernel.outer),
    ]
    lines += [f"float {name}_row[{kernel.points(kernel.inner)}];" for name in sorted(kept)]
    for number in range(max(walk.values()) + 1):
        now = [loop for loop in kernel.loops if walk[loop] == number]
        for loop in filter(kernel.is_row, now):
            lines += [f"const float {loop.name} = {value(loop.body, loop)};", *store(loop)]
        walked = [loop for loop in now if not kernel.is_row(loop)]
        if not walked:
            continue
        folds = [loop for loop in walked if loop.combine]
        lines += [f"float {loop.name} = {START[loop.combine]};" for loop in folds]
        hint = pragma([(loop.name, loop.combine) for loop in folds]) if folds else ""
        opened = nest(kernel.inner)
        lines += [*opened[:-1], *([hint] if hint else []), *opened[-1:]]
        for loop in walked:
            if loop.combine:
                lines.append(f"const float {loop.name}_each = {value(loop.body, loop)};")
                lines.append(COMBINE[loop.combine].format(loop.name, f"{loop.name}_each"))
                continue
            lines += [f"const float {loop.name} = {value(loop.body, loop)};", *store(loop)]
            lines += [f"{loop.name}_row[{flat}] = {loop.name};"] if loop.name in kept else []
        lines += ["}"] * len(kernel.inner)
        lines += [line for loop in folds for line in store(loop)]
    lines += ["}"] * (len(kernel.outer) + 1)
    return indented(lines), inputs + outputs, outputs


def indented(lines):
    depth, text = 0, ""
    for line in lines:
        depth -= line == "}"
        text += "    " * depth + line + "\n"
        depth += line.endswith("{")
    return text


# %% [markdown]
# ## Run time: C becomes a function
#
# The file goes through the C compiler and comes back as a shared library. What is left is a list of steps:
# make the buffers, call a kernel with addresses, or call ATen with tensors. The last function is the
# backend that `torch.compile` gets. `LOG` keeps what was made, so that we can look at it.


# %%
# tiny compiler, part 5: run time
@dataclass
class Made:
    """One compiled graph, to be looked at."""

    loops: list
    kernels: list
    calls: list
    decisions: list
    source: str
    seconds: float


LOG = []
FOLDER = Path(tempfile.mkdtemp(prefix="tiny-"))


def compile_graph(gm, example_inputs, pragma=None):
    """The four stages, one after the other, and a function that runs what they made."""
    start, toolchain = time.perf_counter(), find_toolchain()
    b, inputs, outputs = lower(gm)
    items, decisions = fuse(b, outputs)
    kernels = [item for item in items if isinstance(item, Kernel)]
    printed = [kernel_source(k, f"kernel{n}", pragma or inner_pragma) for n, k in enumerate(kernels)]
    source = "\n".join([header(toolchain), *(text for text, _, _ in printed)])
    functions = {}
    if kernels:
        library = FOLDER / f"graph{len(LOG)}.so"
        toolchain.compile(source, library)
        loaded = ctypes.CDLL(str(library))
        for n, (kernel, (_, names, made)) in enumerate(zip(kernels, printed)):
            function = getattr(loaded, f"kernel{n}")
            function.argtypes, function.restype = [ctypes.c_void_p] * len(names), None
            functions[kernel] = function, names, made

    def tensor(value, known):
        if not isinstance(value, View):
            return value
        whole = known[value.buffer]
        if value.buffer not in b.buffers or b.buffers[value.buffer] == (value.shape, value.strides):
            return whole
        return whole.as_strided(value.shape, value.strides, whole.storage_offset() + value.offset)

    def run(given):
        known = dict(zip(inputs, given))
        given.clear()
        for item in items:
            if isinstance(item, Call):
                args, kwargs = tree_map(lambda v: tensor(v, known), (item.args, item.kwargs))
                known[item.name] = item.target(*args, **kwargs)
                continue
            function, names, made = functions[item]
            known.update((name, torch.empty_strided(*b.buffers[name])) for name in made)
            function(*[known[name].data_ptr() for name in names])
        return [tensor(value, known) for value in outputs]

    run._boxed_call = True  # it empties the list that it is given, so that inputs can be freed early
    calls = [item for item in items if isinstance(item, Call)]
    loops = [step for step in b.steps if isinstance(step, Loop)]
    LOG.append(Made(loops, kernels, calls, decisions, source, time.perf_counter() - start))
    return run


def tiny(gm, inputs):
    """The backend."""
    return aot_autograd(fw_compiler=compile_graph, bw_compiler=compile_graph, decompositions=TABLE)(
        gm, inputs
    )


# %%
cells = [cell for cell in get_ipython().user_ns["In"] if cell.startswith("# tiny compiler, part")]
count = sum(bool(line.strip()) for cell in dict.fromkeys(cells) for line in cell.splitlines())
print(f"the compiler: {count} lines in {len(dict.fromkeys(cells))} cells")
assert count < 400

# %%
x = torch.randn(2048, 1024)
compiled = torch.compile(lambda x: torch.softmax(x, -1) * 2, backend=tiny, dynamic=False)
torch.testing.assert_close(compiled(x), torch.softmax(x, -1) * 2)
print(*LOG[-1].decisions, sep="\n")
print(f"{len(LOG[-1].loops)} loops, {len(LOG[-1].kernels)} kernel, made in {LOG[-1].seconds * 1e3:.0f} ms\n")
print(LOG[-1].source)

# %% [markdown]
# This is the whole path of one cell: one kernel, three walks over each row, one array that stays on the
# stack. Nothing but the input and the result touches memory.
#
# ### Exercise: what becomes of a model?
#
# A GELU MLP is `Linear`, `GELU`, `Linear`. Matrix products have no lowering here, and a sum down the
# columns (a bias's gradient is one) is not along rows, so both go to ATen. How many kernels of ours and how
# many calls into ATen will its forward pass have, and how many its backward pass, where the input wants a
# gradient too? Write each as `(kernels, calls)`.
#
# <details><summary>Hint</summary>
#
# Forward, a linear layer is one `addmm`. Backward, it is two products, one for the gradient of its input
# and one for that of its weight, and one sum for its bias. Between them stands the derivative of GELU, all
# of it pointwise.
#
# </details>

# %% tags=["exercise"]
counts = {"forward": ..., "backward": ...}  # each (kernels, calls)
compiler = {
    "backend": tiny,
    "log": LOG,
    "lowerings": LOWERINGS,
    "rules": RULES,
    "graph": compile_graph,
    "table": TABLE,
}
check("build.kernels", counts, compiler)

# %% tags=["wrong"]
counts = {"forward": (4, 2), "backward": (11, 6)}

# %% tags=["wrong"]
counts = {"forward": (1, 2), "backward": (1, 4)}

# %% tags=["wrong"]
counts = {"forward": 1, "backward": 1}

# %% tags=["solution"]
counts = {"forward": (1, 2), "backward": (1, 6)}

# %% [markdown]
# ## Is it right?
#
# A compiler that is fast and wrong is of no use, so before any time we compare results. Four programs,
# forward and backward, each output and each gradient against eager PyTorch.


# %%
class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) * 2


class Chain(nn.Module):
    def forward(self, x):
        return torch.exp(-x * x) * x + torch.exp(-x) / 2


PROGRAMS = {
    "chain": (Chain(), (2048, 1024)),
    "softmax": (Softmax(), (2048, 1024)),
    "layer norm": (nn.LayerNorm(1024), (2048, 1024)),
    "GELU MLP": (Mlp(256), (512, 256)),
}


def results(call, module, x, grad):
    """The output, and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    out = call(x)
    out.backward(grad)
    return [out.detach(), x.grad, *(p.grad.clone() for p in module.parameters())]


made = {}
print(f"{'':20}loops kernels calls   furthest from eager, relative to its size")
for name, (module, shape) in PROGRAMS.items():
    x, grad = torch.randn(shape), torch.randn(shape)
    wanted = results(module, module, x, grad)
    before = len(LOG)
    call = torch.compile(module, backend=tiny, dynamic=False)
    got = results(call, module, x, grad)
    made[name] = LOG[before:]
    worst = max(((a - b).norm() / b.norm()).item() for a, b in zip(got, wanted))
    assert worst < 1e-5, (name, worst)
    for part, graph in zip(("forward", "backward"), made[name]):
        counted = (len(graph.loops), len(graph.kernels), len(graph.calls))
        print("{:10} {:8} {:5} {:7} {:5}   {:.0e}".format(name, part, *counted, worst))
assert [len(graph.kernels) for graph in made["softmax"]] == [1, 1]
assert all(graph.kernels for graphs in made.values() for graph in graphs)

# %% [markdown]
# The layer norm is two walks for the statistics and one for the result, in one kernel, forward. In its
# backward pass fusion has something to refuse:

# %%
print(*made["layer norm"][1].decisions, sep="\n")
assert any(line.endswith("they walk different points") for line in made["layer norm"][1].decisions)

# %% [markdown]
# The refused loop has one point a row. When it was offered, the loop that reads it stood alone, and alone
# it walks no rows. Had that one joined its other producer first, both would have fitted. A greedy algorithm
# depends on its order; the real compiler offers a loop first to the producer with which it saves the most
# bytes.
#
# ## What fusion is worth
#
# A rule that always refuses gives one kernel a loop: each operator on its own, as eager PyTorch would run
# these six. The same loops, the same C compiler; the only difference is where values wait.


# %%
def fastest(call, x, rounds=15):
    """Seconds of the quickest of some calls, the first not counted."""
    call(x)
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        call(x)
        samples.append(time.perf_counter() - start)
    return min(samples)


x = torch.randn(2048, 1024)
chain = lambda x: torch.softmax(x, -1) * 2  # noqa: E731
fused_time = fastest(torch.compile(chain, backend=tiny, dynamic=False), x)
RULES.append(lambda merged: "fusion is off")
torch.compiler.reset()  # else Dynamo finds the code that it has compiled already
apart_time = fastest(torch.compile(chain, backend=tiny, dynamic=False), x)
RULES.clear()
print(f"{len(LOG[-1].kernels)} kernels: {apart_time * 1e3:.1f} ms    one kernel: {fused_time * 1e3:.1f} ms")

# %% [markdown]
# ## Beside the others
#
# Now the honest table: eager, ours, the real nbcompile, Inductor, in turns on the same inputs, the median
# of 9 calls. The time of the first call, which compiles, stands in the lower half: a compiler has to earn
# that back. (Where there has been a run before, nbcompile and Inductor find part of their work in a cache.
# Ours has none.)

# %%
CONTESTANTS = {
    "eager": lambda module: module,
    "tiny": lambda module: torch.compile(module, backend=tiny, dynamic=False),
    "nbcompile": lambda module: nbcompile.compile(module),
    "inductor": lambda module: torch.compile(module, backend="inductor", dynamic=False),
}
steady, first = {}, {}
for name, (module, shape) in PROGRAMS.items():
    torch.compiler.reset()
    x, grad = torch.randn(shape), torch.randn(shape)
    leaf = x.clone().requires_grad_()  # a forward pass that will be differentiated: one graph for both rows
    calls, samples = {}, {who: ([], []) for who in CONTESTANTS}
    for who, compile_with in CONTESTANTS.items():
        calls[who] = compile_with(module)
        start = time.perf_counter()
        got = results(calls[who], module, x, grad)
        first[name, who] = time.perf_counter() - start
        for a, b in zip(got, results(module, module, x, grad)):
            assert (a - b).norm() < 1e-4 * b.norm(), (name, who)
    for _ in range(9):
        for who, call in calls.items():
            start = time.perf_counter()
            call(leaf)
            samples[who][0].append(time.perf_counter() - start)
            start = time.perf_counter()
            results(call, module, x, grad)
            samples[who][1].append(time.perf_counter() - start)
    for who, (forward, both) in samples.items():
        steady[name, "forward", who] = statistics.median(forward)
        steady[name, "and backward", who] = statistics.median(both)

print(f"{'milliseconds a call':26}" + "".join(f"{who:>12}" for who in CONTESTANTS))
for name in PROGRAMS:
    for part in ("forward", "and backward"):
        row = "".join(f"{steady[name, part, who] * 1e3:12.2f}" for who in CONTESTANTS)
        print(f"{name if part == 'forward' else '':12}{part:14}{row}")
print("\nseconds until the first results of both passes")
for name in PROGRAMS:
    print(f"{name:26}" + "".join(f"{first[name, who]:12.2f}" for who in CONTESTANTS))

# %%
for name in PROGRAMS:
    for part in ("forward", "and backward"):
        ours = steady[name, part, "tiny"]
        told = ", ".join(
            f"{steady[name, part, who] / ours:.1f}× {who}" for who in CONTESTANTS if who != "tiny"
        )
        print(f"{name} {part}: the speed of tiny is {told}")

# %% [markdown]
# A number above 1 means that ours is ahead. There are three reasons for what stands there, and each can be
# found in the source above. Where a product of matrices decides, all contestants call the same library, so
# the four are close. Where a chain is pointwise, the bytes decide, and fusion has removed as many as
# anybody could; between compilers, what is left is the code of one loop and the cost of a call. Where rows
# are summed, ours has reason to fall behind: C promises to add the numbers of a row one after the other, so
# a sum and a maximum are computed one number at a time (the last exercise is about that), and the sums down
# columns in the backward pass of a layer norm go to ATen, for which their terms must be written to memory
# first.
#
# ### Exercise: an operator
#
# `silu` is decomposed into `x * sigmoid(x)`, and nobody has lowered `aten.sigmoid.default` yet, so it is a
# call. Write its lowering. The result has to hold at the edges too: at 100, at -100, at infinity, for NaN.
#
# <details><summary>Hint</summary>
#
# A template can name its hole once, `"sqrtf({})"`. What is `expf(100)` in float32, and what is infinity
# divided by infinity? Of the two ways to write the sigmoid, one avoids that.
#
# </details>


# %% tags=["exercise"]
def sigmoid(b, x): ...  # return what b.pointwise(...) returns


check("build.operator", sigmoid, compiler)


# %% tags=["wrong"]
def sigmoid(b, x):
    return b.pointwise("(expf({0}) / (1.0f + expf({0})))", x)


# %% tags=["wrong"]
def sigmoid(b, x):
    return b.pointwise("(1.0f / (1.0f + expf({})))", x)


# %% tags=["wrong"]
def sigmoid(b, x):
    return NotImplemented


# %% tags=["solution"]
def sigmoid(b, x):
    return b.pointwise("(1.0f / (1.0f + expf(-{})))", x)


# %% [markdown]
# ### Exercise: a fusion rule
#
# A kernel of rows shares out *rows* to threads. With two rows of a million elements, at most two threads
# have work, and a pointwise loop that could have used all cores is held back by its kernel. The real
# compiler refuses such pairs with the code `few-rows`. Write the rule for ours: given the merged kernel,
# return a reason if it walks rows (`kernel.inner` is not empty), has fewer than 8 of them, and each is
# longer than 32,768 points. Return nothing otherwise: pointwise kernels have no rows, and short rows are
# too little work to share out.
#
# <details><summary>Hint</summary>
#
# `kernel.points(kernel.outer)` is the number of rows, `kernel.points(kernel.inner)` the length of each.
#
# </details>


# %% tags=["exercise"]
def few_rows(kernel): ...  # a sentence, or None


check("build.rule", few_rows, compiler)


# %% tags=["wrong"]
def few_rows(kernel):
    if kernel.points(kernel.outer) < 8:
        return "there are too few rows to share out"


# %% tags=["wrong"]
def few_rows(kernel):
    if kernel.inner:
        return "it has rows"


# %% tags=["wrong"]
def few_rows(kernel):
    if not kernel.inner and kernel.points(kernel.outer) < 8:
        return "there are too few rows to share out"


# %% tags=["solution"]
def few_rows(kernel):
    rows, length = kernel.points(kernel.outer), kernel.points(kernel.inner)
    if kernel.inner and rows < 8 and length > 32_768:
        return f"only {rows} rows of {length:,}: one kernel would leave cores idle"


# %% [markdown]
# ### Exercise: vectorise
#
# A vector unit adds 8 or 16 numbers at a time, if it may add every eighth number separately and combine the
# eight sums at the end. That is another order of additions, so the C compiler does it only when told that
# it may. OpenMP has a pragma for it, which stands before the loop: `#pragma omp simd reduction(+:a,b)
# reduction(max:c)` says that `a` and `b` are sums and `c` is a maximum. Write the function that makes this
# line from the reductions of a walk, given as pairs such as `[("amax", "max"), ("sum_1", "sum")]`. To pass,
# softmax has to stay right and become at least 1.3 times as fast.
#
# <details><summary>Hint</summary>
#
# One `reduction(...)` clause a variable is fine too. Only the operator has to be written OpenMP's way.
#
# </details>


# %% tags=["exercise"]
def simd_pragma(reductions): ...  # one line of C


check("build.vector", simd_pragma, compiler)


# %% tags=["wrong"]
def simd_pragma(reductions):
    return "#pragma omp simd"


# %% tags=["wrong"]
def simd_pragma(reductions):
    return "#pragma omp simd " + " ".join(f"reduction(+:{name})" for name, _ in reductions)


# %% tags=["wrong"]
def simd_pragma(reductions):
    return "#pragma omp simd " + " ".join(f"reduction({combine}:{name})" for name, combine in reductions)


# %% tags=["solution"]
def simd_pragma(reductions):
    sign = {"sum": "+", "max": "max"}
    return "#pragma omp simd " + " ".join(f"reduction({sign[how]}:{name})" for name, how in reductions)


# %% [markdown]
# ## Where the real one differs
#
# The four stages are the same, and so are the ideas in them. What follows is each thing that ours lacks,
# with the file of `nbcompile` that does it, so that you know where to read on.

# %%
FURTHER = {
    "indices are expressions, not only strides: gather, roll, cat, any reshape": "loop_ir/index.py",
    "an interpreter of loops that is slow and plainly right, to test against": "loop_ir/interpret.py",
    "a verifier that runs after each pass under test": "loop_ir/verify.py",
    "sizes that are symbols, so that one kernel serves many": "lower/sizes.py",
    "each operator has samples, and each sample is compared with ATen": "lower/registry.py",
    "kernels are aligned by what they read, also if axes differ in order": "fuse/alignment.py",
    "the largest saving first, pairs that only read the same, a record of each": "fuse/loops_to_groups.py",
    "refusals for cost: few rows, work done again, the other order of memory": "fuse/legality.py",
    "sums down columns, by partial sums of each thread": "codegen/c/nests.py",
    "half types, integers, NaN and infinity as eager has them": "codegen/c/expressions.py",
    "a wrapper in Python is generated, not interpreted; memory is freed early": "codegen/wrapper.py",
    "the same groups printed for a GPU": "codegen/triton/groups_to_triton.py",
    "a graph seen before comes from a cache, with its record": "runtime/graph_cache.py",
    "what fails to compile runs in ATen, and the record says so": "runtime/bind.py",
    "every line of C knows the line of your cell": "../record/provenance.py",
}
home = Path(nbcompile.__file__).parent
compiler = home / "compiler"
for point, file in FURTHER.items():
    print(f"{point:78} {file:34}{len((compiler / file).read_text().splitlines()):5} lines")
total = sum(len(path.read_text().splitlines()) for path in home.rglob("*.py"))
print(f"\nall of nbcompile: {total:,} lines of Python; ours: {count}")
assert all((compiler / file).exists() for file in FURTHER.values())

# %% [markdown]
# ## What to take along
#
# A compiler for tensors is four translations, each simple if the form it works on is right: a graph of
# operators, loops with strides, kernels, C. Lowering is what makes fusion possible, since two loops can be
# compared where two operators' names cannot. Fusion is a question of legality first, for which a handful of
# rules is enough, and of cost second, where the large compilers spend their lines. A fallback to the
# library for all that is left is what lets so small a compiler run whole models, forward and backward. And
# the table was needed: what ours is good at and where it is behind could not be told from its source.
#
# This is the last notebook of the workshop. The one before it, 16, *Write your own*, extends the real
# compiler in the same places.

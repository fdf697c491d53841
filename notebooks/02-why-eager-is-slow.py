# %% [markdown]
# # Why eager is slow
#
# A processor can do far more arithmetic than most PyTorch programs get from it. This notebook finds out
# where the rest goes, by measuring on the machine you are on.
#
# After it you can look at a line of PyTorch and say what will bound its time: the cost of asking for it,
# the memory that it moves, or its arithmetic. And you can predict, from bytes alone, what fusing it with
# its neighbours will buy. It takes about 25 minutes to read and solve. All its cells together run in about
# a minute.

# %%
import resource

import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.bench.measure.roofline import measure_ceilings
from nbcompile.record.environment import processor_name
from nbcompile.workshop import check
from nbcompile.workshop.charts import log_log
from nbcompile.workshop.eager import in_turns, seconds

# %load_ext nbcompile
torch.manual_seed(0)
torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
print(
    f"torch {torch.__version__} on {torch.cuda.get_device_name() if device == 'cuda' else processor_name()}"
)

# %% [markdown]
# ## The clock
#
# Every number below comes from `seconds(call)`: it calls a few times to warm up, repeats the call until a
# sample is long enough for the clock, and takes the median of many samples. `in_turns` does the same with
# several calls that alternate, so that a change of the machine's speed meets all of them.
#
# On a CPU we hold torch to one thread and count the time that this thread *ran*. What else the machine is
# doing then stays out of the numbers. On a GPU the clock stops when the GPU has finished, not when Python
# has.

# %% [markdown]
# ## 1. The price of asking
#
# One of the simplest operations there is: add 1 to every element. We time it for tensors of 16 elements, of
# 64, and so on up to millions. If the work were all that counts, a quarter of the elements would take a
# quarter of the time.

# %%
sizes = [4**power for power in range(2, 12)] + ([4**12, 4**13, 4**14] if device == "cuda" else [6_000_000])
times = {}
for n in sizes:
    x = torch.rand(n, device=device)
    times[n] = seconds(lambda x=x: x + 1, budget=0.05)

print(f"{'elements':>12} {'time':>12} {'per element':>14} {'bytes moved a second':>22}")
for n, t in times.items():
    print(f"{n:12,} {t * 1e6:9.1f} µs {t / n * 1e9:11.3f} ns {2 * 4 * n / t / 1e9:17.2f} GB/s")

# %%
floor = min(times.values())
slope = times[sizes[-1]] / sizes[-1]
print(f"floor: {floor * 1e6:.1f} µs, as long as the work itself takes for {floor / slope:,.0f} elements")
assert times[256] < 2 * times[16], "between 16 and 256 elements there is only the floor"
assert times[sizes[-1]] > 10 * floor, "a large tensor costs far more than the floor"
log_log(
    {
        "x + 1, measured": [(n, t * 1e6) for n, t in times.items()],
        "in proportion to the size": [(n, n * slope * 1e6) for n in sizes if n * slope > floor / 20],
    },
    x="elements",
    y="time, µs",
)

# %% [markdown]
# The curve has two parts.
#
# On the left it is flat. However few elements there are, the operation costs the same: the **floor**. It is
# the price of asking. On the right the time grows with the size; there the work is what counts. Between the
# two the curve may sag below the straight line, because tensors of middling size stay in a cache that is
# faster than memory.
#
# What is the floor made of? Python looks up the method, parses the arguments, and calls into C++. The
# dispatcher finds the function for this device, this dtype, and for autograd. Shapes are broadcast, the
# type of the result is worked out, a tensor is allocated, and only then does a loop run (or, on a GPU, is a
# kernel launched). Some prices:

# %%
tiny, leaf = torch.rand(16, device=device), torch.rand(16, device=device, requires_grad=True)
out, number = torch.empty_like(tiny), 0.5
weight, bias = torch.rand(16, 16, device=device), torch.rand(16, device=device)
prices = in_turns(
    {
        "Python: number + 1": lambda: number + 1,
        "x + 1 into a tensor that exists": lambda: torch.add(tiny, 1, out=out),
        "x + 1": lambda: tiny + 1,
        "x + 1, and autograd records it": lambda: leaf + 1,
        "F.linear(x, weight, bias)": lambda: F.linear(tiny, weight, bias),
        "F.layer_norm(x, (16,))": lambda: F.layer_norm(tiny, (16,)),
    },
    budget=0.05,
)
for what, t in prices.items():
    print(f"{what:34} {t * 1e6:7.2f} µs")

# %% [markdown]
# A program of many small operations pays the floor again and again, and its arithmetic hardly shows. This
# is the first of three ways in which eager is slow, and the easiest to predict.
#
# ### Exercise: four hundred small operations
#
# A small model runs 400 pointwise operations, one after the other, on tensors of 16 elements. How many
# seconds will one run take on this machine? A factor of 2 either way is good enough.
#
# <details><summary>Hint</summary>
#
# Compare the rows for 16 and for 64 elements in the table of section 1. What do 48 more elements cost?
#
# </details>

# %% tags=["exercise"]
answer = ...  # seconds
check("eager.overhead", answer)

# %% tags=["wrong"]
answer = floor

# %% tags=["wrong"]
answer = 400 * 16 * slope

# %% tags=["solution"]
answer = 400 * times[16]

# %% [markdown]
# ## 2. Two ceilings
#
# Now the right side of the curve. A large operation can be held up by two things: its operands have to come
# from memory and its result has to go back, and its arithmetic has to be done. Each has a highest rate on a
# given machine. We measure both: copy a tensor, which is memory and nothing else, and multiply two large
# matrices, which is as close to pure arithmetic as a library comes. `measure_ceilings` is what `%%compile`
# uses for its own roofline. It goes by the wall clock and copies more, so it may find less, above all on a
# busy machine. A ceiling is what nothing exceeds, so we keep the highest rate seen, also by the last two rows
# of the table in section 1.

# %%
N = 2**26 if device == "cuda" else 2**22
side = 4096 if device == "cuda" else 768
x, y = torch.rand(N, device=device), torch.empty(N, device=device)
a, b = torch.rand(side, side, device=device), torch.empty(side, side, device=device)
took = in_turns({"copy": lambda: y.copy_(x), "product": lambda: torch.mm(a, a, out=b)})
found = measure_ceilings(device)

largest = [2 * 4 * n / t for n, t in times.items() if n >= N]  # of section 1
bandwidth = max(2 * 4 * N / took["copy"], found.bandwidth, *largest)
rate = 2 * side**3 / took["product"]
rate = rate if device == "cuda" else max(rate, found.float32_rate)
balance = rate / bandwidth
print(f"memory:     {bandwidth / 1e9:8.1f} GB/s   (measure_ceilings: {found.bandwidth / 1e9:.1f})")
print(f"arithmetic: {rate / 1e9:8.1f} Gop/s  (measure_ceilings: {found.float32_rate / 1e9:.1f})")
print(
    f"balance:    {balance:8.1f} operations a byte, {4 * balance:.0f} for each float32 number that is moved"
)
assert balance > 1

# %% [markdown]
# The last line is the one to remember. While one number travels between memory and the core, the core could
# do that many operations with it. A program that does fewer waits for memory.
#
# What a program asks for is its **arithmetic intensity**: operations divided by the bytes that it has to
# move. By hand, in float32:
#
# - `x + 1` reads 4 bytes and writes 4 for each element, and does 1 operation: 1/8.
# - `x.sum()` reads 4 bytes an element, does 1 operation and writes next to nothing: 1/4.
# - A matrix times a vector reads each element of the matrix once, and multiplies and adds with it: 2/4.
# - A product of two n × n matrices does 2n³ operations on 3n² elements: n/6, so it grows with n.
#
# The two ceilings and the intensity together say how fast a program can be at best: `min(rate, intensity ×
# bandwidth)`. Drawn on logarithmic axes this is the **roofline**: a slope, where memory is the limit, and a
# flat part, where arithmetic is.

# %%
matrix, vector = torch.rand(N // 2048, 2048, device=device), torch.rand(2048, device=device)
eight = torch.rand(2048, 8, device=device)
rows = N // 2048
programs = {  # name: operations, bytes, the call
    "x + 1": (N, 8 * N, lambda: torch.add(x, 1, out=y)),
    "sum": (N, 4 * N, lambda: x.sum()),
    "matrix × vector": (2 * N, 4 * (N + rows + 2048), lambda: matrix @ vector),
    "matrix × 8 columns": (16 * N, 4 * (N + 8 * rows + 8 * 2048), lambda: matrix @ eight),
    "square product": (2 * side**3, 12 * side**2, lambda: torch.mm(a, a, out=b)),
}
took = in_turns({name: call for name, (_, _, call) in programs.items()})
print(f"{'':20}{'ops/byte':>9}{'at best':>12}{'measured':>12}   bound by")
points = {}
for name, (operations, moved, _) in programs.items():
    by_memory, by_arithmetic = moved / bandwidth, operations / rate
    limit = max(by_memory, by_arithmetic)
    points[name] = (operations / moved, operations / took[name] / 1e9)
    which = "memory" if by_memory > by_arithmetic else "arithmetic"
    print(f"{name:20}{operations / moved:9.2f}{limit * 1e3:9.2f} ms{took[name] * 1e3:9.2f} ms   {which}")
assert points["x + 1"][1] < rate / 1e9 / 10, "the addition leaves most of the arithmetic unused"

# %%
ends = (0.05, balance, 1000)
log_log(
    {"roof of this machine": [(i, min(rate, i * bandwidth) / 1e9) for i in ends]},
    x="arithmetic intensity, operations a byte",
    y="10⁹ operations a second",
    points=points,
)

# %% [markdown]
# The addition reaches a small part of the arithmetic that the machine offers, and nothing can be done about
# it *within* that operation: its point is close to the slope already. What could move it to the right is
# more arithmetic for each byte. That is what fusion does, as section 3 shows. (A point may lie above the
# slope, if part of its data comes from a cache.)
#
# ### Exercise: the intensity of a product
#
# Not all matrix products are square. Write a function that returns the operations a byte of an m × k matrix
# times a k × n one, in float32, if each of the three matrices crosses the memory bus once.


# %% tags=["exercise"]
def intensity(m, k, n):
    return ...  # operations a byte


check("eager.intensity", intensity)


# %% tags=["wrong"]
def intensity(m, k, n):
    return m * k * n / (4 * (m * k + k * n + m * n))


# %% tags=["wrong"]
def intensity(m, k, n):
    return 2 * m * k * n / (4 * (m * k + k * n))


# %% tags=["wrong"]
def intensity(m, k, n):
    return 2 * m * k * n / (m * k + k * n + m * n)


# %% tags=["solution"]
def intensity(m, k, n):
    operations = 2 * m * k * n
    elements = m * k + k * n + m * n
    return operations / (4 * elements)


# %% [markdown]
# ### Exercise: what bounds it?
#
# Four calls. For each, say whether its time is mostly `"overhead"` (the floor), `"memory"` or
# `"arithmetic"`. The checker runs each of them and holds the time against the floor and both ceilings.
#
# <details><summary>Hint</summary>
#
# Work out bytes and operations, divide each by its ceiling, and compare the larger quotient with the floor.
#
# </details>

# %%
big = 4096 if device == "cuda" else 1024
calls = {
    "activation": (torch.relu, (torch.rand(N, device=device),)),
    "square": (torch.mm, (torch.rand(big, big, device=device), torch.rand(big, big, device=device))),
    "small square": (torch.mm, (torch.rand(8, 8, device=device), torch.rand(8, 8, device=device))),
    "one row": (torch.mm, (torch.rand(1, 2048, device=device), torch.rand(2048, N // 1024, device=device))),
}
for name, (function, inputs) in calls.items():
    print(f"{name:14} {function.__name__:5} of {' and '.join(str(tuple(i.shape)) for i in inputs)}")

# %% tags=["exercise"]
answer = {"activation": ..., "square": ..., "small square": ..., "one row": ...}
check("eager.bound", answer, calls)

# %% tags=["wrong"]
answer = {
    "activation": "memory",
    "square": "arithmetic",
    "small square": "arithmetic",
    "one row": "arithmetic",
}

# %% tags=["wrong"]
answer = {"activation": "arithmetic", "square": "arithmetic", "small square": "overhead", "one row": "memory"}

# %% tags=["wrong"]
answer = {"activation": "memory", "square": "memory", "small square": "overhead", "one row": "memory"}

# %% tags=["solution"]
answer = {"activation": "memory", "square": "arithmetic", "small square": "overhead", "one row": "memory"}

# %% [markdown]
# ## 3. Ten operations, ten trips
#
# Eager runs one operation at a time. It cannot know that the result of the first will be read by the second
# and by nobody else, so it writes the result to memory, and the second operation reads it back. A chain of
# ten pointwise operations makes ten trips through memory: ten reads and ten writes, for one number in and
# one number out.


# %%
def ten(x):
    y = x * 0.9 + 0.1
    y = torch.relu(y) * 1.1
    y = y * y - 0.2
    y = torch.clamp(y, -1, 1) * 0.5
    return torch.relu(y + 0.3)


trip = 2 * 4 * N  # bytes: each element read and written, 4 bytes each
print(f"{N:,} elements; one trip is {trip / 1e6:.1f} MB and takes {trip / bandwidth * 1e3:.2f} ms at best")
predicted = {"eager": 10 * trip / bandwidth, "fused": trip / bandwidth}
print({name: f"{t * 1e3:.1f} ms" for name, t in predicted.items()})

# %% [markdown]
# That is a prediction from bytes alone; nothing about the ten operations went into it. Before we measure,
# the same chain through the compiler. `--no-bench` leaves the timing out, since we do it ourselves.

# %%
# %%compile --no-bench --into fused
y = x * 0.9 + 0.1
y = torch.relu(y) * 1.1
y = y * y - 0.2
y = torch.clamp(y, -1, 1) * 0.5
y = torch.relu(y + 0.3)

# %%
kernel = fused.kernels[0]
print(
    f"{len(kernel.loops)} loops in {len(fused.kernels)} kernel; it moves "
    f"{(kernel.bytes_read + kernel.bytes_written) / 1e6:.1f} MB, {kernel.flops / N:.0f} operations an element"
)
assert len(fused.kernels) == 1 and kernel.bytes_read + kernel.bytes_written == trip

# %% [markdown]
# Ten loops in one kernel. It reads `x` once and writes the end of the chain once. What was between lives in
# registers. Now the clock:

# %%
compiled = nbcompile.compile(ten)
torch.testing.assert_close(compiled(x), ten(x))
measured = in_turns({"eager": lambda: ten(x), "fused": lambda: compiled(x)})
for name in predicted:
    ratio = measured[name] / predicted[name]
    print(
        f"{name:6} predicted {predicted[name] * 1e3:6.2f} ms, measured {measured[name] * 1e3:6.2f} ms: "
        f"{ratio:.2f} times as long"
    )
print(f"predicted speed-up 10, measured {measured['eager'] / measured['fused']:.1f}")
assert measured["eager"] > 3 * measured["fused"]

# %% [markdown]
# Each prediction is a least time. Fused is above it because the arithmetic of ten operations on one core is
# little but not nothing. Eager is above it because its results cost more than their bytes: section 4 is about
# that.
#
# If bytes are what counts, a fused chain should grow far more slowly with its length than an eager one.

# %%
from nbcompile.workshop.eager import pointwise_chain


def race(function, compiled, *inputs):
    return in_turns({"eager": lambda: function(*inputs), "compiled": lambda: compiled(*inputs)}, budget=0.1)


lines = {"eager": [], "compiled": []}
print(f"{'operations':>10}{'eager':>12}{'compiled':>12}")
for ops in (1, 2, 4, 8, 16):
    chain = pointwise_chain(ops)
    took = race(chain, nbcompile.compile(chain), x)
    for name, t in took.items():
        lines[name].append((ops, t * 1e3))
    print(f"{ops:10}{took['eager'] * 1e3:9.2f} ms{took['compiled'] * 1e3:9.2f} ms")
grown = {name: line[-1][1] / line[0][1] for name, line in lines.items()}
print(
    f"16 operations against 1: eager takes {grown['eager']:.1f} times as long, "
    f"compiled {grown['compiled']:.1f} times"
)
assert grown["eager"] > 2 * grown["compiled"]
log_log(lines, x="operations in the chain", y="time, ms")

# %% [markdown]
# In the roofline fusion is a step to the right: the same bytes, and more operations for each of them. Most of
# the arithmetic had been waiting for memory. It is free until it takes as long as the bytes do.
#
# ### Exercise: count the bytes
#
# `x` has 2048 × 1024 elements, `scale` and `bias` have 1024 each, all in float32.
#
# ```python
# def scaled(x, scale, bias):
#     y = x * scale
#     y = y + bias
#     y = torch.relu(y)
#     return y.sum(-1)
# ```
#
# How many bytes does it move, one operation at a time and fused into one kernel? (2 % either way is fine,
# so the small tensors do not matter.) The checker compiles it both ways and adds up what the kernels read
# and write.

# %% tags=["exercise"]
answer = {"eager": ..., "fused": ...}
check("eager.bytes", answer)

# %% tags=["wrong"]
answer = {"eager": 8 * 2048 * 1024 * 4, "fused": 4 * 2048 * 1024}

# %% tags=["wrong"]
answer = {"eager": 7 * 2048 * 1024 * 4, "fused": 2 * 4 * 2048 * 1024}

# %% tags=["wrong"]
answer = {"eager": 7 * 2048 * 1024, "fused": 2048 * 1024}

# %% tags=["solution"]
x_bytes = 2048 * 1024 * 4  # three operations read and write as much, the sum reads it and writes little
answer = {"eager": (2 + 2 + 2 + 1) * x_bytes, "fused": x_bytes}

# %% [markdown]
# ### Exercise: predict the time
#
# Write the prediction of section 3 as a function: seconds for a chain of `ops` pointwise operations on `n`
# float32 elements, eager and fused, given a bandwidth in bytes a second. The checker measures the bandwidth
# with a chain of one, then runs chains of 4 and 8, and accepts a factor of 3: what is left in the caches by
# whatever ran before counts too.


# %% tags=["exercise"]
def predict(ops, n, bandwidth):
    return ...  # {"eager": seconds, "fused": seconds}


check("eager.predict", predict)


# %% tags=["wrong"]
def predict(ops, n, bandwidth):
    return {"eager": ops * 8 * n / bandwidth, "fused": ops * 8 * n / bandwidth}


# %% tags=["wrong"]
def predict(ops, n, bandwidth):
    return {"eager": ops * 2 * n / bandwidth, "fused": 2 * n / bandwidth}


# %% tags=["solution"]
def predict(ops, n, bandwidth):
    trip = 2 * 4 * n  # every element is read and written, and has 4 bytes
    return {"eager": ops * trip / bandwidth, "fused": trip / bandwidth}


# %% [markdown]
# ## 4. Memory has to come from somewhere
#
# Each eager operation also needs a place for its result. For small tensors the allocator has one at hand. A
# large one it may get from the operating system, and give back as soon as the tensor is dropped. Memory
# fresh from the system has no pages behind it: the first touch of each page stops the program while the
# system finds one and fills it with zeros, a **page fault**. The operating system counts them, so we can
# too.


# %%
def faults(call, times=3):
    call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / times


large = torch.rand(2**28 if device == "cuda" else 2**24, device=device)
place = torch.empty_like(large)
add_one = nbcompile.compile(lambda x: x + 1)
ways = {
    "x + 1, a new tensor": lambda: large + 1,
    "torch.add(x, 1, out=place)": lambda: torch.add(large, 1, out=place),
    "place.add_(1)": lambda: place.add_(1),
    "compiled x + 1": lambda: add_one(large),
}
took = in_turns(ways, budget=0.1)
print(f"{large.numel():,} elements, {large.nbytes / 1e6:.0f} MB")
for name, call in ways.items():
    print(f"{name:28} {took[name] * 1e3:7.2f} ms {faults(call):8.0f} page faults")

# %% [markdown]
# Where the first line has page faults, they cost as much as the work itself, or more. (With glibc this
# starts at 32 MB.) Writing into a tensor that exists avoids them, at the price of code that is harder to
# read and that autograd often cannot take. On a GPU the column is empty, because there torch's allocator
# keeps what it has been given.
#
# Our compiler keeps large buffers in a pool and hands them out again when nobody holds them any more, so it
# has few faults too. That is *not* fusion, so let us keep the two apart. The option `fuse=False` gives one
# kernel an operation, and the pool all the same.

# %%
unfused = nbcompile.compile(ten, options={"fuse": False})
fused_ten = nbcompile.compile(ten)
took = in_turns(
    {
        "eager": lambda: ten(large),
        "compiled, not fused": lambda: unfused(large),
        "compiled, fused": lambda: fused_ten(large),
    },
    budget=0.1,
)
for name, t in took.items():
    print(f"{name:20} {t * 1e3:7.1f} ms, {took['eager'] / t:5.1f} times as fast as eager")
print(
    f"of that, memory that is used again {took['eager'] / took['compiled, not fused']:.1f} times, "
    f"fusion {took['compiled, not fused'] / took['compiled, fused']:.1f} times"
)
assert took["compiled, fused"] < took["eager"]

# %% [markdown]
# ## 5. What fusion can buy, and what it cannot
#
# From bytes follows a rule for any program. Fusing saves the bytes of what no longer goes through memory,
# so the time to expect is eager's, less the saved bytes divided by the bandwidth. The compiler knows the
# bytes of its kernels fused and unfused. Five programs:

# %%
wide, weight = torch.rand(rows, 2048, device=device), torch.rand(2048, 2048, device=device)
small = torch.rand(16, device=device)
cases = {
    "ten operations, large": (ten, (x,)),
    "one operation, large": (torch.relu, (x,)),
    "softmax of long rows": (lambda x: torch.softmax(x, -1), (wide,)),
    "product, then relu": (lambda x, w: torch.relu(x @ w), (wide[:512], weight)),
    "ten operations, 16 elements": (ten, (small,)),
}
gains = {}
print(f"{'':29}{'eager':>11}{'saved':>11}{'expected':>11}{'compiled':>11}{'gain':>7}")
for name, (function, inputs) in cases.items():
    traffic = []
    for fuse in (False, True):
        compiled = nbcompile.compile(function, options={"fuse": fuse})
        compiled(*inputs)
        traffic.append(sum(k.bytes_read + k.bytes_written for k in compiled.compilation.kernels))
    took = race(function, compiled, *inputs)
    saved = traffic[0] - traffic[1]
    expected = took["eager"] - saved / bandwidth
    gains[name] = took["eager"] / took["compiled"]
    print(
        f"{name:29}{took['eager'] * 1e6:8.0f} µs{saved / 1e6:8.1f} MB{max(0, expected) * 1e6:8.0f} µs"
        f"{took['compiled'] * 1e6:8.0f} µs{gains[name]:7.2f}"
    )
assert gains["ten operations, large"] > 2 * gains["one operation, large"]
assert gains["product, then relu"] < 2, "the product dominates, and fusion does not touch it"

# %% [markdown]
# - **Ten operations, large**: what fusion is for.
# - **One operation**: nothing to save. There is no neighbour whose result could stay in a register.
# - **Softmax**: eager is not as naive as the unfused column assumes. PyTorch has a hand-written softmax
#   kernel, which is a fusion that somebody did by hand. The saved bytes are counted against a softmax in
#   separate loops, so the rule promises more than there is to gain, and compiling may even lose a little
#   here. The rule is sound only where eager really makes the trips.
# - **Product, then relu**: the relu is a small part of the time. Fusing it away completely could not save
#   more than that part, however well it is done. This is Amdahl's law.
# - **Ten operations on 16 elements**: there are no bytes to save, only floors. A compiled call has a floor
#   of its own: Python enters the compiled function and checks that its assumptions (the **guards**) still
#   hold. Ten floors of eager against one of the compiler is what the row compares.
#
# What fusion does not change at all: the arithmetic of a matrix product, and the bytes of inputs and
# outputs. Everybody pays those.

# %%
floors = in_turns(
    {"eager": lambda: small + 1, "compiled": lambda: compiled(small)} | {"ten, eager": lambda: ten(small)},
    budget=0.05,
)
print(
    f"one eager operation {floors['eager'] * 1e6:.1f} µs, ten of them {floors['ten, eager'] * 1e6:.1f} µs; "
    f"one compiled call of all ten {floors['compiled'] * 1e6:.1f} µs"
)
print(f"on tiny tensors compiling pays from about {floors['compiled'] / floors['eager']:.0f} operations on")

# %% [markdown]
# ## What to take along
#
# Every eager operation has a floor of some microseconds, whatever its size. Above it, most operations
# between the matrix products wait for memory, because one number that is moved costs as much time as many
# operations. A chain of pointwise operations makes one trip through memory for each of them, and fused it
# makes one in all, so bytes predict the gain. Fusion saves trips, floors and allocations. It saves neither
# the arithmetic of a product nor the bytes of inputs and outputs.
#
# Next: notebook 03, capture, in which the compiler first has to find out what your Python does.

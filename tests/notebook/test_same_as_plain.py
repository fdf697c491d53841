"""``%%compile`` never changes what a cell means: each cell below does the same with it and without."""

# ruff: noqa: E501  (a table of cells)

from __future__ import annotations

import pytest

from tests.nightly import few
from tests.notebook.conftest import Notebook, near

DATA = """
x = torch.randn(4, 4)
w = torch.randn(4, 4)
n = 3
total = 0.0
items = []
book = {}
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
opt = torch.optim.Adam(model.parameters(), lr=0.01)
class Box: pass
box = Box()
scale = 2.0
def scaled(t): return t * scale
def branchy(t):
    if t.sum() > 0: return t * 2
    return t - 1
def chatty(t):
    print('inside')
    return t * 2
def broken(t):
    t = t + 1
    raise ValueError('no')
"""

CELLS = {
    "two networks that train each other": (
        "a, b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)\n"
        "for k in range(3):\n    fake = a(x)\n    first = b(w).sum() + b(fake.detach()).sum()\n"
        "    first.backward()\n    second = b(fake).sum()\n    second.backward()\n"
        "second.item()"
    ),
    "a loss that backward leaves alone": (
        "a, b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)\n"
        "o = torch.optim.AdamW([*a.parameters(), *b.parameters()], lr=0.1, weight_decay=0.1)\n"
        "first = a(x).sum()\nsecond = b(w).sum()\nfirst.backward()\no.step()\n"
        "b.weight.grad is None, len(o.state), (a.weight.sum() + b.weight.sum()).item()"
    ),
    "two losses before both backwards": (
        "a, b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)\nfirst = a(x).sum()\nsecond = b(w).sum()\n"
        "first.backward()\nsecond.backward()\na.weight.grad.sum() + b.weight.grad.sum()"
    ),
    "a class attribute that is counted up and read through self": (
        "class Count(torch.nn.Module):\n    calls = 0\n"
        "    def forward(self, t):\n        Count.calls += 1\n        return t + self.calls\n"
        "c = Count()\ny = c(c(x)) - x\n(y.sum().item(), Count.calls)"
    ),
    "a class attribute that a subclass inherits while it is counted up": (
        "class A:\n    n = 0\n    @classmethod\n    def up(cls, t):\n        cls.n += 1\n        return t * cls.n\n"
        "class B(A): pass\ndef both(t): return B.up(A.up(t))\ny = both(both(x))\n(y.sum().item(), A.n, B.n)"
    ),
    "a full deque that grows at both ends": (
        "import collections\nlast = collections.deque([1, 2, 3], maxlen=3)\n"
        "def push(t):\n    last.appendleft(9)\n    last.append(4)\n    return t * len(last)\n"
        "y = push(x)\n(y.sum().item(), list(last))"
    ),
    "an optimizer of one's own that counts its steps": (
        "class Slower(torch.optim.Optimizer):\n"
        "    def __init__(self, ps): super().__init__(ps, {}); self.k = 0\n"
        "    @torch.no_grad()\n    def step(self):\n        self.k += 1\n"
        "        for g in self.param_groups:\n            for p in g['params']: p.sub_(p.grad / self.k)\n"
        "o = Slower(model.parameters())\n"
        "def train():\n    o.zero_grad()\n    model(x).sum().backward()\n    o.step()\n"
        "for k in range(3):\n    train()\n(o.k, sum(p.sum() for p in model.parameters()).item())"
    ),
    "a learning rate set by a function": (
        "def set_lr(value):\n    for g in opt.param_groups: g['lr'] = value\n    return x * value\n"
        "y = set_lr(0.5)\nmodel(x).sum().backward()\nopt.step()\n"
        "(y.sum().item(), opt.param_groups[0]['capturable'], sum(p.sum() for p in model.parameters()).item())"
    ),
    "a learning rate that decays in the loop": (
        "for k in range(3):\n    opt.param_groups[0]['lr'] *= 0.9\n    opt.zero_grad()\n"
        "    model(x).sum().backward()\n    opt.step()\n"
        "(opt.param_groups[0]['capturable'], sum(p.sum() for p in model.parameters()).item())"
    ),
    "what an except handler asks of its exception": (
        "import sys, traceback\ndef kind(): return sys.exc_info()[0].__name__\ndef again(): raise\n"
        "try:\n    try:\n        b = float('a')\n    except ValueError:\n        y = x + 1\n"
        "        said = traceback.format_exc().splitlines()[-1]\n        name = kind()\n        again()\n"
        "except ValueError as error:\n    z = y * 2\n    told = str(error)\n(said, name, told, z.sum().item())"
    ),
    "a class made by namedtuple": (
        "from collections import namedtuple\nPair = namedtuple('Pair', 'u v')\np = Pair(x.sum(), x + 1)\n"
        "(Pair.__module__, p.u.item())"
    ),
    "a numpy array changed in place": (
        "import numpy as np\na = np.ones(3)\na += 1\ny = x * float(a.sum())\na *= 2\n(a.tolist(), y.sum().item())"
    ),
    "a tensor's numpy array changed in place by a function": (
        "def halved(t):\n    a = t.numpy()\n    a /= 2\n    return t.sum()\n"
        "y = x * 2\nr = halved(y)\n(r.item(), y.sum().item())"
    ),
    "the size of another numpy array each time": (
        "import numpy as np\ndef times(t): return t * a.shape[0]\nys = []\n"
        "for k in (3, 4, 5):\n    a = np.ones(k)\n    y = times(x)\n    ys.append(y.sum().item())\nys"
    ),
    "pure": "y = x @ w\nz = torch.relu(y)\nz.sum()",
    "silenced": "y = x @ w\ny.sum();",
    "only an expression": "(x @ w).sum()",
    "last is None": "y = x @ w\nNone",
    "print between": "y = x @ w\nprint('a', n)\nz = y + 1\nprint(z.shape)\nz",
    "print of a tensor": "y = x * 2\nprint(y)\ny",
    "empty": "",
    "only comments": "# nothing\n\n# at all",
    "docstring": "'a string'\ny = x + 1",
    "imports": "import math\nfrom collections import OrderedDict as OD\ny = x * math.pi\nOD(a=1)",
    "star import": "from math import *\ny = x * cos(0.5)",
    "future": "from __future__ import annotations\ny = x + 1",
    "def and call": "def f(t, k=2):\n    return torch.tanh(t) * k\ny = f(x)\nz = f(y, 3)\nz",
    "class and call": "class F(torch.nn.Module):\n    def forward(self, t):\n        return t * 2\nf = F()\ny = f(x)",
    "rebinding a name": "x = x @ w\nx = x + 1\nx",
    "augmented name": "x += 1\nn += 2\nx",
    "augmented item": "x[0] += 1\nx[:, 1] *= w[0]\nx",
    "in place": "x.add_(1)\ny = x * 2\nx.mul_(2)\ny",
    "item store": "x[1] = 0\nx[:, 2] = w[:, 0]\nx",
    "attribute store": "box.y = x @ w\nbox.z = box.y + 1\nbox.z",
    "dict and list stores": "book['a'] = x + 1\nitems.append(x * 2)\nitems += [x]\nlen(items)",
    "tuple unpacking": "a, (b, *c) = x * 2, (x, x + 1, x - 1)\nc[0]",
    "swap": "x, w = w, x\ny = x - w",
    "chained assignment": "a = b = x + 1\na is b",
    "alias": "y = x\ny2 = x.view(2, 8)\ny2.add_(1)\nx",
    "walrus": "y = (t := x + 1) * 2\nt",
    "walrus in a comprehension": "ys = [(last := x * i) for i in range(3)]\nlast",
    "comprehension": "ys = [x * i for i in range(3)]\nd = {i: y.sum() for i, y in enumerate(ys)}\nd[2]",
    "generator": "g = (x * i for i in range(3))\ny = sum(g)\ny",
    "late generator": "g = (x * n for i in range(2))\nn = 5\nys = list(g)\nys",
    "late lambda": "f = lambda t: t * n\nn = 7\ny = f(x)\ny",
    "list of lambdas": "fs = [lambda t, i=i: t * i for i in range(3)]\ny = fs[2](x)",
    "nested function with nonlocal": "def outer():\n    c = 0\n    def inner(t):\n        nonlocal c\n        c += 1\n"
    "        return t * c\n    return inner\ni = outer()\ny = i(x)\nz = i(y)",
    "global statement": "global q\nq = x + 1\nq",
    "global in a function": "def bump():\n    global n\n    n = n + 1\nbump()\ny = x * n\nbump()\nz = x * n\nn",
    "a function reads a global that the cell binds": "scale = 3.0\ny = scaled(x)\nscale = x\nz = scaled(x)\nz",
    "del": "y = x + 1\nz = y * 2\ndel y\nz",
    "del and read": "y = x + 1\ndel y\ny",
    "annotation": "y: torch.Tensor = x @ w\nk: int = 3\nz = y * k",
    "if": "if n > 2:\n    y = x + 1\nelse:\n    y = x - 1\ny",
    "if on a tensor": "y = x + 1\nif y.sum() > 0:\n    z = y * 2\nelse:\n    z = y * 3\nz",
    "if binds nothing": "if n > 5:\n    never = x\ny = x * 2",
    "short loop": "h = x\nfor i in range(4):\n    h = torch.tanh(h @ w)\nh",
    "loop over layers": "h = x\nfor layer in model:\n    h = layer(h)\nh",
    "long loop": "h = x\nfor step in range(40):\n    h = torch.tanh(h * step)\nh",
    "loop that never runs": "h = x\nfor step in range(0):\n    h = h * 2\n    inner = h\nh",
    "break and continue": "h = x\nfor i in range(30):\n    if i == 2:\n        continue\n    h = h + i\n    if i > 5:\n"
    "        break\nelse:\n    h = x\nh",
    "loop with else": "for i in range(3):\n    y = x * i\nelse:\n    y = y + 100\ny",
    "while": "k = 0\nh = x\nwhile k < 20:\n    h = h * 0.9\n    k += 1\nh",
    "counting": "for i in range(25):\n    total += i * 0.5\n    y = x * total\n(total, y)",
    "growing list": "for i in range(20):\n    items.append((x * i).sum())\nlen(items)",
    "no_grad": "with torch.no_grad():\n    y = model(x)\nz = model(x)\n(y.requires_grad, z.requires_grad)",
    "grad": "y = model(x).pow(2).sum()\ny.backward()\nmodel[0].weight.grad.sum()",
    "autocast": "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = model(x)\ny.dtype",
    "train": "for step in range(12):\n    loss = model(torch.randn(8, 4)).pow(2).mean()\n    opt.zero_grad()\n"
    "    loss.backward()\n    opt.step()\n    items.append(loss.item())\nitems[-1]",
    "train in a function": "def step():\n    opt.zero_grad()\n    l = model(x).pow(2).mean()\n    l.backward()\n"
    "    opt.step()\n    return l\nfor i in range(3):\n    l = step()\nl",
    "own context manager": "import contextlib\n@contextlib.contextmanager\ndef ctx():\n    print('in')\n    yield x\n"
    "    print('out')\nwith ctx() as c:\n    y = c * 2\ny",
    "random": "a = torch.rand(4)\nb = torch.randn(3, 3)\nc = torch.nn.functional.dropout(x, 0.5)\na",
    "seeded": "torch.manual_seed(3)\na = torch.rand(4)\ntorch.manual_seed(3)\nb = torch.rand(4)\n(a == b).all()",
    "python's random": "import random\ny = x * random.random()\nz = y + random.randint(0, 9)\nz",
    "numpy's random": "import numpy as np\nnp.random.seed(1)\ny = x * float(np.random.rand())\nk = np.random.rand(2)\nk",
    "random in a helper": "import random\ndef noisy(t): return t * random.random() + torch.rand(1)\ny = noisy(x)\nz = noisy(y)",
    "numpy in a helper": "import numpy as np\nnp.random.seed(2)\ndef r(): return np.random.rand(2)\nk = r()\ny = x * 2\nk",
    "item": "y = x.sum().item()\nz = x * y\nz",
    "graph break in a helper": "y = x + 1\nz = branchy(y)\nu = z * 2\nu",
    "printing helper": "y = x + 1\nz = chatty(y)\nu = chatty(z) * 2\nu",
    "try without error": "try:\n    y = x @ w\nfinally:\n    z = x + 1\nz",
    "caught error": "try:\n    y = x + 1\n    z = y @ torch.ones(3, 3)\nexcept RuntimeError as e:\n    m = str(e)[:4]\nm",
    "caught in a loop": "for k in (4, 3, 4):\n    try:\n        y = x @ torch.ones(k, k)\n        n += 1\n"
    "    except RuntimeError:\n        items.append(k)\nitems",
    "shape error": "y = x + 1\nz = y @ torch.ones(3, 3)\nu = z + 1",
    "index error at run time": "y = x + 1\nx.add_(1)\ni = torch.tensor([99])\ne = torch.nn.functional.embedding(i, w)\nz = e + y",
    "index error in one part": "i = torch.tensor([99])\ny = torch.rand(3)\nx.add_(1)\ne = w[i]\nz = e + y",
    "name error": "y = x + 1\nz = y + undefined_name\nu = 1",
    "attribute error": "y = x + 1\nz = y.nope()\nu = 1",
    "type error": "y = x + 1\nz = y + 'a'\nu = 1",
    "zero division": "y = x + 1\nk = n / 0\nz = y",
    "error in a helper": "y = x + 1\nz = broken(y)\nu = z",
    "error on a later line of one statement": "y = (x +\n     torch.ones(4, 4) +\n     torch.ones(3, 3))",
    "raise": "y = x + 1\nraise KeyError('k')",
    "assert": "y = x + 1\nassert y.sum() > 1e9, 'small'\nz = y",
    "syntax error": "y = x + 1\nz = = 2",
    "return outside": "y = x + 1\nreturn y",
    "yield outside": "y = x + 1\nyield y",
    "indentation error": "y = x + 1\n  z = 2",
    "await": "import asyncio\nawait asyncio.sleep(0)\ny = x + 1\ny",
    "await in an expression": "import asyncio\nasync def a(): return x * 2\ny = await a()\nz = y + 1\nz",
    "async for": "async def gen():\n    for i in range(3):\n        yield i\nasync for i in gen():\n    y = x * i\ny",
    "match": "match n:\n    case 3:\n        y = x * 3\n    case _:\n        y = x\ny",
    "line magic": "y = x + 1\n%time z = y * 2\nz",
    "shell command": "y = x + 1\n!echo hello\nout = !echo there\nout[0]",
    "locals": "y = x + 1\nk = 'y' in locals() and 'y' in globals()\nk",
    "exec": "y = x + 1\nexec('z = y * 2')\nu = z + 1",
    "seeing oneself": "y = x + 1\nimport sys\nk = sys._getframe().f_code.co_name\nk",
    "underscore": "x.sum()\n_\ny = x + 1",
    "out history": "Out\ny = x + 1\ny.sum()",
    "f-string": "y = x + 1\ns = f'{n} {y.shape}'\ns",
    "conditional expression": "y = x if n > 2 else w\nz = (x if n > 9 else w) + 1\nz",
    "lists of numbers": "a = [1, 2, 3]\nb = [k * 2 for k in a]\ny = x * b[1]\na.append(4)\ny",
    "strings": "s = 'ab'.upper()\nt = s + 'c'\ny = x + len(t)\nt",
    "views across parts": "v = x[0]\nprint('v')\nv += 1\nx",
    "out=": "y = torch.empty(4, 4)\ntorch.add(x, w, out=y)\ny",
    "leaf made in the cell": "p = torch.ones(4, requires_grad=True)\nl = (p * x).sum()\nl.backward()\np.grad",
    "module made in the cell": "m = torch.nn.Linear(4, 4)\ny = m(x)\ny.sum().backward()\nm.weight.grad",
    "module in place": "with torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.5)\nmodel(x)",
    "batch norm state": "bn = torch.nn.BatchNorm1d(4)\ny = bn(x)\nz = bn(y)\nbn.running_mean",
    "two statements a line": "y = x + 1; z = y * 2\nz",
    "backslash": "y = x + \\\n    1\ny",
    "a name of a builtin": "sum = x.sum()\nlen = 3\ny = x * len\nabs = 2\nz = sum + abs\ndel sum, len, abs\nz",
    "rows of a tensor": "t = 0\nfor row in x:\n    t = t + row.sum()\nfor a, b in zip(x, w):\n    t = t + (a * b).sum()\nt",
    "operator with an effect": "class A:\n    def __add__(self, o):\n        print('add')\n        return o * 2\n"
    "a = A()\ny = a + x\nz = (a + y) + 1\nz",
    "effect, then an error": "def f(t):\n    items.append(len(items))\n    print('f')\n    if t.sum() > -1e9:\n"
    "        raise ValueError('late')\n    return t\ny = x + 1\nz = f(y)\nu = 1",
    "effect, break, then a caught error": "def f(t):\n    items.append(1)\n    print('f')\n    return t @ torch.ones(3, 3)\n"
    "try:\n    y = x + 1\n    z = f(y)\nexcept RuntimeError:\n    print('caught')\nitems",
    "hook that prints": "h = model.register_forward_hook(lambda m, i, o: print('hook'))\ny = model(x)\nh.remove()\ndel h\ny = model(x)",
    "parameters changed by hand": "with torch.no_grad():\n    model[0].weight.add_(1)\n    model[0].bias.zero_()\ny = model(x)\ny.shape",
    "counter in a module": "class C(torch.nn.Module):\n    def __init__(s):\n        super().__init__()\n        s.n = 0\n"
    "    def forward(s, t):\n        s.n += 1\n        return t * s.n\nc = C()\ny = c(x)\nz = c(y)\nc.n",
    "counter in a loop": "class C:\n    n = 0\n    def __call__(s, t):\n        s.n += 1\n        return t + s.n\nc = C()\n"
    "for i in range(12):\n    y = c(x)\nc.n",
    "collecting in a loop": "outs = []\nfor i in range(20):\n    outs.append(torch.tanh(x * i))\ny = torch.stack(outs)\ny.shape",
    "while with a walrus": "k = 0\nwhile (k := k + 1) < 20:\n    y = x * k\nk",
    "finally after an error": "try:\n    y = x + 1\n    z = y @ torch.ones(3, 3)\nfinally:\n    k = y * 2\n    print('done')",
    "nested loops": "t = x * 0\nfor i in range(20):\n    for j in range(3):\n        t = t + x * i * j\nt",
    "decorator": "def twice(f):\n    return lambda t: f(f(t))\n@twice\ndef g(t):\n    return t * 2\ny = g(x)\ny",
    "autograd function": "class Sq(torch.autograd.Function):\n    @staticmethod\n    def forward(c, t):\n        c.save_for_backward(t)\n"
    "        return t * t\n    @staticmethod\n    def backward(c, g):\n        return 2 * c.saved_tensors[0] * g\n"
    "p = torch.ones(3, requires_grad=True)\ny = Sq.apply(p).sum()\ny.backward()\np.grad",
    "a list changed while read": "for k in [1, 2]:\n    items.append(k)\n    y = x * len(items)\nb = items\nb[0] = x\nitems[0] is x",
    "deleting an item": "book['a'] = x + 1\nbook['b'] = x + 2\ndel book['a']\nlist(book)",
    "double precision": "d = x.double()\ny = d @ d.T\nz = y.float()\nz.dtype",
    "no tensors at all": "a = [3, 1, 2]\nb = sorted(a)\nc = {k: str(k) for k in b}\nd = ' '.join(c.values())\nd",
    "many numbers": "s = 0\nfor i in range(500):\n    s += i * i\ns",
    "reading before binding in a loop": "for i in range(3):\n    if i:\n        y = last + x\n    last = x * i\nlast",
    "unbound in the first step": "for i in range(3):\n    y = x + late\n    late = x",
    "type alias": "exec('type_ = list[int]')\ny = x + 1\ntype_",
    "triple quoted": "s = '''a\nb'''\ny = x + len(s)\ns",
}


# Dynamo traces the optimizer, whose formula it rounds in another order.
ROUNDED = {"train in a function"}
# The eager backend runs a graph op by op: an op that fails leaves what was done in place before it, and each op
# is a node of autograd's, where a compiled graph is one.
WHOLE = {
    "index error at run time", "index error in one part", "two networks that train each other",
    "two losses before both backwards", "a loss that backward leaves alone",
}  # fmt: skip


@few(7)
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_does_the_same(notebook: Notebook, name: str) -> None:
    backend = "aot_eager" if name in WHOLE else "eager"
    without, with_magic = notebook.both(DATA, CELLS[name], f"--backend {backend} --no-bench")
    same = near if name in ROUNDED else dict
    assert same(with_magic.facts()) == same(without.facts())

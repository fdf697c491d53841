"""What eager refuses is refused, in its words (what Dynamo refuses by itself is left out); what it takes of
several types has the type that eager gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nbcompile

x = torch.linspace(-2, 2, 9).view(3, 3)
d, h = x.double(), x.half()
i = torch.tensor([0, 1, 2])
lstm = (torch.ones(12, 3).double(), torch.ones(12, 3))

REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "mm": lambda x: x @ d,
    "mm of halves": lambda x: x.half() @ x,
    "addmm": lambda x: torch.addmm(h, x, x),
    "mv": lambda x: x @ d[0],
    "linear": lambda x: F.linear(x, d),
    "bias": lambda x: F.linear(x, x, d[0]),
    "lstm_cell": lambda x: torch.lstm_cell(x, (x, x), *lstm),
    "layer_norm": lambda x: F.layer_norm(x, (3,), d[0]),
    "layer_norm of doubles": lambda x: F.layer_norm(x.double(), (3,), x[0]),
    "group_norm": lambda x: F.group_norm(x[None], 1, d[0]),
    "batch_norm": lambda x: F.batch_norm(x, d[0], d[1], training=False),
    "batch_norm in training": lambda x: F.batch_norm(x, None, None, d[0], d[1], training=True),
    "instance_norm": lambda x: F.instance_norm(x[None], weight=d[0]),
    "index_add": lambda x: x.index_add(0, i, d),
    "index_copy": lambda x: x.index_copy(0, i, d),
    "index_put": lambda x: x.index_put((i,), d),
    "classes": lambda x: F.cross_entropy(x, i.int()),
    "weights of classes": lambda x: F.cross_entropy(x, i, d[0].abs()),
    "targets": lambda x: F.binary_cross_entropy(x.sigmoid(), d.sigmoid()),
    "no probability": lambda x: F.binary_cross_entropy(x, torch.ones(3, 3)),
    "NaN": lambda x: F.binary_cross_entropy(x * torch.nan, torch.ones(3, 3)),
    "cross": lambda x: torch.linalg.cross(x, d),
    "max of nothing": lambda x: x[:0].max(),
    "min of nothing": lambda x: x[:0].min(),
    "silu of integers": lambda x: F.silu(x.long()),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_what_eager_refuses_is_refused(program: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        program(x)
    with pytest.raises(type(expected.value)) as found:
        nbcompile.compile(program)(x.clone())
    first, other = (str(each.value).strip().splitlines()[0] for each in (expected, found))
    assert first[:40] in other


TAKEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "huber": lambda x: F.huber_loss(x, d),
    "layer_norm of halves": lambda x: F.layer_norm(x.bfloat16(), (3,), x[0], x[1]),
    "batch_norm of halves": lambda x: F.batch_norm(x.bfloat16(), x[0], x[1].abs(), training=False),
    "probabilities": lambda x: F.binary_cross_entropy(x.abs() / 2, torch.ones(3, 3)),
}


@pytest.mark.parametrize("program", TAKEN.values(), ids=TAKEN)
def test_what_eager_takes_has_the_type_that_it_gives(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled = nbcompile.compile(program)
    near = 2e-2 if program(x).dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(compiled(x.clone()), program(x), rtol=near, atol=near)


def test_a_loss_of_probabilities_is_checked_at_each_call_and_has_its_gradient() -> None:
    compiled = nbcompile.compile(F.binary_cross_entropy)
    found = []
    for fn in (compiled, F.binary_cross_entropy):
        p = torch.full((4,), 0.3, requires_grad=True)
        fn(p, torch.ones(4)).backward()
        found.append(p.grad)
    torch.testing.assert_close(*found)
    assert compiled.compilation.kernels and not compiled.compilation.notes
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(torch.full((4,), 1.5, requires_grad=True), torch.ones(4))

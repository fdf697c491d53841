"""Every operator of torch's database and every lowering, with its gradient, compiled by us and in eager:
values (judged by float64), dtypes, strides, shared memory, which gradients there are, what was overwritten.

``make test`` takes a spread of the operators, ``make test-nightly`` all of them. A difference that
``aot_eager`` or fake tensors have too is torch's; the others that we know of are listed here.
"""

from __future__ import annotations

import re
import warnings

import pytest
import torch

import nbcompile
from nbcompile.compiler.lower.registry import registry
from tests.compiler.lower.contest import Case, Finding, contest
from tests.compiler.lower.gradient_cases import cases_of, cases_of_lowering, database
from tests.nightly import few, one_in

# ATen keeps the gaps between an input's elements in the result; ours has none.
_GAPS = r"result 0: strides"

KNOWN = {
    "select_scatter": _GAPS,
    "diagonal_scatter": _GAPS,
    # ATen multiplies by the float32 nearest to 1/6, in float64 too
    "nn.functional.hardsigmoid": r"gradient 0: ",
}


def unknown(name: str, found: list[Finding]) -> list[str]:
    """The findings that are neither torch's nor known."""
    ours = [finding for finding in found if not (finding.torchs or finding.is_left)]
    return [
        str(finding)
        for finding in ours
        if not (name in KNOWN and all(re.search(KNOWN[name], each) for each in finding.what))
    ]


@pytest.fixture(autouse=True)
def quiet():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.function is test_operators_of_torch:  # reading torch's database takes seconds
        metafunc.parametrize("name", list(database()) if metafunc.config.getoption("--nightly") else SOON)


SOON = ["vdot"]


def test_operators_of_torch(name):
    found, _ = contest(cases_of(database()[name]))
    assert not unknown(name, found)


LOWERINGS = {str(target): entry for target, entry in registry().lowerings.items()}


@few(1)
@pytest.mark.parametrize(("name",), one_in(40, LOWERINGS))
def test_lowerings(name):
    found, _ = contest(cases_of_lowering(LOWERINGS[name]))
    assert not unknown(name, found)


@few(2)
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x[-100:2] * 1,
        lambda x: x[:, -100:] * 1,
        lambda x: x[1:100] * 1,
        lambda x: torch.select_scatter(x > 0, torch.arange(5), 0, 1),
    ],
)
def test_slices_beyond_the_ends_and_other_dtypes(program):
    assert contest([Case("x", program, (torch.randn(4, 5),), {})]) == ([], 1)


@few(4)
@pytest.mark.parametrize("truth", [torch.any, torch.all])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("keepdim", [False, True])
def test_an_empty_list_of_dimensions_reduces_no_truth(truth, dtype, keepdim):
    x = torch.tensor([[1, 0, 3], [0, 0, 2]], dtype=dtype)
    assert contest([Case("x", truth, (x,), {"dim": (), "keepdim": keepdim})]) == ([], 1)


def test_the_sign_of_a_subnormal_complex_number():
    x = torch.tensor([3e-39 + 4e-39j, 1e-40j, 1e-40, 0j, 3 + 4j]).repeat(16)  # ATen's vectors differ
    assert contest([Case("x", torch.sgn, (x,), {})]) == ([], 1)


# -- the contest itself sees what differs ----------------------------------------------------------


def _case(function, *args, **more):
    return Case("x", function, args, {}, **more)


@few(2)
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x.double() if torch.compiler.is_compiling() else x * 1, "result 0: torch.float64"),
        (lambda x: x.t() * 1 if torch.compiler.is_compiling() else (x.t() * 1).contiguous(), "strides"),
        (lambda x: x.view(-1) if torch.compiler.is_compiling() else x.flatten().clone(), "shared memory"),
        (lambda x: x.detach() * 2 if torch.compiler.is_compiling() else x * 2, "requires_grad"),
        (lambda x: x.detach() * 2 if torch.compiler.is_compiling() else x * 2, "gradient 0 is None"),
        (lambda x: x * 3 - x.detach() if torch.compiler.is_compiling() else x * 2, "gradient 0: 12 of 12"),
        (lambda x: x * 2 + 1e-3 if torch.compiler.is_compiling() else x * 2, "result 0: 12 of 12"),
        (lambda x: (x, 1) if torch.compiler.is_compiling() else (x, 2), "result 1: 1, eager 2"),
    ],
)
def test_what_differs_is_found(function, what):
    found, _ = contest([_case(function, torch.randn(3, 4)), _case(torch.sin, torch.randn(3))])
    assert len(found) == 1 and what in str(found[0])
    assert found[0].torchs  # aot_eager traces the same function


def test_random_results_and_calls_that_eager_refuses_are_left_out():
    cases = [
        _case(torch.rand_like, torch.randn(3, 4)),
        _case(torch.mm, torch.randn(3, 4), torch.randn(3, 4)),
        _case(torch.sign, torch.randn(3, 4)),
    ]
    assert contest(cases) == ([], 1)


def test_a_known_difference_excuses_nothing_else():
    strides = Finding("x", ["result 0: strides (1, 2), eager (2, 1) of (2, 2)"])
    both = Finding("x", [*strides.what, "gradient 0: 1 of 4 elements"])
    assert not unknown("select_scatter", [strides])
    assert unknown("select_scatter", [both])
    assert unknown("sin", [strides]) and not unknown("sin", [Finding("x", both.what, torchs=True)])


@few(1)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_window_of_padding_alone_sends_no_gradient_anywhere(symbolic):
    """Eager sends it to an element beyond the row, which need not be one of the tensor."""
    torch._dynamo.reset()
    run = nbcompile.compile(
        lambda x: torch.nn.functional.max_pool1d(x, 2, stride=1, padding=1, dilation=2),
        dynamic=symbolic,
        options={"cache": False},
    )
    for count in (4, 6):
        x = torch.randn(count, 1, 1, requires_grad=True)
        made = run(x)
        assert (made == -torch.inf).all()
        assert not torch.autograd.grad(made.sum(), x)[0].any()
    assert run.ran_compiled, run.eager_reason

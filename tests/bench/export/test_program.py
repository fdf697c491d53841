"""Inputs by name and dynamic dimensions, as ``torch.export`` wants them; nothing is run here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nbcompile.bench.export.program import ExportedFunction, NamedDim, parse_dim
from nbcompile.errors import OptionError


def scaled(x: torch.Tensor, w: torch.Tensor, /, *, k: int = 1) -> torch.Tensor:
    return x @ w * k


def program(dynamic: Any = None, **kwargs: Any) -> ExportedFunction:
    return ExportedFunction.of(scaled, (torch.ones(4, 3), torch.ones(3, 3)), kwargs, dynamic or {})


def test_a_function_becomes_a_module_with_its_own_names() -> None:
    made = program({"x": {0: "n"}}, k=2)
    assert list(made.arguments) == ["x", "w", "k"]
    exported = made.export()
    names = [node.name for node in exported.graph.nodes if node.op == "placeholder"]
    assert names == ["x", "w", "k"]
    x = torch.randn(7, 3)
    assert torch.equal(exported.module()(x, torch.ones(3, 3), k=2), x @ torch.ones(3, 3) * 2)


def test_a_module_and_a_method_are_exported_as_they_are() -> None:
    model = torch.nn.Linear(3, 2)
    made = ExportedFunction.of(model, (torch.ones(4, 3),), {}, {"input": {0: ("n", 2, 8)}})
    assert made.module is model
    exported = made.export()
    assert [(v.lower, v.upper) for v in exported.range_constraints.values()] == [(2, 8)]
    bound = ExportedFunction.of(model.forward, (), {"input": torch.ones(4, 3)}, {})
    assert bound.export().module()(input=torch.ones(4, 3)).shape == (4, 2)


def test_one_name_is_one_size() -> None:
    made = program({"x": {1: "m"}, "w": {0: "m"}})
    args, _, sizes = made.resized()
    assert sizes == {"m": 6}
    assert [arg.shape for arg in args] == [(4, 6), (6, 3)]
    assert torch.equal(args[0][:, 3:], made.args[0])
    made.export()


@pytest.mark.parametrize(
    ("dim", "size"),
    [
        (NamedDim("x", 0, "n", 4), 8),
        (NamedDim("x", 0, "n", 4, 2, 12), 8),
        (NamedDim("x", 0, "n", 4, 2, 7), 2),
        (NamedDim("x", 0, "n", 3, 3, 4), 4),
        (NamedDim("x", 0, "n", 4, 4, 4), 4),
    ],
)
def test_another_size_is_within_the_bounds(dim: NamedDim, size: int) -> None:
    assert dim.other_size() == size


@pytest.mark.parametrize(
    ("dynamic", "says"),
    [
        ({"y": {0: "n"}}, "there is no tensor 'y' among the inputs. There are x, w."),
        ({"x": {2: "n"}}, "x has 2 dimensions, and no dimension 2"),
        ({"x": {0: ("n", 5, 9)}}, r"x\[0\] is 4, outside of n's 5 to 9"),
        ({"x": {0: "n"}, "w": {0: "n"}}, "n is 4 in x and 3 in w"),
    ],
)
def test_dimensions_that_cannot_be_meant(dynamic: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        program(dynamic)


def test_a_size_of_one_cannot_be_dynamic() -> None:
    with pytest.raises(OptionError, match="takes sizes 0 and 1 for constants"):
        ExportedFunction.of(scaled, (torch.ones(1, 3), torch.ones(3, 3)), {}, {"x": {0: "n"}})


def test_a_function_without_a_signature_is_exported() -> None:
    made = ExportedFunction.of(torch.sin, (torch.ones(2),), {}, {})
    assert torch.equal(made.export().module()(torch.zeros(2)), torch.zeros(2))


def test_dimensions_are_read() -> None:
    assert parse_dim("x[0]=batch") == ("x", 0, "batch")
    assert parse_dim("x[-1] = t:2:64") == ("x", -1, ("t", 2, 64))
    assert parse_dim("x[1]=t::64") == ("x", 1, ("t", None, 64))


@pytest.mark.parametrize("text", ["x", "x[0]", "x=batch", "x[a]=batch", "x[0]=3", "x[0]=n:2", "x[0]=n:a:b"])
def test_what_is_no_dimension(text: str) -> None:
    with pytest.raises(OptionError):
        parse_dim(text)

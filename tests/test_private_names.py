"""docs/private-names.md: every private name of torch and Triton in use, and whether this torch has it."""

from __future__ import annotations

import ast
from types import ModuleType

import pytest

from tests.from_scripts import load


@pytest.fixture(scope="module")
def names() -> ModuleType:
    return load("private_names")


def test_the_page_is_up_to_date(names: ModuleType) -> None:
    assert names.PAGE.read_text(encoding="utf-8") == names.page(), "run scripts/private_names.py"


def test_what_is_needed_is_there(names: ModuleType) -> None:
    found = names.used()
    assert len(found) > 80 and "torch._dynamo.optimize" in found
    assert names.missing(list(found)) == []
    assert names.OPTIONAL.keys() <= found.keys(), "a name that nobody uses any more"


def test_a_name_that_is_gone_is_found(names: ModuleType) -> None:
    gone = ["torch._dynamo.no_such_name", "torch._no_such_module.name", "torch.utils._pytree.tree_map"]
    assert names.missing(gone) == gone[:2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch._dynamo as d\nd.config.disable", {"torch._dynamo", "torch._dynamo.config.disable"}),
        (
            "from torch.utils import _pytree as tree\ntree.tree_map",
            {"torch.utils._pytree.tree_map"},
        ),
        ("import torch\ntorch.nn.Linear\ntorch.__version__", set()),
        ("load('triton.runtime.jit')", {"triton.runtime.jit"}),
    ],
)
def test_how_names_are_found(names: ModuleType, text: str, found: set[str]) -> None:
    named = set(names._names(ast.parse(text)))
    assert named >= found and bool(named) == bool(found)

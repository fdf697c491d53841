"""What samples of single operators cannot show: declared library calls, symbolic sizes, mixed dtypes,
and programs of several operators."""

import re

import pytest
import torch

from nbcompile.loop_ir.nodes import LibraryCall, Loop
from nbcompile.lower.registry import overload, registry

from .harness import call_graph, lower_sample


def test_a_library_operator_has_a_reason_and_no_lowering():
    library = registry().library
    assert overload("mm") in library and overload("convolution") in library
    assert None not in library
    both = [str(target) for target in library if target in registry().lowerings]
    assert not both
    assert all(reason and reason[-1] != "." for reason in library.values())


def test_an_overload_no_torch_has_is_skipped():
    assert overload("this_is_not_an_operator") is None
    assert overload("add.ThisIsNotAnOverload") is None

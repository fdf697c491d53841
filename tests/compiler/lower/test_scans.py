"""Scans: loops on a GPU, whose reference agrees with ATen; ATen's own on the CPU; and what stays ATen's."""

from __future__ import annotations

import pytest
import torch

from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall, Loop
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.lower.registry import registry
from nbcompile.options import Options
from tests.compiler.lower.harness import call_graph, compare, fresh, lower_sample
from tests.nightly import few

aten = torch.ops.aten
GPU = Options(target="cuda:90")
ENTRIES = {str(target): entry for target, entry in registry().lowerings.items() if "cum" in str(target)}


def loops_of(target, *args, options=GPU, **kwargs):
    graph, inputs = call_graph(target, args, kwargs)
    return verify(aten_to_loops(graph, options)), inputs


@few(3)
@pytest.mark.parametrize("name", ENTRIES)
def test_loops_agree_with_eager(name):
    for sample in ENTRIES[name].samples:
        program, inputs, eager, wide = lower_sample(ENTRIES[name], sample, GPU)
        assert all(isinstance(item, Loop) for item in program.statements), sample.name
        compare(list(interpret(program, [fresh(item) for item in inputs])), eager, wide)


@pytest.mark.parametrize("name", ENTRIES)
def test_the_cpu_calls_aten_and_says_why(name):
    for sample in ENTRIES[name].samples[:3]:
        program, *_ = lower_sample(ENTRIES[name], sample, Options())
        (call,) = program.statements
        assert isinstance(call, LibraryCall) and not call.fallback and call.reason.startswith("scan: ")


def test_as_text():
    program, _ = loops_of(aten.cummax.default, torch.ones(4, 3), 0)
    (line,) = [line for line in program.as_text().split("\n") if "running" in line]
    assert (
        line.startswith("cummax_default, cummax_default_1[i, j]")
        and "= running max x0[i, j]  along i<4" in line
    )


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "reason"),
    [
        (aten.cumsum.default, (torch.ones(4, 3, dtype=torch.complex64), 0), {}, "complex64"),
        (aten.cumprod.default, (torch.ones(4, 3), 0), {"dtype": torch.complex64}, "complex64"),
        (aten.cumsum.default, (torch.ones(4, 3), 0), {"dtype": torch.bool}, "kept as bool"),
        (aten.logcumsumexp.default, (torch.ones(4, 3, dtype=torch.complex64), 0), {}, "complex64"),
    ],
)
def test_what_has_no_loops_calls_aten_with_the_reason(target, args, kwargs, reason):
    program, inputs = loops_of(target, *args, **kwargs)
    (call,) = program.statements
    assert isinstance(call, LibraryCall) and call.fallback and reason in call.reason
    if kwargs.get("dtype") != torch.bool:  # which ATen refuses on the CPU
        assert torch.equal(interpret(program, inputs)[0], target(*args, **kwargs))


def test_one_element_or_none_is_no_scan():
    for x in (torch.ones(()), torch.ones(4, 1), torch.ones(0, 3)):
        program, _ = loops_of(aten.cummax.default, x, -1)
        assert {item.kind for item in program.statements if isinstance(item, Loop)} <= {"pointwise"}

"""What is turned round before and after kernels of rows, what stays, and what the record says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import nbcompile
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.loop_ir.fused import FusedProgram, Group
from nbcompile.compiler.loop_ir.interpret import interpret
from nbcompile.compiler.loop_ir.nodes import LibraryCall
from nbcompile.compiler.loop_ir.verify import verify
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.compiler.schedule.memory_order import in_one_order
from nbcompile.compiler.stages_to_record import kernel_records, loop_graph
from nbcompile.record.provenance import Links
from nbcompile.view.text import to_text
from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import (
    H100,
    aten_of_fake,
    generated,
    run_interpreted,
    small_chip,
    titles,
)
from tests.compiler.lower.harness import compare
from tests.nightly import few

BF16 = torch.bfloat16
SQUARE, ROWS, SUMS = "pointwise, square tiles", "persistent rows", "persistent rows, partial sums over rows"


def norm_backward(grad, x, mean, rstd, weight, bias):
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, [weight.numel()], mean, rstd, weight, bias, [True, True, True]
    )


def images(n: int = 3, c: int = 40, side: int = 6, *, first: bool = True) -> tuple[torch.Tensor, ...]:
    """A norm of channels: its input channels-first, its gradient channels-last."""
    x = torch.randn(n, c, side, side).to(BF16).permute(0, 2, 3, 1)
    grad = torch.randn(n, side, side, c).to(BF16)
    statistics = torch.randn(n, side, side, 1), torch.rand(n, side, side, 1)
    return grad, x if first else x.contiguous(), *statistics, torch.randn(c), torch.randn(c)


def turned(function: Any, *inputs: torch.Tensor, **limits: int) -> tuple[FusedProgram, FusedProgram]:
    """Before and after the pass, as on a small chip."""
    with small_chip(**{"SMALL_DATA": 1, "LEAST_TURNED": 1, "LAUNCH": 0, **limits}):
        before = loops_to_groups(aten_to_loops(aten_of(function, *inputs), H100), H100)
        after = in_one_order(before, H100.chip)
        verify(after.program)
        return before, after


def agree(function: Any, *inputs: torch.Tensor, schedules: list[str], **limits: int) -> None:
    """The kernels' numbers and those of the loops themselves are eager's; so cut up."""
    graph = aten_of(function, *inputs)
    wide = [item.double() if item.is_floating_point() else item for item in inputs]
    with small_chip(**{"SMALL_DATA": 1, "LEAST_TURNED": 1, "LAUNCH": 0, **limits}):
        fused, source = generated(graph, H100)
        assert titles(source) == schedules
        got = run_interpreted(source, graph, [item.clone() for item in inputs])
    eager, exact = list(function(*inputs)), list(function(*wide))
    compare(got, eager, exact)
    compare(list(interpret(fused.program, list(inputs))), eager, exact)


def kernels(program: FusedProgram) -> list[str]:
    return [group.name for group in program.groups]


def test_an_input_in_the_other_order_is_turned_round_before():
    before, after = turned(norm_backward, *images())
    copy, norm = after.groups
    assert kernels(after) == ["copy", *kernels(before)]
    assert [group.id for group in after.groups] == ["g0.fw.k0", "g0.fw.k1"]
    (loop,) = copy.loops
    (new,) = loop.outputs
    (read,) = loop.reads()
    old = after.program.buffers()[read.buffer]
    assert new.shape == old.shape and [str(item) for item in old.strides] == ["1440", "6", "1", "36"]
    assert [str(item) for item in new.strides] == ["1440", "240", "40", "1"]
    reads = {load.buffer for member in norm.loops for load in member.reads()}
    assert new.name in reads and old.name not in reads
    agree(norm_backward, *images(), schedules=[SQUARE, SUMS])


def test_the_record_says_so():
    graph = aten_of(norm_backward, *images())
    with small_chip(LEAST_TURNED=1, LAUNCH=0):
        after, source = generated(graph, H100)
        records = kernel_records(after, source)
    copy = after.groups[0].loops[0]
    decision = next(item for item in after.decisions if item.producer == copy.id)
    size = 3 * 6 * 6 * 40 * 2
    assert not decision.accepted and decision.code == "other-order"
    assert decision.reason.startswith("x lies in another order than most of what this kernel moves: turned")
    assert decision.bytes_saved == 2 * size
    consumer = next(item for item in after.program.statements if item.id == decision.consumer)
    assert consumer in after.groups[1].loops
    assert len({item.id for item in after.decisions}) == len(after.decisions)
    assert (records[0].bytes_read, records[0].bytes_written) == (size, size)
    assert records[0].reads == ("x",) and "x_turned" in records[1].reads
    readers = [item for item in after.groups[1].loops if "x_turned" in {load.buffer for load in item.reads()}]
    assert set(copy.origins) == {origin for item in readers for origin in item.origins}
    node = next(item for item in loop_graph(after.program, graph).nodes if item.id == copy.id)
    assert node.kind == "pointwise" and node.stride == (1440, 240, 40, 1) and node.origins == copy.origins


def test_a_result_in_the_other_order_is_turned_round_after():
    def function(grad, x, mean, rstd, weight, bias):
        gradient, *rest = norm_backward(grad, x, mean, rstd, weight, bias)
        result = (gradient + x).permute(0, 3, 1, 2).contiguous()
        return result, *rest, result.sum()

    inputs = images(first=False)
    before, after = turned(function, *inputs)
    names = kernels(after)
    norm = after.groups[names.index("copy") - 1]
    copy = after.groups[names.index("copy")]
    (new,) = (load.buffer for load in copy.loops[0].reads())
    assert new in norm.stored and copy.loops[0].name not in norm.stored
    assert copy.loops[0].name in before.groups[names.index("copy") - 1].stored
    agree(function, *inputs, schedules=[SUMS, SQUARE])


def test_the_result_of_a_library_call_is_turned_round():
    def function(left, right, grad, mean, rstd, weight, bias):
        x = torch.bmm(left, right).view(3, 40, 6, 6).permute(0, 2, 3, 1)
        return norm_backward(grad, x, mean, rstd, weight, bias)

    grad, _, *rest = images()
    whole = (torch.randint(-2, 3, shape).to(BF16) for shape in ((3, 40, 8), (3, 8, 36)))  # no rounding
    inputs = (*whole, grad, *rest)
    _, after = turned(function, *inputs)
    call, copy, norm = after.items
    assert isinstance(call, LibraryCall) and isinstance(copy, Group) and isinstance(norm, Group)
    about = [item for item in after.decisions if item.producer == call.id]
    assert {item.consumer for item in about} == {copy.loops[0].id}
    agree(function, *inputs, schedules=[SQUARE, SUMS])


def columns(first, second, x, scale):
    grad = first + second
    return grad, (grad * x).sum((0, 2, 3)), (grad * scale).permute(0, 2, 3, 1).contiguous()


def scaled(side: int) -> tuple[torch.Tensor, ...]:
    last = [torch.randn(6, side, side, 64).to(BF16).permute(0, 3, 1, 2) for _ in range(2)]
    return torch.randn(6, 64, side, side).to(BF16), *last, torch.randn(64, 1, 1).to(BF16)


def test_columns_with_input_and_result_in_narrow_pieces():
    before, after = turned(columns, *scaled(5))
    assert kernels(after) == ["copy", *kernels(before), "copy_2"]
    agree(columns, *scaled(5), schedules=[SQUARE, ROWS, SQUARE])


def test_columns_stay_where_the_pieces_are_wide():
    before, after = turned(columns, *scaled(8))
    assert after is before


def joined(query, key, value):
    """Gradients of three heads' parts, one of which lies across the others."""
    parts = (query.permute(0, 2, 1, 3), key.permute(0, 3, 1, 2), value.permute(0, 2, 1, 3))
    joined = torch.cat([part.reshape(4, 20, 64) for part in parts], 2).view(80, 192)
    return joined, joined.sum(0)


def test_a_part_of_a_concatenation_is_turned_round():
    shapes = ((4, 2, 20, 32), (4, 2, 32, 20), (4, 2, 20, 32))
    inputs = [torch.randn(shape).to(BF16) for shape in shapes]
    before, after = turned(joined, *inputs)
    assert kernels(after) == ["copy", *kernels(before)]
    (read,) = after.groups[0].loops[0].reads()
    assert read.buffer == "key"
    agree(joined, *inputs, schedules=[SQUARE, ROWS])


@pytest.mark.parametrize(
    "limits", [{"LEAST_TURNED": 3 * 6 * 6 * 40 * 2 + 1}, {"LAUNCH": 1 << 30}], ids=["small", "launch"]
)
def test_what_does_not_pay_stays(limits):
    before, after = turned(norm_backward, *images(), **limits)
    assert after is before


def test_what_lies_in_one_order_stays():
    before, after = turned(norm_backward, *images(first=False))
    assert after is before


def test_rows_without_sums_over_them_stay():
    """Such kernels lose less to the other order than a copy takes."""

    def function(x, weight, bias):
        return torch.ops.aten.native_layer_norm(x, [40], weight, bias, 1e-5)

    before, after = turned(function, *(images()[n] for n in (1, 4, 5)))
    assert after is before


def test_part_of_a_tensor_is_not_copied_whole():
    def function(grad, x, mean, rstd, weight, bias):
        return norm_backward(grad, x[:1], mean, rstd, weight, bias)

    grad, x, *rest = images()
    small = (grad[:1], x, *(item[:1] for item in rest[:2]), *rest[2:])
    before, after = turned(function, *small)
    assert after is before


def test_a_tensor_with_gaps_stays():
    grad, _, *rest = images()
    gaps = torch.randn(3, 80, 6, 6).to(BF16)[:, ::2].permute(0, 2, 3, 1)
    before, after = turned(norm_backward, grad, gaps, *rest)
    assert after is before


def test_what_is_read_twice_stays():
    def function(grad, x, mean, rstd, weight, bias):
        return norm_backward(grad, x + x.transpose(1, 2), mean, rstd, weight, bias)

    before, after = turned(function, *images())
    assert after is before


@few(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_in_the_pipeline_and_symbolic_sizes_stay(dynamic):
    options = {"cache": False, "interpret": True, "verify": True, "target": "cuda:90"}
    inputs = images()
    with small_chip(SMALL_DATA=1, LEAST_TURNED=1, LAUNCH=0):
        program = nbcompile.compile(norm_backward, dynamic=dynamic, options=options)
        got = program(*inputs)
    assert program.ran_compiled, program.eager_reason
    wide = [item.double() for item in inputs]
    compare(list(got), list(norm_backward(*inputs)), list(norm_backward(*wide)))
    record = program.compilation
    turned = [item for item in record.decisions if item.code == "other-order"]
    assert len(turned) == (0 if dynamic else 1)
    if not dynamic:
        assert [item.schedule for item in record.kernels] == [SQUARE, SUMS]
        links = Links(record)
        assert set(links.lines(record.kernels[0].id)) <= set(links.lines(record.kernels[1].id))
        assert record.kernels[0].loops[0] == turned[0].producer
        assert "→ sum_gx refused, would save 17.3 kB: " in " ".join(to_text(record).split())


def test_the_cpu_keeps_its_kernels():
    with small_chip(LEAST_TURNED=1, LAUNCH=0):
        program = nbcompile.compile(norm_backward, options={"cache": False, "verify": True})
        program(*images())
    assert program.ran_compiled, program.eager_reason
    assert not [item for item in program.compilation.decisions if item.code == "other-order"]


def test_at_full_size_by_its_own_constants():
    def make():
        x = torch.empty(64, 192, 28, 28, dtype=BF16).permute(0, 2, 3, 1)
        grad = torch.empty(64, 28, 28, 192, dtype=BF16)
        statistics = [torch.empty(64, 28, 28, 1) for _ in range(2)]
        return grad, x, *statistics, torch.empty(192), torch.empty(192)

    fused, _ = generated(aten_of_fake(norm_backward, make), replace(H100, target="cuda:100"))
    assert kernels(fused) == ["copy", "native_layer_norm_backward"]
